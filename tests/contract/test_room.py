"""How many more of a kind fit, beside placement itself: claimed one by one, until it has no candidate."""

import os
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, event, given, reject, settings
from hypothesis import strategies as st

from agent.command.explain import explain_request
from beds.by_hand import ByHand
from beds.givers import SHARES, TRAITS, Giver, World, empty, givers, requests
from beds.golden import GoldenHost, golden_hosts
from reportclient.allocations import usages
from reportclient.client import PlacementClient
from reportclient.request import Wish, format_request, parse_request
from reportclient.room import room_for
from reportclient.tree import Inventory

pytestmark = pytest.mark.contract

EXAMPLES = int(os.environ.get("REQUESTS", "25"))
MOST = 6  # consumers of one example


def left(client: PlacementClient, root: str, wishes: Sequence[Wish]) -> int | None:
    tree = client.observe(root)
    return room_for(tree.providers, usages(client.allocations(tree)), wishes)


@pytest.fixture(scope="module", autouse=True)
def _nobody_else(placement_sender: Any) -> None:
    """All hosts are asked about: those that other tests left are none of these."""
    empty(placement_sender)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_there_is_room_for_one_more_as_long_as_placement_has_a_candidate(
    placement_sender: Any, data: st.DataObject
) -> None:
    tree: list[Giver] = [one for one in data.draw(givers()) if SHARES not in one.traits]
    wishes = data.draw(requests(tree))
    world, by_hand = World(placement_sender), ByHand(placement_sender)
    consumers = [str(uuid.uuid4()) for _ in range(MOST)]

    with world.holding(tree):
        if data.draw(st.booleans()):  # else most requests find nothing from the beginning
            lacking = {one.wish for one in explain_request(world.client, tree[0].uuid, tuple(wishes)).missing}
            wishes = tuple(one for one in wishes if one not in lacking)
            assume(format_request(wishes))
            try:
                parse_request(format_request(wishes))
            except ValueError:  # a same_subtree may be left that names no group
                reject()
        try:
            for number, consumer in enumerate(consumers):
                offered = by_hand.send("GET", f"/allocation_candidates?{format_request(wishes)}")["allocation_requests"]
                assert bool(left(world.client, tree[0].uuid, wishes)) is bool(offered)
                if not offered:
                    event(f"full after {number}")
                    break
                taken = data.draw(st.sampled_from(sorted(offered, key=str)))["allocations"]
                by_hand.claim(consumer, {provider: dict(each["resources"]) for provider, each in taken.items()})
        finally:
            for consumer in consumers:
                by_hand.claim(consumer, {})


def givers_of(golden: GoldenHost, layout: str) -> list[Giver]:
    """The providers that a recorded host is to have, parents first."""
    providers = golden.read(layout)["providers"]
    found: dict[str, Giver] = {}

    def add(name: str) -> Giver:
        one = providers[name]
        if name not in found:
            parent = add(one["parent"]).uuid if one["parent"] else None
            stock = {each: (Inventory(**record), 0) for each, record in one["inventories"].items()}
            found[name] = Giver(name=name, parent=parent, traits=frozenset(one["traits"]), stock=stock)
        return found[name]

    for name in providers:
        add(name)
    return [*found.values()]


def kinds_for(tree: Sequence[Giver]) -> Iterator[str]:
    """A third of the largest cell each, and beside that one of each kind of device that there is."""
    most: dict[str, int] = {}
    for one in tree:
        for name, (stock, _) in one.stock.items():
            most[name] = max(most.get(name, 0), stock.capacity)
    plain = [f"{name}:{max(most[name] // 3, 1)}" for name in ("VCPU", "PCPU", "MEMORY_MB", "DISK_GB") if name in most]
    yield f"resources={','.join(plain)}"
    for name in sorted(most.keys() - {"VCPU", "PCPU", "MEMORY_MB", "DISK_GB"}):
        amount = max(most[name] // 3, 1)
        yield f"resources=MEMORY_MB:64&resources_A={name}:{amount}&resources_B={name}:{amount}&group_policy=isolate"


@pytest.mark.parametrize(
    ("golden", "layout"),
    [
        pytest.param(golden, layout, id=f"{golden.folder.name}-{layout}")
        for golden in golden_hosts()
        for layout in (golden.layouts if EXAMPLES > 25 else golden.layouts[-1:])
    ],
)
def test_on_each_recorded_host_fit_as_many_as_placement_gives(
    placement_sender: Any, golden: GoldenHost, layout: str
) -> None:
    tree = givers_of(golden, layout)
    world, by_hand = World(placement_sender), ByHand(placement_sender)
    with world.holding(tree):
        for query in kinds_for(tree):
            fit = left(world.client, tree[0].uuid, parse_request(query))
            assert fit == claimed_evenly(by_hand, query), query


def claimed_evenly(by_hand: ByHand, query: str) -> int:
    """How often placement gives what is asked, each time from most providers, and those that gave least until then."""
    consumers: list[str] = []
    gave = Counter[str]()
    while offered := by_hand.send("GET", f"/allocation_candidates?{query}")["allocation_requests"]:
        taken = min(
            offered,
            key=lambda one: (
                -len(one["allocations"]),
                sorted((gave[each] for each in one["allocations"]), reverse=True),
            ),
        )
        gave.update([*taken["allocations"]])
        consumers.append(str(uuid.uuid4()))
        by_hand.claim(consumers[-1], {one: dict(each["resources"]) for one, each in taken["allocations"].items()})
    for consumer in consumers:
        by_hand.claim(consumer, {})
    return len(consumers)


CELL = "HW_NUMA_ROOT"


@pytest.mark.parametrize(
    ("query", "fit"),
    [
        pytest.param("resources_A=SRIOV_NET_VF:1&resources_B=SRIOV_NET_VF:1&group_policy=isolate", 12, id="two cards"),
        pytest.param(
            f"resources_A=SRIOV_NET_VF:1&required_A={TRAITS[0]}&resources_B=SRIOV_NET_VF:1&group_policy=none",
            8,
            id="one card of the first",
        ),
        pytest.param(
            f"required_A={CELL}&resources_B=PCPU:1&same_subtree=_A,_B&group_policy=isolate", 0, id="a cell apart"
        ),
        pytest.param(f"required_A={CELL}&resources_B=PCPU:1&same_subtree=_A,_B&group_policy=none", 8, id="its cell"),
        pytest.param(
            f"required_A=!{CELL}&resources_B=PCPU:1&same_subtree=_A,_B&group_policy=none", 0, id="only forbidden"
        ),
    ],
)
def test_groups_share_cards_and_cells_as_placement_lets_them(placement_sender: Any, query: str, fit: int) -> None:
    root = Giver(name="host", stock={"VCPU": (Inventory(total=64), 0)})
    cards = [
        Giver(
            name=f"card-{number}",
            parent=root.uuid,
            traits=frozenset(TRAITS[:1] if number == 0 else ()),
            stock={"SRIOV_NET_VF": (Inventory(total=8), 0)},
        )
        for number in range(3)
    ]
    cell = Giver(name="cell", parent=root.uuid, traits=frozenset({CELL}), stock={"PCPU": (Inventory(total=8), 0)})
    world = World(placement_sender)
    with world.holding([root, *cards, cell]):
        found = left(world.client, root.uuid, parse_request(f"resources=VCPU:1&{query}"))

        assert found == fit == claimed_evenly(ByHand(placement_sender), f"resources=VCPU:1&{query}")
