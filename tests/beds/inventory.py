"""Many recorded hosts with guests as the inventory of a fleet, and the collection's playbooks over them."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from beds.agents import COMMAND, Result, run_agent
from beds.by_hand import ByHand
from beds.golden import GoldenHost, golden_hosts
from beds.guests import GuestSpec, add_guests
from beds.trees import add_consumer, identity
from beds.upgrades import write_config

PLUGINS = Path(__file__).parent / "ansible"
COLLECTION = Path(__file__).parents[2] / "ansible"
CELLS = {"overlapping-cells", "gpu-memory", "no-cells", "half-without-cell", "cpus-without-cell"}  # oddly divided
KINDS = tuple(  # queens-first and queens-second are two archives of one host
    host for host in golden_hosts() if host.folder.name not in {"queens-second", *CELLS}
)
GUESTS = 3


@dataclass(frozen=True, slots=True)
class FleetHost:
    """One recorded host with guests, reported in the layout devices."""

    name: str
    kind: GoldenHost
    folder: Path
    url: str
    count: int = GUESTS

    @property
    def archive(self) -> Path:
        return self.folder / "archive"

    @property
    def layout(self) -> Path:
        return self.folder / "layout.conf"

    @property
    def config(self) -> Path:
        return self.folder / "agent.conf"

    @property
    def arguments(self) -> list[str]:
        files = (self.kind.config, self.config, self.layout)
        return ["--host", str(self.archive), *(part for file in files for part in ("--config-file", str(file)))]

    @property
    def guests(self) -> dict[str, GuestSpec]:
        """A guest bound to a cell, and others that float, by names of consumers."""
        spec = GuestSpec(vcpus=1, memory_mib=64)
        bound = GuestSpec(vcpus=1, memory_mib=64, cells=(self.cell,))
        return {f"{self.name}-{number}": spec if number else bound for number in range(self.count)}

    @property
    def cell(self) -> int:
        cells = [name for name in self.kind.read("numa")["providers"] if name.endswith("_PAGES_4")]
        return int(min(name.partition("_NUMA")[2].partition("_")[0] for name in cells))

    def run(self, verb: str, *more: object) -> Result:
        return run_agent(verb, *self.arguments, *more, "--format", "json")

    def make(self) -> None:
        """Write its archive and its configuration, report it, and claim what its guests have."""
        shutil.copytree(self.kind.archive, self.archive)
        add_guests(self.archive, {identity(name): spec for name, spec in self.guests.items()})
        name_archive(self.archive, self.name)
        own = {
            "placement": {"auth_type": "none", "endpoint": self.url},
            "agent": {"state_directory": str(self.folder / "state")},
        }
        write_config(own, self.config)
        self.layout.write_text("[compute]\nlayout = devices\n", encoding="utf-8")
        done = self.run("sync")
        assert done.code == 0, done.out + done.err
        for name, spec in self.guests.items():
            rows = {self.name: {"VCPU": spec.vcpus, "MEMORY_MB": spec.memory_mib}}
            add_consumer(ByHand(self.url), name, {"allocations": rows})


def name_archive(archive: Path, name: str) -> None:
    """Give an archive the name and the identity of a host of its own."""
    about = json.loads((archive / "host.json").read_text(encoding="utf-8"))
    about.pop("files", None)
    about["hostname"] = name
    (archive / "host.json").write_text(json.dumps(about), encoding="utf-8")
    (archive / "compute_id").write_text(identity(name) + "\n", encoding="utf-8")


def make_hosts(folder: Path, url: str, count: int, *, empty: Collection[int] = ()) -> list[FleetHost]:
    """Hosts of each kind in turn; those of the numbers in ``empty`` have no guests."""
    hosts = []
    for number in range(count):
        name = f"host-{number:02}"
        guests = 0 if number in empty else GUESTS
        host = FleetHost(name, KINDS[number % len(KINDS)], folder / name, url, guests)
        host.folder.mkdir(parents=True)
        host.make()
        hosts.append(host)
    return hosts


@dataclass
class Fleet:
    """The playbooks over these hosts, with a folder for one change."""

    hosts: list[FleetHost]
    folder: Path
    settings: dict[str, Any] = field(default_factory=dict)  # variables of all hosts
    own: dict[str, dict[str, Any]] = field(default_factory=dict)  # variables of one host

    command = COMMAND

    @property
    def change(self) -> Path:
        return self.folder / "change"

    @property
    def lost(self) -> Path:
        """A host whose name is a file here cannot be reached."""
        return self.folder / "lost"

    @property
    def units(self) -> Path:
        """The services of the hosts, a folder for each."""
        return self.folder / "units"

    def play(self, name: str, *options: str, check: bool = False, **settings: object) -> Result:
        """Run a playbook of the collection to its end; with ``check`` in Ansible's check mode."""
        self.lost.mkdir(exist_ok=True)
        inventory = self.folder / "inventory.yml"
        inventory.write_text(yaml.safe_dump(self._inventory()), encoding="utf-8")
        collections = self.folder / "collections/ansible_collections/compute_node_agent"
        if not collections.exists():
            collections.mkdir(parents=True)
            (collections / "fleet").symlink_to(COLLECTION)
        words = [
            str(COMMAND.parent / "ansible-playbook"),
            *("-i", str(inventory), f"compute_node_agent.fleet.{name}", *options),
            *("-e", json.dumps({"fleet_folder": str(self.change), **settings})),
            *(["--check"] if check else []),
        ]
        done = subprocess.run(
            words, capture_output=True, text=True, env=self._environment(), check=False, timeout=1800, cwd=self.folder
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def read(self, file: str) -> Any:
        return json.loads((self.change / file).read_text(encoding="utf-8"))

    def states(self, file: str = "convert.json") -> dict[str, str]:
        """What became of each host."""
        return {host: one["state"] for host, one in self.read(file).items()}

    def _inventory(self) -> Mapping[str, Any]:
        hosts = {
            host.name: {
                "fleet_arguments": host.arguments,
                "fleet_layout_file": str(host.layout),
                **self.own.get(host.name, {}),
            }
            for host in self.hosts
        }
        shared = {
            "ansible_connection": "losing",
            "ansible_python_interpreter": sys.executable,
            "fleet_command": [str(COMMAND)],
            "fleet_service": "",
            "fleet_layout": "numa",
            "fleet_pictures": False,
            **self.settings,
        }
        return {"all": {"hosts": hosts, "vars": shared}}

    def _environment(self) -> dict[str, str]:
        return os.environ | {
            "ANSIBLE_COLLECTIONS_PATH": str(self.folder / "collections"),
            "ANSIBLE_HOME": str(self.folder / "ansible"),
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_FORKS": "4",
            "ANSIBLE_REMOTE_TEMP": str(self.folder / "remote"),
            "ANSIBLE_CONNECTION_PLUGINS": str(PLUGINS / "connection"),
            "FLEET_LOST": str(self.lost),
            "FLEET_UNITS": str(self.units),
            "PATH": f"{PLUGINS}:{os.environ['PATH']}",
        }


def units(placement: ByHand, hosts: list[FleetHost]) -> dict[str, Any]:
    """What each guest has of each class, wherever; from placement itself."""
    found = {}
    for name in (guest for host in hosts for guest in host.guests):
        held = placement.send("GET", f"/allocations/{identity(name)}")["allocations"]
        sums: dict[str, int] = {}
        for slots in held.values():
            for resource_class, amount in slots["resources"].items():
                sums[resource_class] = sums.get(resource_class, 0) + amount
        found[name] = sums
    return found


def trees(placement: ByHand) -> Iterator[tuple[str, Any]]:
    """Each provider with its parent, its inventories and its allocations, without generations."""
    rows = placement.providers()
    names = {row["uuid"]: name for name, row in rows.items()}
    for name, row in rows.items():
        held = placement.send("GET", f"/resource_providers/{row['uuid']}/allocations")["allocations"]
        yield (
            name,
            {
                "parent": names.get(row["parent_provider_uuid"]),
                "inventories": placement.stock(row["uuid"]),
                "allocations": {consumer: one["resources"] for consumer, one in held.items()},
            },
        )
