"""Keep the reservations of an operator on the root while no device of their class is on the host."""

from collections.abc import Iterable

from drivers.by_suffix import BySuffix
from drivers.devices.encryption import CONTEXT
from drivers.devices.inventories import SHORT
from drivers.policy import DevicePolicy, DeviceRule
from drivers.reasons import Reason
from reportclient.names import BANDWIDTH, NO_DEVICES, normalise_class
from reportclient.reserve import reserved_by_operator_on
from reportclient.tree import Inventory


def away(policy: DevicePolicy, standing: BySuffix, here: Iterable[str]) -> dict[str, tuple[Inventory, Reason]]:
    """
    Return stock, all reserved, for each class that an operator reserved on the root and that is not in ``here``.

    ``here`` are the classes of the devices on the host. A class that the configuration no longer offers is left out:
    then a person withdrew it.
    """
    said = reserved_by_operator_on(standing.root)
    missing = {name: amount for name, amount in said.items() if name not in here}
    return {
        name: (
            Inventory(total=amount, reserved=amount, max_unit=amount),
            Reason(f"{amount} {name} were reserved, and no device of this host has any now", SHORT),
        )
        for name, amount in sorted(missing.items())
        if is_offered(name, policy)
    }


def withdrawn(policy: DevicePolicy, standing: BySuffix) -> frozenset[str]:
    """Return the classes on the root that are of no device by this configuration: a person withdrew what is ours."""
    stands = standing.root.provider.inventories if standing.root else {}
    others = {*NO_DEVICES, *policy.pmem.values()}
    return frozenset(name for name in stands if name not in others and not is_offered(name, policy))


def is_offered(name: str, policy: DevicePolicy) -> bool:
    """Return whether the configuration offers a class where there is hardware for it."""
    rules = policy.rules if policy.report else ()
    if name in BANDWIDTH:
        return policy.link_bandwidth or any(rule.network.bandwidth for rule in rules)
    by_itself = name == CONTEXT or (policy.discover_all and name == "SRIOV_NET_VF")
    return by_itself or any(rule.resource_class == name for rule in policy.mdevs) or any(gives(r, name) for r in rules)


def gives(rule: DeviceRule, name: str) -> bool:
    """Return whether a rule may give this class to some device."""
    if rule.class_attribute:
        return name.startswith(normalise_class(f"{rule.class_attribute.split('/')[0]}_"))
    if rule.resource_class:
        return rule.resource_class == name
    vendor, product = (rule.vendor_id or "").upper(), (rule.product_id or "").upper()
    return name.startswith(f"CUSTOM_PCI_{vendor}") and name.endswith(product)
