"""Who holds what: allocations as placement records them, holdings as the hypervisor sees them, and moves between."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Allocation:
    """One consumer's amount of one class on one provider (by name), as placement records it."""

    consumer: str
    provider: str
    resource_class: str
    amount: int


@dataclass(frozen=True, slots=True, order=True)
class Holding:
    """What a guest really has, in placement's words: the driver's answer to "which unit belongs to whom"."""

    consumer: str
    provider: str
    resource_class: str
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One consumer's amount of one class going from one provider (by name) to another."""

    consumer: str
    from_provider: str
    to_provider: str
    resource_class: str
    amount: int
    because: str


def usages(allocations: Iterable[Allocation]) -> dict[tuple[str, str], int]:
    """The sum of what is allocated, by (provider name, resource class); nothing allocated is no entry."""
    used: dict[tuple[str, str], int] = {}
    for allocation in allocations:
        slot = allocation.provider, allocation.resource_class
        used[slot] = used.get(slot, 0) + allocation.amount
    return used
