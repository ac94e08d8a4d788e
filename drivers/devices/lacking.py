"""
Find what the host does not show of its devices: cards that are silent, and fewer devices than rules expect.

So it is after a reload of the driver, or until a unit of the host has set the devices up after a boot.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from drivers.by_suffix import BySuffix
from drivers.devices.away import gives
from drivers.devices.inventories import libvirt_name, nova_name
from drivers.devices.match import by_rule, find_rules
from drivers.devices.mdev import rule_of
from drivers.facts import HostFacts, MdevParent
from drivers.policy import DevicePolicy, DeviceRule, MdevRule


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


@dataclass(frozen=True, slots=True)
class Short:
    """A rule with fewer devices on this host than it expects."""

    rule: DeviceRule | MdevRule
    expected: int
    shown: int

    @property
    def option(self) -> str:
        """Where the rule is written."""
        if isinstance(self.rule, MdevRule):
            return f"[mdev_{self.rule.type}]"
        return f"[pci] device_spec rule {self.rule.number}"

    def means(self, suffix: str, resource_class: str, standing: Container[str]) -> bool:
        """
        Return whether stock of a provider may be what the rule expects; the root's suffix is empty.

        ``standing`` are the suffixes of all providers: VFs are stock of their PF's, so the address of one is none.
        """
        if isinstance(self.rule, MdevRule):
            names = self.rule.addresses | {libvirt_name(address) for address in self.rule.addresses}
            return self.rule.resource_class == resource_class and (not (names and suffix) or suffix in names)
        own = nova_name(str(self.rule.place.exact)) if self.rule.place.exact else ""
        return gives(self.rule, resource_class) and (not suffix or own not in standing or suffix == own)


def short_rules(facts: HostFacts, policy: DevicePolicy) -> tuple[Short, ...]:
    """Return the rules with fewer devices than they expect: those of PCI devices first."""
    matches = [match for group in find_rules(facts.devices, policy).groups.values() for match in group]
    counts = Counter(match.rule.number for match in matches if match.rule)
    made = _mdevs_by_type(facts, policy.mdevs)
    of_pci = ((one, one.expect, counts[one.number]) for one in policy.rules if policy.report)
    of_mdevs = ((one, one.expect, made.get(one.type, 0)) for one in policy.mdevs)
    every: Iterable[tuple[DeviceRule | MdevRule, int | None, int]] = (*of_pci, *of_mdevs)
    return tuple(Short(rule, expect, shown) for rule, expect, shown in every if expect is not None and shown < expect)


def expected_slots(facts: HostFacts, policy: DevicePolicy, standing: BySuffix) -> frozenset[tuple[str, str]]:
    """Return (suffix, class) of the stock in placement that a rule expects and that is not all there."""
    rules = short_rules(facts, policy)
    stood = (("", standing.root), *standing.children)
    names = {suffix for suffix, _ in stood if suffix}
    return frozenset(
        (suffix, name)
        for suffix, seen in stood
        if seen
        for name in seen.provider.inventories
        if any(rule.means(suffix, name, names) for rule in rules)
    )


def too_few(facts: HostFacts, policy: DevicePolicy) -> tuple[str, ...]:
    """Return a sentence for each rule with fewer devices than it expects."""
    return tuple(
        f"{short.option} expects {short.expected} devices, and this host shows {short.shown}: start what sets up its "
        f"VFs, vGPU types or MIG instances, or correct expect"
        for short in short_rules(facts, policy)
    )


def _mdevs_by_type(facts: HostFacts, rules: Iterable[MdevRule]) -> Mapping[str, int]:
    """Return how many devices of each type exist, or can be made, on the cards that offer the type."""
    rules = tuple(rules)
    found: dict[str, int] = {}
    for parent in facts.devices.mdev_parents:
        rule = rule_of(parent, rules)
        if rule:
            there = sum((one.parent, one.type) == (parent.name, rule.type) for one in facts.devices.mdevs)
            room = sum(kind.available_instances for kind in parent.types if kind.id == rule.type)
            found[rule.type] = found.get(rule.type, 0) + there + room
    return found
