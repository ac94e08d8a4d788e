"""Cards that are on the host and show none of the VFs or mediated devices that they can have: a reload takes them."""

from collections.abc import Iterable

from drivers.devices.mdev import rule_of
from drivers.devices.stock import libvirt_name
from drivers.facts import HostFacts, MdevParent
from drivers.policy import MdevRule


def silent(facts: HostFacts, rules: Iterable[MdevRule]) -> frozenset[str]:
    """
    The suffixes of the providers that these cards would have.

    A rule that is taken away while the card shows its parts does not make it silent: that was a person's word. Of an
    SR-IOV card without any VFs nobody can tell whether a provider stood for VFs or for the card as a whole.
    """
    functions = facts.devices.functions
    cards = {str(one.address) for one in functions if one.is_pf and not one.vfs}
    speaking = {parent.name for parent in facts.devices.mdev_parents}
    names = {libvirt_name(str(one.address)) for one in functions}
    empty = {parent.name for parent in facts.devices.mdev_parents if _is_empty(parent, facts, tuple(rules))}
    return frozenset(cards | (names - speaking) | empty)


def _is_empty(parent: MdevParent, facts: HostFacts, rules: tuple[MdevRule, ...]) -> bool:
    """Whether a card has and can make no mediated device of the type that is enabled for it."""
    rule = rule_of(parent, rules)
    if rule is None:
        return not parent.types
    has = any(mdev.parent == parent.name and mdev.type == rule.type for mdev in facts.devices.mdevs)
    return not has and not any(kind.id == rule.type and kind.available_instances for kind in parent.types)
