"""
Random histories: after them, and a few audits, placement says what is true, and no audit took from a running guest.

A cloud begins nothing else with a guest whose migration has not ended, uuids do not come again, and each guest is of a
project of its own: where a migration may be another guest's resize on the same host, the audit leaves it to a person.

By hand: ``HISTORIES=10000`` (make soak); on placement's own application ``REAL_HISTORIES=300``.
"""

import itertools
import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beds.histories import HASTE, Clock, GuestWorld, settings_for_histories
from beds.memory import MemoryPlacement

pytestmark = pytest.mark.contract

HISTORIES = int(os.environ.get("HISTORIES", "100"))
REAL_HISTORIES = int(os.environ.get("REAL_HISTORIES", "5"))

guests = st.integers(0, 3)
sizes = st.integers(1, 4)
hosts = st.integers(0, 1)
steps = st.one_of(
    st.tuples(st.just("spawn"), guests, hosts, sizes),
    st.tuples(st.just("resize"), guests, sizes),
    st.tuples(st.just("move"), guests, st.booleans()),
    st.tuples(st.just("delete"), guests),
    st.tuples(st.just("audit"), hosts, st.sampled_from((1.0, 20.0, 100.0))),
)
crashes = st.one_of(st.none(), st.tuples(st.integers(0, 7), st.booleans()))
histories = st.lists(st.tuples(steps, crashes), min_size=3, max_size=15)
totals: dict[str, int] = {}
numbers = itertools.count(1)


def play(world: GuestWorld, history: list[tuple[tuple[Any, ...], tuple[int, bool] | None]]) -> None:
    for number, (host, vcpus) in enumerate(((0, 2), (1, 1), (0, 3))):
        world.spawn(world.guest(number), host, vcpus)
    for (name, *arguments), crash in history:
        first = [world.guest(arguments[0])] if name != "audit" else [arguments[0]]
        act: Callable[..., None] = getattr(world, name)
        with world.crashing_at(crash[0] if crash else None, bool(crash and crash[1])):
            act(*first, *arguments[1:])
    world.settle()
    assert world.held() == {guest: world.expected(guest) for guest in world.running}
    for name, count in world.counts.items():
        totals[name] = totals.get(name, 0) + count


@settings(max_examples=HISTORIES, deadline=None, suppress_health_check=list(HealthCheck))
@given(histories)
def test_after_any_history_the_audits_find_the_truth(history: list[Any]) -> None:
    clock = Clock()
    with settings_for_histories(grace_s=60) as own:
        play(GuestWorld(MemoryPlacement(clock), own, clock), history)


@settings(max_examples=REAL_HISTORIES, deadline=None, suppress_health_check=list(HealthCheck))
@given(histories)
def test_so_it_is_on_placements_own_application(placement_sender: Any, history: list[Any]) -> None:
    """Its clock is the machine's, so no consumer is too young to be judged."""
    with settings_for_histories(grace_s=0) as own:
        world = GuestWorld(placement_sender, own, Clock(), HASTE, number=next(numbers))
        try:
            play(world, history)
        finally:
            world.clear()


def teardown_module() -> None:
    print(f"\n{dict(sorted(totals.items()))}")
