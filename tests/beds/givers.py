"""Made-up trees of providers, requests for them, and a placement on which they stand for a while."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from beds.by_hand import ByHand
from beds.requests import adds_up_wrongly
from reportclient.client import PlacementClient
from reportclient.request import Wish, format_request, parse_request
from reportclient.transport import Transport
from reportclient.tree import Inventory

TRAITS = ("HW_CPU_X86_AVX", "HW_CPU_X86_AVX2", "STORAGE_DISK_SSD")
CLASSES = ("MEMORY_MB", "VGPU", "SRIOV_NET_VF", "PCPU")
AGGREGATES = tuple(str(uuid.UUID(int=0xA0 + number)) for number in range(3))
SHARES = "MISC_SHARES_VIA_AGGREGATE"
GROUPS = ("", "_A", "_B")
FEW = st.sampled_from((0, 0, 0, 1, 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Giver:
    """A provider of the tree, or one that shares with it."""

    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))
    name: str = ""  # empty: as its uuid
    parent: str | None = None  # uuid; None: the root, or a provider that shares
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()
    stock: Mapping[str, tuple[Inventory, int]] = field(default_factory=dict)  # with what is used of it


some_traits = st.frozensets(st.sampled_from(TRAITS))
some_aggregates = st.frozensets(st.sampled_from(AGGREGATES), max_size=2)


@st.composite
def stocks(draw: st.DrawFn, classes: Sequence[str]) -> dict[str, tuple[Inventory, int]]:
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
        found[name] = inventory, draw(st.integers(0, min(2, inventory.capacity)))
    return found


@st.composite
def givers(draw: st.DrawFn) -> tuple[Giver, ...]:
    """A root with ample VCPU, up to five providers anywhere below it, and up to two that share."""
    ample = {"VCPU": (Inventory(total=64), 0)}
    stock = ample | draw(stocks(CLASSES))
    root = Giver(traits=draw(some_traits), aggregates=draw(some_aggregates), stock=stock)
    tree = [root]
    for _ in range(draw(st.integers(0, 5))):
        tree.append(
            Giver(
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
                traits=draw(some_traits) | {SHARES},
                aggregates=draw(some_aggregates) | {draw(st.sampled_from(sorted(within)))},
                stock=draw(stocks((*CLASSES[:2], "DISK_GB"))),
            )
        )
    return tuple(tree)


@st.composite
def requests(draw: st.DrawFn, tree: Sequence[Giver]) -> tuple[Wish, ...]:
    """A request that placement takes; the group without a suffix has VCPU."""
    asked = [f"resources=VCPU:{draw(st.integers(1, 2))}"]
    groups = GROUPS[: draw(st.integers(1, 3))]
    related = len(groups) == 3 and draw(st.booleans())
    for group in groups:
        bare = group and related and draw(st.booleans())
        classes = draw(st.sets(st.sampled_from((*CLASSES, "DISK_GB")), min_size=bool(group), max_size=2))
        amounts = ",".join(f"{name}:{draw(st.integers(1, 3))}" for name in sorted(classes))
        if amounts and not group:
            asked[0] += f",{amounts}"
        elif not bare:
            asked += [f"resources{group}={amounts}"] * bool(amounts)
        wanted = [draw(names_of(TRAITS)) for _ in range(draw(FEW))]
        unwanted = [draw(st.sampled_from(TRAITS)) for _ in range(draw(FEW))]
        assume(not any({*unwanted} >= {*names.split(",")} for names in wanted))
        asked += [f"required{group}=in:{names}" for names in wanted] + [f"required{group}=!{name}" for name in unwanted]
        for no in ("", "!"):
            asked += [f"member_of{group}={no}in:{draw(names_of(AGGREGATES))}" for _ in range(draw(FEW))]
        if not draw(st.integers(0, 9)):
            asked.append(f"in_tree{group}={draw(st.sampled_from(tree)).uuid}")
        assume(any(f"{kind}{group}=" in "&".join(asked) for kind in ("resources", "required", "member_of", "in_tree")))
    if related:
        asked.append(f"same_subtree={','.join(GROUPS[1:])}")
    asked.append(f"group_policy={draw(st.sampled_from(('none', 'isolate'))) if len(groups) == 3 else 'none'}")
    if not draw(st.integers(0, 9)):
        asked.append(f"root_required={draw(st.sampled_from(('', '!')))}{draw(st.sampled_from(TRAITS))}")
    wishes = parse_request("&".join(asked))
    assume(not adds_up_wrongly(wishes))
    return wishes


def names_of(names: Sequence[str]) -> st.SearchStrategy[str]:
    return st.sets(st.sampled_from(names), min_size=1, max_size=2).map(lambda chosen: ",".join(sorted(chosen)))


class World:
    """A placement on which an example's providers stand while it is looked at."""

    def __init__(self, sender: Any) -> None:
        self._sender = sender
        self._by_hand = ByHand(sender)

    @contextmanager
    def holding(self, tree: Sequence[Giver]) -> Iterator[None]:
        """Parents first; one consumer uses what is used, and took it before the units of today were set."""
        consumer = str(uuid.uuid4())
        used = {one.uuid: {name: taken for name, (_, taken) in one.stock.items() if taken} for one in tree}
        for one in tree:
            stock = {name: {"total": 1_000_000} for name in used[one.uuid]}
            self._by_hand.add_provider(one.name or one.uuid, one.uuid, parent=one.parent, stock=stock)
            self._by_hand.add_traits(one.uuid, *one.traits)
            self._by_hand.set_aggregates(one.uuid, *one.aggregates)
        if any(used.values()):
            self._by_hand.claim(consumer, {own: amounts for own, amounts in used.items() if amounts})
        for one in tree:
            self._by_hand.change_stock(one.uuid, **{name: asdict(stock) for name, (stock, _) in one.stock.items()})
        try:
            yield
        finally:
            if any(used.values()):
                self._by_hand.send("DELETE", f"/allocations/{consumer}")
            for one in reversed(tree):
                self._by_hand.send("DELETE", f"/resource_providers/{one.uuid}")

    def offers(self, tree: Sequence[Giver], wishes: Sequence[Wish]) -> bool:
        """Whether placement has a candidate whose VCPUs are of this tree, among those of all."""
        return tree[0].uuid in self.giving(wishes)

    def giving(self, wishes: Sequence[Wish]) -> frozenset[str]:
        """The providers of all candidates that placement has, by uuid."""
        body = self._by_hand.send("GET", f"/allocation_candidates?{format_request(wishes)}")
        return frozenset(uuid for one in body["allocation_requests"] for uuid in one["allocations"])

    @property
    def client(self) -> PlacementClient:
        return PlacementClient(Transport(self._sender, where="placement in this process"))


def empty(sender: Any) -> None:
    """Take all providers and allocations off a placement, for tests of what is asked of all hosts."""
    hand = ByHand(sender)
    rows = list(hand.providers().values())
    for row in rows:
        for consumer in hand.send("GET", f"/resource_providers/{row['uuid']}/allocations")["allocations"]:
            hand.send("DELETE", f"/allocations/{consumer}")
    while rows:
        parents = {row["parent_provider_uuid"] for row in rows}
        for row in [one for one in rows if one["uuid"] not in parents]:
            hand.send("DELETE", f"/resource_providers/{row['uuid']}")
            rows.remove(row)
