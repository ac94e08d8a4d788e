"""Whether a tree is a candidate, and what it lacks: as placement's own application answers."""

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from agent.command.candidacy import candidacy
from beds.requests import adds_up_wrongly, without
from reportclient.candidates import Giver, Offered
from reportclient.request import Criterion, Wish, format_request, groups_of
from reportclient.tree import Inventory

pytestmark = pytest.mark.contract

EXAMPLES = int(os.environ.get("REQUESTS", "40"))
TRAITS = ("HW_CPU_X86_AVX", "HW_CPU_X86_AVX2", "STORAGE_DISK_SSD")
CLASSES = ("MEMORY_MB", "VGPU", "SRIOV_NET_VF", "PCPU")
AGGREGATES = tuple(str(uuid.UUID(int=0xA0 + number)) for number in range(3))
SHARES = "MISC_SHARES_VIA_AGGREGATE"
GROUPS = ("", "_A", "_B")

some_traits = st.frozensets(st.sampled_from(TRAITS))
some_aggregates = st.frozensets(st.sampled_from(AGGREGATES), max_size=2)


@st.composite
def stocks(draw: st.DrawFn, classes: Sequence[str]) -> dict[str, Offered]:
    found = {}
    for name in draw(st.sets(st.sampled_from(classes))):
        total = draw(st.integers(1, 4))
        inventory = Inventory(
            total=total,
            reserved=draw(st.integers(0, 1)),
            min_unit=draw(st.sampled_from((1, 1, 1, 2))),
            max_unit=draw(st.integers(1, 4)),
            step_size=draw(st.sampled_from((1, 1, 1, 2))),
            allocation_ratio=draw(st.sampled_from((1.0, 1.0, 1.5, 16.0))),
        )
        found[name] = Offered(inventory, draw(st.integers(0, min(2, inventory.capacity))))
    return found


@st.composite
def givers(draw: st.DrawFn) -> tuple[Giver, ...]:
    """A root with ample VCPU, up to five providers anywhere below it, and up to two that share."""
    ample = {"VCPU": Offered(Inventory(total=64), 0)}
    root = Giver(
        uuid=str(uuid.uuid4()),
        name="",
        parent=None,
        traits=draw(some_traits),
        aggregates=draw(some_aggregates),
        stock=ample | draw(stocks(CLASSES)),
    )
    tree = [root]
    for _ in range(draw(st.integers(0, 5))):
        tree.append(
            Giver(
                uuid=str(uuid.uuid4()),
                name="",
                parent=draw(st.sampled_from(tree)).uuid,
                traits=draw(some_traits),
                aggregates=draw(some_aggregates),
                stock=draw(stocks(CLASSES)),
            )
        )
    within = frozenset().union(*(one.aggregates for one in tree))
    for _ in range(draw(st.integers(0, 2)) if within else 0):
        tree.append(
            Giver(
                uuid=str(uuid.uuid4()),
                name="",
                parent=None,
                shares=True,
                traits=draw(some_traits) | {SHARES},
                aggregates=draw(some_aggregates) | {draw(st.sampled_from(sorted(within)))},
                stock=draw(stocks((*CLASSES[:2], "DISK_GB"))),
            )
        )
    return tuple(tree)


@st.composite
def requests(draw: st.DrawFn, tree: Sequence[Giver]) -> tuple[Wish, ...]:
    """A request that placement takes; the group without a suffix has VCPU."""
    wishes = {Wish(Criterion.RESOURCES, "", ("VCPU",), draw(st.integers(1, 2)))}
    groups = GROUPS[: draw(st.integers(1, 3))]
    related = len(groups) == 3 and draw(st.booleans())
    for group in groups:
        bare = group and related and draw(st.booleans())
        for name in draw(st.sets(st.sampled_from((*CLASSES, "DISK_GB")), min_size=bool(group), max_size=2)):
            if not bare:
                wishes.add(Wish(Criterion.RESOURCES, group, (name,), draw(st.integers(1, 3))))
        for kind, names in (
            (Criterion.REQUIRED, TRAITS),
            (Criterion.FORBIDDEN, TRAITS),
            (Criterion.MEMBER_OF, AGGREGATES),
            (Criterion.NOT_MEMBER_OF, AGGREGATES),
        ):
            several = 1 if kind is Criterion.FORBIDDEN else 2
            for _ in range(draw(st.sampled_from((0, 0, 0, 1, 2)))):
                chosen = draw(st.sets(st.sampled_from(names), min_size=1, max_size=several))
                wishes.add(Wish(kind, group, tuple(sorted(chosen))))
        if not draw(st.integers(0, 9)):
            wishes.add(Wish(Criterion.IN_TREE, group, (draw(st.sampled_from(tree)).uuid,)))
        forbidden = {one.names[0] for one in wishes if one.kind is Criterion.FORBIDDEN and one.group == group}
        assume(
            not any(
                one.kind is Criterion.REQUIRED and forbidden >= {*one.names} for one in wishes if one.group == group
            )
        )
        assume(sum(one.kind is Criterion.IN_TREE and one.group == group for one in wishes) < 2)
        assume(group in groups_of(wishes))
    if related:
        wishes.add(Wish(Criterion.SAME_SUBTREE, "", GROUPS[1:]))
    if draw(st.booleans()) and len(groups) == 3:
        wishes.add(Wish(Criterion.ISOLATE, "", ()))
    if not draw(st.integers(0, 9)):
        kind = draw(st.sampled_from((Criterion.ROOT_REQUIRED, Criterion.ROOT_FORBIDDEN)))
        wishes.add(Wish(kind, "", (draw(st.sampled_from(TRAITS)),)))
    assume(not adds_up_wrongly(wishes))
    order = [*Criterion]
    return tuple(sorted(wishes, key=lambda one: (order.index(one.kind), one)))


class World:
    """A placement on which an example's providers stand while it is looked at."""

    def __init__(self, sender: Any) -> None:
        self._sender = sender

    @contextmanager
    def holding(self, tree: Sequence[Giver]) -> Iterator[None]:
        """Parents first; one consumer uses what is used, and took it before the units of today were set."""
        consumer = f"/allocations/{uuid.uuid4()}"
        used = {one.uuid: {name: stock.used for name, stock in one.stock.items() if stock.used} for one in tree}
        for one in tree:
            self._send("POST", "/resource_providers", name=one.uuid, uuid=one.uuid, parent_provider_uuid=one.parent)
            self._put(one, "inventories", {name: {"total": 100} for name in used[one.uuid]})
            self._put(one, "traits", sorted(one.traits))
            self._put(one, "aggregates", sorted(one.aggregates))
        if any(used.values()):
            rows = {own: {"resources": amounts} for own, amounts in used.items() if amounts}
            who = {"project_id": "p", "user_id": "u", "consumer_generation": None, "consumer_type": "INSTANCE"}
            self._send("PUT", consumer, allocations=rows, **who)
        for one in tree:
            self._put(one, "inventories", {name: asdict(stock.inventory) for name, stock in one.stock.items()})
        try:
            yield
        finally:
            if any(used.values()):
                self._send("DELETE", consumer)
            for one in reversed(tree):
                self._send("DELETE", f"/resource_providers/{one.uuid}")

    def offers(self, tree: Sequence[Giver], wishes: Sequence[Wish]) -> bool:
        """Whether placement has a candidate whose VCPUs are of this tree."""
        body = self._send("GET", f"/allocation_candidates?{format_request(wishes)}")
        return any(tree[0].uuid in one["allocations"] for one in body["allocation_requests"])

    def _put(self, giver: Giver, what: str, value: object) -> None:
        path = f"/resource_providers/{giver.uuid}"
        generation = self._send("GET", path)["generation"]
        self._send("PUT", f"{path}/{what}", **{what: value, "resource_provider_generation": generation})

    def _send(self, method: str, path: str, **body: object) -> Any:
        kwargs = {"json": body} if body else {}
        answer = self._sender.request(path, method, raise_exc=False, microversion="1.39", **kwargs)
        assert answer.status_code < 300, f"{method} {path}: {answer.text}"
        return answer.json() if answer.text else None


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_placement_says_the_same_and_what_is_missing_is_what_is_missing(
    placement_sender: Any, data: st.DataObject
) -> None:
    tree = data.draw(givers())
    wishes = data.draw(requests(tree))
    world = World(placement_sender)

    with world.holding(tree):
        found = candidacy(tree, wishes)
        missing = [one.wish for one in found.missing]

        assert world.offers(tree, wishes) is (found.gives is not None)
        if missing:
            assert world.offers(tree, without(wishes, missing))
            for one in missing:
                assert not world.offers(tree, without(wishes, [each for each in missing if each != one])), one
    event(f"missing: {', '.join(sorted({one.kind for one in missing})) or 'nothing'}")
