"""Adds to PCI functions and their interfaces what only the kernel has: power state, host traffic, driver's files."""

import re
from collections.abc import Mapping
from dataclasses import replace

from drivers.devices.odd import set_apart
from drivers.errors import DiscoveryError, MalformedFact, Vanished
from drivers.facts import Devices, NetDevice, OddDevice, PciFunction
from drivers.host.archive import MAX_TABLE_BYTES, Document, KernelFiles
from drivers.host.routes import ROUTED, list_routed

REPRESENTOR = re.compile(r"(c\d+)?pf\d+\w*")  # devlink's names: "pf0vf1", "c1pf0sf2"; not an uplink's, "p0"
LINK_SCOPE = "20"  # scope of the IPv6 address that every interface gives itself while it is up
LONGEST_TYPE = 9  # digits
POWER_STATES = frozenset({"D0", "D1", "D2", "D3hot", "D3cold", "unknown", "error"})  # sysfs-bus-pci, power_state


def complete(files: KernelFiles, devices: Devices, attributes: Mapping[str, frozenset[str]]) -> Devices:
    """
    Return the devices with power state, host traffic and the vendor driver's files of each function but bridges.

    Functions of which a file cannot be read or understood are odd. ``attributes``: vendor id -> files to read below the
    folder of each function of this vendor.
    """
    host_interfaces = _probe_host_interfaces(files)
    functions: list[PciFunction] = []
    odd: list[OddDevice] = []
    for function in devices.functions:
        try:
            names = attributes.get(function.ids.vendor, frozenset())
            functions.append(function if function.ids.is_bridge else _complete(files, function, host_interfaces, names))
        except DiscoveryError as error:
            functions.append(function)
            odd.append(OddDevice(str(function.address), str(error), address=function.address))
    found = replace(devices, functions=tuple(functions))
    return set_apart(found, odd) if odd else found


def _complete(
    files: KernelFiles, function: PciFunction, host_interfaces: frozenset[str] | None, attributes: frozenset[str]
) -> PciFunction:
    folder = f"sys/bus/pci/devices/{function.address}"
    power_state = files.read(f"{folder}/power_state")
    if power_state is None and files.live and files.read(f"{folder}/vendor") is None:
        raise Vanished(f"/{folder} went away while the host was read")
    several = len(function.net_devices) > 1  # the card's ports, or an uplink and its representors
    numbers = ((name, files.read(f"{folder}/{name}")) for name in sorted(attributes))
    return replace(
        function,
        power_state=_parse_power_state(power_state) if power_state else None,
        sriov=function.sriov and replace(function.sriov, step=_read_vf_step(files, folder)),
        attributes=tuple((name, _parse_type(text)) for name, text in numbers if text),
        net_devices=tuple(
            _complete_net(files, one, host_interfaces, port=several and function.is_pf) for one in function.net_devices
        ),
    )


def _parse_power_state(document: Document) -> str:
    """Return the power state of a function, one of POWER_STATES; MalformedFact for another text."""
    state = document.text.strip()
    if state not in POWER_STATES:
        raise MalformedFact(f"{document.source} holds {state[:40]!r}, which is not a power state")
    return state


def _read_vf_step(files: KernelFiles, folder: str) -> tuple[int, int] | None:
    """Return where the VFs of a PF are (sysfs-bus-pci, sriov_offset and sriov_stride); None where no file tells it."""
    first, stride = (files.read(f"{folder}/sriov_{name}") for name in ("offset", "stride"))
    return (int(_parse_type(first)), int(_parse_type(stride)) or 1) if first and stride else None


def _complete_net(
    files: KernelFiles, device: NetDevice, host_interfaces: frozenset[str] | None, *, port: bool
) -> NetDevice:
    """
    Complete one interface; of what lies above it, bonds and bridges are its master, VLANs and the like its upper_NAME.

    The kernel makes these links in net/core/dev.c (netdev_adjacent_sysfs_add).
    """
    folder = f"sys/class/net/{device.name}"
    enslaved = files.read(f"{folder}/master/ifindex") is not None
    found = host_interfaces or frozenset()
    above = (one for one in files.names(folder) if one.startswith("upper_") and one.removeprefix("upper_") in found)
    used = device.name in found or any(files.read(f"{folder}/{one}/ifindex") for one in above)
    return replace(
        device,
        carries_host_traffic=enslaved or (None if host_interfaces is None else used),
        represents=_represented(files, folder) if port else None,
    )


def _represented(files: KernelFiles, folder: str) -> str | None:
    """
    Return the port that an interface represents or, as that of a subfunction, is; None where it is the function's own.

    A subfunction is on the auxiliary bus, which libvirt does not list, so its interface's parent there is the PF.
    """
    if number := files.read(f"{folder}/device/sfnum"):  # the drivers mlx5_core and ice
        return f"sf{number.text.strip()}"
    port = files.read(f"{folder}/phys_port_name")
    name = port.text.strip() if port else ""
    return name if REPRESENTOR.fullmatch(name) else None


def _probe_host_interfaces(files: KernelFiles) -> frozenset[str] | None:
    """
    Return the interfaces with an address or a route, but for IPv6's of link scope; None where that is unreadable.

    An archive of an older agent has the kernel's tables: IPv6's addresses, and the IPv4 routes of the table main alone,
    each with one next hop.
    """
    try:
        if routed := files.ask(ROUTED, list_routed):
            return frozenset(routed.text.split())
        tables = (files.read(f"proc/net/{name}", MAX_TABLE_BYTES) for name in ("route", "if_inet6"))
        routes, addresses = ([line.split() for line in one.text.splitlines()] if one else [] for one in tables)
    except DiscoveryError:
        return None
    if (routes and routes[0][:1] != ["Iface"]) or any(len(line) != 6 for line in addresses):
        return None
    with_address = {line[5] for line in addresses if line[3] != LINK_SCOPE}
    return frozenset(with_address.union(*(line[:1] for line in routes[1:])))


def _parse_type(document: Document) -> str:
    """Return the first line of a file that has a number, for instance the class; MalformedFact for another text."""
    line = document.text.partition("\n")[0].strip()
    if not (line.isdecimal() and line.isascii() and len(line) <= LONGEST_TYPE):
        raise MalformedFact(f"{document.source} holds {line[:40]!r}, which is no number")
    return line
