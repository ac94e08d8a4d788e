"""Find the PCI functions that guests have through ports of networks."""

from collections.abc import Mapping

from drivers.facts import Guest, HostFacts, Tenant
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
    return frozenset(functions[name] for name in guest.netdevs | guest.vdpa if name in functions)


def tenants_of_ports(facts: HostFacts) -> dict[PciAddress, Tenant]:
    """
    Return the owners of nova's guests that have functions as ports, by function.

    Nova allocates nothing for such a function, unless the flavor names its class. Guests of other programs are left
    out: nothing tells whether these allocate it.
    """
    functions = functions_by_interface(facts)
    return {
        address: guest.tenant
        for guest in facts.guests
        if guest.tenant
        for address in guest.ports | passed_through(guest, functions)
    }


def tenants_of_devices(facts: HostFacts) -> dict[PciAddress, Tenant]:
    """Return the owners of nova's guests by each function that they have; ``tenants_of_ports`` has a part of it."""
    return {address: guest.tenant for guest in facts.guests if guest.tenant for address in guest.pci}
