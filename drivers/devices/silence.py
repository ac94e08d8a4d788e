"""Find cards that are on the host and show none of their VFs or mediated devices, as after a reload of the driver."""

from collections.abc import Iterable

from drivers.devices.mdev import rule_of
from drivers.devices.stock import libvirt_name, nova_name
from drivers.facts import HostFacts, MdevParent
from drivers.policy import MdevRule


def silent(facts: HostFacts, rules: Iterable[MdevRule]) -> frozenset[str]:
    """
    Return the suffixes of the providers that such cards would have.

    A card is not silent if it shows its parts and its rule was removed: then a person withdrew it. An SR-IOV card
    without VFs is always in: nothing shows whether its provider stood for the VFs or for the card as a whole.
    """
    functions = facts.devices.functions
    cards = {nova_name(str(one.address)) for one in functions if one.is_pf and not one.vfs}
    speaking = {parent.name for parent in facts.devices.mdev_parents}
    names = {libvirt_name(str(one.address)) for one in functions}
    empty = {parent.name for parent in facts.devices.mdev_parents if _is_empty(parent, facts, tuple(rules))}
    return frozenset(cards | (names - speaking) | empty)


def _is_empty(parent: MdevParent, facts: HostFacts, rules: tuple[MdevRule, ...]) -> bool:
    """Return whether a card neither has nor can make a mediated device of the type that is enabled for it."""
    rule = rule_of(parent, rules)
    if rule is None:
        return not parent.types
    has = any(mdev.parent == parent.name and mdev.type == rule.type for mdev in facts.devices.mdevs)
    return not has and not any(kind.id == rule.type and kind.available_instances for kind in parent.types)
