"""Reports libvirt's events, over its own connection to libvirt's read-only socket."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from drivers.base import Event, Wake
from drivers.errors import DiscoveryError
from drivers.libvirt.library import libvirt
from drivers.libvirt.opening import aside, event_loop, open_connection

AGAIN_S = 1.0  # between two attempts to connect again


class _Named(Protocol):
    """A virDomain or virNodeDevice, as callbacks use it."""

    def name(self) -> str: ...


class Listener:
    """Calls ``wake`` for each libvirt event of a node device or domain; needs libvirt's event loop started before."""

    def __init__(self, uri: str, wake: Wake) -> None:
        self._uri, self._wake = uri, wake
        self._connection: Any = None
        self._registered: list[tuple[Callable[[int], object], int]] = []  # (function to deregister, callback's number)
        self._changing = threading.Lock()
        self._stopped = threading.Event()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """
        Report events inside the block. A connection that breaks is opened again.

        Raises:
            libvirt.libvirtError, DiscoveryError: libvirt cannot be reached now.
        """
        self._connect()
        try:
            yield
        finally:
            self._stopped.set()
            aside(self._let_go)

    def _connect(self) -> None:
        connection = open_connection(self._uri, read_only=True)
        with self._changing:
            self._release()
            if self._stopped.is_set():
                connection.close()
                return
            self._connection = connection
            devices, no_devices = connection.nodeDeviceEventRegisterAny, connection.nodeDeviceEventDeregisterAny
            domains, no_domains = connection.domainEventRegisterAny, connection.domainEventDeregisterAny
            try:
                for register, deregister, event, callback in (
                    (devices, no_devices, libvirt.VIR_NODE_DEVICE_EVENT_ID_LIFECYCLE, self._on_device),
                    (devices, no_devices, libvirt.VIR_NODE_DEVICE_EVENT_ID_UPDATE, self._on_update),
                    (domains, no_domains, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._on_domain),
                ):
                    self._registered.append((deregister, register(None, event, callback, None)))
                connection.registerCloseCallback(self._on_close, None)
            except libvirt.libvirtError:
                self._release()
                raise

    def _let_go(self) -> None:
        with self._changing:
            self._release()

    def _release(self) -> None:
        """
        Deregister all callbacks and close the connection.

        While a callback is registered, libvirt keeps a connection open, even a broken one.
        """
        if self._connection is None:
            return
        for deregister, number in self._registered:
            with suppress(libvirt.libvirtError):
                deregister(number)
        self._registered = []
        with suppress(libvirt.libvirtError):
            self._connection.unregisterCloseCallback()
        event_loop().settle()  # a running callback also refers to the connection, and would close it in its thread
        with suppress(libvirt.libvirtError):
            self._connection.close()
        self._connection = None

    def _on_close(self, _connection: object, _reason: int, _opaque: object) -> None:
        """Start a thread that connects again; the event loop calls this, and must not wait."""
        if not self._stopped.is_set():
            threading.Thread(target=self._reconnect, name="libvirt-again", daemon=True).start()

    def _reconnect(self) -> None:
        self._wake(Event("libvirt", "connection lost"))
        while not self._stopped.wait(AGAIN_S):
            with suppress(libvirt.libvirtError, DiscoveryError):
                self._connect()
                self._wake(Event("libvirt", "connected again"))
                return

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


FUNCTION = re.compile(r"pci_([0-9a-f]{4,8})_([0-9a-f]{2})_([0-9a-f]{2})_([0-7])")  # libvirt's name of a PCI function


def device_event(name: str, kind: int) -> Event:
    """Return the event that a node device was created or deleted; ``gone`` is the address of a deleted PCI function."""
    gone = FUNCTION.fullmatch(name) if kind == DELETED else None
    address = "{}:{}:{}.{}".format(*gone.groups()) if gone else ""
    return Event("libvirt", f"node device {name} {NODE_DEVICE.get(kind, f'event {kind}')}", address)
