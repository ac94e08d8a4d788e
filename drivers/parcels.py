"""Parcels, the pieces of what consumers have, each with its destination: from allocations to the moves of a plan."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from reportclient.allocations import Move

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


def amounts(parcels: Iterable[Parcel]) -> dict[tuple[str, str, str], int]:
    """Return what each consumer has after the moves, by (consumer, provider, class)."""
    found: dict[tuple[str, str, str], int] = {}
    for parcel in parcels:
        key = parcel.consumer, parcel.to_provider, parcel.to_class
        found[key] = found.get(key, 0) + parcel.amount
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


def assemble(parcels: Iterable[Parcel]) -> tuple[Move, ...]:
    """Return a move for each consumer, source and target, with all classes that go this way and the reasons."""
    routes: dict[tuple[str, str, str], list[Parcel]] = {}
    for parcel in parcels:
        if (parcel.provider, parcel.resource_class) != (parcel.to_provider, parcel.to_class):
            routes.setdefault((parcel.consumer, parcel.provider, parcel.to_provider), []).append(parcel)
    moves = []
    for (consumer, source, target), several in sorted(routes.items()):
        moved: dict[str, int] = {}
        arriving: dict[str, int] = {}
        for parcel in several:
            moved[parcel.resource_class] = moved.get(parcel.resource_class, 0) + parcel.amount
            arriving[parcel.to_class] = arriving.get(parcel.to_class, 0) + parcel.amount
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
