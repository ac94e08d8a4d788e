"""Look up what placement has of this host, by the suffix of a provider's name (the part after the root's name)."""

from collections.abc import Iterator, Mapping
from math import isclose

from reportclient.names import HUGE
from reportclient.ownership import MARKER
from reportclient.reserve import reserved_by_operator
from reportclient.tree import Inventory, ObservedProvider, ObservedTree


class BySuffix:
    """An observed tree, for lookups by suffix; empty where there is no placement to ask."""

    def __init__(self, observed: ObservedTree | None) -> None:
        self._by_suffix: dict[str, ObservedProvider] = {}
        if observed and (root := observed.root):
            self._by_suffix = {seen.name.removeprefix(root.name).removeprefix("_"): seen for seen in observed}

    @property
    def root(self) -> ObservedProvider | None:
        """The root provider; None where placement has none."""
        return self._by_suffix.get("")

    @property
    def children(self) -> Iterator[tuple[str, ObservedProvider]]:
        """All providers except the root, each with its suffix."""
        return ((suffix, seen) for suffix, seen in self._by_suffix.items() if suffix)

    def provider(self, suffix: str) -> ObservedProvider | None:
        """Return the provider with this suffix (``0000:81:00.0``); None when there is none."""
        return self._by_suffix.get(suffix)

    def stock(self, suffix: str) -> Mapping[str, Inventory]:
        """Return the stock of a provider, of the root for no suffix; empty when there is no such provider."""
        seen = self._by_suffix.get(suffix)
        return seen.provider.inventories if seen else {}

    def reserved(self, suffix: str) -> dict[str, int]:
        """
        Return what an operator reserved of each class on a provider; empty when there is no such provider.

        A conversion to or from the layout flat that was cut off left it in two places: it counts where the stock is.
        """
        seen = self._by_suffix.get(suffix)
        said = reserved_by_operator(seen.provider).items() if seen else ()
        return {name: amount for name, amount in said if not self._is_left(suffix, name, amount)}

    def _is_left(self, suffix: str, name: str, amount: int) -> bool:
        """Return whether an amount that an operator reserved is told on the root, or below it, where its stock went."""
        if name in self.stock(suffix):
            return False
        there = [self.root] if suffix else [one for _, one in self.children if MARKER in one.provider.traits]
        holders = [one.provider for one in there if one and name in one.provider.inventories]
        told = sum(reserved_by_operator(one).get(name, 0) for one in holders)
        return amount <= told if suffix else amount == told  # below, others may be held for guests, with their own

    def ratio(self, resource_class: str, *suffixes: str) -> float | None:
        """
        Return the allocation ratio of a class on the first of these providers that has it, else the one of all others.

        So a ratio that an operator set by hand survives a change of layout. None where no provider has the class, or
        where the others differ: the ratio of one cell does not apply to all.
        """
        for suffix in suffixes:
            if stock := self.stock(suffix).get(resource_class):
                return stock.allocation_ratio
        # of others only ours, without huge pages, which cannot be overcommitted
        others = [
            seen
            for seen in self._by_suffix.values()
            if seen is self.root or (MARKER in seen.provider.traits and HUGE not in seen.provider.traits)
        ]
        stocks = [stock for seen in others if (stock := seen.provider.inventories.get(resource_class))]
        ratios = [stock.allocation_ratio for stock in stocks]
        agreed = all(isclose(ratio, ratios[0], rel_tol=1e-5) for ratio in ratios)
        return ratios[0] if ratios and agreed else None
