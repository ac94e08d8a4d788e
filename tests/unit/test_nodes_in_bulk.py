"""Many new bare-metal nodes in one pass: fewer requests, and what becomes of all when one of them goes wrong."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from agent.sync.outcome import Status
from beds.memory import MemoryAnswer, MemoryPlacement
from beds.nodes_world import CLASS, DASH, World, uuid_of, world
from reportclient.client import PlacementClient
from reportclient.transport import Transport

NODES = 230  # three batches
Hook = Callable[[str, str, Any], MemoryAnswer | None]  # answers instead of placement; None: placement answers


@dataclass
class Watched:
    """A placement that counts its requests, and that a test may disturb."""

    placement: MemoryPlacement
    hook: Hook = lambda _method, _url, _body: None
    seen: Counter[str] = field(default_factory=Counter)

    def request(self, url: str, method: str, **kwargs: Any) -> MemoryAnswer:
        self.seen[f"{method} {url.partition('?')[0].split('/')[1]}"] += 1
        return self.hook(method, url, kwargs.get("json")) or self.placement.request(url, method, **kwargs)

    @property
    def requests(self) -> int:
        return sum(self.seen.values())


@contextmanager
def many(count: int = NODES) -> Iterator[tuple[World, Watched]]:
    with world() as one:
        watched = Watched(one.placement)
        one.client = PlacementClient(Transport(watched, where="placement"))
        one.bare_metal = replace(one.bare_metal, client=one.client)
        one.nodes.classes = dict.fromkeys(range(1, count + 1), DASH)
        yield one, watched


def refuse(status: int, code: str) -> MemoryAnswer:
    body = {"errors": [{"status": status, "code": code, "detail": "refused"}]}
    return MemoryAnswer(status, {"Content-Type": "application/json"}, body)


def names(body: Any, number: int) -> bool:
    return body is not None and uuid_of(number) in body.get("inventories", {})


def test_two_requests_a_node_one_a_batch_and_a_few() -> None:
    with many() as (one, watched):
        assert one.sync().count(Status.CREATED) == NODES

        few = watched.requests - 2 * NODES - 3
        assert watched.seen["POST reshaper"] == 3
        assert few <= 12, watched.seen
        assert all(one.stock(number) == {CLASS: 0} for number in one.nodes.classes)


def test_the_pass_after_it_is_quiet() -> None:
    with many() as (one, watched):
        one.sync()
        watched.seen.clear()

        assert one.sync().unchanged == NODES
        assert watched.requests == 1


def test_the_providers_are_those_of_one_by_one() -> None:
    with many(40) as (one, _), many(0) as (other, watched):
        one.sync()
        for number in range(1, 41):
            other.nodes.classes[number] = DASH
            other.sync()

        assert watched.seen["POST reshaper"] == 0
        for number in one.nodes.classes:
            found = one.client.observe(uuid_of(number)).root, other.client.observe(uuid_of(number)).root
            assert found[0] is not None
            assert found[1] is not None
            assert found[0].provider == found[1].provider


@pytest.mark.parametrize("answer", [refuse(400, "placement.undefined_code"), refuse(500, "placement.undefined_code")])
@pytest.mark.parametrize("culprit", [1, 100, 101, 230])
def test_a_node_that_placement_refuses_harms_no_other(culprit: int, answer: MemoryAnswer) -> None:
    with many() as (one, watched):

        def hook(method: str, url: str, body: Any) -> MemoryAnswer | None:
            of_it = url == f"/resource_providers/{uuid_of(culprit)}/inventories" and method == "PUT"
            return answer if of_it or (url == "/reshaper" and names(body, culprit)) else None

        watched.hook = hook
        outcome = one.sync()

        assert outcome.count(Status.CREATED) == NODES - 1
        assert [(bad.node, bad.status) for bad in outcome.outcomes if bad.status is not Status.CREATED] == [
            (uuid_of(culprit), Status.FAILED)
        ]
        assert one.stock(culprit) == {}
        assert watched.seen["POST reshaper"] <= 3 + 2 * 7

        watched.hook = lambda *_: None
        assert one.sync().unchanged == NODES - 1
        assert one.stock(culprit) == {CLASS: 0}


def test_what_another_writer_changed_meanwhile_is_read_in_the_next_pass() -> None:
    with many() as (one, watched):

        def hook(method: str, url: str, _body: Any) -> MemoryAnswer | None:
            if method == "GET" and url.startswith("/resource_providers?required") and watched.seen["POST reshaper"]:
                watched.hook = lambda *_: None
                one.offer(7, "CUSTOM_BY_HAND")
            return None

        watched.hook = hook
        assert one.sync().count(Status.CREATED) == NODES
        watched.seen.clear()

        assert one.sync().unchanged == NODES
        assert watched.requests == 1 + 3
        assert one.stock(7) == {CLASS: 0, "CUSTOM_BY_HAND": 0}


@pytest.mark.parametrize("changed", [1, 3, NODES - 1, NODES])
def test_nodes_that_others_changed_meanwhile_are_read_and_the_others_are_not(changed: int) -> None:
    with many() as (one, watched):

        def hook(method: str, url: str, _body: Any) -> MemoryAnswer | None:
            if method == "GET" and url.startswith("/resource_providers?required") and watched.seen["POST reshaper"]:
                watched.hook = lambda *_: None
                for number in range(1, changed + 1):
                    one.offer(number, "CUSTOM_BY_HAND")
            return None

        watched.hook = hook
        assert one.sync().count(Status.CREATED) == NODES
        watched.seen.clear()

        assert one.sync().unchanged == NODES
        assert watched.seen["GET resource_providers"] == 1 + 3 * changed


def test_without_the_role_for_a_reshape_stock_is_written_node_by_node() -> None:
    with many() as (one, watched):
        watched.hook = lambda _method, url, _body: (
            refuse(403, "placement.undefined_code") if url == "/reshaper" else None
        )

        assert one.sync().count(Status.CREATED) == NODES
        assert one.sync().unchanged == NODES


def test_a_placement_that_goes_away_leaves_the_rest_to_the_next_pass() -> None:
    with many() as (one, watched):
        watched.hook = lambda *_: refuse(503, "") if watched.seen["POST reshaper"] > 1 else None
        outcome = one.sync()

        assert outcome.count(Status.CREATED) == 100
        assert outcome.count(Status.UNFINISHED) == NODES - 100

        watched.hook = lambda *_: None
        assert one.sync().count(Status.FAILED) == 0
        assert all(one.stock(number) == {CLASS: 0} for number in one.nodes.classes)


def test_stock_that_was_written_before_the_answer_was_lost_is_found() -> None:
    with many(60) as (one, watched):

        def hook(method: str, url: str, body: Any) -> MemoryAnswer | None:
            if url == "/reshaper" and watched.seen["POST reshaper"] == 1:
                watched.placement.request(url, method, microversion="1.37", headers={}, json=body)
                return refuse(500, "placement.undefined_code")
            return None

        watched.hook = hook
        outcome = one.sync()

        assert outcome.count(Status.FAILED) == 0
        assert all(one.stock(number) == {CLASS: 0} for number in one.nodes.classes)
        assert one.sync().unchanged == 60
