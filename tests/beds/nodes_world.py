"""Bare-metal nodes between an Ironic and a placement that are both in memory."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import os_resource_classes

from agent.bare_metal.context import BareMetalNodes
from agent.bare_metal.node_pass import NodesOutcome, run_nodes
from agent.settings.read import load_settings
from agent.state.clock import StoppedClock
from agent.state.node_records import MEMORY_NAME
from agent.sync.decide.view import Wishes
from beds.memory import MemoryPlacement
from configured import changed
from drivers.ironic.client import IronicClient
from drivers.ironic.shape import FIELDS, GAVE, HEALTH, MARKS
from reportclient.client import PlacementClient
from reportclient.payload import encode_inventory
from reportclient.transport import Transport

DASH, DOT, CLASS = "gold-x", "gold.x", "CUSTOM_GOLD_X"  # two resource classes that get one name in placement


def uuid_of(number: int) -> str:
    return str(UUID(int=number))


@dataclass
class Nodes(IronicClient):
    """Stand-in for Ironic's client: nodes that can be deployed, by number, with their resource classes."""

    classes: dict[int, str | None] = field(default_factory=dict)
    name: str = "Ironic, shard 'one'"
    where: str = "Ironic"
    lists_all: bool = True
    asks_health: bool = False
    traits: list[str] = field(default_factory=list)
    maintenance: bool = False
    health: str | None = None  # of all nodes
    ill: set[int] = field(default_factory=set)  # nodes in maintenance, whatever the others are
    given: dict[int, list[str]] = field(default_factory=dict)  # traits of single nodes, instead of ``traits``
    unlisted: set[int] = field(default_factory=set)  # nodes of another shard
    listings: int = 0  # of all shards
    _fields = (*FIELDS, HEALTH)

    def records(self, *, everywhere: bool = False) -> Iterator[Mapping[str, Any]]:
        self.listings += everywhere
        usual = {"power_state": "power off", "instance_uuid": None, "provision_state": "available"}
        for number, text in self.classes.items():
            if number in self.unlisted and not everywhere:
                continue
            own = {
                "traits": self.given.get(number, self.traits),
                "maintenance": self.maintenance or number in self.ill,
                HEALTH: self.health,
            }
            yield {**usual, **own, "uuid": uuid_of(number), "resource_class": text}

    def is_there(self, uuid: str) -> bool:
        return UUID(uuid).int in self.classes


class World:
    """One agent between an Ironic and a placement."""

    def __init__(self, folder: Path) -> None:
        self.nodes = Nodes()
        self.folder = folder
        self.placement = MemoryPlacement()
        self.client = PlacementClient(Transport(self.placement, where="placement"))
        self.bare_metal = BareMetalNodes(
            ironic=self.nodes,
            client=self.client,
            settings=changed(load_settings([]), folders={"state": folder}, ironic={"node_grace_s": 0}),
            where="placement",
        )
        self._named: dict[tuple[int, str], str] = {}  # (node, class in placement) -> the text that last meant it

    def sync(self, wishes: Wishes = Wishes()) -> NodesOutcome:
        for number, text in self.nodes.classes.items():
            if text:
                self._named[number, os_resource_classes.normalize_name(text)] = text
        return run_nodes(self.bare_metal, wishes)

    def report(self, classes: dict[int, str | None]) -> NodesOutcome:
        """A pass over nodes that have these resource classes from now on."""
        self.nodes.classes = classes
        return self.sync()

    def forget(self) -> None:
        """The memory on this host's disk is lost."""
        (self.folder / MEMORY_NAME).unlink()

    def plan(self) -> NodesOutcome:
        return run_nodes(self.bare_metal, dry=True)

    def restore(self, backup: MemoryPlacement, where: str = "placement") -> MemoryPlacement:
        """Replace placement by a backup of it, or by another one; returns the one before."""
        before, self.placement = self.placement, backup
        self.client = PlacementClient(Transport(backup, where=where))
        self.bare_metal = replace(self.bare_metal, client=self.client, where=where)
        return before

    def wait(self, seconds: float) -> None:
        clock = self.bare_metal.clock
        now_s = clock.now_s() + seconds
        self.bare_metal = replace(self.bare_metal, clock=StoppedClock(clock.boot, clock.offset_s, now_s))

    def traits(self, number: int) -> frozenset[str]:
        root = self.client.observe(uuid_of(number)).root
        found = root.provider.traits - MARKS if root else frozenset()
        return frozenset(name for name in found if not name.startswith(GAVE))

    def stock(self, number: int) -> dict[str, int]:
        """Return how much of each class is reserved on a node's provider; empty if there is no provider."""
        root = self.client.observe(uuid_of(number)).root
        return {name: one.reserved for name, one in root.provider.inventories.items()} if root else {}

    def claim(self, number: int, name: str) -> None:
        """Allocate this node to a consumer by a class."""
        one = {"resources": {name: 1}}
        body = {"allocations": {uuid_of(number): one}, "project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}
        self._send("PUT", f"/allocations/{uuid_of(1000 + number)}", {**body, "consumer_generation": None})

    def release(self, number: int) -> None:
        self._send("DELETE", f"/allocations/{uuid_of(1000 + number)}")

    def free(self, number: int, name: str) -> None:
        """Remove our reservation, as another client would."""
        self.offer(number, name, max_unit=1)

    def offer(self, number: int, name: str, **more: int) -> None:
        """Add a class to a node's provider, as a person would by hand."""
        root = self.client.observe(uuid_of(number)).root
        assert root is not None
        stock = {old: encode_inventory(one) for old, one in root.provider.inventories.items()}
        body = {"resource_provider_generation": root.generation, "inventories": {**stock, name: {"total": 1, **more}}}
        self._send("PUT", f"/resource_classes/{name}")
        self._send("PUT", f"/resource_providers/{uuid_of(number)}/inventories", body)

    def mark(self, number: int, trait: str) -> None:
        """Add a trait to a node's provider, as a person would by hand."""
        root = self.client.observe(uuid_of(number)).root
        assert root is not None
        self._send("PUT", f"/traits/{trait}")
        self.set_traits(number, *root.provider.traits, trait)

    def set_traits(self, number: int, *traits: str) -> None:
        """Leave these traits alone on a node's provider."""
        root = self.client.observe(uuid_of(number)).root
        assert root is not None
        body = {"resource_provider_generation": root.generation, "traits": sorted({*traits})}
        self._send("PUT", f"/resource_providers/{uuid_of(number)}/traits", body)

    def make(self, number: int, *traits: str, **stock: dict[str, int]) -> None:
        """Make a node's provider as another agent would: one unit of each class, unless given."""
        self._send("POST", "/resource_providers", {"uuid": uuid_of(number), "name": uuid_of(number)})
        for trait in traits:
            if trait.startswith("CUSTOM_"):
                self._send("PUT", f"/traits/{trait}")
        self.set_traits(number, *traits)
        for name, more in stock.items():
            self.offer(number, name, **{"max_unit": 1, **more})

    def _send(self, method: str, path: str, body: Any = None) -> None:
        answer = self.placement.request(path, method, microversion="1.39", json=body)
        assert answer.status_code < 300, answer.text

    def offered(self) -> dict[str, set[str]]:
        """Return the resource classes under which each class in placement is on offer."""
        found: dict[str, set[str]] = {}
        for (number, name), text in self._named.items():
            root = self.client.observe(uuid_of(number)).root
            stock = root.provider.inventories.get(name) if root else None
            if stock and stock.reserved < stock.total:
                found.setdefault(name, set()).add(text)
        return found


@contextmanager
def shards() -> Iterator[tuple[World, World]]:
    """Two agents for one Ironic and one placement: nodes with odd numbers are in the first shard, the others not."""
    with world() as one, world() as two:
        two.nodes.classes = one.nodes.classes
        two.restore(one.placement)
        for shard, rest in ((one, 0), (two, 1)):
            shard.nodes.lists_all = False
            shard.nodes.unlisted = {number for number in range(100) if number % 2 == rest}
        yield one, two


@contextmanager
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory() as folder:
        yield World(Path(folder))
