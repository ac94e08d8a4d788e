"""Moves of random hosts go as they went before, to the last number and word: what differs is on purpose."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from beds.golden import differences
from drivers.moves import displaced, plan_moves
from reportclient.allocations import Allocation, Float, GuestState, Holding, Holdings, Move, Observed
from reportclient.errors import Unplaceable
from reportclient.names import BANDWIDTH, HUGE
from reportclient.ownership import MARKER, Names, Ownership
from reportclient.reserve import KEEP, UNHEALTHY
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree

GOLDEN = Path(__file__).parents[1] / "random" / "moves"
LINK = min(BANDWIDTH)
HOST, DEVICES, UNTOLD = ("VCPU", "PCPU", "MEMORY_MB"), ("VGPU", "CUSTOM_A", "CUSTOM_B"), ("BW", LINK)
PARENTS = {"h": None, "c0": "h", "c1": "h", "p0": "c0", "p1": "c1", "d0": "c0", "d1": "c1", "d2": "h"}
CELLS, POOLS, CARDS = ("c0", "c1"), ("p0", "p1"), ("d0", "d1", "d2")
OURS = Ownership(emitted=Names(frozenset({*HOST, *DEVICES, *UNTOLD})))


class World:
    """A random host that changes its shape, with consumers, and guests that may hold something else."""

    def __init__(self, number: int) -> None:
        self.random = Random(number)
        self.huge = self.random.choice(((), (), POOLS[:1], POOLS))
        cards = {name: self.random.choice((("h",), CARDS[: self.random.randint(1, 3)])) for name in (*DEVICES, *UNTOLD)}
        ways = self.random.choice(("hh", "hc", "hp", "ch", "ph", "cp", "cp", "pc", "pc"))
        self.before, self.after = ({**self.host_classes(way), **cards} for way in ways)
        if self.maybe(0.5):
            self.after |= {name: self.random.choice((("h",), CARDS, CARDS[:1])) for name in (*DEVICES[:2], *UNTOLD)}
        self.new = {name: self.random.choice(DEVICES) if self.maybe(0.3) else name for name in DEVICES}
        self.totals: dict[str, int] = {}
        self.standing, self.desired = self.tree(self.before, {}), self.tree(self.after, self.new)
        self.slots = [(one.name, name) for one in self.standing for name in one.inventories]
        self.offered = [(one.name, name) for one in self.desired for name in one.inventories]
        self.stand_ins = {"m": "c"} if self.maybe(0.5) else {}
        self.rows = tuple(self.allocations(self.some(("a", "b", "m", "s"), 0.5)))
        self.guests = frozenset(self.some(("a", "b", "c", "z"), 0.7))
        self.holdings = self.held()

    def maybe(self, chance: float) -> bool:
        return self.random.random() < chance

    def some(self, of: Iterable[Any], chance: float = 0.5) -> list[Any]:
        return [one for one in of if self.maybe(chance)]

    def host_classes(self, way: str) -> dict[str, Sequence[str]]:
        cpus = ("h",) if way == "h" else CELLS
        return {"VCPU": cpus, "PCPU": self.some(cpus), "MEMORY_MB": POOLS if way == "p" else cpus}

    def tree(self, places: dict[str, Sequence[str]], new: dict[str, str]) -> ProviderTree:
        stocks: dict[str, dict[str, Inventory]] = {name: {} for name in PARENTS}
        for one, providers in places.items():
            total = (
                self.totals.setdefault(one, self.random.randint(4, 12))
                if self.maybe(0.8)
                else self.random.randint(1, 12)
            )
            for provider in providers:
                stocks[provider][new.get(one, one)] = Inventory(
                    total=total if len(providers) == 1 else max(1, total // 2),
                    reserved=self.random.choice((0, 0, 0, 1)),
                    max_unit=self.random.choice((8, 8, 8, 8, 8, 2)),
                    step_size=self.random.choice((1, 1, 1, 1, 1, 1, 1, 2)),
                )
        found = []
        for name, stock in stocks.items():
            if stock or name not in (*POOLS, *CARDS):
                traits = [HUGE] if name in self.huge else self.some((UNHEALTHY, f"{KEEP}1_VGPU"), 0.2)
                marked = frozenset({MARKER, *traits})
                found.append(Provider(name=name, parent=PARENTS[name], inventories=stock, traits=marked))
        return ProviderTree(tuple(found))

    def allocations(self, consumers: Iterable[str]) -> Iterator[Allocation]:
        for consumer in consumers:
            for provider, name in self.some(self.slots, 0.25):
                yield Allocation(consumer, provider, name, self.random.randint(1, 4))

    def held(self) -> Holdings:
        units, floats, known = [], [], {}
        for guest in sorted(self.guests):
            has: dict[str, int] = {}
            for row in self.rows:
                if self.stand_ins.get(row.consumer, row.consumer) == guest or (guest == "z" and self.maybe(0.2)):
                    name = self.random.choice(HOST[:2]) if row.resource_class == "VCPU" else row.resource_class
                    name = self.new.get(name, name)
                    has[name] = has.get(name, 0) + row.amount
            for name, amount in has.items():
                places = [provider for provider, each in self.offered if each == name] or ["h", "d2"]
                amount += self.random.choice((0, 0, 0, 0, 0, 1))
                if name in UNTOLD or self.maybe(0.1):
                    continue
                loose = self.random.choice((0, 0, amount, amount - 1))
                if loose:
                    floats.append(Float(guest, name, loose, tuple(self.some(places, 0.8)), "its pages"))
                for part in self.parts(amount - loose):
                    seen = self.random.choice(("", "by its XML"))
                    units.append(Holding(guest, self.random.choice((*places, *places, "c1")), name, part, seen))
            classes = frozenset(self.some(HOST, 0.15))
            known[guest] = GuestState(active=True, untold=classes, overridden=classes)
        lost = [
            (guest, unit) for guest in sorted(self.guests) for unit in self.some(("m1", "m2", "m3", "m4", "m5"), 0.07)
        ]
        undecided = {guest: tuple(unit for one, unit in lost if one == guest) for guest, _ in lost}
        told = frozenset(self.some((*DEVICES, *UNTOLD)))
        return Holdings(self.guests, tuple(units), tuple(floats), known, told=told, undecided=undecided)

    def parts(self, amount: int) -> list[int]:
        first = amount if self.maybe(0.7) else amount // 2
        return [one for one in (first, amount - first) if one]

    def outcome(self) -> str:
        observed = Observed(
            ObservedTree(tuple(ObservedProvider(uuid=one.name, generation=1, provider=one) for one in self.standing)),
            self.rows,
        )
        places = [self.random.choice(("d0", "c1", "p1", "h")) for _ in self.rows]
        leave = f"leave: {' '.join(sorted(displaced(observed, self.desired, OURS)))};"
        try:
            moves = plan_moves(
                observed,
                self.desired,
                self.holdings,
                OURS,
                stand_ins=self.stand_ins,
                recast_as=self.some((("VGPU", "CUSTOM_A"), ("CUSTOM_A", "CUSTOM_B")), 0.2),
                pinned_anew=self.some(sorted(self.guests), 0.2),
                former={
                    (row.consumer, row.provider, row.resource_class): place
                    for row, place in self.some(zip(self.rows, places, strict=True), 0.3)
                },
            )
        except Unplaceable as error:
            return f"{leave} {error}"
        return leave + "".join(f" {told(move)};" for move in moves)


def told(move: Move) -> str:
    amounts = " ".join(f"{amount} {name}" for name, amount in move.moved_resources.items())
    became = "".join(f" {amount} {name}" for name, amount in move.to_resources.items())
    return f"{move.consumer} {amounts} of {move.from_provider} to {move.to_provider}{became} ({move.because})"


def line(number: int) -> str:
    return f"{number} {World(number).outcome()}"


def test_moves_go_as_before(request: pytest.FixtureRequest) -> None:
    found = "".join(f"{line(number)}\n" for number in range(1000))

    assert not differences(found, GOLDEN, update=request.config.getoption("--update-golden"))
