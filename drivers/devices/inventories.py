"""The stock of one provider of devices, in one form for every kind of device and every layout."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from drivers.by_suffix import BySuffix
from drivers.reasons import Reason
from reportclient.names import spelled
from reportclient.reserve import HELD, UNHEALTHY, is_reserved_by_us, keeps
from reportclient.tree import Inventory


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceStock:
    """The stock of one provider of devices; never empty."""

    suffix: str  # of the provider's name, after the root's name and "_": "0000:81:00.0", "pci_0000_84_00_0", "amd_sev"
    cell: int | None = None  # NUMA cell; None: unknown
    inventories: Mapping[str, tuple[Inventory, Reason]]
    traits: Mapping[str, Reason] = field(default_factory=dict)
    members: Mapping[str, str] = field(default_factory=dict)  # device or kind of encryption -> class that it counts as
    hardware: frozenset[str] = frozenset()  # PCI addresses of all functions behind it, its PF included
    once: bool = False  # the first guest uses up the stock for good
    ill: str = ""  # the fault for which this agent reserves some of it, for the layout flat; empty: none is known
    untold: frozenset[str] = frozenset()  # classes of which the device has an unknown amount now
    of_root: bool = False  # it counts on the root in every layout, as nova has no other place for it
    twice: str = ""  # a sentence on what is left out, as another service reports it too; empty: nothing is
    novas: bool = False  # nova-compute makes this provider too, where it reports the host


def nova_name(address: str) -> str:
    """Return the suffix of the provider that nova makes for the PCI function at an address."""
    return spelled(address)


def libvirt_name(address: str) -> str:
    """Return libvirt's name of the PCI function at an address."""
    return "pci_" + address.replace(":", "_").replace(".", "_")


def other_forms(devices: Iterable[DeviceStock], *, in_total: bool) -> frozenset[str]:
    """
    Return the suffixes of providers that would offer the same hardware in another form: whole, or divided.

    ``in_total`` means that the devices are part of the root's total: then their own providers are another form too.
    """
    found: set[str] = set()
    for device in devices:
        names = {name for address in device.hardware for name in (nova_name(address), libvirt_name(address))}
        found |= names | {device.suffix} if in_total else names - {device.suffix}
    return frozenset(found)


def inherit(devices: Iterable[DeviceStock], standing: BySuffix) -> tuple[DeviceStock, ...]:
    """
    Return devices that move below a root that had their total, with what an operator reserved of that total.

    A reservation goes to the only new device of its class, or to all of them if it covers the whole total. A total does
    not show to which device any other reservation belongs, so ``reportclient.settings`` refuses these; nor whether one
    belongs to a device with an unknown amount of the class.
    """
    stood, found = standing.stock(""), list(devices)
    for name, amount in sorted(standing.reserved("").items()):
        new = [number for number, one in enumerate(found) if name in one.inventories and not _has(one, name, standing)]
        whole = sum(found[number].inventories[name][0].total for number in new)
        untold = any(name in one.untold and not _has(one, name, standing) for one in found)
        sure = len(new) == 1 and not untold
        if name not in stood or not (sure or stood[name].total <= amount == whole):
            continue
        for number in new:
            device = found[number]
            found[number] = _with_reserved(device, name, amount if len(new) == 1 else device.inventories[name][0].total)
    return tuple(found)


def _has(device: DeviceStock, name: str, standing: BySuffix) -> bool:
    return name in standing.stock(device.suffix)


def _with_reserved(device: DeviceStock, name: str, amount: int) -> DeviceStock:
    """Return a device with an amount of a class reserved by an operator."""
    stock, reason = device.inventories[name]
    kept = replace(stock, reserved=min(stock.total, stock.reserved + amount))
    if is_reserved_by_us(device.traits):
        traits = dict.fromkeys(keeps({name: amount}), Reason(f"{amount} {name} were reserved", SHORT))
    else:
        traits = short({name: amount}, {name: stock.total})
    return replace(
        device,
        inventories={**device.inventories, name: (kept, Reason(f"{reason.fact}; {amount} reserved", reason.rule))},
        traits={**device.traits, **traits},
    )


RULE = "unhealthy devices are reserved until they are healthy again"
SHORT = "the reservation of a device that is away applies again once the device is back"


def marks(why: str, reserved_before: Mapping[str, int]) -> dict[str, Reason]:
    """Return the traits of a provider with unhealthy devices; ``reserved_before`` is what others reserved, by class."""
    return dict.fromkeys([UNHEALTHY, *sorted(keeps(reserved_before))], Reason(why, RULE))


def short(reserved_before: Mapping[str, int], totals: Mapping[str, int]) -> dict[str, Reason]:
    """Return the traits of a provider that has less of a class than others reserved; none where it has enough."""
    missing = {name: amount for name, amount in reserved_before.items() if amount > totals.get(name, amount)}
    if not missing:
        return {}
    why = ", ".join(f"{amount} {name} are reserved, but only {totals[name]} exist" for name, amount in missing.items())
    return dict.fromkeys([HELD, *sorted(keeps(reserved_before))], Reason(why, SHORT))
