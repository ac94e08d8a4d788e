"""
How connections to libvirt begin and end, with an end to waiting for it.

libvirt has none where libvirtd takes a connection and then hangs.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import cache
from typing import Any

from drivers.errors import DiscoveryError

OPENING_S = 20.0  # as long as keep-alive lets a connection hang that is there
CLOSING_S = 3.0
Key = tuple[str, bool]  # a URI, and whether only to read


def open_connection(uri: str, *, read_only: bool = False, seconds: float = OPENING_S) -> Any:
    """
    A connection of the caller's own, with keep-alive, for which libvirt's event loop must have been started.

    What is still under way from an earlier call is waited for again.

    Raises:
        libvirt.libvirtError: there is none to be had. DiscoveryError: libvirtd took it, and says nothing.
    """
    key, openings = (uri, read_only), _openings()
    while True:
        opening = openings.begin(key)
        try:
            made = opening.result(seconds)
        except TimeoutError as error:
            raise DiscoveryError(
                f"libvirt at {uri} took a connection and has said nothing for {seconds:.0f} s: does libvirtd hang? "
                f"see its log, and restart it"
            ) from error
        if openings.take(key, opening):
            return made


def aside(close: Callable[[], object]) -> None:
    """Have something closed, which asks libvirtd, by a thread that is not waited for without end."""
    thread = threading.Thread(target=_try, args=(close,), name="libvirt-closing", daemon=True)
    thread.start()
    thread.join(CLOSING_S)


class _Openings:
    """Those under way, one of a kind at a time: nobody can end the thread of one that hangs."""

    def __init__(self) -> None:
        self._begun: dict[Key, Future[Any]] = {}
        self._lock = threading.Lock()

    def begin(self, key: Key) -> "Future[Any]":
        """The one under way, or another; what was done while nobody waited is of the past."""
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
        """Make it the caller's own; False: it is another caller's already."""
        with self._lock:
            mine = self._begun.get(key) is opening
            if mine:
                del self._begun[key]
            return mine


@cache
def _openings() -> _Openings:
    """Those of this process, as their threads are."""
    return _Openings()


def _try(close: Callable[[], object]) -> None:
    import libvirt

    with suppress(libvirt.libvirtError):
        close()


def _quiet_libvirt() -> Any:
    """The library, told not to print its errors on standard error too."""
    import libvirt

    libvirt.registerErrorHandler(lambda *_: None, None)
    return libvirt


def _open(key: Key, opening: "Future[Any]") -> None:
    libvirt = _quiet_libvirt()
    uri, read_only = key
    try:
        connection = libvirt.openReadOnly(uri) if read_only else libvirt.open(uri)
        _keep_alive(connection)
        opening.set_result(connection)
    except libvirt.libvirtError as error:
        opening.set_exception(error)


def _keep_alive(connection: Any) -> None:
    """A libvirtd that hangs as a whole is given up after twenty seconds, also by who closes the connection."""
    import libvirt

    try:
        connection.setKeepAlive(5, 3)
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_SUPPORT:  # which drivers without a daemon have no need of
            raise
