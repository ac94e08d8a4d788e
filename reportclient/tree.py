"""Providers, their inventories, and the trees they form: as desired, and as placement holds them."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

MAX_RATIO = 3.4e38  # placement keeps it in single precision
MAX_INT = 0x7FFFFFFF  # the largest value placement's schema takes, and its default max_unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """One class's stock on one provider, in the units of the class (VCPU: one, MEMORY_MB: MiB, DISK_GB: GiB)."""

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
        """What can be allocated: ``(total - reserved) * allocation_ratio``, rounded down as placement does."""
        return int((self.total - self.reserved) * self.allocation_ratio)

    def equals(self, other: "Inventory") -> bool:
        """Whether both say the same; some databases keep a ratio in single precision."""
        close = math.isclose(self.allocation_ratio, other.allocation_ratio, rel_tol=1e-5)
        return self == other or (close and replace(self, allocation_ratio=other.allocation_ratio) == other)


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
        return self.providers[0]

    def __iter__(self) -> Iterator[Provider]:
        return iter(self.providers)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedProvider:
    """A provider as placement holds it, at one generation."""

    uuid: str
    generation: int
    provider: Provider

    @property
    def name(self) -> str:
        return self.provider.name


@dataclass(frozen=True, slots=True)
class ObservedTree:
    """What placement holds under one root, parents before children; no providers when it holds no such root."""

    providers: tuple[ObservedProvider, ...] = ()
    last_modified: str = ""  # RFC 9110 date of the listing, "" when the server sent none

    @property
    def root(self) -> ObservedProvider | None:
        return self.providers[0] if self.providers else None

    @property
    def by_name(self) -> dict[str, ObservedProvider]:
        return {observed.name: observed for observed in self.providers}

    @property
    def by_uuid(self) -> dict[str, ObservedProvider]:
        return {observed.uuid: observed for observed in self.providers}

    def __iter__(self) -> Iterator[ObservedProvider]:
        return iter(self.providers)


def total_of(inventories: Mapping[str, Inventory], resource_class: str) -> int:
    """The total of a class; 0 where there is none of it."""
    stock = inventories.get(resource_class)
    return stock.total if stock else 0


def same_stock(one: Mapping[str, Inventory], other: Mapping[str, Inventory]) -> bool:
    """Whether two sets of inventories say the same."""
    return one.keys() == other.keys() and all(stock.equals(other[name]) for name, stock in one.items())


def went_back(left: ObservedTree, found: ObservedTree) -> bool:
    """
    Whether a tree is in an older state than the one that was left: a restored backup, or the copy of a cache.

    Each write of stock or traits moves a provider's generation, so what differs at the same one was written in
    another history.
    """
    for seen in found:
        before = left.by_uuid.get(seen.uuid)
        if before and (seen.generation < before.generation or _is_another(seen, before)):
            return True
    return False


def _is_another(one: ObservedProvider, other: ObservedProvider) -> bool:
    same = same_stock(one.provider.inventories, other.provider.inventories)
    return one.generation == other.generation and not (same and one.provider.traits == other.provider.traits)
