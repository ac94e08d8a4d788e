"""Adds to PCI functions and their interfaces what only the kernel has: power state, host traffic, driver's files."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from drivers.errors import MalformedFact, Vanished
from drivers.facts import NetDevice, PciFunction
from drivers.host.archive import Document
from drivers.host.parse import parse_inet6, parse_routes
from drivers.host.sysfs import KernelFiles

BRIDGE = 0x06  # PCI's base class of host, ISA and PCI-to-PCI bridges, which are never passed to a guest
REPRESENTOR = re.compile(r"(c\d+)?pf\d+\w*")  # devlink's names: "pf0vf1", "c1pf0sf2"; not an uplink's, "p0"
POWER_STATES = frozenset({"D0", "D1", "D2", "D3hot", "D3cold", "unknown", "error"})  # sysfs-bus-pci, power_state


def probe_pci(
    files: KernelFiles, functions: Iterable[PciFunction], attributes: Mapping[str, frozenset[str]]
) -> tuple[PciFunction, ...]:
    """
    Return the functions with power state, host traffic and the vendor driver's files; bridges stay as they are.

    ``attributes``: vendor id -> files to read below the folder of each function of this vendor.

    Raises:
        DiscoveryError, MalformedFact: a file cannot be read or understood.
        Vanished: a function went away.
    """
    host_interfaces = _probe_host_interfaces(files)
    return tuple(
        function
        if (function.device_class or 0) >> 16 == BRIDGE
        else _probe(files, function, host_interfaces, attributes.get(function.vendor_id, frozenset()))
        for function in functions
    )


def _probe(
    files: KernelFiles, function: PciFunction, host_interfaces: frozenset[str], attributes: frozenset[str]
) -> PciFunction:
    folder = f"sys/bus/pci/devices/{function.address}"
    power_state = files.read(f"{folder}/power_state")
    if power_state is None and files.live and files.read(f"{folder}/vendor") is None:
        raise Vanished(f"/{folder} went away while the host was read")
    found = [(name, files.read(f"{folder}/{name}")) for name in sorted(attributes)]
    several = len(function.net_devices) > 1  # the card's ports, or an uplink and its representors
    return replace(
        function,
        power_state=parse_power_state(power_state) if power_state else None,
        net_devices=tuple(
            _probe_net(files, one, host_interfaces, port=several and function.is_pf) for one in function.net_devices
        ),
        attributes=tuple((name, _first_line(text)) for name, text in found if text),
    )


def parse_power_state(document: Document) -> str:
    """Return the power state of a function, one of POWER_STATES; MalformedFact for another text."""
    state = document.text.strip()
    if state not in POWER_STATES:
        raise MalformedFact(f"{document.source} holds {state[:40]!r}, which is not a power state")
    return state


def _probe_net(files: KernelFiles, device: NetDevice, host_interfaces: frozenset[str], *, port: bool) -> NetDevice:
    enslaved = files.read(f"sys/class/net/{device.name}/master/ifindex") is not None
    if enslaved or device.name in host_interfaces:
        device = replace(device, carries_host_traffic=True)
    document = files.read(f"sys/class/net/{device.name}/phys_port_name") if port else None
    return replace(device, represents=parse_represented(document)) if document else device


def parse_represented(document: Document) -> str | None:
    """Return the port of another function that an interface represents (phys_port_name); None where it does not."""
    name = document.text.strip()
    return name if REPRESENTOR.fullmatch(name) else None


def _probe_host_interfaces(files: KernelFiles) -> frozenset[str]:
    """Return the interfaces with an IPv4 route, or with an IPv6 address beyond link scope."""
    routes, addresses = files.read("proc/net/route"), files.read("proc/net/if_inet6")
    found = parse_routes(routes) if routes else frozenset()
    return found | (parse_inet6(addresses) if addresses else frozenset())


def _first_line(document: Document) -> str:
    lines = document.text.split("\n", 1)
    if not lines[0].strip():
        raise MalformedFact(f"{document.source} is empty")
    return lines[0].strip()
