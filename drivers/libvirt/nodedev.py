"""Parses libvirt's node devices (formatnode.html): PCI functions, their interfaces, vDPA and mediated devices."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from xml.etree.ElementTree import Element

from drivers.devices.match import NETWORK
from drivers.devices.odd import set_apart
from drivers.errors import MalformedFact
from drivers.facts import Devices, Mdev, MdevParent, MdevType, NetDevice, OddDevice, PciFunction, PciIds, Sriov
from drivers.host.archive import Document
from drivers.libvirt.xml import attribute, number, parsed, require, text_of
from drivers.pci import PciAddress

BRIDGES = frozenset({"pci-bridge", "cardbus-bridge"})  # capabilities of functions with header type 1 and 2
INFINIBAND_OCTETS = 20  # of the address of an interface of IP over InfiniBand (the kernel's if_infiniband.h)
MOST_MDEVS = 1_000_000  # above what any parent makes: vfio_ap of s390 has 65,536 (vfio_ap_ops.c)
_NAME = re.compile(r"pci_([0-9a-f]{4,8})_([0-9a-f]{2})_([01][0-9a-f])_([0-7])")
NO_SPEED_MBPS = 2_000_000  # faster than any link, and in kbit/s more than placement can count


def parse_devices(listed: tuple[tuple[str, Document], ...]) -> Devices:
    """
    Parse the XML of all node devices, each with the name in the list; other kinds (storage, USB ...) are skipped.

    What is not in libvirt's form is odd, and so is what hangs on it.
    """
    found = [_parse_device(name, document) for name, document in listed]
    nets: dict[str, list[NetDevice]] = {}
    vdpa: dict[str, list[str]] = {}
    for one in found:
        if one.net:
            nets.setdefault(one.parent, []).append(one.net)
        if one.vdpa:
            vdpa.setdefault(one.parent, []).append(one.vdpa)
    functions = [
        replace(
            one.function,
            net_devices=tuple(sorted(nets.get(one.name, ()), key=lambda net: net.name)),
            vdpa=tuple(sorted(vdpa.get(one.name, ()))),
        )
        for one in found
        if one.function
    ]
    everything = Devices(
        functions=tuple(sorted(functions, key=lambda function: function.address)),
        mdev_parents=tuple(sorted((one.maker for one in found if one.maker), key=lambda maker: maker.name)),
        mdevs=tuple(sorted((one.mdev for one in found if one.mdev), key=lambda mdev: mdev.uuid)),
    )
    return set_apart(everything, _unparsed(found, everything))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parsed:
    """One node device; empty: of another kind."""

    name: str
    parent: str = ""
    function: PciFunction | None = None
    net: NetDevice | None = None
    vdpa: str = ""  # path of the vhost-vdpa device that this is; empty: it is none
    maker: MdevParent | None = None
    mdev: Mdev | None = None
    odd: str = ""  # why it cannot be understood


def _parse_device(listed: str, document: Document) -> _Parsed:
    name, parent = listed, ""
    try:
        with parsed(document, "device") as device:
            name, parent = (device.findtext("name") or listed).strip(), device.findtext("parent", "").strip()
            return _parse_parts(device, name, parent)
    except MalformedFact as error:
        return _Parsed(name=name, parent=parent, odd=str(error))


def _parse_parts(device: Element, name: str, parent: str) -> _Parsed:
    text_of(device, "name")
    pci, net, mdev, vdpa = (device.find(f"capability[@type='{kind}']") for kind in ("pci", "net", "mdev", "vdpa"))
    function = None if pci is None else _parse_function(device, pci)
    types = device.findall(".//capability[@type='mdev_types']/type")
    address = function.address if function else None
    return _Parsed(
        name=name,
        parent=parent,
        function=function,
        net=None if net is None else _parse_net(net),
        vdpa="" if vdpa is None else vdpa.findtext("chardev", "").strip(),
        maker=MdevParent(name, address, _parse_types(types)) if types else None,
        mdev=None if mdev is None else _parse_mdev(device, mdev),
    )


def _unparsed(found: Iterable[_Parsed], devices: Devices) -> Iterator[OddDevice]:
    """
    Yield what could not be understood, by its name.

    An interface or a vDPA device makes its function odd. Where not even that is known, each card of its kind may be it.
    """
    cards = [one.name for one in devices.mdev_parents]
    for one in found:
        if not one.odd:
            continue
        if one.name.startswith("mdev_"):
            yield from (OddDevice(one.name, one.odd, card=card) for card in ([one.parent] if one.parent else cards))
        elif not one.name.startswith(("net_", "vdpa_")):
            yield _odd(one.name, one.odd)
        elif one.parent:
            yield _odd(one.parent, one.odd)
        else:
            networks = [each for each in devices.functions if each.ids.device_class >> 16 == NETWORK]
            yield from (OddDevice(str(each.address), one.odd, address=each.address) for each in networks)
            yield from [OddDevice(one.name, one.odd)] if networks else ()  # tells it from another one at the next look


def _odd(name: str, why: str) -> OddDevice:
    """Return an odd device by libvirt's name, which for functions tells the address."""
    found = _NAME.fullmatch(name)
    address = PciAddress(*(int(part, 16) for part in found.groups())) if found else None
    return OddDevice(str(address or name), why, address=address, card="" if address else name)


def parse_address(element: Element) -> PciAddress:
    """Parse an ``<address>`` with the attributes domain, bus, slot and function, decimal or 0x-hexadecimal."""
    parts = [attribute(element, name) for name in ("domain", "bus", "slot", "function")]
    try:
        return PciAddress(*(int(part, 0) for part in parts))
    except ValueError as error:
        raise ValueError(f"has an <address> that is not a PCI address: {error}") from error


def _parse_function(device: Element, pci: Element) -> PciFunction:
    sriov: Sriov | None = None
    vfs: tuple[PciAddress, ...] = ()
    pf = serial = None
    bridge = False
    for capability in pci.iterfind("capability"):
        kind = capability.get("type")
        if kind == "virt_functions":
            vfs = tuple(sorted(parse_address(one) for one in capability.iterfind("address")))
            sriov = Sriov(number(capability.get("maxCount", str(len(vfs)))))
        elif kind == "phys_function":
            pf = parse_address(require(capability, "address"))
        elif kind == "vpd":
            serial = capability.findtext("fields[@access='readonly']/serial_number", "").strip() or None
        elif kind in BRIDGES:
            bridge = True
    numa = pci.find("numa")
    address = PciAddress(*(number(text_of(pci, part)) for part in ("domain", "bus", "slot", "function")))
    return PciFunction(
        address=address,
        ids=PciIds(
            _parse_id(pci, "vendor"), _parse_id(pci, "product"), _parse_hex(pci.findtext("class", "0"), "class"), bridge
        ),
        driver=device.findtext("driver/name"),
        cell=number(attribute(numa, "node")) if numa is not None else None,
        pf=pf,
        sriov=sriov,
        vfs=vfs,
        serial_number=serial,
    )


def _parse_id(pci: Element, name: str) -> str:
    return f"{_parse_hex(attribute(require(pci, name), 'id'), f'id of its {name}'):04x}"


def _parse_hex(text: str, what: str) -> int:
    try:
        return int(text, 16)
    except ValueError as error:
        raise ValueError(f"has {text!r} as {what}, which is not a hexadecimal number") from error


def _parse_net(capability: Element) -> NetDevice:
    found = capability.find("link")
    link = found.attrib if found is not None else {}
    # The state of IP over InfiniBand is not that of the port, which VFs use also while the host has no such interface.
    of_port = len(capability.findtext("address", "").split(":")) != INFINIBAND_OCTETS
    # Without a speed the kernel gives no number or 0, -1, or -1 as an unsigned number: it is ethtool's, mostly of
    # Ethernet (sysfs-class-net; linux/ethtool.h: SPEED_UNKNOWN), and libvirt reads it as unsigned (virnetdev.c).
    speed = number((link.get("speed") or "0").removeprefix("-"))
    return NetDevice(
        name=text_of(capability, "interface"),
        state=link.get("state") if of_port else None,
        speed_mbps=speed if 1 < speed < NO_SPEED_MBPS else None,
    )


def _parse_mdev(device: Element, capability: Element) -> Mdev:
    return Mdev(
        uuid=text_of(capability, "uuid"),
        type=attribute(require(capability, "type"), "id"),
        parent=text_of(device, "parent"),
    )


def _parse_types(types: Iterable[Element]) -> tuple[MdevType, ...]:
    """
    Return each type once, in order of id; for parents that are not on PCI libvirt lists the types twice, nested.

    A type has how many more can be made now (available_instances of the kernel's vfio-mediated-device.rst).
    """
    found: dict[str, MdevType] = {}
    for one in types:
        id_ = attribute(one, "id")
        available = number(text_of(one, "availableInstances"))
        if available > MOST_MDEVS:
            raise ValueError(f"can make {available} of {id_}, more than any card can")
        found.setdefault(id_, MdevType(id_, one.findtext("name", "").strip(), available))
    return tuple(found[id_] for id_ in sorted(found))
