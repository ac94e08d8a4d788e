"""What is cut off at any of its requests, before or after placement took it, ends as if it had not been."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from agent.errors import USER_ERRORS
from agent.sync.leave import hand_over_node, retire_node
from beds.histories import Crash
from beds.worlds import CARDS, NAMES, World, worlds
from drivers.policy import OF_CELLS

pytestmark = pytest.mark.contract

Act = Callable[[World], object]


@pytest.fixture(scope="module")
def make() -> Iterator[Any]:
    with worlds() as maker:
        yield maker


def reserved(world: World) -> World:
    """Operators' reservations and ratios, guests on every kind of card, one of them on an ill one."""
    world.take()
    world.spawn("pinned", 0, 0)
    world.spawn("bound", 1, 2)
    for one in CARDS:
        suffix = "" if world.setup.layout == "flat" else one.suffixes[one.kind == "gpu"]
        assert world.set_stock(suffix, one.class_of("first", shared=world.setup.shared), reserved=1)
    if world.setup.layout in OF_CELLS:
        assert world.set_stock("NUMA0", "VCPU", allocation_ratio=16.0)
    world.change_card("up", 1, False)
    world.take()
    assert world.is_well, world.told
    return world


def made_by_nova(world: World) -> World:
    """nova's tree, whose children have uuids of nova's; taken over by this agent's first pass."""
    world.lay_down_as_nova()
    world.take()
    assert world.is_well, world.told
    world.spawn("float", 0, 2)
    return world


def rename(world: World) -> None:
    world.change(name=NAMES[1])
    world.take()


def lose_a_card(world: World) -> None:
    """A pass that keeps what guests hold of a card that is gone."""
    world.change_card("seen", 0, False)
    for _ in range(3):  # more than 30 % of a class is believed at the third look
        world.take()


def free(world: World) -> None:
    while world.guests:
        world.end(0)


def with_disks(world: World) -> World:
    """Guests with disks in a pool that this host reports on its own root."""
    world.take()
    world.spawn("pinned", 0, 0)
    world.spawn("bound", 1, 2)
    world.spawn("float", 0, None)
    assert world.is_well, world.told
    return world


def that_share(world: World) -> World:
    """The same, once the disks are on the pool's own provider."""
    share(with_disks(world))
    assert world.is_well, world.told
    return world


def share(world: World) -> None:
    world.change(disk="sharing")
    world.take()


def take_back(world: World) -> None:
    world.change(disk="own")
    world.take()


def take_another(world: World) -> None:
    """The guests end, and the host takes a disk of its own instead of the pool."""
    free(world)
    world.change(disk="file")
    world.take()


def leave(end: Callable[[Any], object]) -> Act:
    def act(world: World) -> None:
        with suppress(*USER_ERRORS):
            end(world.node())

    return act


def retire_empty(world: World) -> None:
    free(world)
    leave(retire_node)(world)


ACTS: dict[str, tuple[Callable[[World], World], dict[str, Any], Act]] = {
    "rename": (reserved, {"layout": "devices"}, rename),
    "rename, cells": (reserved, {"layout": "numa"}, rename),
    "rename, cells with memory": (reserved, {"layout": "cells"}, rename),
    "rename, nova's children": (made_by_nova, {"layout": "devices"}, rename),
    "rename, flat": (reserved, {"layout": "flat"}, rename),
    "hand-over": (reserved, {"layout": "devices"}, leave(hand_over_node)),
    "share a pool": (with_disks, {"layout": "devices", "disk": "own"}, share),
    "share a pool, cells": (with_disks, {"layout": "cells", "disk": "own"}, share),
    "take the disks back": (that_share, {"layout": "devices", "disk": "own"}, take_back),
    "take the disks back, cells": (that_share, {"layout": "cells", "disk": "own"}, take_back),
    "take another disk": (that_share, {"layout": "devices", "disk": "own"}, take_another),
    "rename, sharing a pool": (that_share, {"layout": "devices", "disk": "own"}, rename),
    "retire, the last of a pool": (that_share, {"layout": "devices", "disk": "own"}, retire_empty),
    "retire": (reserved, {"layout": "numa"}, retire_empty),
    "a pass that holds devices": (reserved, {"layout": "devices", "bandwidth": True}, lose_a_card),
    "a pass that holds devices in cells": (reserved, {"layout": "numa"}, lose_a_card),
    "a pass that holds devices in cells with memory": (reserved, {"layout": "cells"}, lose_a_card),
}


def image(world: World) -> Any:
    """All that stands: providers with their uuids, parents, stock and traits, and what each guest has."""
    return world.tree(), world.providers(), world.traits(), {uuid: world.rows(uuid) for uuid in world.guests}


def run(world: World, act: Act, left: int | None, after: bool) -> list[str]:
    """The act, ended at a request where ``left`` says so; the methods of the requests that it sent."""
    world.crashing.left, world.crashing.after = (10**9 if left is None else left), after
    world.crashing.methods.clear()
    world.cut = True
    with suppress(Crash):
        act(world)
    world.crashing.left, world.cut = None, False
    return [*world.crashing.methods]


def kills(methods: list[str]) -> list[tuple[int, bool]]:
    """Where to end: at each request, before it or, if it writes, after it. After a read all stands as before it."""
    return [(at, after) for at, method in enumerate(methods) for after in (False, True) if method != "GET" or not after]


@pytest.mark.parametrize("name", ACTS)
def test_it_ends_as_if_it_had_not_been_cut_off(make: Any, name: str) -> None:
    prepare, beginning, act = ACTS[name]
    world = prepare(make(**beginning))
    with world.aside(world.remembered):
        methods = run(world, act, None, False)
        act(world)
        expected = image(world)
    assert {*methods} > {"GET"}, "nothing was sent that could be cut off"

    for request, after in kills(methods):
        with world.aside(world.remembered):
            run(world, act, request, after)
            act(world)
            act(world)
            where = f"{name}, cut off {'after' if after else 'before'} request {request} of {methods}"
            assert image(world) == expected, where


@pytest.mark.parametrize("name", [name for name in ACTS if name.startswith("rename")])
def test_a_renaming_that_is_cut_off_can_be_taken_back(make: Any, name: str) -> None:
    prepare, beginning, act = ACTS[name]
    world = prepare(make(**beginning))
    expected = image(world)
    with world.aside(world.remembered):
        methods = run(world, act, None, False)

    for request, after in kills(methods):
        with world.aside(world.remembered):
            run(world, act, request, after)
            world.change(name=NAMES[0])
            world.take()
            world.take()
            where = f"cut off {'after' if after else 'before'} request {request} of {methods}"
            assert image(world) == expected, where
