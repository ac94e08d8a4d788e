"""
The Python package of libvirt: opens and closes connections with a time limit, and runs the event loop that they need.

libvirt itself has no limit: its calls wait without end for a libvirtd that accepts a connection and then hangs.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import cache
from typing import Any

from drivers.errors import DiscoveryError
from reportclient.errors import mask

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


def open_connection(uri: str, *, seconds: float = OPENING_S) -> Any:
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
        return opening.result(seconds)
    except TimeoutError as error:
        _late()[uri] = opening
        raise DiscoveryError(
            f"libvirt at {mask(uri)} accepted a connection and has not answered for {seconds:.0f} s: "
            f"does libvirtd hang? see its log, and restart it"
        ) from error


def aside(close: Callable[[], object]) -> None:
    """Call ``close``, which waits for libvirtd, in another thread; return after CLOSING_S at the latest."""
    thread = threading.Thread(target=close, name="libvirt-closing", daemon=True)
    thread.start()
    thread.join(CLOSING_S)


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


def quietly(close: Callable[..., object], *arguments: object) -> None:
    """Call what closes something of libvirt; ignore its error, as that is given up anyway."""
    with suppress(libvirt.libvirtError):
        close(*arguments)


def _open(uri: str, opening: "Future[Any]") -> None:
    """Open a connection, and set it or libvirt's error as the result of ``opening``."""
    libvirt.registerErrorHandler(lambda *_: None, None)  # errors are exceptions; libvirt would print them as well
    try:
        connection = libvirt.open(uri)
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


def settle() -> None:
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
