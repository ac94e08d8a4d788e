"""
Laws over guests on the move: CPUs that come on offer, what our own verbs make, and repairs.

By hand: ``WORLDS=20000`` (make soak).
"""

import os
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from agent.audit.decide.findings import Kind
from agent.audit.heal import Healed, HealPolicy
from beds.moving import HOWS, LICENSE, MovingWorld, shown
from beds.worlds import HASTY, STYLES, worlds
from drivers.policy import Layout

pytestmark = pytest.mark.contract

WORLDS = int(os.environ.get("WORLDS", "50"))
LONG = settings(max_examples=WORLDS, deadline=None, suppress_health_check=list(HealthCheck))
PATIENT = HealPolicy(kinds=frozenset(Kind), untyped=True, limit=100)

indexes = st.integers(0, 3)
layouts = st.sampled_from(get_args(Layout))
comings = st.tuples(
    st.just("come"),
    st.sampled_from((*STYLES, "pinned", "split", "isolated")),
    st.integers(0, 1),
    st.none(),
    st.booleans(),
    st.sampled_from((True, True, False)),
)
moves = st.tuples(st.just("move"), indexes, st.sampled_from(HOWS))
ends = st.tuples(st.sampled_from(("confirm", "revert")), indexes)


@pytest.fixture(scope="module")
def make() -> Iterator[Any]:
    with worlds(MovingWorld) as maker:
        yield maker


def begin(make: Any, layout: Layout, guests: list[Any], **setup: Any) -> MovingWorld:
    world: MovingWorld = make(layout=layout, **setup)
    world.open()
    for one in guests:
        act(world, *one)
    return world


def act(world: MovingWorld, name: str, *how: Any) -> None:
    getattr(world, name)(*how)


@LONG
@given(
    layouts,
    st.lists(comings, min_size=1, max_size=3),
    st.lists(
        st.tuples(
            st.lists(st.one_of(moves, moves, ends, comings, st.tuples(st.just("lose"), indexes)), max_size=4),
            st.one_of(st.none(), layouts),
            st.sampled_from((True, True, False)),
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_no_cpu_comes_on_offer_as_pcpu_to_which_a_guest_here_is_pinned(
    make: Any, layout: Layout, guests: list[Any], turns: list[Any]
) -> None:
    """By the guests that the hypervisor has, not by rows; what was lost while it was on offer is no pass's doing."""
    world = begin(make, layout, guests)
    for several, other, dedicated in turns:
        for one in several:
            act(world, *one)
        offered, before = world.offers_pcpu(), world.overhang()
        world.change(dedicated=dedicated, **({"layout": other} if other else {}))
        world.take()
        event(world.outcome.status.value if world.outcome else world.why[:7])
        after = world.overhang()
        if offered:
            assert sum(after.values()) <= sum(before.values()) or other, (before, after, world.told)
        else:
            assert not after, (after, world.told)


@LONG
@given(
    layouts,
    st.lists(comings, max_size=3),
    st.lists(
        st.tuples(
            st.one_of(moves, moves, ends, comings, st.tuples(st.just("claim"))),
            st.lists(st.sampled_from((30.0, 700.0, 5000.0)), max_size=3),
        ),
        min_size=1,
        max_size=6,
    ),
)
def test_what_our_own_verbs_make_is_not_repaired_before_a_guest_on_its_way_must_be_there(
    make: Any, layout: Layout, guests: list[Any], steps: list[Any]
) -> None:
    """The steps take less than ``move_s`` altogether; a revert finds all that the move kept."""
    world = begin(make, layout, guests)
    for what, audits in steps:
        if what[0] == "revert":
            uuid = world._moving(what[1])
            kept = world.moves[uuid][1] if uuid else {}
            ending = world.revert(what[1])
            assert ending is None or (ending.told.value, world.held(uuid)) == ("done", kept), ending
        else:
            act(world, *what)
        for seconds in audits:
            before = world.all_held()
            _, outcomes = world.audit_with(PATIENT, seconds=seconds)
            healed = [one for one in outcomes if one.healed is Healed.HEALED]
            assert (healed, world.all_held()) == ([], before)


faults = st.one_of(
    st.tuples(st.just("lose"), indexes),
    st.tuples(st.just("lose_part"), indexes, st.integers(0, 5)),
    st.tuples(st.just("exchange")),
    st.tuples(
        st.just("orphan"),
        st.sampled_from(("INSTANCE", "MIGRATION", None)),
        st.booleans(),
        st.booleans(),
        st.booleans(),
    ),
    moves,
)


@LONG
@given(
    layouts,
    st.sampled_from(("file", "own")),
    st.lists(st.tuples(comings, st.one_of(st.none(), st.integers(0, 3))), min_size=1, max_size=3),
    st.lists(faults, min_size=1, max_size=3),
)
def test_a_repair_writes_what_was_shown_and_all_that_a_guest_lost_is_given_back_or_told(
    make: Any, layout: Layout, disk: str, guests: list[Any], several: list[Any]
) -> None:
    world = begin(make, layout, [], disk=disk)
    world.put_child(":agent:br0", "CUSTOM_OWNER_NEUTRON", LICENSE)
    for (name, style, cell, _, stored, alike), card in guests:
        act(world, name, style, cell, card, stored, alike)
    given_rows = world.all_held()
    for one in several:
        act(world, *one)
    world.audit_with(HealPolicy(), seconds=100_000)
    before, uuids = world.all_held(), world._uuids()
    _, outcomes = world.audit_with(HASTY, seconds=100_000)
    event(",".join(sorted({one.finding.kind.value for one in outcomes if one.healed is Healed.HEALED})) or "nothing")

    assert world.all_held() == shown(before, outcomes, uuids)
    told = {one.consumer for one in world.audit_with(HealPolicy(), seconds=100_000)[0]}
    if ("exchange",) in several or world.moves:
        return  # what was lost before is the other's, or is what an alike guest would lack that is resized here
    for uuid in world.guests.keys() - told - overriding(world):
        assert sums(world.held(uuid)) == sums(given_rows[uuid]), (world.held(uuid), given_rows[uuid])


def overriding(world: MovingWorld) -> set[str]:
    """The guests whose flavor gives the amount of a class: how much they have of it is not judged."""
    return {uuid for uuid, one in world.guests.items() if one.guest.tenant and one.guest.tenant.overridden}


def sums(held: dict[str, dict[str, int]]) -> dict[str, int]:
    """What a consumer has of each class, on whatever provider."""
    found: dict[str, int] = {}
    for resources in held.values():
        for name, amount in resources.items():
            found[name] = found.get(name, 0) + amount
    return found


def test_a_world_is_one_in_which_guests_move(make: Any) -> None:
    """Else the laws would hold of guests that stand still."""
    for how in HOWS:
        world = begin(make, "devices", [("come", "split", 0, None, True), ("come", "split", 0, None, True)])
        assert len(world.guests) == 2
        act(world, "move", 0, how)
        assert len(world.moves) == 1, how
