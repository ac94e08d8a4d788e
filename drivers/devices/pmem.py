"""Namespaces of persistent memory: nova counts them on the root, and so does every layout."""

from collections.abc import Iterable, Mapping

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

    The units of namespaces that this host does not have, or not in the mode devdax, are reserved: they may come back.

    Raises:
        PolicyError: the option names a namespace that this host has twice.
    """
    paths = {name: path for name in policy.pmem if (path := _path_of(name, facts))}
    return [
        _stock(resource_class, [name for name, each in policy.pmem.items() if each == resource_class], paths, facts)
        for resource_class in sorted(set(policy.pmem.values()))
    ]


def _stock(resource_class: str, names: list[str], paths: Mapping[str, str], facts: HostFacts) -> DeviceStock:
    there, gone = [name for name in names if name in paths], [name for name in names if name not in paths]
    stock = Inventory(total=len(names), max_unit=len(names), reserved=len(gone))
    return DeviceStock(
        suffix=resource_class,
        inventories={
            resource_class: (stock, Reason(f"ndctl lists the namespaces {', '.join(there) or 'none'}", OPTION))
        },
        members={paths[name]: resource_class for name in there},
        of_root=True,
        ill=_lacking(resource_class, gone, facts) if gone else "",
    )


def _lacking(resource_class: str, gone: Iterable[str], facts: HostFacts) -> str:
    there = ", ".join(one.name for one in facts.devices.namespaces if one.path) or "none with a name"
    return (
        f"{OPTION} names {', '.join(gone)}, and this host has {there} for guests (ndctl list --device-dax): "
        f"{resource_class} of that is reserved. Bring the namespace back in the mode devdax (ndctl create-namespace or "
        f"daxctl reconfigure-device), or correct the option"
    )


def _path_of(name: str, facts: HostFacts) -> str:
    """Return the path of a namespace; empty: this host does not have it for guests. Errors as ``pmem_stock``."""
    found = [one for one in facts.devices.namespaces if one.name == name]
    if len(found) > 1:
        raise PolicyError(
            f"{OPTION} names {name}, and this host has {len(found)} of this name (ndctl list): correct the option"
        )
    return next((one.path for one in found if one.path), "")
