"""
What is kept from guests, and whose word that is.

A reservation that somebody else made stays. While we reserve for ill health the provider carries our mark, and another
one with what was reserved before, so that exactly that is left when the device is well: placement itself remembers.
"""

from collections.abc import Mapping

from drivers.reasons import Reason
from reportclient.names import is_name
from reportclient.ownership import MARKER
from reportclient.tree import ObservedProvider

UNHEALTHY = "CUSTOM_DEVICE_UNHEALTHY"
KEEP = f"{UNHEALTHY}_KEEP_"  # followed by an amount, "_", and the class of which it was reserved before
RULE = "ill devices are reserved until they are well"


def said(stands: ObservedProvider | None, resource_class: str) -> int:
    """How much of a class somebody else reserved on a provider; 0 where nobody did."""
    if stands is None:
        return 0
    if UNHEALTHY in stands.provider.traits:
        return _kept(stands).get(resource_class, 0)
    stock = stands.provider.inventories.get(resource_class)
    return stock.reserved if stock else 0


def marks(why: str, reserved_before: Mapping[str, int]) -> dict[str, Reason]:
    """The traits of a provider with ill devices; ``reserved_before`` is what others reserved, by class."""
    names = [f"{KEEP}{amount}_{name}" for name, amount in reserved_before.items() if amount]
    return dict.fromkeys([UNHEALTHY, *filter(is_name, names)], Reason(why, RULE))


def own_traits(stands: ObservedProvider) -> frozenset[str]:
    """What a provider carries beside our marks."""
    return frozenset(name for name in stands.provider.traits - {MARKER, UNHEALTHY} if not name.startswith(KEEP))


def _kept(stands: ObservedProvider) -> dict[str, int]:
    found = {}
    for name in stands.provider.traits:
        amount, _, resource_class = name.removeprefix(KEEP).partition("_")
        if name.startswith(KEEP) and amount.isdecimal():
            found[resource_class] = int(amount)
    return found
