"""Many new bare-metal nodes in one pass: the plan of each has all that is written, and none harms another."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from agent.bare_metal.compare import FEW
from agent.bare_metal.node_pass import NodesOutcome
from agent.sync.outcome import Outcome, Status
from beds.memory import MemoryAnswer
from beds.nodes_world import CLASS, DASH, World, uuid_of, world
from beds.watched import Watched, refuse
from drivers.ironic.shape import MARKS
from reportclient.client import PlacementClient
from reportclient.payload import requests_of
from reportclient.plan import EnsureClasses, EnsureTraits
from reportclient.transport import Transport

NODES = 40
WORKERS = 4


@contextmanager
def many(count: int = NODES) -> Iterator[tuple[World, Watched]]:
    with world() as one:
        watched = Watched(one.placement)
        one.client = PlacementClient(Transport(watched, where="placement"), WORKERS)
        one.bare_metal = replace(one.bare_metal, client=one.client)
        one.nodes.classes = dict.fromkeys(range(1, count + 1), DASH)
        yield one, watched


def planned(outcome: NodesOutcome) -> Counter[str]:
    """Return each write of all plans, as ``METHOD PATH``."""
    steps = [step for one in outcome.outcomes for step in one.plan.operations]
    return Counter(f"{method} {path}" for step in steps for method, path in requests_of(step))


def names_of(outcome: Outcome) -> set[str]:
    """Return the classes and traits that a plan makes."""
    steps = outcome.plan.operations
    return {name for step in steps if isinstance(step, EnsureClasses | EnsureTraits) for name in step.names}


def watch_writes(watched: Watched) -> Counter[str]:
    """Count, from now on, the writes that placement carries out, as ``METHOD PATH``."""
    sent: Counter[str] = Counter()

    def note(method: str, url: str, body: Any) -> MemoryAnswer | None:
        if method == "GET":
            return None
        answer = watched.write(method, url, body)
        sent[f"{method} {url}"] += answer.status_code < 300
        return answer

    watched.hook = note
    return sent


def test_a_node_takes_three_requests_and_the_next_pass_is_quiet() -> None:
    count = FEW + 1  # fewer are looked up one by one
    with many(count) as (one, watched):
        assert one.sync().count(Status.CREATED) == count
        names, few = 1 + len(MARKS), 5
        assert watched.requests <= 3 * count + names + few, watched.seen
        watched.seen.clear()

        assert one.sync().unchanged == count
        assert watched.requests == 1


def test_the_plans_of_all_nodes_are_all_that_is_written() -> None:
    with many() as (one, watched):
        one.nodes.classes |= {7: "silver", 8: "silver", 9: None}
        one.nodes.given = {number: [f"CUSTOM_RACK_{number % 3}", f"CUSTOM_OWN_{number}"] for number in range(1, 20)}
        sent = watch_writes(watched)
        foreseen = planned(one.plan())
        assert not sent

        outcome = one.sync()

        assert sent == planned(outcome) == foreseen
        assert max(sent[write] for write in sent if not write.startswith("POST")) == 1, "each name is made once"


def test_the_plan_of_a_node_has_the_names_that_only_it_needs() -> None:
    with many() as (one, _):
        one.sync()
        one.nodes.classes[3], one.nodes.given[4] = "silver", ["CUSTOM_RED", "HW_CPU_X86_VMX"]

        third, fourth = one.plan().outcomes

        assert names_of(third) == {"CUSTOM_SILVER"}
        assert names_of(fourth) > {"CUSTOM_RED"}


def test_a_class_is_made_although_a_trait_has_its_name() -> None:
    with many() as (one, _):
        one.nodes.given[1] = ["CUSTOM_SILVER"]
        one.sync()
        one.nodes.classes[2] = "silver"

        assert [(each.node, each.status) for each in one.sync().outcomes] == [(uuid_of(2), Status.CHANGED)]
        assert one.stock(2) == {"CUSTOM_SILVER": 0}


def test_names_that_a_refused_node_should_make_are_made_by_another() -> None:
    with many() as (one, watched):
        watched.hook = lambda method, _url, body: (
            refuse(400) if method == "POST" and body and body.get("uuid") == uuid_of(1) else None
        )

        assert one.sync().count(Status.CREATED) == NODES - 1
        assert all(one.stock(number) == {CLASS: 0} for number in range(2, NODES + 1))


@pytest.mark.parametrize("answer", [refuse(400), refuse(500)])
@pytest.mark.parametrize("culprit", [1, 17, NODES])
def test_a_node_that_placement_refuses_harms_no_other(culprit: int, answer: MemoryAnswer) -> None:
    with many() as (one, watched):
        path = f"/resource_providers/{uuid_of(culprit)}/inventories"
        refused = {("PUT", path): answer, ("GET", f"/resource_classes/{CLASS}"): MemoryAnswer(200, {}, {})}
        watched.hook = lambda method, url, _body: refused.get((method, url))
        outcome = one.sync()

        assert outcome.count(Status.CREATED) == NODES - 1
        assert [(bad.node, bad.status) for bad in outcome.outcomes if bad.status is not Status.CREATED] == [
            (uuid_of(culprit), Status.FAILED)
        ]
        assert one.stock(culprit) == {}

        watched.hook = lambda *_: None
        assert one.sync().unchanged == NODES - 1
        assert one.stock(culprit) == {CLASS: 0}


@pytest.mark.parametrize("culprit", [1, 17])
def test_a_node_that_another_writer_changed_meanwhile_is_planned_again(culprit: int) -> None:
    with many() as (one, watched):
        path = f"/resource_providers/{uuid_of(culprit)}/inventories"

        def interfere(method: str, url: str, _body: Any) -> MemoryAnswer | None:
            if (method, url) == ("PUT", path):
                watched.hook = lambda *_: None
                watched.write("PUT", "/traits/CUSTOM_BY_HAND")
                stands = {"resource_provider_generation": 1, "traits": ["CUSTOM_BY_HAND", *MARKS]}
                assert watched.write("PUT", path.replace("inventories", "traits"), stands).status_code == 200
            return None

        watched.hook = interfere
        outcome = one.sync()

        assert (outcome.count(Status.CREATED), outcome.count(Status.CHANGED)) == (NODES - 1, 1)
        assert one.stock(culprit) == {CLASS: 0}
        assert one.traits(culprit) == {"CUSTOM_BY_HAND"}
        assert one.sync().unchanged == NODES


@pytest.mark.parametrize("writes", range(0, 3 * NODES, 7))
def test_a_placement_that_goes_away_leaves_no_node_half_made_on_offer(writes: int) -> None:
    with many() as (one, watched):
        one.nodes.traits, left = ["CUSTOM_RED"], [writes]

        def go_away(method: str, *_: Any) -> MemoryAnswer | None:
            left[0] -= method != "GET"
            return refuse(503) if left[0] < 0 else None

        watched.hook = go_away
        outcome = one.sync()
        assert outcome.count(Status.UNFINISHED) + outcome.count(Status.FAILED) > 0
        watched.hook = lambda *_: None
        on_offer = [number for number in one.nodes.classes if one.stock(number)]
        assert all(one.traits(number) == {"CUSTOM_RED"} for number in on_offer)
        assert outcome.count(Status.CREATED) <= len(on_offer) <= writes // 3

        assert one.sync().count(Status.FAILED) == 0
        assert all(one.stock(number) == {CLASS: 0} for number in one.nodes.classes)
