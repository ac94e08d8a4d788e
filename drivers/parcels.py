"""What consumers have in pieces, each with where it goes: from allocations to the moves that a plan consists of."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from reportclient.allocations import Move

Slot = tuple[str, str]  # provider's name, resource class


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """Some of what a consumer has on one provider, and what becomes of it."""

    consumer: str
    provider: str
    resource_class: str
    amount: int
    to_class: str
    to_provider: str = ""  # empty as long as nothing is decided
    because: str = ""


def staying(parcel: Parcel) -> Parcel:
    changed = parcel.to_class != parcel.resource_class
    return replace(
        parcel,
        to_provider=parcel.provider,
        because=f"the provider offers it as {parcel.to_class} now" if changed else "",
    )


def conversions(
    surplus: Mapping[str, int], missing: Mapping[str, int], becomes: Callable[[str, str], bool]
) -> list[tuple[str, str, int]]:
    """
    (class, what it becomes, amount), where the sums leave one answer only.

    ``surplus`` is what a consumer has allocated of a class beyond what it holds, ``missing`` what it holds beyond what
    is allocated. All of a surplus becomes what is missing: one class several others, or several one.
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
    """So much of one class becomes another: first what is on a provider of ``units``, then what is nearest to them."""
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
    """At most so much of a parcel as another class, and what is left of it; nothing is no parcel."""
    taken = min(most, parcel.amount)
    changed = [replace(parcel, amount=taken, to_class=other)] if taken else []
    return changed, [replace(parcel, amount=parcel.amount - taken)] if parcel.amount > taken else []


def amounts(parcels: Iterable[Parcel]) -> dict[tuple[str, str, str], int]:
    """What each consumer has in the end, by (consumer, provider, class)."""
    found: dict[tuple[str, str, str], int] = {}
    for parcel in parcels:
        key = parcel.consumer, parcel.to_provider, parcel.to_class
        found[key] = found.get(key, 0) + parcel.amount
    return found


def deal(parcels: Iterable[Parcel], units: Mapping[str, int], because: str) -> tuple[list[Parcel], list[Parcel]]:
    """Parcels of one class onto the units of the guest, and the rest of them; what is right already stays."""
    wanted = dict(units)
    found: list[Parcel] = []
    left: list[Parcel] = []
    for parcel in parcels:
        taken = min(wanted.get(parcel.provider, 0), parcel.amount)
        if taken:
            found.append(replace(parcel, amount=taken, to_provider=parcel.provider, because=because))
            wanted[parcel.provider] -= taken
        if parcel.amount > taken:
            left.append(replace(parcel, amount=parcel.amount - taken))
    rest: list[Parcel] = []
    for parcel in left:
        amount = parcel.amount
        for provider in sorted(wanted):
            taken = min(wanted[provider], amount)
            if taken:
                found.append(replace(parcel, amount=taken, to_provider=provider, because=because))
                wanted[provider] -= taken
                amount -= taken
        rest += [replace(parcel, amount=amount)] if amount else []
    return found, rest


def assemble(parcels: Iterable[Parcel]) -> tuple[Move, ...]:
    """One move for each consumer and way, with all classes that go it and the reasons why."""
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
