"""Random lives of servers on two hosts of a real nova cloud: after each step the audits of both find nothing."""

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from beds.cloud.cloud import Cloud
from beds.cloud.lab import Lab, second_host, serving
from beds.huge_pages import huge_pages

pytestmark = pytest.mark.live

SEED = int(os.environ.get("SOAK_SEED", "20261121"))
STEPS = int(os.environ.get("STEPS", "20"))
SERVERS = 10
BOOT = 0.3  # how likely the next step is a boot, while there are fewer servers
HUGE_PAGES = 512  # of this machine, for the guests that are backed by them
# Of a synthetic host, this machine has cell 0 alone, and two CPUs of it: one of them is for pinned servers.
CPUS: dict[str, object] = {
    "cpu_shared_set": "0,2-31",
    "cpu_dedicated_set": "1",
    "packing_host_numa_cells_allocation_strategy": True,
}
RESUMES = {"resume_guests_state_on_host_boot": True}
FLAVORS: dict[str, dict[str, str]] = {
    "small": {},
    "network": {"resources:CUSTOM_PCI_8086_10ED": "1"},
    "huge": {"hw:mem_page_size": "2048"},
    "pinned": {"hw:cpu_policy": "dedicated"},
}
LARGER = {"small": "larger", "larger": "small", "network": "larger-network", "larger-network": "network"}
ACTIVE, SHUTOFF, SHELVED, RESIZED = "ACTIVE", "SHUTOFF", "SHELVED_OFFLOADED", "VERIFY_RESIZE"


@dataclass
class Server:
    """One server as the user left it."""

    uuid: str
    flavor: str
    state: str = ACTIVE
    before: str = ""  # its flavor before a resize that waits for its confirmation


@dataclass
class Life:
    """Two hosts of a cloud, their servers, and what may happen to these."""

    labs: dict[str, Lab]  # by the name of the host
    chance: random.Random
    servers: list[Server] = field(default_factory=list)
    taken: Counter[str] = field(default_factory=Counter)
    made: int = 0

    @property
    def cloud(self) -> Cloud:
        return next(iter(self.labs.values())).cloud

    def step(self) -> str:
        """Something that can happen now, to its end; what it was."""
        if not self.servers or (len(self.servers) < SERVERS and self.chance.random() < BOOT):
            kind, server = "boot", self._boot()
        else:
            server = self.chance.choice(self.servers)
            kind = self.chance.choice(self._possible(server))
            happen: Callable[[Server], None] = getattr(self, f"_{kind.replace('-', '_')}")
            happen(server)
        self.taken[kind] += 1
        return f"{kind} of {server.uuid}, {server.flavor}, now {server.state}"

    def _possible(self, server: Server) -> list[str]:
        always = ["delete"]
        if server.state == SHUTOFF:
            return [*always, "start", "rebuild"]
        if server.state == SHELVED:
            return [*always, "unshelve"]
        if server.state == RESIZED:
            return [*always, "confirm", "revert", "revert", "confirm"]
        resize = ["resize"] if server.flavor in LARGER else []
        return [*always, *resize, *resize, "stop", "shelve", "reboot", "rebuild", "migrate", "live-migrate", "evacuate"]

    def _boot(self) -> Server:
        flavors = [name for name in FLAVORS if name != "pinned" or not self._has_pinned()]
        flavor = self.chance.choice(flavors)
        self.made += 1
        self.servers.append(Server(self.cloud.boot(f"server-{self.made}", flavor), flavor))
        return self.servers[-1]

    def _has_pinned(self) -> bool:
        """One is enough: each host has one CPU for it, and it may move to the other."""
        return any(one.flavor == "pinned" for one in self.servers)

    def _act(self, server: Server, action: str, options: dict[str, object] | None, state: str) -> None:
        self.cloud.act(server.uuid, action, options, state)
        server.state = state

    def _delete(self, server: Server) -> None:
        self.cloud.delete(server.uuid)
        self.servers.remove(server)

    def _stop(self, server: Server) -> None:
        self._act(server, "os-stop", None, SHUTOFF)

    def _start(self, server: Server) -> None:
        self._act(server, "os-start", None, ACTIVE)

    def _shelve(self, server: Server) -> None:
        self._act(server, "shelve", None, SHELVED)

    def _unshelve(self, server: Server) -> None:
        self._act(server, "unshelve", None, ACTIVE)

    def _reboot(self, server: Server) -> None:
        self._act(server, "reboot", {"type": "HARD"}, ACTIVE)

    def _rebuild(self, server: Server) -> None:
        self._act(server, "rebuild", {"imageRef": self.cloud.image}, server.state)

    def _resize(self, server: Server) -> None:
        wanted = LARGER[server.flavor]
        self._act(server, "resize", {"flavorRef": self.cloud.flavors[wanted]}, RESIZED)
        server.before, server.flavor = server.flavor, wanted

    def _migrate(self, server: Server) -> None:
        self._act(server, "migrate", None, RESIZED)
        server.before = server.flavor

    def _confirm(self, server: Server) -> None:
        self._act(server, "confirmResize", None, ACTIVE)

    def _revert(self, server: Server) -> None:
        self._act(server, "revertResize", None, ACTIVE)
        server.flavor = server.before

    def _live_migrate(self, server: Server) -> None:
        before = self.cloud.host_of(server.uuid)
        self._act(server, "os-migrateLive", {"host": None, "block_migration": "auto"}, ACTIVE)
        assert self.cloud.host_of(server.uuid) != before

    def _evacuate(self, server: Server) -> None:
        """Its host fails with all its guests, the server goes to the other host, and the host comes back."""
        name = self.cloud.host_of(server.uuid)
        lab = self.labs[name]
        lab.compute.end()
        self.cloud.set_service(name, forced_down=True)
        self._act(server, "evacuate", {}, SHUTOFF)
        # It may be in that state from before, as its guest ended; nova names the other host last.
        self.cloud.wait(lambda: self.cloud.host_of(server.uuid) != name, f"the evacuation of {server.uuid}")
        self.cloud.settle(server.uuid, SHUTOFF)
        start(lab)  # it finds that the server is elsewhere; before that, nova does not take the host back
        self.cloud.set_service(name, forced_down=False)


def start(lab: Lab) -> None:
    """Start nova-compute anew, until it has told nova that it is up; the servers that should run run then."""
    began = lab.restart_nova(more=RESUMES, compute=CPUS)
    lab.cloud.wait(lambda: lab.is_up_since(began), f"nova-compute of {lab.host.machine.name}", lab.compute.log)


@pytest.fixture(scope="module")
def labs(bed_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Lab]]:
    """Two hosts of one cloud, each with the agent in the role beside."""
    with ExitStack() as stack:
        stack.enter_context(huge_pages(HUGE_PAGES))
        first = stack.enter_context(serving(tmp_path_factory.mktemp("cloud"), bed_cache))
        hosts = [first, stack.enter_context(second_host(first))]
        for name, specs in FLAVORS.items():
            if name not in first.cloud.flavors:
                first.cloud.add_flavor(name, specs)
        first.cloud.add_flavor("larger", vcpus=2, ram=96)
        first.cloud.add_flavor("larger-network", FLAVORS["network"], vcpus=2, ram=96)
        found = {lab.host.machine.name: replace(lab, cpus=CPUS) for lab in hosts}
        for lab in found.values():
            start(lab)
            done = lab.agent("sync", role="beside")
            assert done.code == 0, done.out
        yield found


def test_no_audit_finds_anything_after_any_step_of_ten_servers_lives(labs: dict[str, Lab]) -> None:
    print(f"\nseed {SEED}, {STEPS} steps")
    life = Life(labs, random.Random(SEED))
    try:
        for number in range(1, STEPS + 1):
            what = life.step()
            print(f"{number:4} {what}", flush=True)
            found = {name: lab.findings() for name, lab in labs.items()}
            assert not any(found.values()), found
    finally:
        for one in life.servers:
            life.cloud.nova.delete(f"/servers/{one.uuid}", raise_exc=False)
    print(", ".join(f"{count} {kind}" for kind, count in sorted(life.taken.items())))
