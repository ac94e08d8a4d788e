"""What placement holds of this host already, found by the part of a provider's name that is its own."""

from collections.abc import Iterator
from math import isclose

from reportclient.ownership import MARKER
from reportclient.settings import HUGE
from reportclient.tree import ObservedProvider, ObservedTree


class Standing:
    """An observed tree as shapes look things up in it; empty where there is no placement to ask."""

    def __init__(self, observed: ObservedTree | None) -> None:
        root = observed.root if observed else None
        self._by_suffix: dict[str, ObservedProvider] = {}
        if observed and root:
            self._by_suffix = {seen.name.removeprefix(root.name).removeprefix("_"): seen for seen in observed}

    @property
    def root(self) -> ObservedProvider | None:
        return self._by_suffix.get("")

    @property
    def children(self) -> Iterator[tuple[str, ObservedProvider]]:
        """All but the root, with their suffixes."""
        return ((suffix, seen) for suffix, seen in self._by_suffix.items() if suffix)

    def provider(self, suffix: str) -> ObservedProvider | None:
        """The provider of this suffix (``0000:81:00.0``); None when there is none."""
        return self._by_suffix.get(suffix)

    def ratio(self, suffix: str, resource_class: str) -> float | None:
        """
        The allocation ratio that stands for a class on this provider, else the one that all others agree on.

        So a ratio that an operator set by hand outlives a change of layout. None where nobody has the class, or where
        they differ: one cell's ratio is not everybody's.
        """
        own = self._by_suffix.get(suffix)
        stock = own.provider.inventories.get(resource_class) if own else None
        if stock:
            return stock.allocation_ratio
        others = [seen for seen in self._by_suffix.values() if seen is self.root or _tells_ratios(seen)]
        found = [
            seen.provider.inventories[resource_class] for seen in others if resource_class in seen.provider.inventories
        ]
        ratios = [stock.allocation_ratio for stock in found]
        agreed = all(isclose(ratio, ratios[0], rel_tol=1e-5) for ratio in ratios)
        return ratios[0] if ratios and agreed else None


def _tells_ratios(seen: ObservedProvider) -> bool:
    """Whether a provider is ours, and none of huge pages, which nobody can overcommit."""
    return MARKER in seen.provider.traits and HUGE not in seen.provider.traits
