"""Slots (a class on a provider) of two trees: their stock, the slots that allocations leave, and related providers."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from drivers.parcels import Slot
from reportclient.allocations import Allocation, Observed
from reportclient.ownership import Ownership
from reportclient.settings import HUGE
from reportclient.tree import Inventory, ObservedTree, ProviderTree


def stock_of(desired: ProviderTree) -> dict[Slot, Inventory]:
    """Return the stock of each slot."""
    return {(provider.name, name): stock for provider in desired for name, stock in provider.inventories.items()}


def leaving_of(observed: ObservedTree, desired: ProviderTree) -> Callable[[Slot], bool]:
    """Return a test of slots: whether allocations need a new place, as the slot is gone, or divided above or below."""
    stock = stock_of(desired)
    relations = relations_of(observed, desired)
    before = {(seen.name, name): one.total for seen in observed for name, one in seen.provider.inventories.items()}

    def leaves(slot: Slot) -> bool:
        if slot not in stock:
            return True
        shrank = stock[slot].total < before.get(slot, 0)
        return shrank and any(
            name == slot[1] and (provider, name) not in before and relations.hold(provider, slot[0])
            for provider, name in stock
        )

    return leaves


class Relations(NamedTuple):
    """Which providers of two trees have, or had, the same hardware: those above and below each other."""

    parents: Mapping[str, str | None]  # by name
    huge: frozenset[str]  # names of the providers of huge pages

    def hold(self, one: str, other: str) -> bool:
        """
        Return whether one provider is the other, above it or below it.

        Huge pages are related to the root only, which counts all memory: a cell's own memory is its small pages.
        """
        if (one in self.huge) != (other in self.huge) and self.parents.get(one) and self.parents.get(other):
            return False
        return one in _line(other, self.parents) or other in _line(one, self.parents)


def relations_of(observed: ObservedTree, desired: ProviderTree) -> Relations:
    """Return the relations of the providers of both trees; a provider that is in both has its parent in ``desired``."""
    parents = {seen.name: seen.provider.parent for seen in observed} | {one.name: one.parent for one in desired}
    providers = (*(seen.provider for seen in observed), *desired)
    return Relations(parents, frozenset(one.name for one in providers if HUGE in one.traits))


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
