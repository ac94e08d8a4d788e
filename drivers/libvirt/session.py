"""The open connection to libvirt, and what is kept of its answers; explains its errors."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from drivers.base import OnOperation
from drivers.errors import DiscoveryError, Vanished
from drivers.facts import Versions
from drivers.host.archive import Document
from drivers.libvirt.capabilities import Offer
from drivers.libvirt.event_loop import event_loop
from drivers.libvirt.library import libvirt
from drivers.libvirt.opening import aside, open_connection
from reportclient.errors import mask

LOG = logging.getLogger(__name__)
KEPT_S = 600.0  # after so long, the answers about installed programs are read again


@dataclass(slots=True)
class Kept:
    """
    Answers that are not read at each pass; None where not read yet.

    Those up to ``expanded`` are read once for each connection. The others rest on installed programs, and are read
    again when the host's capabilities, which name the machine types of these, are not ``beside`` any more.
    """

    version: int | None = None  # of libvirtd, as libvirt counts versions
    type: str | None = None  # of the hypervisor
    completed: tuple[str, str] | None = None  # the kernel's host name, and the name that libvirt completed it to
    expanded: dict[tuple[str, str], Document] = field(default_factory=dict)  # by (name, <cpu>); depends on libvirt only
    versions: Versions | None = None
    offered: dict[Offer, Document] = field(default_factory=dict)
    beside: str = ""
    until_s: float = 0.0  # monotonic


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
        self.outdated = False  # an event of the host came, in any thread
        self._shown = mask(uri)
        self.kept = Kept()
        self._told = told
        self._opening_s = opening_s
        self._borrow = borrow
        self._open: Any = None

    @property
    def libvirt(self) -> Any:
        """The open ``virConnect``; opens or borrows one if there is none."""
        if self._borrow:
            return self._borrowed(self._borrow())
        if self._open is None:
            event_loop().start()  # keep-alive needs the event loop
            self._open = open_connection(self.uri, seconds=self._opening_s)
            self._forget()
        return self._open

    def _borrowed(self, lent: Any) -> Any:
        """Return the owner's connection; answers that were kept for another one are forgotten."""
        if lent is not self._open:
            self._open = lent
            self._forget()
        return lent

    def forget_outdated(self) -> None:
        """Forget answers about programs after an event of the host, and after ``KEPT_S``."""
        if self.outdated or time.monotonic() >= self.kept.until_s:
            self.outdated = False
            self._ask_again()

    def agree_with(self, capabilities: str) -> None:
        """Forget answers about programs if the host had other capabilities."""
        if capabilities != self.kept.beside:
            self._ask_again()
            self.kept.beside = capabilities

    def _ask_again(self) -> None:
        """Keep no answer about programs."""
        until_s = time.monotonic() + KEPT_S
        self.kept = replace(self.kept, versions=None, offered={}, beside="", until_s=until_s)

    def _forget(self) -> None:
        """Keep nothing, as the connection is another one."""
        self.kept = Kept(until_s=time.monotonic() + KEPT_S)

    def drop_broken(self) -> bool:
        """Return whether the connection broke; if so, drop it, and the next question opens another."""
        broken = self._open is not None and not self._open.isAlive()
        if broken:
            self._open = None
            self._ask_again()
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
