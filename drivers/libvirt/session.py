"""The open connection to libvirt; explains its errors."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from drivers.base import OnOperation
from drivers.errors import DiscoveryError, Vanished
from drivers.host.archive import Document
from drivers.libvirt.event_loop import event_loop
from drivers.libvirt.library import libvirt
from drivers.libvirt.opening import aside, open_connection
from reportclient.errors import mask

LOG = logging.getLogger(__name__)


class Session:
    """The open connection to libvirt, if there is one: opens it, closes it, and explains its errors."""

    def __init__(
        self,
        uri: str,
        told: OnOperation,
        opening_s: float,
        borrow: Callable[[], Any] | None,
    ) -> None:
        self.uri = uri
        self.completed: tuple[str, str] | None = None  # the kernel's host name, and libvirt's; None: not known
        self._shown = mask(uri)
        self._told = told
        self._opening_s = opening_s
        self._borrow = borrow
        self._open: Any = None

    @property
    def libvirt(self) -> Any:
        """The open ``virConnect``; opens or borrows one if there is none."""
        if self._borrow:
            return self._use(self._borrow())
        if self._open is None:
            event_loop().start()  # keep-alive needs the event loop
            self._use(open_connection(self.uri, seconds=self._opening_s))
        return self._open

    def _use(self, connection: Any) -> Any:
        """Return the connection; the host's name is read anew where it is another one."""
        if connection is not self._open:
            self._open, self.completed = connection, None
        return connection

    def drop_broken(self) -> bool:
        """Return whether the connection broke; if so, drop it, and the next question opens another."""
        broken = self._open is not None and not self._open.isAlive()
        if broken:
            self._open = None
        return broken

    def close(self) -> None:
        """Close the connection; does not wait long for a libvirtd that hangs."""
        made, self._open = self._open, None
        if made is not None:
            aside(made.close)

    @contextmanager
    def explained(self, what: str, operation: str) -> Iterator[None]:
        """
        Time the block as one operation, and turn a libvirt error into ours with advice.

        Raises:
            DiscoveryError: libvirt failed, or its Python package is not installed.
            Vanished: a domain or device of the block does not exist any more.
        """
        if libvirt is None:
            raise DiscoveryError(
                "the Python package libvirt-python is not installed: pip install 'compute-node-agent[libvirt]'"
            )
        started = time.monotonic()
        try:
            with self.timed(operation):
                yield
            LOG.info("read %s from libvirt seconds=%.1f", what, time.monotonic() - started)
        except libvirt.libvirtError as error:
            advice = _advice(str(error)) if self._open is None else "see libvirtd's log"
            where, said = mask(f"libvirt at {self.uri}"), mask(str(error))
            self.drop_broken()
            if error.get_error_code() in (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_NO_NODE_DEVICE):
                raise Vanished(f"{where}: {said}: the domain or device was removed while the host was read") from error
            raise DiscoveryError(f"cannot read {what} from {where}: {said}: {advice}") from error

    @contextmanager
    def timed(self, operation: str) -> Iterator[None]:
        """Report the seconds of the block, and whether it succeeded, to the callback."""
        started, served = time.monotonic(), False
        try:
            yield
            served = True
        finally:
            self._told(operation, time.monotonic() - started, served)

    def document(self, what: str, text: str) -> Document:
        """Return a text with its source, as messages name it."""
        return Document(text, f"libvirt at {self._shown}: {what}")


def _advice(message: str) -> str:
    """Return what to do after an error of opening a connection."""
    if "system bus" in message:
        return "run as root: for other users libvirt asks polkit over D-Bus, which does not answer here"
    if "keepalive" in message:
        return "does libvirtd hang? see its log, and restart it"
    if "ermission denied" in message or "authentication" in message:
        return "run as root, or as a user of the group libvirt"
    if "No such file" in message or "refused" in message:
        return "start libvirtd (systemctl start libvirtd), or set [libvirt] connection_uri"
    return "check [libvirt] connection_uri"
