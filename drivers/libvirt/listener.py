"""libvirt's events, heard in a thread of their own over a connection of their own."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from drivers.errors import DiscoveryError
from drivers.events import Event, Wake
from drivers.libvirt.events import device_event, device_update, domain_event
from drivers.libvirt.opening import opened

LOOK_MS = 10_000  # after which the thread that listens looks whether it is to end, if nothing else wakes it
TURN_S = 1.0  # between two turns of an event loop that rests


class Listener:
    """A connection of its own for events, over libvirt's read-only socket, and the thread that waits for them."""

    def __init__(self, uri: str, wake: Wake) -> None:
        self._uri, self._wake = uri, wake
        self._connection: Any = None
        self._registered: list[tuple[Callable[[int], object], int]] = []  # what to take back, and by which number
        self._timer = -1
        self._releasing = threading.Lock()
        self._stopped = threading.Event()
        self._may_wait = threading.Event()
        self._may_wait.set()

    def stop(self) -> None:
        """Have the thread that listens end, from any other."""
        self._stopped.set()
        self._may_wait.set()
        self._look_after(0)

    @contextmanager
    def resting(self) -> Iterator[None]:
        """
        Inside, the event loop turns once in a while only, for keep-alive; what comes is heard that much later.

        It is one for the whole process: while it waits, each call over any connection wakes it four times and more.
        """
        self._may_wait.clear()
        self._look_after(0)
        try:
            yield
        finally:
            self._look_after(LOOK_MS)
            self._may_wait.set()

    def _look_after(self, milliseconds: int) -> None:
        """Have the event loop return then, and each time after so long."""
        import libvirt

        with suppress(libvirt.libvirtError):
            libvirt.virEventUpdateTimeout(self._timer, milliseconds)

    def connect(self) -> None:
        """
        In place of the connection before.

        Raises:
            libvirt.libvirtError, DiscoveryError: there is none to be had.
        """
        import libvirt

        self._release()
        connection = self._connection = opened(self._uri, read_only=True)
        devices, no_devices = connection.nodeDeviceEventRegisterAny, connection.nodeDeviceEventDeregisterAny
        domains, no_domains = connection.domainEventRegisterAny, connection.domainEventDeregisterAny
        for register, deregister, event, callback in (
            (devices, no_devices, libvirt.VIR_NODE_DEVICE_EVENT_ID_LIFECYCLE, self._on_device),
            (devices, no_devices, libvirt.VIR_NODE_DEVICE_EVENT_ID_UPDATE, self._on_update),
            (domains, no_domains, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._on_domain),
        ):
            self._registered.append((deregister, register(None, event, callback, None)))
        connection.setKeepAlive(5, 3)

    def _release(self) -> None:
        """libvirt keeps a connection for as long as anything is registered with it, alive or not."""
        import libvirt

        with self._releasing:
            for deregister, number in self._registered:
                with suppress(libvirt.libvirtError):
                    deregister(number)
            self._registered = []
            if self._connection is not None:
                with suppress(libvirt.libvirtError):
                    self._connection.close()
            self._connection = None

    def listen(self) -> None:
        """Until stopped. Other connections need the event loop too, so that another connection is made aside."""
        import libvirt

        self._timer = libvirt.virEventAddTimeout(LOOK_MS, lambda *_: None, None)  # the loop sees its end by it
        aside: threading.Thread | None = None
        while not self._stopped.is_set():
            self._may_wait.wait(TURN_S)
            with suppress(libvirt.libvirtError):
                libvirt.virEventRunDefaultImpl()
            if not self._hears() and not (aside and aside.is_alive()):
                aside = threading.Thread(target=self._reconnect, name="libvirt-again", daemon=True)
                aside.start()
        self._release()
        with suppress(libvirt.libvirtError):
            libvirt.virEventRemoveTimeout(self._timer)

    def _hears(self) -> bool:
        import libvirt

        connection = self._connection
        with suppress(libvirt.libvirtError):
            return connection is not None and bool(connection.isAlive())
        return False

    def _reconnect(self) -> None:
        import libvirt

        self._wake(Event("libvirt", "connection lost"))
        while not self._stopped.wait(1):
            with suppress(libvirt.libvirtError, DiscoveryError):
                self.connect()
                self._wake(Event("libvirt", "connected again"))
                break
        if self._stopped.is_set():  # and nobody listens any more who would
            self._release()

    def _on_device(self, _connection: Any, device: Any, kind: int, _detail: int, _opaque: object) -> None:
        self._wake(device_event(device.name(), kind))

    def _on_update(self, _connection: Any, device: Any, _opaque: object) -> None:
        self._wake(device_update(device.name()))

    def _on_domain(self, _connection: Any, domain: Any, kind: int, _detail: int, _opaque: object) -> None:
        self._wake(domain_event(domain.name(), kind))
