"""
Lines of configuration for the devices of a host, for ``discover --suggest``. Pure.

What is certain stands as an option; what a person must choose stands as a comment with the choices.
"""

import json
from collections.abc import Iterator, Sequence

from drivers.devices.health import FOR_GUESTS
from drivers.devices.match import NETWORK
from drivers.facts import Devices, MdevParent, PciFunction

TYPE_FILE = "nvidia/current_vgpu_type"  # of a VF: its vGPU type (NVIDIA vGPU User Guide, SR-IOV vGPUs on Linux 6.8+)
TYPE_FILES = {"10de": frozenset({TYPE_FILE})}  # files to read for a suggestion, by vendor id


def suggestion(devices: Devices) -> str:
    """Return a configuration file with the options for these devices; without devices it has only a comment."""
    parts = [[*_pci(devices)], [*_mediated(devices)]]
    return (
        "\n\n".join("\n".join(part) for part in parts if part) or "# no VFs, mediated devices or vfio-pci devices here"
    )


def _pci(devices: Devices) -> Iterator[str]:
    makers = {one.address for one in devices.mdev_parents}  # what is divided into mediated devices is no PCI device
    cards = [one for one in devices.functions if one.vfs and makers.isdisjoint({one.address, *one.vfs})]
    network = [one for one in cards if _kind(one) == NETWORK]
    by_address = {one.address: one for one in devices.functions}
    rules = [
        (_virtual(one, [by_address[vf] for vf in one.vfs if vf in by_address]), f"{len(one.vfs)} VFs of {_named(one)}")
        for one in cards
        if _kind(one) != NETWORK
    ]
    rules += [
        ([{"address": str(one.address)}], f"bound to {FOR_GUESTS}: {_named(one)}")
        for one in devices.functions
        if one.driver == FOR_GUESTS and not one.is_vf and not one.vfs and one.can_be_given and one.address not in makers
    ]
    if not network and not rules:
        return
    yield "[pci]"
    for one in network:
        yield f"# {len(one.vfs)} VFs of {_named(one)}"
    if network:
        yield "discover = all"
    if rules:
        yield "report_in_placement = true"
    for several, told in rules:
        yield f"# {told}"
        for rule in several:
            yield f"device_spec = {json.dumps(rule)}"


def _kind(function: PciFunction) -> int:
    return function.ids.device_class >> 16


def _virtual(pf: PciFunction, vfs: Sequence[PciFunction]) -> list[dict[str, str]]:
    """
    Return the rules for the VFs of one card, which must not match the card itself.

    The address of a PF is, in a rule, also that of its VFs: one rule is enough if their product id is theirs alone.
    """
    if typed := sorted({(vf.ids.vendor, vf.ids.product) for vf in vfs if TYPE_FILE in dict(vf.attributes)}):
        return [
            {
                "address": str(pf.address),
                "vendor_id": vendor,
                "product_id": product,
                "resource_class_attribute": TYPE_FILE,
            }
            for vendor, product in typed
        ]
    if any(vf.ids.product == pf.ids.product for vf in vfs):
        return [{"address": str(vf.address)} for vf in vfs]
    kinds = sorted({(vf.ids.vendor, vf.ids.product) for vf in vfs})
    return [{"address": str(pf.address), "vendor_id": vendor, "product_id": product} for vendor, product in kinds]


def _named(function: PciFunction) -> str:
    links = "".join(f", {net.name}" for net in function.links)
    return f"{function.address} ({function.ids}{links})"


def _mediated(devices: Devices) -> Iterator[str]:
    parents = [one for one in devices.mdev_parents if one.types]
    if not parents:
        return
    chosen = {one.name: _chosen(one, devices) for one in parents}
    types = sorted({type_ for type_ in chosen.values() if type_})
    yield "[devices]"
    for one in parents:
        kinds = ", ".join(f"{kind.id}{f' ({kind.name})' if kind.name else ''}" for kind in one.types)
        yield f"# {_address(one)} can make {kinds}{'' if chosen[one.name] else ': choose one'}"
    yield f"enabled_mdev_types = {','.join(types)}" if types else "# enabled_mdev_types = TYPE"
    for type_ in types if len({*chosen.values()}) > 1 else ():  # else one type without a list gets all cards
        yield ""
        yield f"[mdev_{type_}]"
        yield f"device_addresses = {','.join(_address(one) for one in parents if chosen[one.name] == type_)}"


def _chosen(parent: MdevParent, devices: Devices) -> str:
    """Return the type that a card has in use, or its only one; empty: a person must choose."""
    used = {one.type for one in devices.mdevs if one.parent == parent.name} or {kind.id for kind in parent.types}
    return used.pop() if len(used) == 1 else ""


def _address(parent: MdevParent) -> str:
    return str(parent.address or parent.name)
