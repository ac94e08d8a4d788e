"""
Keep what stands in placement of devices that cannot be read or understood, or are away. Pure.

The former are set apart as odd, with what hangs on them: undecided. What stands of them stays, reserved, and nothing is
offered anew. Of the latter the reservations of an operator on the root stay, while no device of their class is here.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from drivers.by_suffix import BySuffix
from drivers.devices.inventories import SHORT, libvirt_name, nova_name
from drivers.devices.memory import CONTEXT
from drivers.facts import Devices, HostFacts, OddDevice
from drivers.policy import DevicePolicy, DeviceRule
from drivers.reasons import Reason
from reportclient.errors import few
from reportclient.names import BANDWIDTH, NO_DEVICES, device_address, normalise_class
from reportclient.tree import MAX_INT, Inventory

CAUSES = 10  # that are told one by one


def set_apart(devices: Devices, odd: Iterable[OddDevice]) -> Devices:
    """
    Return the devices without the odd ones, and without what hangs on these: VFs, and mediated devices.

    VFs that a listed PF names and that are not listed are odd too: libvirt reads the VFs in a PF's XML from the kernel,
    and lists a VF only after udev's event for it, and if it can read its configuration space. The kernel sends that
    event before it makes the VF's link to its PF (pci_iov_add_virtfn in drivers/pci/iov.c), so a VF may show no PF.
    """
    pfs = {vf: pf.address for pf in devices.functions for vf in pf.vfs}
    own = {  # what may be on several cards is there once for each
        (one.name, one.card): replace(one, pf=pfs.get(one.address) if one.address else None)
        for one in (*devices.odd, *odd)
    }
    listed = {one.address for one in devices.functions} | {one.address for one in own.values()}
    for vf, pf in sorted(pfs.items()):
        if vf not in listed:
            why = f"libvirt's PF {pf} has this VF, which the list of node devices lacks"
            own[str(vf), ""] = OddDevice(str(vf), why, address=vf, pf=pf)
    for one in devices.functions:
        if one.address in pfs and one.pf in (None, one.address):
            why = f"its PF {pfs[one.address]} has it as a VF, and its own XML names no PF"
            own[str(one.address), ""] = OddDevice(str(one.address), why, address=one.address, pf=pfs[one.address])
    bad = {one.address for one in own.values() if one.address}
    hanging = [
        OddDevice(str(one.address), f"its PF {one.pf} is undecided", address=one.address, pf=one.pf, hangs=True)
        for one in devices.functions
        if one.pf in bad and one.address not in bad
    ]
    bad |= {one.address for one in hanging if one.address}
    cards = {one.card for one in own.values()} | {one.name for one in devices.mdev_parents if one.address in bad}
    return replace(
        devices,
        functions=tuple(one for one in devices.functions if one.address not in bad),
        mdev_parents=tuple(one for one in devices.mdev_parents if one.name not in cards),
        mdevs=tuple(one for one in devices.mdevs if one.parent not in cards),
        odd=(*(own[key] for key in sorted(own)), *hanging),
    )


def undecided_units(devices: Devices) -> dict[str, int]:
    """
    Return the suffixes of the providers of which odd devices may be a part, with the most units that they are.

    That is known of VFs only, and MAX_INT elsewhere.
    """
    whole = {one.address for one in devices.odd if one.address}
    found = {one.card: MAX_INT for one in devices.odd if one.card}
    found |= {name(str(address)): MAX_INT for address in whole for name in (nova_name, libvirt_name)}
    for one in devices.odd:
        if one.pf and one.pf not in whole:
            suffix = nova_name(str(one.pf))
            found[suffix] = found.get(suffix, 0) + 1
    return found


def undecided_slots(
    facts: HostFacts, policy: DevicePolicy, standing: BySuffix, *, flat: bool
) -> Iterator[tuple[str, str]]:
    """
    Yield (suffix, class) of the stock in placement that odd devices may be a part of; the root's suffix is empty.

    Classes that the configuration no longer offers are left out: a person withdrew them. With ``flat`` the root's
    totals are such stock too.
    """
    suffixes = undecided_units(facts.devices).keys()
    for suffix in sorted(suffixes | {""} if flat and suffixes else suffixes):
        for name in standing.stock(suffix):
            if name != CONTEXT and is_offered(name, policy):
                yield suffix, name


def odd_sentences(facts: HostFacts, policy: DevicePolicy) -> dict[str, str]:
    """Return a sentence for each cause of odd devices, by the first device's name; empty: no option asks for any."""
    if not (policy.discover_all or policy.mdevs or (policy.report and policy.rules)):
        return {}
    causes: dict[str, list[str]] = {}
    for one in dict.fromkeys((each.because, each.name) for each in facts.devices.odd if not each.hangs):
        causes.setdefault(one[0], []).append(one[1])
    told, others = [*causes.items()][:CAUSES], [name for names in [*causes.values()][CAUSES:] for name in names]
    if others:
        told.append(("much the same is wrong with them", others))
    return {names[0]: _sentence(names, because) for because, names in told}


def odd_sentence(facts: HostFacts, name: str) -> str:
    """Return why the device of a provider, or the device with this name or address, is undecided; empty: it is not."""
    suffix, address = name.removeprefix(f"{facts.hostname}_"), device_address(name)
    for one in facts.devices.odd:
        if suffix in (one.name, one.card) or address == str(one.address):
            return _sentence([one.name], one.because)
    return ""


def _sentence(names: list[str], because: str) -> str:
    are = "are" if len(names) > 1 else "is"
    return (
        f"{few(names, 3)} {are} undecided, as {because}. What placement has of that stays reserved, and nothing is "
        f"offered anew. Repair or reset the device, or restart virtnodedevd or libvirtd"
    )


def away(policy: DevicePolicy, standing: BySuffix, here: Iterable[str]) -> dict[str, tuple[Inventory, Reason]]:
    """
    Return stock, all reserved, for each class that an operator reserved on the root and that is not in ``here``.

    ``here`` are the classes of the devices on the host. A class that the configuration no longer offers is left out:
    then a person withdrew it.
    """
    missing = {name: amount for name, amount in standing.reserved("").items() if name not in here}
    return {
        name: (
            Inventory(total=amount, reserved=amount, max_unit=amount),
            Reason(f"{amount} {name} were reserved, and no device of this host has any now", SHORT),
        )
        for name, amount in sorted(missing.items())
        if is_offered(name, policy)
    }


def withdrawn(policy: DevicePolicy, standing: BySuffix) -> frozenset[str]:
    """Return the classes on the root that are of no device by this configuration: a person withdrew what is ours."""
    others = {*NO_DEVICES, *policy.pmem.values()}
    return frozenset(name for name in standing.stock("") if name not in others and not is_offered(name, policy))


def is_offered(name: str, policy: DevicePolicy) -> bool:
    """Return whether the configuration offers a class where there is hardware for it."""
    rules = policy.rules if policy.report else ()
    if name in BANDWIDTH:
        return policy.link_bandwidth or any(rule.network.bandwidth for rule in rules)
    by_itself = name == CONTEXT or (policy.discover_all and name == "SRIOV_NET_VF")
    return by_itself or any(rule.resource_class == name for rule in policy.mdevs) or any(gives(r, name) for r in rules)


def gives(rule: DeviceRule, name: str) -> bool:
    """Return whether a rule may give this class to some device."""
    if rule.class_attribute:
        return name.startswith(normalise_class(f"{rule.class_attribute.split('/')[0]}_"))
    if rule.resource_class:
        return rule.resource_class == name
    vendor, product = (rule.vendor_id or "").upper(), (rule.product_id or "").upper()
    return name.startswith(f"CUSTOM_PCI_{vendor}") and name.endswith(product)
