"""Reasons for what is reported: the fact behind it, and the rule that applies to that fact."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from reportclient.allocations import Holdings
from reportclient.tree import Inventory, Provider, ProviderTree


@dataclass(frozen=True, slots=True)
class Reason:
    """A fact and a rule, one line each, for people."""

    fact: str
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoned:
    """A provider with the reason for each of its classes and traits."""

    name: str
    parent: str | None = None
    inventories: Mapping[str, tuple[Inventory, Reason]] = field(default_factory=dict)
    traits: Mapping[str, Reason] = field(default_factory=dict)

    @property
    def provider(self) -> Provider:
        """The same provider without the reasons."""
        stock = {name: inventory for name, (inventory, _) in self.inventories.items()}
        return Provider(name=self.name, parent=self.parent, inventories=stock, traits=frozenset(self.traits))


@dataclass(frozen=True, slots=True)
class Explained:
    """A desired tree with its reasons; parents come before children."""

    providers: tuple[Reasoned, ...]
    counted_in: tuple[Reasoned, ...] = ()  # in the layout flat: devices whose stock is part of the root's
    holdings: Holdings = field(default_factory=Holdings)  # the units of the tree that guests have

    @property
    def tree(self) -> ProviderTree:
        """The same tree without the reasons."""
        return ProviderTree(tuple(reasoned.provider for reasoned in self.providers))
