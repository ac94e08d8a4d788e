"""Find the PCI functions that guests have through ports of networks."""

from collections import Counter
from collections.abc import Iterable, Mapping

from drivers.devices.match import Match
from drivers.facts import Guest, HostFacts
from drivers.pci import PciAddress


def functions_by_interface(facts: HostFacts) -> dict[str, PciAddress]:
    """Return the function of each interface of this host, by the interface's name, or the path of its vDPA device."""
    return {
        name: one.address
        for one in facts.devices.functions
        for name in (*(net.name for net in one.net_devices), *one.vdpa)
    }


def passed_through(guest: Guest, functions: Mapping[str, PciAddress]) -> frozenset[PciAddress]:
    """
    Return the functions that a guest has by their interfaces or vDPA devices.

    ``functions`` are as ``functions_by_interface`` returns them.
    """
    return frozenset(functions[name] for name in guest.devices.netdevs | guest.devices.vdpa if name in functions)


def unbooked(facts: HostFacts, matched: Iterable[Match]) -> frozenset[PciAddress]:
    """
    Return the functions that guests of nova have through ports, beyond the amounts that their flavors name.

    ``matched`` are all functions that are offered. Nova allocates nothing for a port's function, but what the flavor
    names of a class. Nothing tells for which device: the guest's other devices of the class count first, and each of
    several cards may be without the allocation. An amount that cannot be read is none, as in nova. Guests of other
    programs are left out: nothing tells whether these allocate their ports.
    """
    functions = functions_by_interface(facts)
    matches = sorted(matched, key=lambda match: match.function.address)
    found: set[PciAddress] = set()
    for guest, tenant in ((one, one.tenant) for one in facts.guests if one.tenant):
        ports = guest.devices.ports | passed_through(guest, functions)
        has = [match for match in matches if match.function.address in guest.devices.pci | ports]
        left = Counter(match.resource_class for match in has)
        left.subtract({name: amount or 0 for name, amount in (tenant.overridden or {}).items()})
        counts = Counter[tuple[PciAddress, str]]()  # by card and class
        for match in has:
            slot = match.function.counted_on, match.resource_class
            # A port with the vnic_type direct-physical is no interface of the guest.
            of_port = match.function.address in ports or match.network
            if of_port and counts[slot] < left[match.resource_class]:
                counts[slot] += 1
                found.add(match.function.address)
    return frozenset(found)
