"""Slots (a class on a provider) of two trees: their stock, the slots that allocations leave, and related providers."""

from drivers.parcels import Slot
from reportclient.allocations import Allocation, Observed
from reportclient.ownership import Ownership
from reportclient.settings import HUGE
from reportclient.tree import ObservedTree, ProviderTree


class Change:
    """What changes from the tree in placement to the desired one; a provider has the same name in both."""

    def __init__(self, observed: ObservedTree, desired: ProviderTree) -> None:
        standing = [seen.provider for seen in observed]
        self.before = {(one.name, name): stock.total for one in standing for name, stock in one.inventories.items()}
        self.stock = {(one.name, name): stock for one in desired for name, stock in one.inventories.items()}
        self.parents = {one.name: one.parent for one in (*standing, *desired)}  # in ``desired``, where it is in both
        self.huge = frozenset(one.name for one in (*standing, *desired) if HUGE in one.traits)  # those of huge pages

    def related(self, one: str, other: str) -> bool:
        """
        Return whether one provider is, or was, the other, above it or below it: then they have the same hardware.

        Huge pages are related to the root only, which counts all memory: a cell's own memory is its small pages.
        """
        if (one in self.huge) != (other in self.huge) and self.parents.get(one) and self.parents.get(other):
            return False
        return one in self._line(other) or other in self._line(one)

    def leaving(self, slot: Slot) -> bool:
        """Return whether allocations of a slot need a new place, as it is gone, or divided above or below."""
        if slot not in self.stock:
            return True
        return self.stock[slot].total < self.before.get(slot, 0) and any(
            name == slot[1] and (provider, name) not in self.before and self.related(provider, slot[0])
            for provider, name in self.stock
        )

    def _line(self, provider: str | None) -> list[str]:
        """Return a provider and those above it, the root last."""
        found = []
        while provider:
            found.append(provider)
            provider = self.parents.get(provider)
        return found


def own_allocations(observed: Observed, ours: Ownership) -> list[Allocation]:
    """Return the allocations of stock that is ours."""
    classes = {seen.name: ours.classes(seen) for seen in observed.tree}
    return [one for one in observed.allocations if one.resource_class in classes.get(one.provider, frozenset())]
