"""
The Python package of libvirt: opens, watches and closes connections, and runs the event loop that they need.

libvirt itself has no limit: its calls wait without end for a libvirtd that accepts a connection and then hangs.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from functools import cache
from typing import Any

from drivers.base import Event, Wake
from drivers.errors import DiscoveryError
from reportclient.errors import mask
from reportclient.names import device_address

try:
    import libvirt as _installed
except ImportError:
    _installed = None

libvirt: Any = _installed  # None where it is not installed: a recorded host is read without it

LOG = logging.getLogger(__name__)
AGAIN_S = 5.0  # between two turns of an event loop that fails
SETTLING_S = 2.0  # how long to wait for running callbacks
OPENING_S = 20.0  # keep-alive gives up an open connection after the same time
CLOSING_S = 3.0
DELETED = 1  # VIR_NODE_DEVICE_EVENT_DELETED
NODE_DEVICE = {0: "created", 1: "deleted"}  # virNodeDeviceEventLifecycleType
DOMAIN = {  # virDomainEventType
    0: "defined", 1: "undefined", 2: "started", 3: "suspended", 4: "resumed", 5: "stopped", 6: "shut down",
    7: "suspended by power management", 8: "crashed",
}  # fmt: skip


def open_connection(uri: str) -> Any:
    """
    Open a connection with keep-alive, which belongs to the caller; starts libvirt's event loop before.

    An attempt of an earlier call that has not ended, or that ended too late, serves this one: a thread that hangs
    cannot be ended, so there is at most one for each URI.

    Raises:
        libvirt.libvirtError: libvirt cannot be reached.
        DiscoveryError: libvirtd accepted the connection, and did not answer in time.
    """
    start_event_loop()
    late = _late().pop(uri, None)
    opening = late if late and _serves(late) else _begin(uri)
    try:
        return opening.result(OPENING_S)
    except TimeoutError as error:
        _late()[uri] = opening
        raise DiscoveryError(
            f"libvirt at {mask(uri)} accepted a connection and has not answered for {OPENING_S:.0f} s: "
            f"does libvirtd hang? see its log, and restart it"
        ) from error


def aside(close: Callable[[], object]) -> None:
    """Call ``close``, which waits for libvirtd, in another thread; return after CLOSING_S at the latest."""
    thread = threading.Thread(target=close, name="libvirt-closing", daemon=True)
    thread.start()
    thread.join(CLOSING_S)


def listen(connection: Any, wake: Wake) -> ExitStack:
    """
    Call ``wake`` for each event on a connection, and when it breaks; return what ends that and closes the connection.

    While a callback is registered, libvirt keeps a connection open, even a broken one.

    Raises:
        libvirt.libvirtError: libvirt cannot be reached any more.
    """

    def on_device(_connection: object, device: Any, kind: int, *_: object) -> None:
        wake(device_event(device.name(), kind))

    def on_update(_connection: object, device: Any, _opaque: object) -> None:
        wake(Event("libvirt", f"node device {device.name()} updated"))

    def on_domain(_connection: object, domain: Any, kind: int, *_: object) -> None:
        """Report a guest's new state; a migration stops it at the source and resumes it at the target."""
        wake(Event("libvirt", f"domain {domain.name()} {DOMAIN.get(kind, f'event {kind}')}"))

    with ExitStack() as made:
        made.callback(_quietly, connection.close)
        made.callback(_settle)  # a running callback also refers to the connection, and would close it
        connection.registerCloseCallback(lambda *_: wake(Event("libvirt", "connection lost")), None)
        made.callback(_quietly, connection.unregisterCloseCallback)
        devices, no_devices = connection.nodeDeviceEventRegisterAny, connection.nodeDeviceEventDeregisterAny
        domains, no_domains = connection.domainEventRegisterAny, connection.domainEventDeregisterAny
        for register, deregister, event, callback in (
            (devices, no_devices, libvirt.VIR_NODE_DEVICE_EVENT_ID_LIFECYCLE, on_device),
            (devices, no_devices, libvirt.VIR_NODE_DEVICE_EVENT_ID_UPDATE, on_update),
            (domains, no_domains, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, on_domain),
        ):
            made.callback(_quietly, deregister, register(None, event, callback, None))
        return made.pop_all()


def device_event(name: str, kind: int) -> Event:
    """Return the event that a node device was created or deleted; ``gone`` is the address of a deleted PCI function."""
    gone = device_address(name) if kind == DELETED and name.startswith("pci_") else None
    return Event("libvirt", f"node device {name} {NODE_DEVICE.get(kind, f'event {kind}')}", gone or "")


@cache
def _late() -> dict[str, "Future[Any]"]:
    """Return the attempts of this process that no call waits for any more, by URI."""
    return {}


def _serves(opening: "Future[Any]") -> bool:
    """Return whether an attempt goes on, or has opened a connection that lives."""
    return not opening.done() or (opening.exception() is None and bool(opening.result().isAlive()))


def _begin(uri: str) -> "Future[Any]":
    """Start an attempt in a thread."""
    opening: Future[Any] = Future()
    threading.Thread(target=_open, args=(uri, opening), name="libvirt-open", daemon=True).start()
    return opening


def _quietly(close: Callable[..., object], *arguments: object) -> None:
    """Call what closes something of libvirt; ignore its error, as that is given up anyway."""
    with suppress(libvirt.libvirtError):
        close(*arguments)


def _open(uri: str, opening: "Future[Any]") -> None:
    """Open a connection, and set it or libvirt's error as the result of ``opening``."""
    libvirt.registerErrorHandler(lambda *_: None, None)  # errors are exceptions; libvirt would print them as well
    try:
        # without a callback libvirt does not log in by SASL at all; it looks into auth.conf before it calls that
        asked = [libvirt.VIR_CRED_AUTHNAME, libvirt.VIR_CRED_PASSPHRASE]
        connection = libvirt.openAuth(uri, [asked, lambda *_: -1, None])
        _keep_alive(connection)
        opening.set_result(connection)
    except libvirt.libvirtError as error:
        opening.set_exception(error)


def _keep_alive(connection: Any) -> None:
    """
    Set keep-alive: calls, also those that close the connection, fail when libvirtd as a whole hangs for 20 s.

    A libvirtd whose workers alone hang answers keep-alive; then a call has no limit.
    """
    try:
        connection.setKeepAlive(5, 3)
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_SUPPORT:  # libvirt drivers without a daemon have no keep-alive
            raise


@cache
def start_event_loop() -> None:
    """Start the thread that runs libvirt's event loop, of which a process has only one; later calls do nothing."""
    libvirt.virEventRegisterDefaultImpl()
    threading.Thread(target=_turn, name="libvirt", daemon=True).start()


def _settle() -> None:
    """Wait until the callbacks that run now have ended, SETTLING_S at most; a callback must not call this."""
    turned = threading.Event()
    timer = libvirt.virEventAddTimeout(0, lambda *_: turned.set(), None)
    turned.wait(SETTLING_S)
    libvirt.virEventRemoveTimeout(timer)


def _turn() -> None:
    failing = False
    while True:
        try:
            libvirt.virEventRunDefaultImpl()
            failing = False
        except libvirt.libvirtError as error:
            if not failing:  # it may fail for days
                LOG.warning(
                    "libvirt's event loop fails: no events and no keep-alive until it runs again reason=%s", error
                )
            failing = True
            time.sleep(AGAIN_S)
