"""
Describe devices of every kind in one form: what each offers, on which provider, and why. All layouts use this form.

Rules and names are nova's where it has any: a provider per PF or plain device, VFs counted on their PF, a provider per
physical GPU, memory encryption contexts.
"""

from collections.abc import Iterable

from drivers.by_suffix import BySuffix
from drivers.devices.inventories import DeviceStock, libvirt_name, nova_name
from drivers.devices.match import Ruled, beyond_nova, find_rules, left_to_neutron, of_the_host
from drivers.devices.mdev import idle_types, mdev_stock
from drivers.devices.memory import pmem_stock, sev_stock, tdx_stock
from drivers.devices.odd import undecided_units
from drivers.devices.pci_cards import pci_stock
from drivers.errors import PolicyError
from drivers.facts import HIGHEST_DOMAIN, HostFacts
from drivers.policy import DevicePolicy, DeviceRule
from drivers.rules import matches


def device_stock(facts: HostFacts, policy: DevicePolicy, standing: BySuffix) -> tuple[DeviceStock, ...]:
    """
    Return what every device of this host offers, in order of kind and address.

    ``standing`` is what placement has: it shows what an operator reserved, and the stock of a card that shows none now.

    Raises:
        PolicyError: the policy contradicts itself or this host.
    """
    whole = pci_stock(facts, policy, standing)
    divided = mdev_stock(facts, policy.mdevs, standing)
    _check_forms(whole, divided)
    encrypted = (*sev_stock(facts, policy, standing), *tdx_stock(facts, policy, standing))
    return (*whole, *divided, *encrypted, *pmem_stock(facts, policy))


def _check_forms(whole: Iterable[DeviceStock], divided: Iterable[DeviceStock]) -> None:
    """
    Refuse a function that is offered whole, while it or its VFs are divided into mediated devices too.

    Raises:
        PolicyError: there is such a function.
    """
    offered = {address: one for one in whole for address in one.members}
    for device in divided:
        for address in sorted(device.hardware & offered.keys()):
            pci = next(iter(offered[address].inventories.values()))[1]
            mdev = next(iter(device.inventories.values()))[1]
            raise PolicyError(
                f"{pci.rule}, offers {address} as a whole, but {mdev.rule.partition(',')[0]}, which divides the same "
                f"device ({device.suffix}) into mediated devices. Only one of the two is possible. Either set "
                f"product_id or address in that device_spec rule so that the rule does not match the device, or list "
                f"other cards for the type in [mdev_TYPE] device_addresses"
            )


def idle_devices(facts: HostFacts, policy: DevicePolicy) -> tuple[str, ...]:
    """Return a sentence for each part of the policy that matches nothing, that Neutron has, or that the host uses."""
    ruled = find_rules(facts.devices, policy)
    used = {rule.number for rule in ruled.rules.values()}
    found = [
        f"[pci] device_spec rule {rule.number} applies to no device of this host: {_reason(rule, ruled)}"
        for rule in policy.rules
        if rule.number not in used
    ]
    found += [*left_to_neutron(ruled), *of_the_host(ruled)]
    if policy.rules and not policy.report:
        found.append("[pci] device_spec has no effect without report_in_placement = true")
    if far := beyond_nova(facts, policy):
        found.append(
            f"{', '.join(map(str, far))}: left out, as nova cannot give a guest a device whose PCI domain is above "
            f"{HIGHEST_DOMAIN:x}"
        )
    return (*found, *idle_types(facts, policy.mdevs))


def _reason(rule: DeviceRule, ruled: Ruled) -> str:
    """Return why a rule counts for nothing, by the first of the devices that it matches."""
    one = next((one for one in ruled.functions.values() if matches(rule, one)), None)
    if one is None:
        return "no device fits its devname, address, vendor_id and product_id"
    if not one.can_be_given:
        why = "is a bridge" if one.ids.is_bridge else f"has a PCI domain above {HIGHEST_DOMAIN:x}"
        return f"{one.address} {why}, which cannot be offered"
    if one.address in ruled.rules:
        return f"rule {ruled.rules[one.address].number} matches {one.address} first"
    return (
        f"remote_managed needs the serial number of the card, and libvirt shows none in the vital product data (VPD) "
        f"of {one.counted_on} and of its VF {one.address}: look at virsh nodedev-dumpxml"
    )


def present(facts: HostFacts) -> frozenset[str]:
    """Return the suffixes of the providers whose hardware is on this host, offered or not."""
    functions = [str(function.address) for function in facts.devices.functions]
    parents = [parent.name for parent in facts.devices.mdev_parents]
    odd = undecided_units(facts.devices)
    return frozenset((*map(nova_name, functions), *map(libvirt_name, functions), *parents, *odd))
