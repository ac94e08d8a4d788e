"""Turns libvirt's events into ``Event`` values with a text for people."""

import re

from drivers.events import Event

DELETED = 1  # VIR_NODE_DEVICE_EVENT_DELETED
NODE_DEVICE = {0: "created", 1: "deleted"}  # virNodeDeviceEventLifecycleType
DOMAIN = {  # virDomainEventType
    0: "defined", 1: "undefined", 2: "started", 3: "suspended", 4: "resumed", 5: "stopped", 6: "shut down",
    7: "suspended by power management", 8: "crashed",
}  # fmt: skip


FUNCTION = re.compile(r"pci_([0-9a-f]{4,8})_([0-9a-f]{2})_([0-9a-f]{2})_([0-7])")  # libvirt's name of a PCI function


def device_event(name: str, kind: int) -> Event:
    """Return the event that a node device was created or deleted; ``gone`` is the address of a deleted PCI function."""
    gone = FUNCTION.fullmatch(name) if kind == DELETED else None
    address = "{}:{}:{}.{}".format(*gone.groups()) if gone else ""
    return Event("libvirt", f"node device {name} {NODE_DEVICE.get(kind, f'event {kind}')}", address)


def device_update(name: str) -> Event:
    """Return the event that a node device changed."""
    return Event("libvirt", f"node device {name} updated")


def domain_event(name: str, kind: int) -> Event:
    """Return the event of a guest's new state; a migration stops it at the source and resumes it at the target."""
    return Event("libvirt", f"domain {name} {DOMAIN.get(kind, f'event {kind}')}")
