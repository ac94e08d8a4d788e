"""
Devices of every kind as one description: what each offers, on which provider, and why. All layouts are made of it.

Rules and names are nova's where it has any: a provider per PF or plain device, VFs counted on their PF, a provider per
physical GPU, memory encryption contexts.
"""

from drivers.devices.mdev import mdev_stock
from drivers.devices.pci import pci_stock
from drivers.devices.sev import sev_stock
from drivers.devices.stock import DeviceStock, libvirt_name
from drivers.facts import HostFacts
from drivers.policy import DevicePolicy
from drivers.standing import Standing


def device_stock(facts: HostFacts, policy: DevicePolicy, standing: Standing) -> tuple[DeviceStock, ...]:
    """
    What every device of this host offers, in order of kind and address.

    ``standing`` is what placement holds: it knows what an operator reserved, and what a card that fell silent had.

    Raises:
        PolicyError: the policy contradicts itself or this host.
    """
    return (
        *pci_stock(facts, policy, standing),
        *mdev_stock(facts, policy.mdevs, standing),
        *sev_stock(facts),
    )


def present(facts: HostFacts) -> frozenset[str]:
    """The suffixes of the providers whose hardware is here, offered or not."""
    functions = [str(function.address) for function in facts.devices.functions]
    parents = [parent.name for parent in facts.devices.mdev_parents]
    return frozenset((*functions, *map(libvirt_name, functions), *parents))
