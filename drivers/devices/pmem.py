"""Namespaces of persistent memory: nova counts them on the root, and so does every layout."""

from collections import Counter

from drivers.devices.inventories import DeviceStock
from drivers.errors import PolicyError
from drivers.facts import HostFacts
from drivers.policy import DevicePolicy
from drivers.reasons import Reason
from reportclient.tree import Inventory

OPTION = "[libvirt] pmem_namespaces"


def pmem_stock(facts: HostFacts, policy: DevicePolicy) -> list[DeviceStock]:
    """
    Return the stock of each class that the option names: one unit for each of its namespaces.

    Raises:
        PolicyError: the option names a namespace that this host does not have once, or that no guest can use.
    """
    paths = {name: _path_of(name, facts) for name in policy.pmem}
    return [
        DeviceStock(
            suffix=resource_class,
            inventories={resource_class: (Inventory(total=count, max_unit=count), _reason(resource_class, policy))},
            members={paths[name]: each for name, each in policy.pmem.items() if each == resource_class},
            of_root=True,
        )
        for resource_class, count in sorted(Counter(policy.pmem.values()).items())
    ]


def _path_of(name: str, facts: HostFacts) -> str:
    """Return the path of a namespace; errors as ``pmem_stock``."""
    found = [one for one in facts.devices.namespaces if one.name == name]
    if len(found) != 1:
        there = ", ".join(one.name for one in facts.devices.namespaces) or "none with a name"
        often = f"has {len(found)} of this name" if found else f"has {there}"
        raise PolicyError(f"{OPTION} names {name}, and this host {often} (ndctl list): correct the option")
    if found[0].path is None:
        raise PolicyError(
            f"{OPTION} names {name}, which is not in the mode devdax that guests need (ndctl list): leave it out of "
            f"the option, or make it anew with ndctl create-namespace --mode=devdax"
        )
    return found[0].path


def _reason(resource_class: str, policy: DevicePolicy) -> Reason:
    names = ", ".join(name for name, each in policy.pmem.items() if each == resource_class)
    return Reason(f"ndctl lists the namespaces {names}", OPTION)
