"""
Parcels, the pieces of what consumers have, each with its destination: from allocations to the moves of a plan.

What has no unit of its own is packed where there is room: whole and together if possible, and always alike.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from reportclient.allocations import Move
from reportclient.tree import Inventory

Slot = tuple[str, str]  # provider's name, resource class


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """A part of what a consumer has of one class on one provider, and its destination."""

    consumer: str
    provider: str
    resource_class: str
    amount: int
    to_class: str  # the same class, or the one that it becomes
    to_provider: str = ""  # empty until it is decided
    because: str = ""  # the reason for a move, for people


def staying(parcel: Parcel) -> Parcel:
    """Return the parcel with its own provider as its destination."""
    return replace(parcel, to_provider=parcel.provider, because=f"the provider offers it as {parcel.to_class} now")


def conversions(
    surplus: Mapping[str, int], missing: Mapping[str, int], becomes: Callable[[str, str], bool]
) -> list[tuple[str, str, int]]:
    """
    Return (class, the class that it becomes, amount), where the sums allow only one answer.

    ``surplus`` is what a consumer has allocated of each class beyond what it holds, ``missing`` is what it holds beyond
    what is allocated. All of a surplus is converted: one class into several others, or several into one. ``becomes``
    tells whether the first class may become the second.
    """
    ways = [(name, other) for name in sorted(surplus) for other in sorted(missing) if becomes(name, other)]
    targets = {name: [other for one, other in ways if one == name] for name, _ in ways}
    origins = {other: [name for name, one in ways if one == other] for _, other in ways}
    found = []
    for name, other in ways:
        splits = all(origins[each] == [name] for each in targets[name])
        merges = all(targets[each] == [other] for each in origins[other])
        if splits and sum(missing[each] for each in targets[name]) == surplus[name]:
            found.append((name, other, missing[other]))
        elif merges and sum(surplus[each] for each in origins[other]) == missing[other]:
            found.append((name, other, surplus[name]))
    return found


def take(parcels: Iterable[Parcel], amount: int) -> tuple[list[Parcel], list[Parcel]]:
    """Divide parcels: return those of this amount in all, from the first ones on, and the rest."""
    taken: list[Parcel] = []
    rest: list[Parcel] = []
    for parcel in parcels:
        most = min(amount, parcel.amount)
        amount -= most
        taken += [replace(parcel, amount=most)] if most else []
        rest += [replace(parcel, amount=parcel.amount - most)] if parcel.amount > most else []
    return taken, rest


def relabel(
    parcels: Iterable[Parcel],
    name: str,
    other: str,
    amount: int,
    units: Mapping[str, int],
    distance: Callable[[Parcel], int],
) -> list[Parcel]:
    """Convert an amount of class ``name`` into ``other``: first on the providers of ``units``, then nearest to them."""
    wanted, parcels = Counter(units), list(parcels)
    found = [one for one in parcels if one.to_class != name]
    for parcel in found:
        wanted[parcel.provider] -= parcel.amount if parcel.to_class == other else 0
    left: list[Parcel] = []
    for parcel in (one for one in parcels if one.to_class == name):
        taken, rest = take([parcel], max(0, min(amount, wanted[parcel.provider])))
        moved = sum(one.amount for one in taken)
        amount, wanted[parcel.provider] = amount - moved, wanted[parcel.provider] - moved
        found += (replace(one, to_class=other) for one in taken)
        left += rest
    taken, rest = take(sorted(left, key=distance), amount)
    return [*found, *(replace(one, to_class=other) for one in taken), *rest]


def amounts(parcels: Iterable[Parcel]) -> Counter[tuple[str, str, str]]:
    """Return what each consumer has after the moves, by (consumer, provider, class)."""
    found = Counter[tuple[str, str, str]]()
    for one in parcels:
        found[one.consumer, one.to_provider, one.to_class] += one.amount
    return found


def deal(
    parcels: Iterable[Parcel],
    units: Mapping[str, int],
    because: Callable[[str], str],
    near: Callable[[Parcel], str] = lambda _: "",
) -> tuple[list[Parcel], list[Parcel]]:
    """
    Assign parcels of one class to the units of the guest; return these, and the rest.

    A parcel goes first to its own place, then to the provider that ``near`` returns, then to any other. ``because``
    returns the reason for a provider.
    """
    wanted = Counter(units)
    found: list[Parcel] = []

    def give(several: Iterable[Parcel], provider: str) -> list[Parcel]:
        taken, rest = take(several, wanted[provider])
        wanted[provider] -= sum(one.amount for one in taken)
        found.extend(replace(one, to_provider=provider, because=because(provider)) for one in taken)
        return rest

    rest: list[Parcel] = []
    for parcel in [left for one in parcels for left in give([one], one.provider)]:
        pieces = [parcel]
        for provider in sorted(units, key=lambda one: (one != near(parcel), one)):
            pieces = give(pieces, provider)
        rest += pieces
    return found, rest


@dataclass(frozen=True, slots=True)
class Demand:
    """Parcels of one consumer and one class; their possible providers, likeliest first; and the reason for these."""

    parcels: tuple[Parcel, ...]  # at least one
    places: tuple[str, ...]
    because: str
    returns: bool = False  # to the first place, where it was before, wherever the rest of its consumer goes

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
    have room (a cell has CPUs and memory); else each class goes to one provider; else a class is split. What returns
    goes before all others, and alone. ``held`` is what consumers already have in their final places, by (consumer,
    provider, class): limits apply to the sum.
    """
    left = _Room(room, stock, held)
    placed: list[Parcel] = []
    homeless: list[str] = []
    for load in _parts(sorted(loads, key=_by_size), left):
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


def _parts(loads: Iterable[Load], left: "_Room") -> Iterator[Load]:
    """
    Yield each demand that returns alone, as far as there is room left for it, then the rest of each load.

    The caller takes the room of each one before the next is yielded.
    """
    rests: list[Load] = []
    for load in loads:
        rest: Load = []
        for one in load:
            if one.returns and left.most(one, one.places[0], one.amount) == one.amount:
                yield [one]
            else:
                rest.append(one)
        if rest:
            rests.append(rest)
    yield from rests


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


def assemble(parcels: Iterable[Parcel]) -> tuple[Move, ...]:
    """Return a move for each consumer, source and target, with all classes that go this way and the reasons."""
    routes: dict[tuple[str, str, str], list[Parcel]] = {}
    for parcel in parcels:
        if (parcel.provider, parcel.resource_class) != (parcel.to_provider, parcel.to_class):
            routes.setdefault((parcel.consumer, parcel.provider, parcel.to_provider), []).append(parcel)
    moves = []
    for (consumer, source, target), several in sorted(routes.items()):
        moved, arriving = Counter[str](), Counter[str]()
        for parcel in several:
            moved[parcel.resource_class] += parcel.amount
            arriving[parcel.to_class] += parcel.amount
        moves.append(
            Move(
                consumer=consumer,
                from_provider=source,
                to_provider=target,
                moved_resources=dict(sorted(moved.items())),
                to_resources=dict(sorted(arriving.items())) if arriving != moved else {},
                because="; ".join(sorted({parcel.because for parcel in several})),
            )
        )
    return tuple(moves)
