"""Check before placement is asked whether a request fits the cells, pages and devices that a host really has."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from reportclient.allocations import Allocation, Holding, Slots, usages
from reportclient.ownership import Names, Ownership
from reportclient.tree import Inventory, ObservedTree, ProviderTree


@dataclass(frozen=True, slots=True)
class Claimant:
    """
    The consumer whose allocations an operation rewrites: its present allocations do not count against its new request.

    ``keeps`` are the allocations that it keeps beside the request, by the provider's uuid: placement judges the sum.
    """

    uuid: str
    keeps: Slots = field(default_factory=dict)


def misfits(
    request: Slots,
    names: Mapping[str, str],
    tree: ProviderTree,
    allocations: Iterable[Allocation],
    units: Iterable[Holding],
    *,
    claimant: Claimant | None = None,
    theirs: Container[tuple[str, str]] = (),
) -> tuple[str, ...]:
    """
    Return why a request does not fit, one sentence for each reason; empty when it fits as far as this host can tell.

    ``names`` gives the names of this host's providers by uuid; requests to other providers are not judged here.
    ``tree`` is what the host has now, ``allocations`` is what placement has allocated of it, and ``units`` is what
    guests really have: the larger of the two amounts counts. Without ``claimant`` the amounts of every consumer count,
    as in a move: the migration keeps what its guest has. ``theirs`` is the result of ``others_stock``, which placement
    alone judges.
    """
    replaced, keeps = (claimant.uuid, claimant.keeps) if claimant else (None, {})
    booked = usages(one for one in allocations if one.consumer != replaced)
    held = _sums(unit for unit in units if unit.consumer != replaced)
    stocks = {(one.name, name): stock for one in tree for name, stock in one.inventories.items()}
    reasons = []
    for uuid, resources in request.items():
        provider = names.get(uuid)
        if provider is None:
            continue
        for name, amount in resources.items():
            slot = provider, name
            if slot in theirs:
                continue
            if slot not in stocks:
                reasons.append(f"{provider} has no {name} on this host now")
            else:
                taken = _taken(booked.get(slot, 0), held.get(slot, 0), others=claimant is not None)
                reasons += _misfits(slot, amount, stocks[slot], taken, keeps.get(uuid, {}).get(name, 0))
    return tuple(reasons)


def others_stock(
    observed: ObservedTree, tree: ProviderTree, ours: Ownership, configured: Mapping[str, Names]
) -> frozenset[tuple[str, str]]:
    """
    Return the (provider, class) pairs in placement that no driver of this host reports.

    ``tree`` is what the driver reports now, and ``configured`` is what provider.yaml added to it.
    """
    reported = {(one.name, name) for one in tree for name in one.inventories}
    found = set()
    for seen in observed:
        added = configured.get(seen.name, Names()).classes
        found |= {(seen.name, name) for name in seen.provider.inventories.keys() - (ours.classes(seen) - added)}
    return frozenset(found - reported)


def _sums(units: Iterable[Holding]) -> dict[tuple[str, str], int]:
    """Return what guests really have, by (provider name, resource class)."""
    held: dict[tuple[str, str], int] = {}
    for unit in units:
        slot = unit.provider, unit.resource_class
        held[slot] = held.get(slot, 0) + unit.amount
    return held


def _taken(booked: int, held: int, *, others: bool) -> tuple[int, str]:
    """Return how much of a slot is not free, and the words for a message."""
    if held > booked:
        return held, f"{'other ' if others else ''}guests really have {held}"
    return booked, f"{booked} are allocated{' to others' if others else ''}"


def _misfits(slot: tuple[str, str], asked: int, stock: Inventory, taken: tuple[int, str], kept: int) -> list[str]:
    provider, name = slot
    amount = asked + kept
    wanted = f"{provider} gives {name}"
    request = f"{asked} are asked for" + (f" in addition to the {kept} that the consumer keeps" if kept else "")
    found = []
    if amount < stock.min_unit or amount > stock.max_unit:
        found.append(f"{wanted} only in amounts from {stock.min_unit} to {stock.max_unit}, and {request}")
    if amount % stock.step_size:
        found.append(f"{wanted} in steps of {stock.step_size}, and {request}")
    if amount > stock.capacity - taken[0]:
        found.append(f"{provider} can give {stock.capacity} {name}, of which {taken[1]}: {request}")
    return found
