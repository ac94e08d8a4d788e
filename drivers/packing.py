"""Find room for what has no unit of its own: whole and together if possible, and always with the same result."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from drivers.parcels import Parcel, Slot, take
from reportclient.tree import Inventory


@dataclass(frozen=True, slots=True)
class Demand:
    """Parcels of one consumer and one class; their possible providers, likeliest first; and the reason for these."""

    parcels: tuple[Parcel, ...]  # at least one
    places: tuple[str, ...]
    because: str

    @property
    def consumer(self) -> str:
        """The consumer of all parcels."""
        return self.parcels[0].consumer

    @property
    def resource_class(self) -> str:
        """The class that all parcels are to have."""
        return self.parcels[0].to_class

    @property
    def amount(self) -> int:
        """Amount of all parcels together."""
        return sum(parcel.amount for parcel in self.parcels)


Load = list[Demand]  # all demands of one consumer, at least one


def pack(
    loads: Iterable[Load],
    room: Mapping[Slot, int],
    stock: Mapping[Slot, Inventory],
    parents: Mapping[str, str | None],
    held: Mapping[tuple[str, str, str], int],
) -> tuple[list[Parcel], list[str]]:
    """
    Return the parcels of all loads with their places, and a sentence for each demand that finds no room.

    The largest loads come first. A load goes whole to one child of the root and the providers below it, where these
    have room (a cell has CPUs and memory); else each class goes to one provider; else a class is split. ``held`` is
    what consumers already have in their final places, by (consumer, provider, class): limits apply to the sum.
    """
    left = dict(room)
    placed: list[Parcel] = []
    homeless: list[str] = []
    for load in sorted(loads, key=_by_size):
        limits = {slot: limit(one, held.get((load[0].consumer, *slot), 0)) for slot, one in stock.items()}
        together = _together(load, left, limits, parents)
        for demand in sorted(load, key=lambda one: one.resource_class):
            parts = [(together[demand.resource_class], demand.amount)] if together else _apart(demand, left, limits)
            missing = demand.amount - sum(amount for _, amount in parts)
            if missing:
                homeless.append(
                    f"consumer {demand.consumer} has {demand.amount} {demand.resource_class}, and {missing} of them "
                    f"find no room on {', '.join(demand.places)}{_advice(demand, left, limits)}"
                )
                continue
            placed += _fill(demand, parts)
            for provider, amount in parts:
                slot = provider, demand.resource_class
                left[slot] -= amount
                limits[slot] = limit(stock[slot], limits[slot].held + amount)
    return placed, homeless


def _by_size(load: Load) -> tuple[list[int], str]:
    return [-demand.amount for demand in sorted(load, key=lambda one: one.resource_class)], load[0].consumer


@dataclass(frozen=True, slots=True)
class Limit:
    """How much more of a class one consumer may get on one provider."""

    least: int
    most: int
    step: int
    held: int  # what the consumer has there already; steps count from the sum

    def takes(self, amount: int) -> bool:
        """Return whether the consumer may get this amount more."""
        return self.least <= amount <= self.most and (self.held + amount) % self.step == 0


def limit(stock: Inventory, held: int = 0) -> Limit:
    """Return how much more of a stock a consumer may get that has ``held`` of it already."""
    return Limit(max(1, stock.min_unit - held), stock.max_unit - held, stock.step_size, held)


def _advice(demand: Demand, left: Mapping[Slot, int], limits: Mapping[Slot, Limit]) -> str:
    """Return what a person can do about a demand without room: the end of a sentence."""
    slots = [(place, demand.resource_class) for place in demand.places]
    loose = {slot: replace(limits[slot], step=1) for slot in slots}
    empty = dict.fromkeys(slots, demand.amount)
    if any(_finds(demand, room, loose) and not _finds(demand, room, limits) for room in (left, empty)):
        steps = ", ".join(str(step) for step in sorted({limits[slot].step for slot in slots}))
        return f", which give it in steps of {steps} only: resize or move that guest first"
    return ": make room there, or raise the allocation ratio"


def _together(
    load: Load, left: Mapping[Slot, int], limits: Mapping[Slot, Limit], parents: Mapping[str, str | None]
) -> dict[str, str]:
    """Return a provider for each class, all in one branch of the tree; empty when no branch has room for all."""
    branches: dict[str, None] = {}
    for place in (place for demand in load for place in demand.places):
        branches.setdefault(_branch(place, parents))
    for branch in branches:
        chosen: dict[str, str] = {}
        for demand in sorted(load, key=lambda one: one.resource_class):
            fitting = [
                place
                for place in demand.places
                if _branch(place, parents) == branch
                and _fits(place, demand.resource_class, demand.amount, left, limits)
            ]
            beside = [place for place in fitting if place in chosen.values()]
            if fitting:
                chosen[demand.resource_class] = (beside or fitting)[0]
        if len(chosen) == len(load):
            return chosen
    return {}


def _apart(demand: Demand, left: Mapping[Slot, int], limits: Mapping[Slot, Limit]) -> list[tuple[str, int]]:
    """Return (provider, amount) for one class: one provider, else several; less than all where there is no room."""
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
    """Return whether a demand finds room for all of it."""
    return sum(amount for _, amount in _apart(demand, left, limits)) == demand.amount


def _fits(place: str, name: str, amount: int, left: Mapping[Slot, int], limits: Mapping[Slot, Limit]) -> bool:
    return amount <= left[place, name] and limits[place, name].takes(amount)


def _branch(provider: str, parents: Mapping[str, str | None]) -> str:
    """Return the child of the root that is this provider or above it; the root for the root itself."""
    path = [provider]
    while above := parents.get(path[-1]):
        path.append(above)
    return path[-2:][0]


def _fill(demand: Demand, parts: Iterable[tuple[str, int]]) -> Iterator[Parcel]:
    """Divide the parcels of a demand among its places."""
    waiting = list(demand.parcels)
    for provider, amount in parts:
        taken, waiting = take(waiting, amount)
        yield from (replace(one, to_provider=provider, because=demand.because) for one in taken)
