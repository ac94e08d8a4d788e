"""The first pass over a fleet: fewer requests, and the same trees and memories as those of passes host by host."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.audit.run import witness
from agent.sync.batches import FEW
from agent.sync.decide.view import Wishes
from agent.sync.in_bulk import report_new
from agent.sync.outcome import Status
from beds.fleet_world import FleetWorld, Hook, fleet, refuse
from beds.histories import Crash
from beds.memory import MemoryAnswer
from drivers.policy import Layout

HOSTS = FEW + 2
STRANGER = "5f1f6a0c-4d3c-4b7e-8b9a-2f6b7a1c0d42"
CONSUMER = "6f1f6a0c-4d3c-4b7e-8b9a-2f6b7a1c0d42"


def undisturbed(_method: str, _url: str, _body: Any) -> MemoryAnswer | None:
    return None


def same(one: FleetWorld, other: FleetWorld, hosts: range | list[int]) -> None:
    """Both placements have the same of these hosts, and both agents remember the same of them."""
    for host in hosts:
        assert one.tree(host) == other.tree(host)
        assert one.memory(host) == other.memory(host)


def count_providers(world: FleetWorld) -> int:
    return sum(len(world.tree(host)) for host in range(world.hosts))


CULPRITS: dict[str, Callable[[FleetWorld, int], Hook]] = {}


def culprit(make: Callable[[FleetWorld, int], Hook]) -> Callable[[FleetWorld, int], Hook]:
    CULPRITS[make.__name__] = make
    return make


def once(matches: Callable[[str, str, Any], bool], act: Callable[[], MemoryAnswer | None]) -> Hook:
    """Act at the first request that matches, and at no other."""
    done: list[bool] = []

    def hook(method: str, url: str, body: Any) -> MemoryAnswer | None:
        if done or not matches(method, url, body):
            return None
        done.append(True)
        return act()

    return hook


def creates(uuid: str) -> Callable[[str, str, Any], bool]:
    return lambda method, url, body: (method, url) == ("POST", "/resource_providers") and body["uuid"] == uuid


def stocks(uuid: str) -> Callable[[str, str, Any], bool]:
    return lambda method, url, body: (
        (method, url) == ("PUT", f"/resource_providers/{uuid}/inventories")
        or (url == "/reshaper" and uuid in body["inventories"])
    )


@culprit
def a_name_that_is_taken(world: FleetWorld, host: int) -> Hook:
    """Another host takes the name right before the root is made."""

    def take() -> None:
        body = {"name": world.names[host], "uuid": STRANGER}
        assert world.watched.write("POST", "/resource_providers", body).status_code == 200

    return once(creates(world.uuid(host)), take)


@culprit
def a_provider_that_is_changed(world: FleetWorld, host: int) -> Hook:
    """Another writer puts the root into an aggregate right before its stock is written."""

    def change() -> None:
        uuid = world.uuid(host)
        path = f"/resource_providers/{uuid}/aggregates"
        body = {"resource_provider_generation": 1, "aggregates": [STRANGER]}
        assert world.watched.write("PUT", path, body).status_code == 200

    return once(stocks(world.uuid(host)), change)


@culprit
def stock_that_is_refused(world: FleetWorld, host: int) -> Hook:
    matches = stocks(world.uuid(host))
    return lambda method, url, body: refuse(400) if matches(method, url, body) else None


def losing(world: FleetWorld, matches: Callable[[str, str, Any], bool]) -> Hook:
    """The first request that matches takes effect, and its answer is lost."""
    done: list[bool] = []

    def hook(method: str, url: str, body: Any) -> MemoryAnswer | None:
        if done or not matches(method, url, body):
            return None
        done.append(True)
        world.watched.write(method, url, body)
        return refuse(500)

    return hook


@culprit
def an_answer_to_a_new_root_that_is_lost(world: FleetWorld, host: int) -> Hook:
    return losing(world, creates(world.uuid(host)))


@culprit
def an_answer_about_stock_that_is_lost(world: FleetWorld, host: int) -> Hook:
    return losing(world, stocks(world.uuid(host)))


def disturbed(world: FleetWorld, culprits: dict[int, str]) -> Hook:
    """What others do comes first, and an answer is lost last: at one request there may be several culprits."""
    order = [*CULPRITS]
    hooks = [
        CULPRITS[kind](world, host) for host, kind in sorted(culprits.items(), key=lambda one: order.index(one[1]))
    ]

    def hook(method: str, url: str, body: Any) -> MemoryAnswer | None:
        return next((answer for one in hooks if (answer := one(method, url, body))), None)

    return hook


LAYOUTS: tuple[tuple[str, Layout], ...] = (
    ("small", "flat"),
    ("medium", "devices"),
    ("mixed", "devices"),
    ("mixed", "cells"),
    ("network", "numa"),
)


@pytest.mark.parametrize(("shape", "layout"), LAYOUTS)
@pytest.mark.parametrize("workers", [1, 4])
def test_a_fleet_ends_as_host_by_host_and_its_next_pass_is_quiet(shape: str, layout: Layout, workers: int) -> None:
    how: dict[str, Any] = {"shape": shape, "layout": layout, "workers": workers}
    with fleet(HOSTS, **how) as many, fleet(HOSTS, **how) as single:
        made = many.sync()
        providers, requests = count_providers(many), many.watched.requests
        names = many.watched.seen["PUT traits"] + many.watched.seen["PUT resource_classes"]

        assert single.statuses(bulk=False) == {"changed": HOSTS}
        assert all(one.status is Status.CHANGED and one.made for one in made.values())
        assert many.watched.seen["POST reshaper"] == 1
        assert requests <= 2 * providers + 1 + 7 + names
        many.watched.seen.clear()
        assert many.statuses() == {"unchanged": HOSTS}
        assert many.watched.requests == HOSTS
        single.sync(bulk=False)
        same(many, single, range(HOSTS))


@settings(max_examples=12, deadline=None)
@given(
    layout=st.sampled_from(LAYOUTS),
    workers=st.sampled_from([1, 4]),
    culprits=st.dictionaries(st.integers(0, HOSTS - 1), st.sampled_from([*CULPRITS]), max_size=3),
)
def test_hosts_that_are_disturbed_harm_no_other(
    layout: tuple[str, Layout], workers: int, culprits: dict[int, str]
) -> None:
    how: dict[str, Any] = {"shape": layout[0], "layout": layout[1], "workers": workers}
    taken = [host for host, kind in culprits.items() if kind == "a_name_that_is_taken"]
    culprits = {host: kind for host, kind in culprits.items() if host not in taken[1:]}  # by one stranger at most
    sound = [host for host in range(HOSTS) if host not in culprits]
    with fleet(HOSTS, **how) as many, fleet(HOSTS, **how) as single:
        many.watched.hook, single.watched.hook = disturbed(many, culprits), disturbed(single, culprits)
        together, apart = many.sync(), single.sync(bulk=False)

        for host in sound:
            assert together[many.names[host]].status is Status.CHANGED
            assert many.tree(host) == single.tree(host)
        for host, kind in culprits.items():
            name = many.names[host]
            if kind in ("a_name_that_is_taken", "stock_that_is_refused"):
                assert together[name].notes == apart[name].notes
                assert together[name].status is Status.FAILED
        many.watched.hook = single.watched.hook = undisturbed
        for _ in range(2):
            many.sync()
            single.sync(bulk=False)
        for host in range(HOSTS):
            assert many.tree(host) == single.tree(host)
        same(many, single, sound)
        if not any(kind == "a_name_that_is_taken" for kind in culprits.values()):
            many.watched.seen.clear()
            assert many.statuses() == {"unchanged": HOSTS}
            assert many.watched.requests == HOSTS


@settings(max_examples=8, deadline=None)
@given(left=st.integers(0, 4 * HOSTS + 8), after=st.booleans())
def test_a_pass_that_is_cut_off_is_completed_by_the_next(left: int, *, after: bool) -> None:
    how: dict[str, Any] = {"shape": "small", "layout": "cells"}
    with fleet(HOSTS, **how) as cut, fleet(HOSTS, **how) as whole:
        assert whole.statuses() == {"changed": HOSTS}
        with pytest.raises(Crash):
            cut.sync_until(left, after=after)

        assert "failed" not in cut.statuses()
        for world in (cut, whole):
            assert world.statuses() == {"unchanged": HOSTS}
        same(cut, whole, range(HOSTS))


def test_few_hosts_are_reported_one_by_one() -> None:
    with fleet(FEW) as world:
        assert world.statuses() == {"changed": FEW}
        assert world.watched.seen["POST reshaper"] == 0
        assert world.watched.requests == 5 * FEW + 1  # one trait is new to this placement


def test_hosts_that_placement_has_are_left_alone() -> None:
    with fleet(HOSTS) as world:
        world.sync()
        for path in world.folder.glob("*.json"):
            path.unlink()
        world.watched.seen.clear()

        assert world.statuses() == {"unchanged": HOSTS}
        assert world.watched.seen == {"GET resource_providers": 1 + 4 * HOSTS}


@pytest.mark.parametrize(
    "wishes", [Wishes(force=True), Wishes(take_over=True), Wishes(rename_from="old"), Wishes(agreed="0123456789ab")]
)
def test_what_a_person_wishes_is_done_host_by_host(wishes: Wishes) -> None:
    with fleet(HOSTS) as world:
        assert report_new(world.nodes(), wishes) == {}
        assert world.watched.requests == 0


def test_two_hosts_of_one_identity_are_left_to_their_own_passes() -> None:
    with fleet(HOSTS) as world:
        world.twins = (3, 4)
        done = world.sync()

        assert [done[world.names[host]].status for host in (2, 3, 4, 5)] == [
            Status.CHANGED, Status.CHANGED, Status.FAILED, Status.CHANGED
        ]  # fmt: skip


def test_a_placement_that_goes_away_leaves_the_rest_to_the_next_pass() -> None:
    with fleet(30, layout="cells") as world:
        world.watched.hook = lambda *_: refuse(503, "") if world.watched.requests > 40 else None
        assert world.statuses() == {"failed": 30}

        world.watched.hook = undisturbed
        assert world.statuses() == {"changed": 30}
        assert world.statuses() == {"unchanged": 30}


def test_without_the_role_for_a_reshape_stock_is_written_provider_by_provider() -> None:
    with fleet(HOSTS, shape="mixed") as world:
        world.watched.hook = lambda _method, url, _body: refuse(403) if url == "/reshaper" else None
        made = world.sync()

        assert all(one.status is Status.CHANGED and one.made for one in made.values())
        world.watched.seen.clear()
        assert world.statuses() == {"unchanged": HOSTS}
        assert world.watched.requests == HOSTS


def test_a_batch_whose_answer_is_lost_is_not_written_again() -> None:
    with fleet(HOSTS, shape="medium") as world:
        world.watched.hook = an_answer_about_stock_that_is_lost(world, 3)
        made = world.sync()

        assert all(one.status is Status.CHANGED and one.made for one in made.values())
        assert world.watched.seen["POST reshaper"] == 1


def test_an_audit_after_it_reads_nothing() -> None:
    with fleet(HOSTS, shape="medium", layout="numa") as world:
        made = world.sync()
        world.watched.seen.clear()
        for node in world.nodes():
            outcome = made[node.name]
            assert outcome.survey
            assert outcome.made
            result = witness(node, seen=(outcome.survey, outcome.made), made=True)

            assert (result.findings, result.memory.allocations) == ((), ())
            assert result.memory.generations.keys() == outcome.made.by_uuid.keys()
        assert world.watched.requests == 0


def test_a_claim_that_came_meanwhile_is_read() -> None:
    """A provider that was raised further than by our writes is not believed to have no allocations."""
    with fleet(HOSTS, shape="medium") as world:

        def claim() -> None:
            body = {
                "allocations": {world.uuid(5): {"resources": {"VCPU": 1}}},
                "project_id": "p",
                "user_id": "u",
                "consumer_generation": None,
            }
            assert world.watched.write("PUT", f"/allocations/{CONSUMER}", body).status_code == 204

        def is_late(method: str, url: str, _body: Any) -> bool:
            return (method, url) == ("GET", "/resource_providers") and world.watched.seen["POST reshaper"] > 0

        world.watched.hook = once(is_late, claim)
        made = world.sync()

        assert [made[name].made is None for name in world.names] == [host == 5 for host in range(HOSTS)]
