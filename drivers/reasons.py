"""Why something is reported: the fact it comes from, and the rule that made it so."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from reportclient.allocations import Holdings
from reportclient.tree import Inventory, Provider, ProviderTree


@dataclass(frozen=True, slots=True)
class Reason:
    """One line each, for people."""

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
        stock = {name: inventory for name, (inventory, _) in self.inventories.items()}
        return Provider(name=self.name, parent=self.parent, inventories=stock, traits=frozenset(self.traits))


@dataclass(frozen=True, slots=True)
class Shaped:
    """A desired tree that can say why it is as it is; parents before children."""

    providers: tuple[Reasoned, ...]
    counted_in: tuple[Reasoned, ...] = ()  # in the layout flat: devices whose stock is part of the root's
    holdings: Holdings = field(default_factory=Holdings)  # what of it each guest has

    @property
    def tree(self) -> ProviderTree:
        return ProviderTree(tuple(reasoned.provider for reasoned in self.providers))
