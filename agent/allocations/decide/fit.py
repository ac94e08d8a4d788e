"""Check before placement is asked whether a request fits the cells, pages and devices that a host really has."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from reportclient.allocations import Allocation, Holding, Slots
from reportclient.ownership import Names, Ownership
from reportclient.tree import Inventory, ObservedTree, ProviderTree

_Key = tuple[str, str, str]  # consumer, provider's name, resource class


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
    reserved: Iterable[Holding] = (),
    stand_ins: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """
    Return why a request does not fit, one sentence for each reason; empty when it fits as far as this host can tell.

    ``names`` gives the names of this host's providers by uuid; requests to other providers are not judged here.
    ``tree`` is what the host has now, ``allocations`` is what placement has allocated of it, and ``units`` is what
    guests really have: of each consumer the larger of the two amounts counts. ``reserved`` are those ``units`` that the
    tree has as reserved, and ``stand_ins`` gives the guests of migrations. Without ``claimant`` the amounts of every
    consumer count, as in a move: the migration keeps what its guest has. ``theirs`` is the result of ``others_stock``,
    which placement alone judges.
    """
    replaced, keeps = (claimant.uuid, claimant.keeps) if claimant else (None, {})
    rows = Counter[_Key]()
    for row in (one for one in allocations if one.consumer != replaced):
        rows[(stand_ins or {}).get(row.consumer, row.consumer), row.provider, row.resource_class] += row.amount
    held = Counter[_Key]()
    for unit in (one for one in units if one.consumer != replaced):
        held[unit.consumer, unit.provider, unit.resource_class] += unit.amount
    for unit in reserved:
        held[unit.consumer, unit.provider, unit.resource_class] -= unit.amount
    booked, taken = _sums(rows), _sums(rows | held)
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
                told = taken[slot], _told(booked[slot], taken[slot], others=claimant is not None)
                reasons += _misfits(slot, amount, stocks[slot], told, keeps.get(uuid, {}).get(name, 0))
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


def _sums(amounts: Mapping[_Key, int]) -> Counter[tuple[str, str]]:
    """Return the amounts of all consumers together, by (provider name, resource class)."""
    found = Counter[tuple[str, str]]()
    for (_, provider, name), amount in amounts.items():
        found[provider, name] += amount
    return found


def _told(booked: int, taken: int, *, others: bool) -> str:
    """Return how much of a slot is not free, in words for a message."""
    more = f", and {'other ' if others else ''}guests really have {taken - booked} more" if taken > booked else ""
    return f"{booked} are allocated{' to others' if others else ''}{more}"


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
