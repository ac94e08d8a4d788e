"""libvirt's events in words."""

import re

from drivers.events import Event

DELETED = 1
NODE_DEVICE = {0: "created", 1: "deleted"}  # virNodeDeviceEventLifecycleType
DOMAIN = {  # virDomainEventType
    0: "defined", 1: "undefined", 2: "started", 3: "suspended", 4: "resumed", 5: "stopped", 6: "shut down",
    7: "suspended by power management", 8: "crashed",
}  # fmt: skip


FUNCTION = re.compile(r"pci_([0-9a-f]{4,8})_([0-9a-f]{2})_([0-9a-f]{2})_([0-7])")  # libvirt's name of a PCI function


def device_event(name: str, kind: int) -> Event:
    """A node device came or went."""
    gone = FUNCTION.fullmatch(name) if kind == DELETED else None
    address = "{}:{}:{}.{}".format(*gone.groups()) if gone else ""
    return Event("libvirt", f"node device {name} {NODE_DEVICE.get(kind, f'event {kind}')}", address)


def device_update(name: str) -> Event:
    """A node device is not what it was."""
    return Event("libvirt", f"node device {name} updated")


def domain_event(name: str, kind: int) -> Event:
    """A guest was started, stopped, migrated away (stopped here) or to here (resumed here)."""
    return Event("libvirt", f"domain {name} {DOMAIN.get(kind, f'event {kind}')}")
