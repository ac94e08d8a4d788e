"""A cloud with one host, and the agent on that host: what the tests beside a real nova-compute share."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from beds import keystone
from beds.agents import Result
from beds.cloud import cloud as clouds
from beds.cloud.cloud import Cloud, Compute
from beds.keystone import ADMIN, AGENT, Login
from beds.synthetic import bed
from beds.synthetic.bed import Host
from beds.synthetic.hosts import FOUR_CELLS
from beds.upgrades import write_config

NAME = FOUR_CELLS.name
MARK = "CUSTOM_OWNER_COMPUTE_NODE_AGENT"
CARD = "0000:81:00.0"
PERIOD_S = 20  # between two writes of nova-compute, as configured here
NETWORKS = {"address": CARD, "product_id": "10ed", "physical_network": "physnet0"}
GPUS: dict[str, object] = {"enabled_mdev_types": "nvidia-222"}
PACE: dict[str, object] = {"update_resources_interval": PERIOD_S}
TOTALS = ("VCPU", "MEMORY_MB")  # what a second writer would offer twice


@dataclass
class Lab:
    """A cloud with one host, and the agent on that host with a memory in ``folder``."""

    cloud: Cloud
    host: Host
    compute: Compute
    folder: Path
    logins: Mapping[str, dict[str, object]]
    pci: dict[str, object] = field(
        default_factory=lambda: {"device_spec": json.dumps(NETWORKS), "report_in_placement": True}
    )

    def config(self, role: str | None = None, layout: str = "devices", **agent: object) -> Path:
        """The agent's configuration; ``role`` None: it is not set."""
        groups: dict[str, dict[str, object]] = {
            "DEFAULT": {"state_path": self.compute.folder},
            "libvirt": {"connection_uri": self.host.libvirtd.uri, "virt_type": "qemu"},
            "compute": {"layout": layout},
            "pci": self.pci,
            "devices": GPUS,
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

    def findings(self) -> list[tuple[str, str]]:
        """Kind and consumer, or provider, of all that an audit in the role beside finds."""
        found = self.agent("audit", role="beside")
        return [(one["kind"], one["consumer"] or one["provider"]) for one in found.json["findings"]]

    def serve(self, passes: int = 3, *, role: str | None = None, layout: str = "devices") -> dict[str, Any]:
        """The service for some passes; its status after them."""
        status = self.folder / "state/status.json"
        status.unlink(missing_ok=True)
        config = self.config(role, layout, interval=1, start_spread=0)
        with (self.folder / "service.log").open("a") as log:
            process = self.host.start("run", "--config-file", config, log=log)
            try:
                self.cloud.wait(lambda: _tried(status) >= passes, "passes of the service", self.folder / "service.log")
            finally:
                process.terminate()
                process.wait()
        found: dict[str, Any] = json.loads(status.read_text(encoding="utf-8"))
        return found

    def restart_nova(self) -> None:
        """Start nova-compute, anew if it runs, at the pace of these tests."""
        self.compute.start(DEFAULT=PACE, devices=GPUS)

    def wait_for_nova(self, periods: int = 2) -> None:
        """As long as nova-compute needs to write so many times."""
        time.sleep(periods * PERIOD_S + 5)

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


def _tried(status: Path) -> int:
    """How many passes the service has ended, or failed."""
    if not status.exists():
        return 0
    record = json.loads(status.read_text(encoding="utf-8"))
    return int(record["passes"])


def login(url: str, user: Login, **more: object) -> dict[str, object]:
    return {
        "auth_type": "password",
        "auth_url": url,
        "username": user.username,
        "password": user.password,
        "project_name": user.project,
        "user_domain_id": "default",
        "project_domain_id": "default",
        **more,
    }


@contextmanager
def serving(folder: Path, bed_cache: Path) -> Iterator[Lab]:
    """A whole cloud in ``folder``, for as long as the context lasts."""
    with (
        bed.serving(folder / "host", FOUR_CELLS) as host,
        clouds.serving(folder / "cloud", keystone.keystone_template(bed_cache)) as cloud,
    ):
        compute = cloud.add_compute(host, DEFAULT=PACE, devices=GPUS)
        cloud.add_flavor("small")
        with (
            host.doorway(cloud.where.keystone.removesuffix("/v3")) as identity,
            host.doorway(cloud.where.placement) as placement,
            host.doorway(str(cloud.nova.endpoint_override).removesuffix("/v2.1")) as nova,
        ):
            logins = {
                "placement": login(f"{identity}/v3", AGENT, endpoint_override=placement),
                "nova": login(f"{identity}/v3", ADMIN, endpoint_override=f"{nova}/v2.1"),
            }
            yield Lab(cloud, host, compute, folder, logins)
