"""
Opens and closes connections to libvirt, with a time limit.

libvirt itself has no limit: its calls wait without end for a libvirtd that accepts a connection and then hangs.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import cache
from typing import Any

from drivers.errors import DiscoveryError
from drivers.libvirt.library import libvirt
from reportclient.errors import mask

OPENING_S = 20.0  # keep-alive gives up an open connection after the same time
CLOSING_S = 3.0
Key = tuple[str, bool]  # (URI, read only)


def open_connection(uri: str, *, read_only: bool = False, seconds: float = OPENING_S) -> Any:
    """
    Open a connection with keep-alive, which belongs to the caller; libvirt's event loop must have been started.

    An attempt of an earlier call that has not ended is waited for again.

    Raises:
        libvirt.libvirtError: libvirt cannot be reached.
        DiscoveryError: libvirtd accepted the connection, and did not answer in time.
    """
    key, openings = (uri, read_only), _openings()
    while True:
        opening = openings.begin(key)
        try:
            made = opening.result(seconds)
        except TimeoutError as error:
            raise DiscoveryError(
                f"libvirt at {mask(uri)} accepted a connection and has not answered for {seconds:.0f} s: "
                f"does libvirtd hang? see its log, and restart it"
            ) from error
        if openings.take(key, opening):
            return made


def aside(close: Callable[[], object]) -> None:
    """Call ``close``, which waits for libvirtd, in another thread; return after CLOSING_S at the latest."""
    thread = threading.Thread(target=_try, args=(close,), name="libvirt-closing", daemon=True)
    thread.start()
    thread.join(CLOSING_S)


class _Openings:
    """Attempts to open connections, at most one at a time for each key: a thread that hangs cannot be ended."""

    def __init__(self) -> None:
        self._begun: dict[Key, Future[Any]] = {}
        self._lock = threading.Lock()

    def begin(self, key: Key) -> "Future[Any]":
        """Return the running attempt, or start one; a connection that was opened too late is closed."""
        with self._lock:
            before = self._begun.get(key)
            if before is not None and not before.done():
                return before
            opening: Future[Any] = Future()
            threading.Thread(target=_open, args=(key, opening), name="libvirt-open", daemon=True).start()
            self._begun[key] = opening
        if before is not None and before.exception() is None:
            aside(before.result().close)
        return opening

    def take(self, key: Key, opening: "Future[Any]") -> bool:
        """Give the connection to the caller; return False where another caller has it already."""
        with self._lock:
            mine = self._begun.get(key) is opening
            if mine:
                del self._begun[key]
            return mine


@cache
def _openings() -> _Openings:
    """Return the attempts of this process."""
    return _Openings()


def _try(close: Callable[[], object]) -> None:
    """Call ``close``; ignore an error of libvirt, as the connection is given up anyway."""
    with suppress(libvirt.libvirtError):
        close()


def _open(key: Key, opening: "Future[Any]") -> None:
    """Open a connection, and set it or libvirt's error as the result of ``opening``."""
    libvirt.registerErrorHandler(lambda *_: None, None)  # errors are exceptions; libvirt would print them as well
    uri, read_only = key
    try:
        connection = libvirt.openReadOnly(uri) if read_only else libvirt.open(uri)
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
