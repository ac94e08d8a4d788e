"""
What is reserved, and whose word that is, as placement itself remembers it.

``reserved`` is an operator's word, unless the provider carries one of our marks. While it does, traits that begin with
``KEEP`` say what the operator reserved, so that exactly that is left once our reason is gone.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from reportclient.names import is_name
from reportclient.tree import Inventory, ObservedProvider, Provider

UNHEALTHY = "CUSTOM_DEVICE_UNHEALTHY"  # some of it is ill
HELD = "CUSTOM_DEVICE_HELD"  # there is less of it than guests hold or an operator reserved
KEEP = f"{UNHEALTHY}_KEEP_"  # followed by an amount, "_", and the class of which an operator reserved so much


def is_mark(trait: str) -> bool:
    """Whether a trait says whose a reservation is."""
    return trait in (UNHEALTHY, HELD) or trait.startswith(KEEP)


def is_reserved_by_us(traits: Collection[str]) -> bool:
    """Whether what is reserved on a provider with these traits is more than an operator's word."""
    return UNHEALTHY in traits or HELD in traits


def reserved_by_operator_on(stands: ObservedProvider | None) -> dict[str, int]:
    """Amount of each class that an operator reserved on a provider, classes that are away for now included."""
    return reserved_by_operator(stands.provider) if stands else {}


def reserved_by_operator(provider: Provider) -> dict[str, int]:
    """The same of a provider that stands or is wanted."""
    if is_reserved_by_us(provider.traits):
        return _remembered(provider.traits)
    return {name: stock.reserved for name, stock in provider.inventories.items() if stock.reserved}


def given_back(stands: ObservedProvider) -> dict[str, Inventory]:
    """A provider's stock without what we reserved of it."""
    theirs = reserved_by_operator_on(stands)
    return {
        name: replace(stock, reserved=min(stock.total, theirs.get(name, 0)))
        for name, stock in stands.provider.inventories.items()
    }


def used_up(provider: Provider) -> Provider:
    """A provider all of which is reserved for good, and not only as long as we have a reason of our own."""
    stock = {name: replace(one, reserved=one.total) for name, one in provider.inventories.items()}
    marks = keeps({name: one.total for name, one in stock.items()})
    marked = marks if is_reserved_by_us(provider.traits) else frozenset()
    return replace(provider, inventories=stock, traits=provider.traits | marked)


def keeps(reserved: Mapping[str, int]) -> frozenset[str]:
    """The traits that remember what an operator reserved, by class."""
    names = (f"{KEEP}{amount}_{name}" for name, amount in reserved.items() if amount)
    return frozenset(filter(is_name, names))


def without_words(traits: Collection[str], classes: Collection[str]) -> frozenset[str]:
    """The traits but for those that remember what was reserved of these classes."""
    return frozenset(name for name in traits if _remembered([name]).keys().isdisjoint(classes))


def _remembered(traits: Collection[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for trait in traits:
        amount, _, resource_class = trait.removeprefix(KEEP).partition("_")
        if trait.startswith(KEEP) and amount.isdecimal():
            found[resource_class] = max(int(amount), found.get(resource_class, 0))
    return found
