"""Say why a rule of ``[pci] device_spec`` applies to no device of this host."""

from dataclasses import replace

from drivers.devices.match import Ruled, find_rules, left_to_neutron, of_the_host
from drivers.facts import HIGHEST_DOMAIN, HostFacts, PciFunction
from drivers.policy import DevicePolicy, DeviceRule
from drivers.rules import matches

_FEW = 2  # devices that a sentence names


def unused_rules(facts: HostFacts, policy: DevicePolicy) -> tuple[str, ...]:
    """Return a sentence for each rule that offers nothing here or what the host uses, for each card left to Neutron."""
    ruled = find_rules(facts.devices, policy)
    used, ignored = {rule.number for rule in ruled.rules.values()}, policy.rules and not policy.report
    return (
        *(
            f"[pci] device_spec rule {rule.number} applies to no device of this host: "
            f"{'; '.join(_reasons(rule, ruled))}"
            for rule in policy.rules
            if rule.number not in used
        ),
        *((*left_to_neutron(ruled), *of_the_host(ruled)) if policy.report else ()),
        *(["[pci] device_spec has no effect without report_in_placement = true"] if ignored else ()),
    )


def _reasons(rule: DeviceRule, ruled: Ruled) -> list[str]:
    """Return each reason once, with the first of the devices that it applies to."""
    meant = _meant(rule, ruled)
    if not meant:
        return [_other_ids(rule, ruled)]
    found = {_reason(one, ruled): one.address for one in reversed(meant)}
    return [why.format(address=address) for why, address in reversed(found.items())]


def _meant(rule: DeviceRule, ruled: Ruled) -> list[PciFunction]:
    return [one for one in ruled.functions.values() if matches(rule, one)]


def _reason(one: PciFunction, ruled: Ruled) -> str:
    """Return why a function that matches does not count for a rule, with a place for its address."""
    if not one.can_be_given:
        why = "is a bridge" if one.ids.is_bridge else f"has a PCI domain above {HIGHEST_DOMAIN:x}"
        return f"{{address}} {why}, which cannot be offered"
    if one.address in ruled.rules:
        return f"rule {ruled.rules[one.address].number} matches {{address}} first"
    return (
        f"remote_managed needs the serial number of the card, and libvirt shows none in the vital product data (VPD) "
        f"of {one.counted_on} and of its VF {{address}}: look at virsh nodedev-dumpxml"
    )


def _other_ids(rule: DeviceRule, ruled: Ruled) -> str:
    """Return which part of a rule no device matches: its ids, its address, or only both together."""
    place, named = rule.place, (("vendor_id", rule.vendor_id), ("product_id", rule.product_id))
    ids = " and ".join(f"{name} {id_}" for name, id_ in named if id_)
    there = _meant(replace(rule, vendor_id=None, product_id=None), ruled)
    if not there:
        return f"no device has an interface {place.interface}" if place.interface else "no device has its address"
    if not place.address:
        return f"no device has {ids}"
    return f"no device at its address has {ids}: {', '.join(map(_told, there[:_FEW]))}"


def _told(one: PciFunction) -> str:
    bare = ", a PF without VFs now" if one.is_pf and not one.vfs else ""
    return f"{one.address} is {one.ids}{bare}"
