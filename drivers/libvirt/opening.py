"""Connections to libvirt, with an end to waiting for them: libvirt has none where libvirtd takes one and then hangs."""

import threading
from concurrent.futures import Future
from typing import Any

from drivers.errors import DiscoveryError

OPENING_S = 20.0  # as long as keep-alive lets a connection hang that is there
_Key = tuple[str, bool]
_begun: dict[_Key, "Future[Any]"] = {}  # by URI and whether only to read: those that nobody took yet
_taking = threading.Lock()


def opened(uri: str, *, read_only: bool = False) -> Any:
    """
    A connection of the caller's own. One that is not there in time is what the next caller waits for.

    Raises:
        libvirt.libvirtError: there is none to be had. DiscoveryError: libvirtd took it, and says nothing.
    """
    key = uri, read_only
    while True:
        opening = _begin(key)
        try:
            made = opening.result(OPENING_S)
        except TimeoutError as error:
            raise DiscoveryError(
                f"libvirt at {uri} took a connection and has said nothing for {OPENING_S:.0f} s: does libvirtd hang? "
                f"see its log, and restart it"
            ) from error
        finally:
            mine = opening.done() and _take(key, opening)
        if mine:
            return made


def quiet_libvirt() -> Any:
    """The library, told not to print its errors on standard error too."""
    import libvirt

    libvirt.registerErrorHandler(lambda *_: None, None)
    return libvirt


def _begin(key: _Key) -> "Future[Any]":
    with _taking:
        if key not in _begun:
            _begun[key] = Future()
            threading.Thread(target=_open, args=(key, _begun[key]), name="libvirt-open", daemon=True).start()
        return _begun[key]


def _take(key: _Key, opening: "Future[Any]") -> bool:
    """Whether it was still there to be taken."""
    with _taking:
        return _begun.get(key) is opening and _begun.pop(key) is opening


def _open(key: _Key, opening: "Future[Any]") -> None:
    uri, read_only = key
    try:
        libvirt = quiet_libvirt()
        opening.set_result(libvirt.openReadOnly(uri) if read_only else libvirt.open(uri))
    except Exception as error:  # whatever it is, it is of concern where the connection is waited for
        opening.set_exception(error)
