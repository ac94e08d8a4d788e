"""Guests migrate live between two real libvirtds, and what they hold in placement follows them."""

import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from beds.agents import Result, run_agent
from beds.by_hand import ByHand
from beds.migration import DESTINATION, SOURCE, Host, migrate, migrating, two_hosts
from beds.placement import PlacementServer
from beds.trees import read_consumer

pytestmark = pytest.mark.live

Hosts = tuple[Host, Host]
UNITS = {"VCPU": 1, "MEMORY_MB": 128}
POLICY = """\
heal: [orphaned, missing, leaked-migration, doubled]
grace_s: 1
again_s: 1
move_s: 1
limit: 10
"""
ROUNDS, PAUSE_S = 8, 1.2  # a finding is repaired once it is older than grace_s, and was seen again after again_s


@dataclass(frozen=True, slots=True)
class Agent:
    """One host with its agent; ``provider`` is the uuid of its root."""

    host: Host
    config: Path
    provider: str

    def run(self, verb: str, *more: object) -> Result:
        return run_agent(verb, *more, "--config-file", self.config, "--format", "json")


@dataclass(frozen=True, slots=True)
class TwoHosts:
    """Two hosts that one placement knows, and a guest at the source that holds what it has there."""

    source: Agent
    destination: Agent
    placement: ByHand
    guest: str
    migration: str  # the uuid of the consumer that stands for the side which the guest leaves
    folder: Path

    def change(self, verb: str, *arguments: object) -> Any:
        """A verb that changes who holds what, told to the source's agent; what the consumer holds after it."""
        result = self.source.run(verb, *arguments)
        assert result.code == 0, result
        assert result.json["outcome"] == "done"
        return result.json["allocations"]

    def move(self) -> None:
        """Give the guest its units at the destination, and those at the source to the migration."""
        wanted = write_request(self.folder, self.destination.provider)
        self.change("move", self.guest, "--migration", self.migration, "--request", wanted)

    def held(self) -> dict[str, Any]:
        """What the guest and its migration hold, by host name."""
        names = {agent.provider: agent.host.hostname for agent in (self.source, self.destination)}
        both = {"guest": self.guest, "migration": self.migration}
        return {role: read_consumer(self.placement, one, names)["allocations"] for role, one in both.items()}

    def findings(self) -> list[tuple[str, str]]:
        """Host and kind of all that an audit of either host finds."""
        found = []
        for agent in (self.source, self.destination):
            looked = agent.run("audit")
            assert looked.code in (0, 3), looked
            assert bool(looked.json["findings"]) == (looked.code == 3)
            found += [(agent.host.hostname, one["kind"]) for one in looked.json["findings"]]
        return found

    def heal(self, *agents: Agent, rounds: int = ROUNDS) -> None:
        """Let these agents repair what they find, one after the other, until nobody finds anything more."""
        policy = self.folder / "heal.yaml"
        policy.write_text(POLICY, encoding="utf-8")
        for _ in range(rounds):
            for agent in agents:
                healed = agent.run("audit", "--heal", "--policy", policy)
                assert healed.code in (0, 3), healed
            time.sleep(PAUSE_S)
            if not self.findings():
                return

    def guests(self) -> list[dict[str, str]]:
        """What runs at the source, and what at the destination."""
        return [agent.host.guests() for agent in (self.source, self.destination)]


@pytest.fixture
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with two_hosts(tmp_path_factory.mktemp("hosts")) as both:
        yield both


@pytest.fixture
def guest(hosts: Hosts) -> str:
    """The uuid of a guest that runs at the source."""
    identity = str(uuid.uuid4())
    hosts[0].start(identity)
    return identity


@pytest.fixture
def cloud(hosts: Hosts, guest: str, placement_server: PlacementServer, tmp_path: Path) -> TwoHosts:
    placement = ByHand(placement_server.url)
    configs = [host.config(placement_server.url, agent={"audit_grace": 0}) for host in hosts]
    for config in configs:
        synced = run_agent("sync", "--config-file", config)
        assert synced.code == 0, synced
    roots = {name: row["uuid"] for name, row in placement.providers().items()}
    source, destination = map(Agent, hosts, configs, (roots[host.hostname] for host in hosts))
    made = TwoHosts(source, destination, placement, guest, str(uuid.uuid4()), tmp_path)
    here = write_request(tmp_path, source.provider)
    claimed = made.change("claim", guest, "--project", "p", "--user", "u", "--type", "INSTANCE", "--request", here)
    assert claimed == {source.provider: {"resources": UNITS}}
    return made


def write_request(folder: Path, provider: str) -> Path:
    path = folder / f"{provider}.json"
    path.write_text(json.dumps({"allocations": {provider: {"resources": UNITS}}}), encoding="utf-8")
    return path


def test_a_guest_holds_its_destination_from_the_move_on_and_its_source_until_it_is_confirmed(cloud: TwoHosts) -> None:
    source, destination = cloud.source.host, cloud.destination.host

    before = cloud.held(), cloud.findings()
    cloud.move()
    with migrating(source, destination, cloud.guest) as migration:
        between, running = (cloud.held(), cloud.findings()), cloud.guests()
        kind = cloud.placement.send("GET", f"/allocations/{cloud.migration}")["consumer_type"]
        migration.let_go()
    cloud.change("confirm", cloud.migration)
    after = cloud.held(), cloud.findings()

    assert before == ({"guest": {SOURCE: UNITS}, "migration": {}}, [])
    assert between == ({"guest": {DESTINATION: UNITS}, "migration": {SOURCE: UNITS}}, [])
    assert running == [{cloud.guest: "running"}, {cloud.guest: "paused"}]
    assert kind == "MIGRATION"
    assert after == ({"guest": {DESTINATION: UNITS}, "migration": {}}, [])
    assert cloud.guests() == [{}, {cloud.guest: "running"}]


def test_a_failed_migration_that_is_reverted_leaves_the_guest_with_what_it_had(cloud: TwoHosts) -> None:
    before = cloud.held()
    cloud.move()
    with migrating(cloud.source.host, cloud.destination.host, cloud.guest) as migration:
        migration.kill_destination()
    cloud.change("revert", cloud.guest, "--migration", cloud.migration)

    assert cloud.held() == before == {"guest": {SOURCE: UNITS}, "migration": {}}
    assert cloud.findings() == []
    assert cloud.guests() == [{cloud.guest: "running"}, {}]


@pytest.mark.parametrize("first", ["source", "destination"])
def test_a_failed_migration_that_nobody_reverts_is_healed_back_to_the_source(cloud: TwoHosts, first: str) -> None:
    agents = [cloud.source, cloud.destination]
    cloud.move()
    with migrating(cloud.source.host, cloud.destination.host, cloud.guest) as migration:
        migration.kill_destination()

    left = cloud.findings()
    cloud.heal(*(agents if first == "source" else reversed(agents)))

    assert left
    assert cloud.held() == {"guest": {SOURCE: UNITS}, "migration": {}}
    assert cloud.findings() == []
    assert cloud.guests() == [{cloud.guest: "running"}, {}]


def test_a_migration_that_nobody_confirms_is_healed_to_the_destination(cloud: TwoHosts) -> None:
    """The source's agent is down meanwhile: the destination's alone takes nothing from the guest."""
    cloud.move()
    migrate(cloud.source.host, cloud.destination.host, cloud.guest)

    cloud.heal(cloud.destination, rounds=2)
    alone = cloud.held()["guest"]
    cloud.heal(cloud.source, cloud.destination)

    assert alone == {DESTINATION: UNITS}
    assert cloud.held() == {"guest": {DESTINATION: UNITS}, "migration": {}}
    assert cloud.findings() == []
    assert cloud.guests() == [{}, {cloud.guest: "running"}]
