"""Reports libvirt's events of node devices and domains, and the end of the connection that reports them."""

from contextlib import ExitStack
from typing import Any, Protocol

from drivers.base import Event, Wake
from drivers.libvirt.library import libvirt, quietly, settle
from reportclient.names import device_address

DELETED = 1  # VIR_NODE_DEVICE_EVENT_DELETED
NODE_DEVICE = {0: "created", 1: "deleted"}  # virNodeDeviceEventLifecycleType
DOMAIN = {  # virDomainEventType
    0: "defined", 1: "undefined", 2: "started", 3: "suspended", 4: "resumed", 5: "stopped", 6: "shut down",
    7: "suspended by power management", 8: "crashed",
}  # fmt: skip


class _Named(Protocol):
    """A virDomain or virNodeDevice, as callbacks use it."""

    def name(self) -> str: ...


def listen(connection: Any, wake: Wake) -> ExitStack:
    """
    Call ``wake`` for each event on a connection, and when it breaks; return what ends that and closes the connection.

    While a callback is registered, libvirt keeps a connection open, even a broken one.

    Raises:
        libvirt.libvirtError: libvirt cannot be reached any more.
    """

    def on_device(_connection: object, device: _Named, kind: int, _detail: int, _opaque: object) -> None:
        wake(device_event(device.name(), kind))

    def on_update(_connection: object, device: _Named, _opaque: object) -> None:
        wake(Event("libvirt", f"node device {device.name()} updated"))

    def on_domain(_connection: object, domain: _Named, kind: int, _detail: int, _opaque: object) -> None:
        """Report a guest's new state; a migration stops it at the source and resumes it at the target."""
        wake(Event("libvirt", f"domain {domain.name()} {DOMAIN.get(kind, f'event {kind}')}"))

    with ExitStack() as made:
        made.callback(quietly, connection.close)
        made.callback(settle)  # a running callback also refers to the connection, and would close it
        connection.registerCloseCallback(lambda *_: wake(Event("libvirt", "connection lost")), None)
        made.callback(quietly, connection.unregisterCloseCallback)
        devices, no_devices = connection.nodeDeviceEventRegisterAny, connection.nodeDeviceEventDeregisterAny
        domains, no_domains = connection.domainEventRegisterAny, connection.domainEventDeregisterAny
        for register, deregister, event, callback in (
            (devices, no_devices, libvirt.VIR_NODE_DEVICE_EVENT_ID_LIFECYCLE, on_device),
            (devices, no_devices, libvirt.VIR_NODE_DEVICE_EVENT_ID_UPDATE, on_update),
            (domains, no_domains, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, on_domain),
        ):
            made.callback(quietly, deregister, register(None, event, callback, None))
        return made.pop_all()


def device_event(name: str, kind: int) -> Event:
    """Return the event that a node device was created or deleted; ``gone`` is the address of a deleted PCI function."""
    gone = device_address(name) if kind == DELETED and name.startswith("pci_") else None
    return Event("libvirt", f"node device {name} {NODE_DEVICE.get(kind, f'event {kind}')}", gone or "")
