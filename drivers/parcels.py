"""What consumers have in pieces, each with where it goes: from allocations to the moves that a plan consists of."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from reportclient.allocations import Move
from reportclient.tree import Inventory

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


def relabel(
    parcels: Iterable[Parcel], name: str, other: str, amount: int, stock: Mapping[Slot, Inventory]
) -> list[Parcel]:
    """So much of one class becomes another: what has no place first."""
    found: list[Parcel] = []
    for parcel in sorted(parcels, key=lambda one: (one.provider, one.to_class) in stock):
        taken = min(amount, parcel.amount) if parcel.to_class == name else 0
        if taken:
            found.append(replace(parcel, amount=taken, to_class=other))
            amount -= taken
        if parcel.amount > taken:
            found.append(replace(parcel, amount=parcel.amount - taken))
    return found


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
