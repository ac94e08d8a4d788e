"""Find cards that are on the host and show none of their VFs or mediated devices, as after a reload of the driver."""

from collections import Counter
from collections.abc import Iterable

from drivers.by_suffix import BySuffix
from drivers.devices.inventories import libvirt_name, nova_name
from drivers.devices.match import by_rule, find_rules
from drivers.devices.mdev import rule_for, rule_of
from drivers.facts import HostFacts, MdevParent, OddDevice
from drivers.policy import DevicePolicy, MdevRule
from reportclient.hold import device_classes


def silent_devices(facts: HostFacts, policy: DevicePolicy, standing: BySuffix) -> list[OddDevice]:
    """
    Return the devices that are on offer and do not show now what their rule asks for, each as odd.

    These are VFs without the file that gives their class, VFs whose card does not show its serial number, and cards
    without a driver that had mediated devices. A missing file differs from a file with 0: the driver may come back.
    """
    ruled = find_rules(facts.devices, policy)
    groups = ruled.groups
    mute = dict.fromkeys(ruled.hidden, "its card does not show its serial number")
    for address, rule in ruled.offered.items():
        function = ruled.functions[address]
        if rule.class_attribute and not function.is_pf and rule.class_attribute not in dict(function.attributes):
            mute[address] = "its driver does not show its type"
    found = []
    for address, why in sorted(mute.items()):
        function = ruled.functions[address]
        shown = Counter(match.resource_class for match in groups.get(function.counted_on, ()))
        if _stock(nova_name(str(function.counted_on)), standing) - shown:
            found.append(OddDevice(str(address), why, address=address, pf=function.pf))
    parents = {parent.name for parent in facts.devices.mdev_parents}
    whole = {match.function.address for matched in groups.values() for match in matched}
    for address, function in ruled.functions.items():
        name = libvirt_name(str(address))
        is_awaited = rule_for({name, str(address)}, policy.mdevs) and address not in whole and name not in parents
        if function.driver is None and is_awaited and _stock(name, standing):
            found.append(OddDevice(str(address), "it has no driver, so its types are unknown", address=address))
    return found


def _stock(suffix: str, standing: BySuffix) -> Counter[str]:
    """Return how many devices of each class placement has of a provider."""
    stock = standing.stock(suffix)
    return Counter({name: stock[name].total for name in device_classes(stock)})


def shown(facts: HostFacts, policy: DevicePolicy) -> tuple[dict[str, int], frozenset[str]]:
    """
    Return how many VFs each card shows, offered or not, by the suffix of its provider; and which cards have no type.

    VFs whose class comes from a file that is missing, or that names no type, are not counted. Of the second value are
    the cards with VFs whose driver says that they have no type: after a boot these wait for the unit that sets it; at
    any other time a person took the types away.
    """
    ruled = find_rules(facts.devices, policy)
    mute = {ruled.functions[at]: rule for at, rule in ruled.rules.items() if not by_rule(ruled.functions[at], rule)}
    speaking = ruled.functions.keys() - {one.address for one in mute}
    counts = {
        nova_name(str(one.address)): len(speaking.intersection(one.vfs)) for one in facts.devices.functions if one.vfs
    }
    untyped = (one.counted_on for one, rule in mute.items() if rule.class_attribute in dict(one.attributes))
    return counts, frozenset(nova_name(str(address)) for address in untyped)


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
