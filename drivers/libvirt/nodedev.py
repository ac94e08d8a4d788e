"""Parses libvirt's node devices (formatnode.html): PCI functions, their interfaces, mediated devices."""

from collections.abc import Iterable
from dataclasses import replace
from xml.etree.ElementTree import Element

from drivers.errors import MalformedFact, Vanished
from drivers.facts import Devices, Mdev, MdevParent, MdevType, NetDevice, PciFunction
from drivers.host.archive import Document, fields
from drivers.libvirt.xml import attribute, number, parse_xml, require, text_of
from drivers.pci import PciAddress

BRIDGES = frozenset({"pci-bridge", "cardbus-bridge"})  # capabilities of functions with header type 1 and 2
NO_SPEED_MBPS = 2_000_000  # faster than any link, and in kbit/s more than placement can count


def parse_devices(documents: tuple[Document, ...]) -> Devices:
    """
    Parse the XML of all node devices; other kinds (storage, USB ...) are skipped.

    Raises:
        MalformedFact: a device is not in libvirt's form.
    """
    functions: dict[str, PciFunction] = {}
    parents: list[MdevParent] = []
    mdevs: list[Mdev] = []
    nets: dict[str, list[NetDevice]] = {}
    names: set[str] = set()
    for document in documents:
        device = parse_xml(document, "device")
        name = text_of(device, "name", document.source)
        if name in names:
            raise MalformedFact(f"{document.source} is a second device called {name}")
        names.add(name)
        address = None
        for capability in device.iterfind("capability"):
            kind = capability.get("type")
            if kind == "pci":
                function = _parse_function(device, capability, document.source)
                functions[name], address = function, function.address
            elif kind == "net":
                nets.setdefault(device.findtext("parent") or "", []).append(_parse_net(capability, document.source))
            elif kind == "mdev":
                mdevs.append(_parse_mdev(device, capability, name, document.source))
        types = device.findall(".//capability[@type='mdev_types']/type")
        if types:
            parents.append(MdevParent(name, address, _parse_types(types, document.source)))
    if len({function.address for function in functions.values()}) < len(functions):
        raise MalformedFact("libvirt lists two PCI functions at one address")
    if len({mdev.uuid for mdev in mdevs}) < len(mdevs):
        raise MalformedFact("libvirt lists two mediated devices of one uuid")
    return Devices(
        functions=tuple(
            sorted((_with_net(function, nets.get(name)) for name, function in functions.items()), key=_by_address)
        ),
        mdev_parents=tuple(sorted(parents, key=lambda parent: parent.name)),
        mdevs=tuple(sorted(mdevs, key=lambda mdev: mdev.uuid)),
    )


def check_whole(devices: Devices) -> None:
    """
    Refuse a list without the VFs of a listed PF.

    libvirt reads the VFs in a PF's XML from the kernel, but lists a VF only after udev's event for it.

    Raises:
        Vanished: a PF names a VF that is not listed.
    """
    listed = {function.address for function in devices.functions}
    for pf in devices.functions:
        missing = [vf for vf in pf.vfs if vf not in listed]
        if missing:
            raise Vanished(
                f"libvirt's PF {pf.address} has VF {missing[0]}, which the list of node devices lacks: it came or went "
                f"while the host was read; if it stays so, restart virtnodedevd or libvirtd (or record the host again)"
            )


def parse_address(element: Element, source: str) -> PciAddress:
    """Parse an ``<address>`` with the attributes domain, bus, slot and function, decimal or 0x-hexadecimal."""
    try:
        return PciAddress(*(int(attribute(element, name, source), 0) for name in ("domain", "bus", "slot", "function")))
    except ValueError as error:
        raise MalformedFact(f"{source} has an <address> that is not a PCI address: {error}") from error


def _parse_function(device: Element, pci: Element, source: str) -> PciFunction:
    total_vfs: int | None = None
    vfs: tuple[PciAddress, ...] = ()
    pf = serial = None
    bridge = False
    for capability in pci.iterfind("capability"):
        kind = capability.get("type")
        if kind == "virt_functions":
            vfs = tuple(sorted(parse_address(one, source) for one in capability.iterfind("address")))
            total_vfs = number(capability.get("maxCount", str(len(vfs))), source)
        elif kind == "phys_function":
            found = capability.find("address")
            pf = parse_address(found, source) if found is not None else None
        elif kind == "vpd":
            serial = capability.findtext("fields[@access='readonly']/serial_number", "").strip() or None
        elif kind in BRIDGES:
            bridge = True
    group, numa = pci.find("iommuGroup"), pci.find("numa")
    with fields(source):
        address = PciAddress(
            *(number(text_of(pci, part, source), source) for part in ("domain", "bus", "slot", "function"))
        )
    return PciFunction(
        address=address,
        vendor_id=_parse_id(pci, "vendor", source),
        product_id=_parse_id(pci, "product", source),
        device_class=_parse_class(pci, source),
        has_bridge_header=bridge,
        driver=device.findtext("driver/name"),
        iommu_group=number(attribute(group, "number", source), source) if group is not None else None,
        cell=number(attribute(numa, "node", source), source) if numa is not None else None,
        pf=pf,
        total_vfs=total_vfs,
        vfs=vfs,
        serial_number=serial,
    )


def _parse_id(pci: Element, name: str, source: str) -> str:
    text = attribute(require(pci, name, source), "id", source)
    try:
        return f"{int(text, 16):04x}"
    except ValueError as error:
        raise MalformedFact(f"{source} has {text!r} as id of its {name}, which is not a hexadecimal number") from error


def _parse_class(pci: Element, source: str) -> int | None:
    text = pci.findtext("class")  # libvirt before 5.2 has no <class>
    try:
        return None if text is None else int(text, 16)
    except ValueError as error:
        raise MalformedFact(f"{source} has {text!r} as class, which is not a hexadecimal number") from error


def _parse_net(capability: Element, source: str) -> NetDevice:
    link = capability.find("link")
    speed = _parse_speed(link.get("speed", ""), source) if link is not None else None
    return NetDevice(
        name=text_of(capability, "interface", source),
        state=link.get("state") if link is not None else None,
        speed_mbps=speed,
    )


def _parse_speed(text: str, source: str) -> int | None:
    """
    Return the link's speed in Mbit/s; None where it has none.

    The kernel then gives no number, -1, or -1 read as an unsigned number.
    """
    speed = number(text.removeprefix("-"), source) if text else 0
    return speed if 1 < speed < NO_SPEED_MBPS else None


def _parse_mdev(device: Element, capability: Element, name: str, source: str) -> Mdev:
    uuid = capability.findtext("uuid")  # libvirt before 7.3 has it only in the name: mdev_<uuid with _ for ->
    if not uuid:
        uuid = name.removeprefix("mdev_")[:36].replace("_", "-")
    return Mdev(
        uuid=uuid,
        type=attribute(require(capability, "type", source), "id", source),
        parent=text_of(device, "parent", source),
    )


def _parse_types(types: Iterable[Element], source: str) -> tuple[MdevType, ...]:
    """Return each type once, in order of id; for parents that are not on PCI libvirt lists the types twice, nested."""
    found: dict[str, MdevType] = {}
    for one in types:
        id_ = attribute(one, "id", source)
        available = number(text_of(one, "availableInstances", source), source)
        found.setdefault(id_, MdevType(id_, (one.findtext("name") or "").strip(), available))
    return tuple(found[id_] for id_ in sorted(found))


def _with_net(function: PciFunction, nets: list[NetDevice] | None) -> PciFunction:
    return replace(function, net_devices=tuple(sorted(nets, key=lambda net: net.name))) if nets else function


def _by_address(function: PciFunction) -> PciAddress:
    return function.address
