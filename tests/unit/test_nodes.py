"""Passes over bare-metal nodes against a placement in memory: two resource classes that placement cannot tell apart."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import os_resource_classes
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.config import load_settings
from agent.nodes import NodesOutcome, run_nodes
from agent.nodes_look import Fate, NodesPlanner
from agent.nodes_state import NAME, KnownNode, NodesMemory, read_nodes, write_nodes
from beds.memory import MemoryPlacement
from drivers.ironic.client import IronicClient
from drivers.ironic.driver import IronicDriver
from reportclient.client import PlacementClient
from reportclient.transport import Transport
from reportclient.tree import ObservedProvider, Provider

DASH, DOT, CLASS = "gold-x", "gold.x", "CUSTOM_GOLD_X"
KNOWN = KnownNode(ObservedProvider(uuid="n", generation=1, provider=Provider(name="n")), frozenset({"T"}), None, DASH)


def uuid_of(number: int) -> str:
    return str(UUID(int=number))


@dataclass
class Nodes:
    """What Ironic's client tells: nodes that can be deployed, by number, with their resource classes."""

    classes: dict[int, str | None] = field(default_factory=dict)
    name: str = "Ironic"
    lists_all: bool = True

    def records(self) -> Iterator[Mapping[str, Any]]:
        usual = {"traits": [], "maintenance": False, "power_state": "power off", "instance_uuid": None}
        for number, text in self.classes.items():
            yield {**usual, "uuid": uuid_of(number), "resource_class": text, "provision_state": "available"}

    def is_there(self, uuid: str) -> bool:
        return UUID(uuid).int in self.classes


class World:
    """One agent between an Ironic and a placement."""

    def __init__(self, folder: Path) -> None:
        self.nodes = Nodes()
        self.folder = folder
        self.client = PlacementClient(Transport(MemoryPlacement(), where="placement"))
        self.planner = NodesPlanner(
            driver=IronicDriver(cast(IronicClient, self.nodes)),
            client=self.client,
            settings=replace(load_settings([]), state_directory=folder, node_grace_s=0),
            where="placement",
            workers=1,
        )
        self._named: dict[tuple[int, str], str] = {}  # (node, class in placement) -> the text that last meant it

    def sync(self) -> NodesOutcome:
        for number, text in self.nodes.classes.items():
            if text:
                self._named[number, os_resource_classes.normalize_name(text)] = text
        return run_nodes(self.planner)

    def offered(self) -> dict[str, set[str]]:
        """Class in placement -> the resource classes under which it is on offer."""
        found: dict[str, set[str]] = {}
        for (number, name), text in self._named.items():
            root = self.client.observe(uuid_of(number)).root
            stock = root.provider.inventories.get(name) if root else None
            if stock and stock.reserved < stock.total:
                found.setdefault(name, set()).add(text)
        return found


@contextmanager
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory() as folder:
        yield World(Path(folder))


def test_what_is_reported_stays_when_the_majority_flips() -> None:
    with world() as one:
        one.nodes.classes = {1: DASH}
        one.sync()
        one.nodes.classes |= {2: DOT, 3: DOT}

        assert one.sync().count(Fate.MISFIT) == 2
        assert one.offered() == {CLASS: {DASH}}


def test_a_node_that_is_renamed_into_a_collision_is_not_on_offer() -> None:
    with world() as one:
        one.nodes.classes = {1: DASH, 2: DASH, 3: DASH}
        one.sync()
        one.nodes.classes |= {2: DOT, 3: DOT}
        one.sync()
        assert one.offered() == {CLASS: {DASH}}

        one.nodes.classes[1] = DOT
        one.sync()

        assert one.offered() == {CLASS: {DOT}}
        assert one.sync().unchanged == 3


def test_what_stands_is_told_apart_without_a_memory_too() -> None:
    with world() as one:
        one.nodes.classes = {1: DASH, 2: DASH, 3: DASH}
        one.sync()
        (one.folder / NAME).unlink()
        one.nodes.classes |= {3: DOT, 4: DOT, 5: DOT}

        one.sync()

        assert one.offered() == {CLASS: {DASH}}


def test_a_file_of_before_knows_no_spelling(tmp_path: Path) -> None:
    memory = NodesMemory(where="w", ironic="i", nodes={"n": KNOWN})
    write_nodes(tmp_path, memory)
    assert read_nodes(tmp_path, "w", "i") == memory


CHANGES = st.lists(
    st.dictionaries(st.integers(1, 5), st.sampled_from((DASH, DOT, "gold_x", "silver", None, "gone")), max_size=3),
    min_size=1,
    max_size=6,
)


@settings(max_examples=60)
@given(CHANGES)
def test_no_two_resource_classes_are_on_offer_under_one_class(history: list[dict[int, str | None]]) -> None:
    with world() as one:
        for change in history:
            one.nodes.classes |= change
            one.nodes.classes = {number: text for number, text in one.nodes.classes.items() if text != "gone"}
            one.sync()

            assert all(len(texts) == 1 for texts in one.offered().values()), one.offered()
