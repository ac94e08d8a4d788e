"""
Set devices apart of which something cannot be read or understood, with what hangs on them. Pure.

Such a device is undecided: what stands of it in placement stays, reserved, and nothing of it is offered anew.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from drivers.by_suffix import BySuffix
from drivers.devices.away import is_offered
from drivers.devices.encryption import CONTEXT
from drivers.devices.inventories import libvirt_name, nova_name
from drivers.facts import Devices, HostFacts, OddDevice
from drivers.policy import DevicePolicy
from reportclient.errors import few
from reportclient.names import device_address
from reportclient.tree import MAX_INT

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
        seen = standing.provider(suffix)
        for name in seen.provider.inventories if seen else ():
            if name != CONTEXT and is_offered(name, policy):
                yield suffix, name


def odd_sentences(facts: HostFacts, policy: DevicePolicy) -> dict[str, str]:
    """Return a sentence for each cause of odd devices, by the first device's name; empty: no option asks for any."""
    if not (policy.discover_all or policy.mdevs or (policy.report and policy.rules)):
        return {}
    found: dict[str, dict[str, None]] = {}  # names once, in their order
    for one in facts.devices.odd:
        if not one.hangs:
            found.setdefault(one.because, {})[one.name] = None
    causes = {because: list(names) for because, names in found.items()}
    told = list(causes.items())[:CAUSES]
    others = [name for names in list(causes.values())[CAUSES:] for name in names]
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
