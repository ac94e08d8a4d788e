"""Parcels, the pieces of what consumers have, each with its destination: from allocations to the moves of a plan."""

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


def relabel(
    parcels: Iterable[Parcel],
    name: str,
    other: str,
    amount: int,
    units: Mapping[str, int],
    distance: Callable[[Parcel], int],
) -> list[Parcel]:
    """Convert an amount of class ``name`` into ``other``: first on the providers of ``units``, then nearest to them."""
    parcels = list(parcels)
    wanted = dict(units)
    for parcel in parcels:
        if parcel.to_class == other:
            wanted[parcel.provider] = max(0, wanted.get(parcel.provider, 0) - parcel.amount)
    found: list[Parcel] = []
    left: list[Parcel] = []
    for parcel in parcels:
        most = min(amount, wanted.get(parcel.provider, 0)) if parcel.to_class == name else 0
        changed, rest = _cut(parcel, most, other)
        amount -= sum(one.amount for one in changed)
        wanted[parcel.provider] = wanted.get(parcel.provider, 0) - sum(one.amount for one in changed)
        found += changed
        left += rest
    for parcel in sorted(left, key=distance):
        changed, rest = _cut(parcel, amount if parcel.to_class == name else 0, other)
        amount -= sum(one.amount for one in changed)
        found += changed + rest
    return found


def _cut(parcel: Parcel, most: int, other: str) -> tuple[list[Parcel], list[Parcel]]:
    """Return at most this much of a parcel as another class, and the rest; each list is empty where nothing is left."""
    taken = min(most, parcel.amount)
    changed = [replace(parcel, amount=taken, to_class=other)] if taken else []
    return changed, [replace(parcel, amount=parcel.amount - taken)] if parcel.amount > taken else []


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
    wanted = dict(units)
    found: list[Parcel] = []
    left: list[Parcel] = []
    for parcel in parcels:
        taken = min(wanted.get(parcel.provider, 0), parcel.amount)
        if taken:
            found.append(replace(parcel, amount=taken, to_provider=parcel.provider, because=because(parcel.provider)))
            wanted[parcel.provider] -= taken
        if parcel.amount > taken:
            left.append(replace(parcel, amount=parcel.amount - taken))
    rest: list[Parcel] = []
    for parcel in left:
        amount = parcel.amount
        for provider in sorted(wanted, key=lambda one: (one != near(parcel), one)):
            taken = min(wanted[provider], amount)
            if taken:
                found.append(replace(parcel, amount=taken, to_provider=provider, because=because(provider)))
                wanted[provider] -= taken
                amount -= taken
        rest += [replace(parcel, amount=amount)] if amount else []
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
