"""What a provider of devices offers, of whatever kind they are: the one description that all layouts are made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from drivers.devices.reserve import RULE, marks, own_traits
from drivers.facts import PciFunction
from drivers.reasons import Reason
from drivers.standing import Standing
from reportclient.ownership import MARKER
from reportclient.reserve import all_said
from reportclient.tree import Inventory


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceStock:
    """What one provider of devices offers; never without stock."""

    suffix: str  # of the provider's name, after the root's and "_": "0000:81:00.0", "pci_0000_84_00_0", "amd_sev"
    cell: int | None = None
    inventories: Mapping[str, tuple[Inventory, Reason]]
    traits: Mapping[str, Reason] = field(default_factory=dict)
    members: Mapping[str, str] = field(default_factory=dict)  # PCI address or mdev's uuid -> the class it counts as
    once: bool = False  # its stock is used up by the first guest
    ill: str = ""  # why some of it is reserved by us; empty: all of it is well
    untold: frozenset[str] = frozenset()  # classes of which it has an amount that it does not tell now


def libvirt_name(address: str) -> str:
    """libvirt's name of the PCI function at an address."""
    return "pci_" + address.replace(":", "_").replace(".", "_")


def silenced(suffix: str, function: PciFunction, standing: Standing) -> list[DeviceStock]:
    """The stock that a card had before its driver went: all of it reserved until the driver is back."""
    stands = standing.provider(suffix)
    if stands is None or MARKER not in stands.provider.traits or not stands.provider.inventories:
        return []
    why = f"{function.address} has no driver, and so does not tell what it can be"
    stood = stands.provider.inventories
    return [
        DeviceStock(
            suffix=suffix,
            cell=function.cell,
            inventories={name: (replace(one, reserved=one.total), Reason(why, RULE)) for name, one in stood.items()},
            traits=dict.fromkeys(own_traits(stands), Reason(why, RULE)) | marks(why, all_said(stands)),
            ill=why,
        )
    ]
