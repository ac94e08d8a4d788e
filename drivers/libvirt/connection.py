"""
Gate to libvirt: all its answers that this project uses, read from a live host.

Answers are texts with their source; other modules parse them. Errors of libvirt become DiscoveryError.
``recorded.py`` gives the same answers, by the same methods, from a host archive.
"""

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from drivers.base import OnOperation, Wake, untold
from drivers.errors import DiscoveryError, Vanished
from drivers.facts import CpuMap, Versions
from drivers.host import udev
from drivers.host.addresses import is_own
from drivers.host.archive import NOWHERE, Document, KernelFiles
from drivers.host.commands import read_namespaces
from drivers.host.disk import probe_disk
from drivers.libvirt.capabilities import Offer
from drivers.libvirt.library import aside, libvirt, listen, open_connection
from drivers.libvirt.xml import unread
from reportclient.errors import mask

LOG = logging.getLogger(__name__)
HOST_CPU = "host"  # name of the host's own CPU in ``expand``, beside the names of CPU models
ADVICE = (  # where no connection can be opened
    "start libvirtd (systemctl start libvirtd), run as root or as a user of the group libvirt, and check [libvirt] "
    "connection_uri"
)
AUTH_FILE = "LIBVIRT_AUTH_FILE"  # names another file than libvirt's own
_FAILED = "authentication failed"
DOMAIN_STATES = ("nostate", "running", "blocked", "paused", "shutdown", "shutoff", "crashed", "pmsuspended")


@dataclass(frozen=True, slots=True)
class Domain:
    """One domain: its XML (the live one while it runs) and its state."""

    uuid: str
    state: str  # one of DOMAIN_STATES
    document: Document
    migrating: bool = False  # a migration to or from this host goes on now


class LiveConnection:
    """
    libvirt on this host; opens a connection at the first question.

    The connection can write: libvirt refuses ``getDomainCapabilities`` on its read-only socket.
    """

    live = True
    disk = staticmethod(probe_disk)
    namespaces = staticmethod(read_namespaces)

    def __init__(self, uri: str, told: OnOperation = untold, borrow: Callable[[], Any] | None = None) -> None:
        """
        Prepare a connection to ``uri``; nothing is opened yet.

        ``told`` is called after each operation, which may be several calls of libvirt. ``borrow`` returns an open
        ``virConnect`` that belongs to the caller, whose process runs libvirt's event loop; None: open one.
        """
        self.uri = uri
        self._completed: tuple[str, str] | None = None  # the kernel's host name, and libvirt's; None: not known
        self._told = told
        self._borrow = borrow
        self._open: Any = None
        self._wake: Wake | None = None  # called for each event; None: nobody watches
        self._ending = ExitStack()  # closes the open connection if anybody watches

    @cached_property
    def files(self) -> KernelFiles:
        """The kernel's files; none where libvirt manages another machine."""
        return KernelFiles(Path("/"), live=True) if self._is_here() else KernelFiles(NOWHERE)

    def _is_here(self) -> bool:
        """
        Return whether libvirt manages this machine, so that the kernel's files here describe its host.

        Where the URI names a host: libvirt's host name begins like the kernel's, and the host is an address of here.
        """
        same = self.hostname().partition(".")[0] == os.uname().nodename.partition(".")[0]
        parts = urlsplit(self.uri)  # libvirt has taken it
        host = unquote(parts.hostname or "localhost")  # libvirt takes that where none is named
        return not parts.scheme.startswith("test") and (not parts.netloc or (same and is_own(host)))

    def compute_id(self) -> None:
        """Return None: the agent keeps the identity of a live host itself."""

    def hostname(self) -> str:
        """
        Return the kernel's host name, completed by libvirt, which asks the resolver.

        Without a resolver libvirt answers the short name, which would be another node. So a completed name is kept
        until the kernel's name changes or the connection is opened again, and so is a name with a dot, which libvirt
        does not complete (src/util/virutil.c, virGetHostname).
        """
        kernels = os.uname().nodename
        completed = self._completed
        if completed and completed[0] == kernels:
            return completed[1]
        with self._explained("the host name"):
            name = str(self._libvirt.getHostname())
        self._completed = (kernels, name) if name != kernels or "." in name else None
        return name

    def versions(self) -> Versions:
        """Return the versions of libvirt and of the hypervisor."""
        with self._explained("the versions of libvirt and the hypervisor"):
            connection = self._libvirt
            return Versions(connection.getLibVersion(), connection.getVersion(), connection.getType())

    def cpu_map(self) -> CpuMap:
        """Return which logical CPUs exist, and which of them are online."""
        with self._explained("the CPU map"):
            total, online, _ = self._libvirt.getCPUMap()
        return CpuMap(total, frozenset(cpu for cpu in range(total) if online[cpu]))

    def memory_mib(self) -> int:
        """Return the memory of the whole host in MiB, which libvirt tells also where it lists no NUMA cell."""
        with self._explained("the host's memory"):
            return int(self._libvirt.getInfo()[1])

    def capabilities(self) -> Document:
        """Return the XML of the host's capabilities (formatcaps.html)."""
        with self._explained("the host's capabilities"):
            return self._document("capabilities", self._libvirt.getCapabilities())

    def domain_capabilities(self, virt_type: str, offers: tuple[Offer, ...]) -> tuple[tuple[str, Document], ...]:
        """Return (ARCH-MACHINE-VIRTTYPE, XML of the domain capabilities) for each offer."""
        return tuple((f"{one.arch}-{one.machine}-{virt_type}", self._offered(one, virt_type)) for one in offers)

    def _offered(self, offer: Offer, virt_type: str) -> Document:
        with self._explained(f"the capabilities of {virt_type} guests of {offer.arch} {offer.machine}"):
            connection = self._libvirt
            text = connection.getDomainCapabilities(offer.emulator, offer.arch, offer.machine, virt_type, 0)
        return self._document(f"domain capabilities of {offer.arch} {offer.machine}", text)

    def cpu_models(self, arch: str) -> tuple[str, ...]:
        """Return the names of the CPU models that libvirt can expand, in libvirt's spelling."""
        with self._explained(f"the CPU models of {arch}"):
            return tuple(self._libvirt.getCPUModelNames(arch))

    def expand(self, name: str, cpu: str) -> Document:
        """Return a ``<cpu>`` with all features that its model implies; messages and archives call it ``name``."""
        with self._explained(f"the features of CPU {name}"):
            text = self._libvirt.baselineCPU([cpu], libvirt.VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES)
        return self._document(f"features of CPU {name}", text)

    def node_devices(self) -> tuple[tuple[str, Document], ...]:
        """
        Return name and XML of at least each PCI function, network interface, mediated device and parent of those.

        A text with ``unread`` stands for XML that could not be read: a device may go away after it was listed.

        Raises:
            Vanished: a mediated device came or went meanwhile: it and its card's free instances may count it twice.
        """
        found = self.devices(_device_kinds())
        if any("mdev_types" in document.text for _, document in found):
            names = {name for name, _ in found} ^ {device.name() for device in self._listed(_device_kinds())}
            if changed := sorted(name for name in names if name.startswith("mdev_")):
                raise Vanished(f"{changed[0]} came or went while the devices were read")
        return found

    def devices(self, kinds: int = 0) -> tuple[tuple[str, Document], ...]:
        """Return name and XML of the node devices of these kinds, as ``_listed``; as libvirt has them now."""
        devices = self._listed(kinds)
        return tuple((name, self._dump(device, name)) for device in devices for name in (device.name(),))

    def _listed(self, kinds: int) -> list[Any]:
        """
        Return the node devices of these kinds (VIR_CONNECT_LIST_NODE_DEVICES_*; 0: of all kinds).

        Only devices that exist: a mediated device that is only defined takes nothing of its card.
        """
        with self._explained("the node devices"):
            active = libvirt.VIR_CONNECT_LIST_NODE_DEVICES_ACTIVE
            return list(self._libvirt.listAllDevices(kinds | active))

    def _dump(self, device: Any, name: str) -> Document:
        """
        Return one device's XML; a text with ``unread`` where libvirt has none.

        libvirt can still list a device that the kernel has removed; the error code then varies.

        Raises:
            DiscoveryError: the connection broke.
        """
        try:
            return self._document(f"node device {name}", device.XMLDesc(0))
        except libvirt.libvirtError as error:
            failed = mask(f"cannot read node device {name} from libvirt at {self.uri}: {error}")
            if self._drop_broken():
                raise DiscoveryError(f"{failed}: see libvirtd's log") from error
            return Document(unread(failed), f"node device {name}")

    def domains(self) -> tuple[Domain, ...]:
        """
        Return every domain, running or not, in order of uuid.

        Raises:
            Vanished: a domain went away after it was listed and before its XML was read.
        """
        with self._explained("the domains"):
            found = [self._domain(domain) for domain in self._libvirt.listAllDomains(0)]
        return tuple(sorted(found, key=lambda domain: domain.uuid))

    def _domain(self, domain: Any) -> Domain:
        """Return one domain: three answers of libvirt, or two if it is shut off."""
        document = self._document(f"domain {domain.name()}", domain.XMLDesc(0))
        number, reason = domain.state()[:2]
        name = DOMAIN_STATES[number]
        migrating = name != "shutoff" and _is_migrating(domain, number, reason)
        return Domain(domain.UUIDString(), name, document, migrating)

    @contextmanager
    def watching(self, wake: Wake) -> Iterator[None]:
        """
        Call ``wake`` inside the block for each event of udev, a node device or a domain, and for a broken connection.

        The next question opens another one. The connection is closed at the end of the block.

        Raises:
            DiscoveryError: libvirt cannot be reached now, or there are no events of udev.
        """
        self._close()
        self._wake = wake
        try:
            with self._explained("events"):
                _ = self._libvirt
            with udev.watching(wake) if self.files.live else nullcontext():
                yield
        finally:
            self._wake = None
            self._close()

    @property
    def _libvirt(self) -> Any:
        """The open ``virConnect``; opens or borrows one if there is none."""
        if self._borrow:
            return self._use(self._borrow())
        if self._open is None:
            connection = open_connection(self.uri)
            self._ending = listen(connection, self._wake) if self._wake else ExitStack()
            self._use(connection)
        return self._open

    def _use(self, connection: Any) -> Any:
        """Return the connection; the host's name is read anew where it is another one."""
        if connection is not self._open:
            self._open, self._completed = connection, None
        return connection

    def _drop_broken(self) -> bool:
        """Return whether the connection broke; if so, drop it, and the next question opens another."""
        broken = self._open is not None and not self._open.isAlive()
        if broken:
            self._close()
        return broken

    def _close(self) -> None:
        """Give up the connection; does not wait long for a libvirtd that hangs."""
        ending, self._ending, self._open = self._ending, ExitStack(), None
        aside(ending.close)

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """
        Tell the end of the block, and turn a libvirt error into ours with advice.

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
            yield
            LOG.info("read %s from libvirt seconds=%.1f", what, time.monotonic() - started)
        except libvirt.libvirtError as error:
            auth_file = os.environ.get(AUTH_FILE)
            no_file = auth_file and not os.path.exists(auth_file)  # libvirt says of that: the cause is unknown
            login = (error.get_error_code() == libvirt.VIR_ERR_AUTH_FAILED or no_file) and urlsplit(self.uri).netloc
            advice = "see libvirtd's log" if self._open else _login_advice(auth_file) if login else ADVICE
            where, said = mask(f"libvirt at {self.uri}"), mask(str(error)).replace(f"{_FAILED}: {_FAILED}", _FAILED)
            self._drop_broken()
            if error.get_error_code() in (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_NO_NODE_DEVICE):
                raise Vanished(f"{where}: {said}: the domain or device was removed while the host was read") from error
            raise DiscoveryError(f"cannot read {what} from {where}: {said}: {advice}") from error
        finally:
            self._told()

    def _document(self, what: str, text: str) -> Document:
        """Return a text with its source, as messages name it."""
        return Document(text, f"libvirt at {mask(self.uri)}: {what}")


def _is_migrating(domain: Any, state: int, reason: int) -> bool:
    """
    Return whether a domain in this state for this reason (virDomainGetState) migrates to or from this host now.

    From virDomainGetJobStats, and from the state in which an incoming domain waits.
    """
    jobs = (libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_IN, libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT)
    waiting = (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION)
    try:
        return (state, reason) == waiting or domain.jobStats().get(libvirt.VIR_DOMAIN_JOB_OPERATION) in jobs
    except libvirt.libvirtError as error:
        if error.get_error_code() in (libvirt.VIR_ERR_OPERATION_INVALID, libvirt.VIR_ERR_NO_SUPPORT):
            return False  # the domain is not active, or this hypervisor has no jobs
        raise


def _device_kinds() -> int:
    """Return the kinds of node devices that ``nodedev.py`` parses, as flags for virConnectListAllNodeDevices."""
    return int(
        libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_PCI_DEV
        | libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_NET
        | libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_MDEV_TYPES
        | libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_MDEV
        | libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_VDPA
    )


def _login_advice(named: str | None) -> str:
    """Return what to do where a libvirtd at an address refuses a name and a password."""
    if named and not os.path.exists(named):
        return f"there is no file {named}, which {AUTH_FILE} names"
    file = named or f"/etc/libvirt/auth.conf, or in a file that {AUTH_FILE} names"
    return (
        f"write authname and password for the service libvirt (libvirt.org/auth.html), as libvirtd has them, in {file}"
    )
