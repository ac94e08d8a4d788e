"""Guests that are allocated on each other's units: their repairs go together, or none would find room."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from agent.audit.audit import witness
from agent.audit.decide.findings import Finding, Kind
from agent.audit.heal import Healed, HealPolicy, heal
from agent.state.audit_memory import write_memory
from beds.worlds import World, worlds

CARDS = (0, 1)  # two cards with two VFs each


@pytest.fixture(scope="module")
def make() -> Iterator[Any]:
    with worlds() as maker:
        yield maker


def crossed(make: Any) -> tuple[World, dict[str, dict[str, dict[str, int]]]]:
    """Two guests, each with all VFs of one card, and allocated on the other's card; and what they are to have."""
    world: World = make(layout="devices")
    world.take()
    for number in CARDS:
        world.spawn("float", 0, number, 2)
    first, second = sorted(world.guests)
    right = {uuid: world.rows(uuid) for uuid in (first, second)}
    held = {uuid: dict(world.memory.snapshot()[1][uuid]) for uuid in (first, second)}
    for uuid in held:
        world._send("DELETE", f"/allocations/{uuid}")
    for uuid, other in ((first, second), (second, first)):
        body = {
            "allocations": {place: {"resources": resources} for place, resources in held[other].items()},
            "project_id": f"project of {uuid}",
            "user_id": "user",
            "consumer_generation": None,
            "consumer_type": "INSTANCE",
        }
        assert world._send("PUT", f"/allocations/{uuid}", body).status_code == 204
    return world, right


def audited(world: World) -> tuple[Finding, ...]:
    """The findings of the second of two audits, long after everything."""
    for _ in range(2):
        world.clock.now += 100_000
        found = witness(world.node())
        write_memory(world.settings.folders.state, found.root_uuid, found.memory)
    return found.findings


def test_guests_on_each_others_units_are_put_right_at_once(make: Any) -> None:
    world, right = crossed(make)

    found = audited(world)
    world.audit()

    assert {(one.kind, one.safe) for one in found} == {(Kind.WRONG_PROVIDER, True)}
    assert len({one.repair.text for one in found if one.repair}) == 1
    assert all(one.consumers == right.keys() for one in found)
    assert {uuid: world.rows(uuid) for uuid in right} == right
    assert audited(world) == ()


def test_a_guest_that_waits_for_no_other_is_put_right_alone(make: Any) -> None:
    world, right = crossed(make)
    first, _ = sorted(right)
    world.end(1)

    found = audited(world)
    world.audit()

    assert {one.consumers for one in found} == {frozenset({first})}
    assert world.rows(first) == right[first]


def test_nothing_of_a_ring_moves_if_one_of_it_changed_since_the_look(make: Any) -> None:
    world, right = crossed(make)
    world.settings = replace(world.settings, audit_grace_s=600)
    result = witness(world.node())
    _, second = sorted(right)
    before = {uuid: world.rows(uuid) for uuid in right}
    body = world._send("GET", f"/allocations/{second}").json()
    assert world._send("PUT", f"/allocations/{second}", body).status_code == 204

    policy = HealPolicy(kinds=frozenset({Kind.WRONG_PROVIDER}), at_once=True)
    outcomes = heal(world.node(), result, policy)

    assert {one.healed for one in outcomes} == {Healed.FAILED}
    assert all("changed meanwhile" in one.why for one in outcomes)
    assert {uuid: world.rows(uuid) for uuid in right} == before
