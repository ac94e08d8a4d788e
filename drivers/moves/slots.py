"""Slots (a class on a provider) of two trees: their stock, the slots that allocations leave, and related providers."""

from collections.abc import Callable, Mapping

from drivers.parcels import Slot
from reportclient.allocations import Allocation, Observed
from reportclient.ownership import Ownership
from reportclient.tree import Inventory, ObservedTree, ProviderTree


def stock_of(desired: ProviderTree) -> dict[Slot, Inventory]:
    """Return the stock of each slot."""
    return {(provider.name, name): stock for provider in desired for name, stock in provider.inventories.items()}


def leaving_of(observed: ObservedTree, desired: ProviderTree) -> Callable[[Slot], bool]:
    """Return a test of slots: whether allocations need a new place, as the slot is gone, or divided above or below."""
    stock = stock_of(desired)
    parents = {seen.name: seen.provider.parent for seen in observed} | {one.name: one.parent for one in desired}
    before = {(seen.name, name): one.total for seen in observed for name, one in seen.provider.inventories.items()}

    def leaves(slot: Slot) -> bool:
        if slot not in stock:
            return True
        shrank = stock[slot].total < before.get(slot, 0)
        return shrank and any(
            name == slot[1] and (provider, name) not in before and is_related(provider, slot[0], parents)
            for provider, name in stock
        )

    return leaves


def is_related(one: str, other: str, parents: Mapping[str, str | None]) -> bool:
    """Return whether one provider is the other, above it or below it."""
    return one in _line(other, parents) or other in _line(one, parents)


def own_allocations(observed: Observed, ours: Ownership) -> list[Allocation]:
    """Return the allocations of stock that is ours."""
    classes = {seen.name: ours.classes(seen) for seen in observed.tree}
    return [one for one in observed.allocations if one.resource_class in classes.get(one.provider, frozenset())]


def _line(provider: str | None, parents: Mapping[str, str | None]) -> list[str]:
    found = []
    while provider:
        found.append(provider)
        provider = parents.get(provider)
    return found
