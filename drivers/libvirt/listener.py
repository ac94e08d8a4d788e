"""Reports libvirt's events, over its own connection to libvirt's read-only socket."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Protocol

from drivers.base import Event, Wake
from drivers.errors import DiscoveryError
from drivers.libvirt.library import libvirt
from drivers.libvirt.opening import CLOSING_S, event_loop, open_connection, quietly
from reportclient.names import device_address

AGAIN_S = 1.0  # between two looks at the connection, or attempts to connect again


class _Named(Protocol):
    """A virDomain or virNodeDevice, as callbacks use it."""

    def name(self) -> str: ...


class Listener:
    """Calls ``wake`` for each libvirt event of a node device or domain; needs libvirt's event loop started before."""

    def __init__(self, uri: str, wake: Wake) -> None:
        self._uri, self._wake = uri, wake
        self._stopped = threading.Event()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """
        Report events inside the block. A connection that breaks is opened again.

        Raises:
            libvirt.libvirtError, DiscoveryError: libvirt cannot be reached now.
        """
        first = self._connect()
        thread = threading.Thread(target=self._stay_connected, args=first, name="libvirt-events", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join(CLOSING_S)  # libvirtd may hang

    def _connect(self) -> tuple[Any, ExitStack]:
        """
        Return a connection with all callbacks, and what closes it.

        While a callback is registered, libvirt keeps a connection open, even a broken one.
        """
        with ExitStack() as made:
            connection = open_connection(self._uri, read_only=True)
            made.callback(quietly, connection.close)
            made.callback(event_loop().settle)  # a running callback also refers to the connection, and would close it
            devices, no_devices = connection.nodeDeviceEventRegisterAny, connection.nodeDeviceEventDeregisterAny
            domains, no_domains = connection.domainEventRegisterAny, connection.domainEventDeregisterAny
            for register, deregister, event, callback in (
                (devices, no_devices, libvirt.VIR_NODE_DEVICE_EVENT_ID_LIFECYCLE, self._on_device),
                (devices, no_devices, libvirt.VIR_NODE_DEVICE_EVENT_ID_UPDATE, self._on_update),
                (domains, no_domains, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._on_domain),
            ):
                made.callback(quietly, deregister, register(None, event, callback, None))
            return connection, made.pop_all()

    def _stay_connected(self, connection: Any, made: ExitStack) -> None:
        """Connect again each time that the connection breaks; close it once nobody listens any more."""
        while not self._stopped.wait(AGAIN_S):
            if _is_alive(connection):
                continue
            made.close()
            self._wake(Event("libvirt", "connection lost"))
            while not self._stopped.wait(AGAIN_S):
                with suppress(libvirt.libvirtError, DiscoveryError):
                    connection, made = self._connect()
                    self._wake(Event("libvirt", "connected again"))
                    break
        made.close()

    def _on_device(self, _connection: object, device: _Named, kind: int, _detail: int, _opaque: object) -> None:
        self._wake(device_event(device.name(), kind))

    def _on_update(self, _connection: object, device: _Named, _opaque: object) -> None:
        self._wake(Event("libvirt", f"node device {device.name()} updated"))

    def _on_domain(self, _connection: object, domain: _Named, kind: int, _detail: int, _opaque: object) -> None:
        """Report a guest's new state; a migration stops it at the source and resumes it at the target."""
        self._wake(Event("libvirt", f"domain {domain.name()} {DOMAIN.get(kind, f'event {kind}')}"))


DELETED = 1  # VIR_NODE_DEVICE_EVENT_DELETED
NODE_DEVICE = {0: "created", 1: "deleted"}  # virNodeDeviceEventLifecycleType
DOMAIN = {  # virDomainEventType
    0: "defined", 1: "undefined", 2: "started", 3: "suspended", 4: "resumed", 5: "stopped", 6: "shut down",
    7: "suspended by power management", 8: "crashed",
}  # fmt: skip


def _is_alive(connection: Any) -> bool:
    """Return whether a connection can be used; where libvirt cannot tell, it counts as broken."""
    try:
        return bool(connection.isAlive())
    except libvirt.libvirtError:
        return False


def device_event(name: str, kind: int) -> Event:
    """Return the event that a node device was created or deleted; ``gone`` is the address of a deleted PCI function."""
    gone = device_address(name) if kind == DELETED and name.startswith("pci_") else None
    return Event("libvirt", f"node device {name} {NODE_DEVICE.get(kind, f'event {kind}')}", gone or "")
