"""What a provider of devices offers, of whatever kind they are: the one description that all layouts are made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from drivers.facts import PciFunction
from drivers.reasons import Reason
from drivers.standing import Standing
from reportclient.ownership import MARKER
from reportclient.tree import Inventory

UNHEALTHY = "CUSTOM_DEVICE_UNHEALTHY"  # ours: its stock is reserved by us, and given back when it is well
RESERVED_ILL = "ill devices are reserved until they are well"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceStock:
    """What one provider of devices offers; never without stock."""

    suffix: str  # of the provider's name, after the root's and "_": "0000:81:00.0", "pci_0000_84_00_0", "amd_sev"
    cell: int | None = None
    inventories: Mapping[str, tuple[Inventory, Reason]]
    traits: Mapping[str, Reason] = field(default_factory=dict)
    once: bool = False  # its stock is used up by the first guest


def libvirt_name(address: str) -> str:
    """libvirt's name of the PCI function at an address."""
    return "pci_" + address.replace(":", "_").replace(".", "_")


def silenced(suffix: str, function: PciFunction, standing: Standing) -> list[DeviceStock]:
    """The stock that a card had before its driver went: all of it reserved until the driver is back."""
    stands = standing.provider(suffix)
    if stands is None or MARKER not in stands.provider.traits or not stands.provider.inventories:
        return []
    reason = Reason(f"{function.address} has no driver, and so does not tell what it can be", RESERVED_ILL)
    stood = stands.provider.inventories
    return [
        DeviceStock(
            suffix=suffix,
            cell=function.cell,
            inventories={name: (replace(stock, reserved=stock.total), reason) for name, stock in stood.items()},
            traits=dict.fromkeys(stands.provider.traits - {MARKER} | {UNHEALTHY}, reason),
        )
    ]
