"""Find room for what has no unit of its own: whole and together if possible, and always with the same result."""

from collections import Counter
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
    left = _Room(room, stock, held)
    placed: list[Parcel] = []
    homeless: list[str] = []
    for load in sorted(loads, key=_by_size):
        together = _together(load, left, parents)
        for demand in sorted(load, key=lambda one: one.resource_class):
            parts = [(together[demand.resource_class], demand.amount)] if together else _apart(demand, left)
            missing = demand.amount - sum(amount for _, amount in parts)
            if missing:
                homeless.append(
                    f"consumer {demand.consumer} has {demand.amount} {demand.resource_class}, and {missing} of them "
                    f"find no room on {', '.join(demand.places)}{_advice(demand, left)}"
                )
                continue
            placed += _fill(demand, parts)
            for provider, amount in parts:
                left.take(demand, provider, amount)
    return placed, homeless


def _by_size(load: Load) -> tuple[list[int], str]:
    return [-demand.amount for demand in sorted(load, key=lambda one: one.resource_class)], load[0].consumer


def most_of(stock: Inventory, amount: int, held: int = 0) -> int:
    """Return how much of an amount a consumer may get that has ``held`` of a stock already, by the stock's limits."""
    most = min(amount, stock.max_unit - held)
    most -= (held + most) % stock.step_size
    return most if most >= max(1, stock.min_unit - held) else 0


class _Room:
    """What is left of each stock, and what each consumer has of it."""

    def __init__(
        self, left: Mapping[Slot, int], stock: Mapping[Slot, Inventory], held: Mapping[tuple[str, str, str], int]
    ) -> None:
        self._left, self.stock, self._held = Counter(left), stock, Counter(held)

    def most(self, demand: Demand, place: str, amount: int) -> int:
        """Return how much of an amount the consumer of a demand may get on a provider."""
        slot = place, demand.resource_class
        return most_of(self.stock[slot], min(amount, self._left[slot]), self._held[demand.consumer, *slot])

    def fitting(self, demand: Demand) -> list[str]:
        """Return the providers that have room for a whole demand, likeliest first."""
        return [place for place in demand.places if self.most(demand, place, demand.amount) == demand.amount]

    def take(self, demand: Demand, place: str, amount: int) -> None:
        """Give an amount to the consumer of a demand."""
        slot = place, demand.resource_class
        self._left[slot] -= amount
        self._held[demand.consumer, *slot] += amount


def _advice(demand: Demand, left: _Room) -> str:
    """Return what a person can do about a demand without room: the end of a sentence."""
    steps = sorted({left.stock[place, demand.resource_class].step_size for place in demand.places})
    sizes = f"; they give it in steps of {', '.join(map(str, steps))}: resize or move a guest that has another amount"
    return f": make room there, or raise the allocation ratio{sizes if steps[-1] > 1 else ''}"


def _together(load: Load, left: _Room, parents: Mapping[str, str | None]) -> dict[str, str]:
    """Return a provider for each class, all in one branch of the tree; empty when no branch has room for all."""
    for branch in dict.fromkeys(_branch(place, parents) for demand in load for place in demand.places):
        chosen: dict[str, str] = {}
        for demand in sorted(load, key=lambda one: one.resource_class):
            fitting = [place for place in left.fitting(demand) if _branch(place, parents) == branch]
            if fitting:
                beside = (place for place in fitting if place in chosen.values())
                chosen[demand.resource_class] = next(beside, fitting[0])
        if len(chosen) == len(load):
            return chosen
    return {}


def _apart(demand: Demand, left: _Room) -> list[tuple[str, int]]:
    """Return (provider, amount) for one class: one provider, else several; less than all where there is no room."""
    if whole := left.fitting(demand):
        return [(whole[0], demand.amount)]
    parts: list[tuple[str, int]] = []
    rest = demand.amount
    for place in demand.places:
        if most := left.most(demand, place, rest):
            parts.append((place, most))
            rest -= most
    return parts


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
