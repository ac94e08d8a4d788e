"""Providers, their inventories, and the trees they form: as desired, and as placement holds them."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

MAX_RATIO = 3.4e38  # placement keeps ratios in single precision
NO_GENERATION = -1  # in the memory: of a provider whose write told no generation
UNWRITTEN = -2  # in the memory: of a provider that was to be written, and perhaps was not
MAX_INT = 0x7FFFFFFF  # the largest value placement's schema takes, and its default max_unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Stock of one class on one provider, in the unit of the class (VCPU: one, MEMORY_MB: MiB, DISK_GB: GiB)."""

    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = MAX_INT
    step_size: int = 1
    allocation_ratio: float = 1.0

    def __post_init__(self) -> None:
        if self.total < 1:
            raise ValueError(f"total must be >= 1, got {self.total}: leave the class out instead")
        if not 0 <= self.reserved <= self.total:
            raise ValueError(f"reserved must be between 0 and total {self.total}, got {self.reserved}")
        if self.min_unit < 1 or self.max_unit < 1 or self.step_size < 1:
            raise ValueError(f"min_unit, max_unit and step_size must be >= 1, got {self}")
        if max(self.total, self.min_unit, self.max_unit, self.step_size) > MAX_INT:
            raise ValueError(f"no number of an inventory may be above {MAX_INT}, got {self}")
        if not 0 <= self.allocation_ratio < MAX_RATIO:
            raise ValueError(f"allocation_ratio must be finite and not negative, got {self.allocation_ratio}")

    @property
    def capacity(self) -> int:
        """Amount that can be allocated: ``(total - reserved) * allocation_ratio``, rounded down as in placement."""
        return int((self.total - self.reserved) * self.allocation_ratio)

    def fits(self, amount: int) -> bool:
        """Return whether one consumer may have this amount."""
        return self.min_unit <= amount <= self.max_unit and amount % self.step_size == 0

    def equals(self, other: "Inventory") -> bool:
        """Return whether both are equal; ratios may differ by rounding, as some databases keep single precision."""
        close = math.isclose(self.allocation_ratio, other.allocation_ratio, rel_tol=1e-5)
        return close and replace(self, allocation_ratio=other.allocation_ratio) == other


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One resource provider by name; ``parent`` is a name, None for the root."""

    name: str
    parent: str | None = None
    inventories: Mapping[str, Inventory] = field(default_factory=dict)
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ProviderTree:
    """The providers under one root, parents before children; never empty."""

    providers: tuple[Provider, ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for provider in self.providers:
            if provider.name in seen:
                raise ValueError(f"two providers named {provider.name}")
            if (provider.parent is None) != (not seen) or (provider.parent and provider.parent not in seen):
                raise ValueError(f"provider {provider.name} must come after its parent {provider.parent}")
            seen.add(provider.name)
        if not seen:
            raise ValueError("a provider tree has at least its root")

    @property
    def root(self) -> Provider:
        """The provider without a parent."""
        return self.providers[0]

    def __iter__(self) -> Iterator[Provider]:
        return iter(self.providers)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedProvider:
    """A provider as placement holds it, at one generation."""

    uuid: str
    generation: int
    provider: Provider
    above: int = NO_GENERATION  # in the memory, where the generation is not known: it is higher than this

    @property
    def name(self) -> str:
        """The provider's name in placement."""
        return self.provider.name

    def is_after(self, generation: int) -> bool:
        """Return whether a generation of this provider is an older one."""
        return generation < self.generation or generation <= self.above

    def changed(self, **changes: Any) -> "ObservedProvider":
        """Return it at the same generation, with these fields of its ``Provider`` changed."""
        return replace(self, provider=replace(self.provider, **changes))


@dataclass(frozen=True, slots=True)
class ObservedTree:
    """The tree under one root in placement, parents before children; empty when placement has no such root."""

    providers: tuple[ObservedProvider, ...] = ()
    last_modified: str = ""  # RFC 9110 date of the listing; empty when the server sent none

    @property
    def root(self) -> ObservedProvider | None:
        """The provider without a parent, which is the first; None in an empty tree, or where its root is not known."""
        return next((seen for seen in self.providers if seen.provider.parent is None), None)

    @property
    def by_name(self) -> dict[str, ObservedProvider]:
        """A new dict of the providers, by name."""
        return {observed.name: observed for observed in self.providers}

    @property
    def by_uuid(self) -> dict[str, ObservedProvider]:
        """A new dict of the providers, by uuid."""
        return {observed.uuid: observed for observed in self.providers}

    def once_written(self, left: "ObservedTree | None") -> dict[str, ObservedProvider]:
        """Return, by uuid, what was ``left`` of those providers that were written exactly once since then."""
        now = {(seen.uuid, seen.generation) for seen in self}
        return {seen.uuid: seen for seen in left or () if (seen.uuid, seen.generation + 1) in now}

    def __iter__(self) -> Iterator[ObservedProvider]:
        return iter(self.providers)


def total_of(inventories: Mapping[str, Inventory], resource_class: str) -> int:
    """Return the total of a class; 0 when there is no stock of it."""
    stock = inventories.get(resource_class)
    return stock.total if stock else 0


def same_stock(one: Mapping[str, Inventory], other: Mapping[str, Inventory]) -> bool:
    """Return whether two sets of inventories are equal."""
    return one.keys() == other.keys() and all(stock.equals(other[name]) for name, stock in one.items())


def went_back(left: ObservedTree, found: ObservedTree) -> bool:
    """
    Return whether the tree ``found`` is in an older state than ``left``: from a restored backup, or from a cache.

    Each write of stock or traits raises a provider's generation. So a provider that differs at the same generation was
    written after a restore.
    """
    for seen in found:
        before = left.by_uuid.get(seen.uuid)
        if before and (before.is_after(seen.generation) or _is_another(seen, before)):
            return True
    return False


def _is_another(one: ObservedProvider, other: ObservedProvider) -> bool:
    same = same_stock(one.provider.inventories, other.provider.inventories)
    return one.generation == other.generation and not (same and one.provider.traits == other.provider.traits)


@dataclass(frozen=True, slots=True)
class Summary:
    """What one provider of a tree has, as allocation candidates tell it."""

    free: Mapping[str, int]  # by class; below zero where more is allocated than the inventory allows now
    traits: frozenset[str]
