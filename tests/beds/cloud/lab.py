"""A cloud with one host, and the agent on that host: what the tests beside a real nova-compute share."""

import json
import re
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from beds import keystone
from beds.agents import Result
from beds.cloud import cloud as clouds
from beds.cloud.cloud import Cloud, Compute
from beds.keystone import ADMIN, AGENT, login_options
from beds.synthetic import bed
from beds.synthetic.bed import Host
from beds.synthetic.hosts import FOUR_CELLS
from beds.upgrades import write_config
from drivers.policy import OF_CELLS

NAME = FOUR_CELLS.name
OTHER = replace(FOUR_CELLS, name="other-cells")
MARK = "CUSTOM_OWNER_COMPUTE_NODE_AGENT"
CARD = "0000:81:00.0"
PERIOD_S = 20  # between two writes of nova-compute, as configured here
NETWORKS = {"address": CARD, "product_id": "10ed", "physical_network": "physnet0"}
GPUS: dict[str, object] = {"enabled_mdev_types": "nvidia-222"}
PACE: dict[str, object] = {"update_resources_interval": PERIOD_S}
DRIVER: dict[str, object] = {"compute_driver": "compute_node_agent.LibvirtDriver", "debug": True}
SHAPED = re.compile(r"shaped the tree node=\S+ reading_s=(\S+) deciding_s=(\S+)")  # our driver's, of one call
AT_ONCE = """\
heal: [wrong-provider]
at_once: true
limit: 100
"""
TOTALS = ("VCPU", "MEMORY_MB")  # what a second writer would offer twice


@dataclass
class Lab:
    """A host of a cloud, and the agent on that host with a memory in ``folder``."""

    cloud: Cloud
    host: Host
    compute: Compute
    folder: Path
    logins: Mapping[str, dict[str, object]]
    pci: dict[str, object] = field(
        default_factory=lambda: {"device_spec": json.dumps(NETWORKS), "report_in_placement": True}
    )
    gpus: Mapping[str, object] = field(default_factory=lambda: GPUS)  # options of [devices]
    cpus: Mapping[str, object] = field(default_factory=dict)  # options of [compute]

    def config(self, role: str | None = None, layout: str = "devices", **agent: object) -> Path:
        """The agent's configuration; ``role`` None: it is not set."""
        groups: dict[str, dict[str, object]] = {
            "DEFAULT": {"state_path": self.compute.folder, "instances_path": self.cloud.disks},
            "libvirt": {"connection_uri": self.host.libvirtd.uri, "virt_type": "qemu"},
            "compute": {"layout": layout, **self.cpus},
            "pci": self.pci,
            "devices": dict(self.gpus),
            "agent": {
                "state_directory": self.folder / "state",
                "audit_grace": 0,
                **({"role": role} if role else {}),
                **agent,
            },
            **self.logins,
        }
        return write_config(groups, self.folder / f"agent-{role}-{layout}.conf")

    def agent(self, verb: str, *more: object, role: str | None = None, layout: str = "devices") -> Result:
        return self.host.run(verb, "--config-file", self.config(role, layout), "--format", "json", *more)

    def findings(self, role: str | None = "beside", layout: str = "devices") -> list[tuple[str, str]]:
        """Kind and consumer, or provider, of all that an audit of everything finds."""
        found = self.agent("audit", role=role, layout=layout)
        return [(one["kind"], one["consumer"] or one["provider"]) for one in found.json["findings"]]

    @contextmanager
    def auditing(self, layout: str) -> Iterator[Path]:
        """The service beside our driver in nova-compute: it moves misplaced allocations at once; its status file."""
        policy = self.folder / "heal.yaml"
        policy.write_text(AT_ONCE, encoding="utf-8")
        with self.service(role="audit", layout=layout, heal_policy=policy) as status:
            yield status

    def serve(self, passes: int = 3, *, role: str | None = None, layout: str = "devices") -> dict[str, Any]:
        """The service for some passes; its status after them."""
        with self.service(role=role, layout=layout) as status:
            self.wait_for_passes(status, passes)
        found: dict[str, Any] = json.loads(status.read_text(encoding="utf-8"))
        return found

    @contextmanager
    def service(self, *, role: str | None = None, layout: str = "devices", **agent: object) -> Iterator[Path]:
        """The service with a pass each second, for as long as the context lasts; the file of its status."""
        status = self.folder / "state/status.json"
        status.unlink(missing_ok=True)
        config = self.config(role, layout, interval=1, start_spread=0, **agent)
        with self._service_log.open("a") as log:
            process = self.host.start("run", "--config-file", config, log=log)
            try:
                yield status
            finally:
                process.terminate()
                process.wait()

    @property
    def _service_log(self) -> Path:
        return self.folder / "service.log"

    def wait_for_passes(self, status: Path, passes: int) -> None:
        """Until the service has ended so many more passes, or failed."""
        before = _tried(status)
        self.cloud.wait(lambda: _tried(status) >= before + passes, "passes of the service", self._service_log)

    def restart_nova(self, more: Mapping[str, object] | None = None, **groups: Mapping[str, object]) -> datetime:
        """
        Start nova-compute, anew if it runs, at the pace of these tests; ``more`` is for its group DEFAULT.

        Returns when it began, for ``is_up_since``: a process that is told to stop may still say that it is up.
        """
        self.compute.stop()
        began = datetime.now(UTC)
        self.compute.start(DEFAULT={**PACE, **(more or {})}, devices=self.gpus, **groups)
        return began

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """nova-compute does not run, and is started anew at the end."""
        self.compute.stop()
        try:
            yield
        finally:
            self.restart_nova()

    def is_up_since(self, began: datetime) -> bool:
        """Whether the nova-compute that was started then has told nova that it is up."""
        return self.cloud.last_report(self.host.machine.name) > began + timedelta(seconds=1)

    def start_inside(self, layout: str) -> None:
        """
        Start nova-compute with our driver, until placement has the tree that this layout describes.

        The cards that nova's PCI tracker may report are not waited for: they are below the root, whatever the layout.
        """
        began = self.restart_nova(more=DRIVER, compute={"layout": layout, **self.cpus}, pci=self.pci)
        cards = {f"{NAME}_{one.address}" for one in FOUR_CELLS.nics}
        wanted = self.agent("discover", role="audit", layout=layout).json["providers"].keys() - cards

        def stands() -> bool:
            names = self.generations().keys() - cards == wanted
            if not (self.is_up_since(began) and names):
                return False
            return ("VCPU" in self.cloud.stocks()[NAME]) == (layout not in OF_CELLS)

        self.cloud.wait(stands, f"the layout {layout}", self.compute.log)

    def wait_for_nova(self, periods: int = 2) -> None:
        """As long as nova-compute needs to write so many times."""
        time.sleep(periods * PERIOD_S + 5)

    def wait_for_periodics(self, count: int) -> None:
        """Until nova-compute, which logs for debugging, has looked so many more times at what it reports."""
        for _ in range(count):
            self._wait_for_a_periodic()

    def _wait_for_a_periodic(self) -> None:
        before = self.periodics()
        self.cloud.wait(lambda: self.periodics() > before, "a periodic of nova-compute", self.compute.log)

    def periodics(self) -> int:
        return self.compute.log.read_text(encoding="utf-8").count("Final resource view")

    def calls_s(self) -> list[tuple[float, float]]:
        """How long each call of our driver by nova-compute read the host, and how long it decided; in their order."""
        found = SHAPED.findall(self.compute.log.read_text(encoding="utf-8"))
        return [(float(reading), float(deciding)) for reading, deciding in found]

    def generations(self) -> dict[str, int]:
        """The generation of each provider, which each write changes, by name."""
        return {one["name"]: one["generation"] for one in self.cloud.providers()}

    def of_nova(self) -> dict[str, tuple[int, dict[str, Any]]]:
        """Generation and stock of all that does not carry our mark, by name."""
        stocks = self.cloud.stocks()
        return {
            one["name"]: (one["generation"], stocks[one["name"]])
            for one in self.cloud.providers()
            if MARK not in self.cloud.traits(one["uuid"])
        }

    def own(self) -> dict[str, dict[str, int]]:
        """Totals of all that carries our mark, by name."""
        stocks = self.cloud.stocks()
        return {
            one["name"]: {name: stock["total"] for name, stock in stocks[one["name"]].items()}
            for one in self.cloud.providers()
            if MARK in self.cloud.traits(one["uuid"])
        }

    def totals(self) -> dict[str, int]:
        """What the whole host has on offer of VCPU and MEMORY_MB."""
        stocks = self.cloud.stocks().values()
        return {name: sum(stock[name]["total"] for stock in stocks if name in stock) for name in TOTALS}

    def units(self) -> dict[str, int]:
        """What the whole host has on offer of everything else, but for its disk: devices, by class."""
        found: Counter[str] = Counter()
        for stock in self.cloud.stocks().values():
            found.update(
                {name: one["total"] for name, one in stock.items() if name not in (*TOTALS, "PCPU", "DISK_GB")}
            )
        return dict(found)

    def undefine(self, guest: str) -> None:
        """Take a guest away behind nova's back, whether it runs or not."""
        self.host.libvirtd.virsh("destroy", guest, check=False)
        self.host.libvirtd.virsh("undefine", guest)


def _tried(status: Path) -> int:
    """How many passes the service has ended, or failed."""
    if not status.exists():
        return 0
    record = json.loads(status.read_text(encoding="utf-8"))
    return int(record["passes"])


@contextmanager
def serving(folder: Path, bed_cache: Path, *, with_neutron: bool = False) -> Iterator[Lab]:
    """A whole cloud in ``folder``, for as long as the context lasts; Neutron as in ``clouds.serving``."""
    with (
        bed.serving(folder / FOUR_CELLS.name, FOUR_CELLS) as host,
        clouds.serving(folder / "cloud", keystone.keystone_template(bed_cache), with_neutron=with_neutron) as cloud,
    ):
        compute = cloud.add_compute(host, DEFAULT=PACE, devices=GPUS)
        cloud.add_flavor("small")
        with _logins(cloud, host) as logins:
            yield Lab(cloud, host, compute, folder, logins)


@contextmanager
def second_host(lab: Lab) -> Iterator[Lab]:
    """Another host of the same cloud, and the agent on it; servers migrate between the two."""
    folder = lab.folder / f"agent-{OTHER.name}"
    folder.mkdir()
    identity = str(uuid.uuid5(uuid.NAMESPACE_DNS, OTHER.name))
    with (
        bed.serving(lab.folder / OTHER.name, OTHER, host_uuid=identity) as host,
        _logins(lab.cloud, host) as logins,
    ):
        compute = lab.cloud.add_compute(host, DEFAULT=PACE, devices=GPUS)
        try:
            yield replace(lab, host=host, compute=compute, folder=folder, logins=logins)
        finally:
            lab.cloud.computes.remove(compute)
            compute.end()


@contextmanager
def _logins(cloud: Cloud, host: Host) -> Iterator[dict[str, dict[str, object]]]:
    """The agent's options for placement and nova, as they can be reached from a host."""
    with (
        host.doorway(cloud.where.keystone.removesuffix("/v3")) as identity,
        host.doorway(cloud.where.placement) as placement,
        host.doorway(str(cloud.nova.endpoint_override).removesuffix("/v2.1")) as nova,
    ):
        yield {
            "placement": login_options(f"{identity}/v3", AGENT, endpoint_override=placement),
            "nova": login_options(f"{identity}/v3", ADMIN, endpoint_override=f"{nova}/v2.1"),
        }
