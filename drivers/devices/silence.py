"""Find cards that are on the host and show none of their VFs or mediated devices, as after a reload of the driver."""

from collections.abc import Iterable

from drivers.devices.inventories import libvirt_name, nova_name
from drivers.devices.match import by_rule, find_rules
from drivers.devices.mdev import rule_of
from drivers.facts import HostFacts, MdevParent
from drivers.policy import DevicePolicy, MdevRule


def untyped(facts: HostFacts, policy: DevicePolicy) -> frozenset[str]:
    """
    Return the suffixes of the providers of cards with VFs whose driver says that they have no type.

    After a boot such VFs wait for the unit that sets their types; at any other time a person took the types away.
    """
    ruled = find_rules(facts.devices, policy)
    return frozenset(
        nova_name(str(one.counted_on))
        for address, rule in ruled.rules.items()
        for one in (ruled.functions[address],)
        if rule.class_attribute in dict(one.attributes) and by_rule(one, rule) is None
    )


def shown(facts: HostFacts, policy: DevicePolicy) -> dict[str, int]:
    """
    Return how many VFs each card shows, whether they are offered or not, by the suffix of its provider.

    VFs whose class comes from a file that is missing, or that names no type, are not counted.
    """
    ruled = find_rules(facts.devices, policy)
    mute = {address for address, rule in ruled.rules.items() if not by_rule(ruled.functions[address], rule)}
    speaking = ruled.functions.keys() - mute
    return {
        nova_name(str(one.address)): len(speaking.intersection(one.vfs)) for one in facts.devices.functions if one.vfs
    }


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
