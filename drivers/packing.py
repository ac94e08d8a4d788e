"""What has no unit in particular goes where there is room: whole and together if it can, the same way each time."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from drivers.parcels import Slot
from reportclient.tree import Inventory

Source = tuple[str, str, int]  # provider's name, resource class there, amount


@dataclass(frozen=True, slots=True)
class Demand:
    """What a consumer needs of one class, where it may be, likeliest first, and why there."""

    resource_class: str
    sources: tuple[Source, ...]
    places: tuple[str, ...]
    because: str

    @property
    def amount(self) -> int:
        return sum(amount for _, _, amount in self.sources)


@dataclass(slots=True)
class Load:
    """All that a consumer needs somewhere."""

    consumer: str
    demands: list[Demand] = field(default_factory=list)

    def add(self, resource_class: str, sources: tuple[Source, ...], places: Sequence[str], because: str) -> None:
        self.demands.append(Demand(resource_class, sources, tuple(places), because))


@dataclass(frozen=True, slots=True)
class Placed:
    """Some of a demand in its place."""

    consumer: str
    provider: str
    resource_class: str
    sources: tuple[Source, ...]
    because: str


def pack(
    loads: Iterable[Load],
    room: Mapping[Slot, int],
    stock: Mapping[Slot, Inventory],
    parents: Mapping[str, str | None],
    held: Mapping[tuple[str, str, str], int],
    *,
    kept: Mapping[Slot, str] = MappingProxyType({}),
) -> tuple[list[Placed], list[str]]:
    """
    Every load in its place, and a sentence for each that has none.

    The largest come first. One goes whole below one provider under the root where that has room (a cell has CPUs and
    memory); else class by class to one provider; else it is split. ``held`` is what consumers have in their places
    already, by (consumer, provider, class): what comes to it must fit with it. ``kept`` says what to do about slots of
    which some is reserved by this agent itself.
    """
    left = dict(room)
    placed: list[Placed] = []
    homeless: list[str] = []
    for load in sorted(loads, key=_by_size):
        limits = {slot: limit(one, held.get((load.consumer, *slot), 0)) for slot, one in stock.items()}
        together = _together(load, left, limits, parents)
        for demand in sorted(load.demands, key=lambda one: one.resource_class):
            parts = [(together[demand.resource_class], demand.amount)] if together else _apart(demand, left, limits)
            missing = demand.amount - sum(amount for _, amount in parts)
            if missing:
                homeless.append(
                    f"consumer {load.consumer} has {demand.amount} {demand.resource_class}, and {missing} of it find "
                    f"no room on {', '.join(demand.places)}{_advice(demand, left, limits, kept)}"
                )
                continue
            placed += _fill(load.consumer, demand, parts)
            for provider, amount in parts:
                left[provider, demand.resource_class] -= amount
    return placed, homeless


def _by_size(load: Load) -> tuple[list[int], str]:
    return [-demand.amount for demand in sorted(load.demands, key=lambda one: one.resource_class)], load.consumer


@dataclass(frozen=True, slots=True)
class Limit:
    """How much more of a class one consumer may be given in one place: at least, at most, and in which steps."""

    least: int
    most: int
    step: int
    held: int

    def takes(self, amount: int) -> bool:
        return self.least <= amount <= self.most and (self.held + amount) % self.step == 0


def limit(stock: Inventory, held: int = 0) -> Limit:
    """What one consumer may be given of a stock, of which it has ``held`` already."""
    return Limit(max(1, stock.min_unit - held), stock.max_unit - held, stock.step_size, held)


def _advice(demand: Demand, left: Mapping[Slot, int], limits: Mapping[Slot, Limit], kept: Mapping[Slot, str]) -> str:
    """What a person can do about a demand that finds no room."""
    slots = [(place, demand.resource_class) for place in demand.places]
    loose = {slot: replace(limits[slot], step=1) for slot in slots}
    empty = dict.fromkeys(slots, demand.amount)
    if any(_finds(demand, room, loose) and not _finds(demand, room, limits) for room in (left, empty)):
        steps = ", ".join(str(step) for step in sorted({limits[slot].step for slot in slots}))
        return f", which give it in steps of {steps} only: resize or move that guest first"
    ours = [kept[slot] for slot in slots if slot in kept]
    return f", {ours[0]}" if ours else ": make room, or raise its allocation ratio"


def _together(
    load: Load, left: Mapping[Slot, int], limits: Mapping[Slot, Limit], parents: Mapping[str, str | None]
) -> dict[str, str]:
    """A provider for each class, all in one branch of the tree; empty when no branch has room for all."""
    branches: dict[str, None] = {}
    for place in (place for demand in load.demands for place in demand.places):
        branches.setdefault(_branch(place, parents))
    for branch in branches:
        chosen: dict[str, str] = {}
        for demand in sorted(load.demands, key=lambda one: one.resource_class):
            fitting = [
                place
                for place in demand.places
                if _branch(place, parents) == branch
                and _fits(place, demand.resource_class, demand.amount, left, limits)
            ]
            beside = [place for place in fitting if place in chosen.values()]
            if fitting:
                chosen[demand.resource_class] = (beside or fitting)[0]
        if len(chosen) == len(load.demands):
            return chosen
    return {}


def _apart(demand: Demand, left: Mapping[Slot, int], limits: Mapping[Slot, Limit]) -> list[tuple[str, int]]:
    """One class on one provider, or on several: (provider, amount), less than all of it when there is no room."""
    name = demand.resource_class
    whole = [place for place in demand.places if _fits(place, name, demand.amount, left, limits)]
    if whole:
        return [(whole[0], demand.amount)]
    parts: list[tuple[str, int]] = []
    rest = demand.amount
    for place in demand.places:
        one = limits[place, name]
        most = min(rest, left[place, name], one.most)
        most -= (one.held + most) % one.step
        if one.takes(most):
            parts.append((place, most))
            rest -= most
    return parts


def _finds(demand: Demand, left: Mapping[Slot, int], limits: Mapping[Slot, Limit]) -> bool:
    """Whether one class finds room for all of it."""
    return sum(amount for _, amount in _apart(demand, left, limits)) == demand.amount


def _fits(place: str, name: str, amount: int, left: Mapping[Slot, int], limits: Mapping[Slot, Limit]) -> bool:
    return amount <= left[place, name] and limits[place, name].takes(amount)


def _branch(provider: str, parents: Mapping[str, str | None]) -> str:
    """The provider below the root that this one is or is below; the root itself for the root."""
    above = parents.get(provider)
    while above and parents.get(above):
        provider, above = above, parents[above]
    return provider


def _fill(consumer: str, demand: Demand, parts: Iterable[tuple[str, int]]) -> Iterable[Placed]:
    """The sources of a demand, dealt out to its places."""
    waiting = list(demand.sources)
    for provider, amount in parts:
        taken: list[Source] = []
        while amount:
            source, name, available = waiting[0]
            most = min(amount, available)
            taken.append((source, name, most))
            waiting[:1] = [(source, name, available - most)] if available > most else []
            amount -= most
        yield Placed(consumer, provider, demand.resource_class, tuple(taken), demand.because)
