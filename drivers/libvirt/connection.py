"""
Gate to libvirt: all its answers that this project uses, read from a live host.

Answers are texts with their source; other modules parse them. Errors of libvirt become DiscoveryError here.
``recorded.py`` gives the same answers from a host archive.
"""

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from drivers.errors import DiscoveryError, Vanished
from drivers.events import OnOperation, Wake, untold
from drivers.facts import CpuMap, Versions
from drivers.host.archive import Document
from drivers.host.function import FOLDER
from drivers.libvirt.capabilities import Offer
from drivers.libvirt.listener import Listener
from drivers.libvirt.loop import event_loop
from drivers.libvirt.opening import OPENING_S, aside, open_connection
from drivers.libvirt.plain import PlainFunctions
from reportclient.errors import mask

LOG = logging.getLogger(__name__)
KEPT_S = 600.0  # after so long, the answers about installed programs and about PCI functions are read again
HOST_CPU = "host"  # name of the host's own CPU in ``expand``, beside the names of CPU models
LIBVIRT_DEFINED_DEVICES = 7_003_000  # first version that lists node devices which are defined and do not exist
DOMAIN_STATES = ("nostate", "running", "blocked", "paused", "shutdown", "shutoff", "crashed", "pmsuspended")


class Connection(Protocol):
    """
    One hypervisor, live or recorded.

    Every method raises DiscoveryError where libvirt or the archive gives no answer.
    """

    def unheard(self) -> AbstractContextManager[None]:
        """Delay libvirt's events inside the block, so that many calls cost less."""
        ...

    def hostname(self) -> str:
        """Return the host's name, which is the name of its root provider."""
        ...

    def versions(self) -> Versions:
        """Return the versions of libvirt and of the hypervisor."""
        ...

    def hypervisor_type(self) -> str:
        """Return libvirt's name of the hypervisor, for instance "QEMU"; only people read it."""
        ...

    def cpu_map(self) -> CpuMap:
        """Return which logical CPUs exist, and which of them are online."""
        ...

    def capabilities(self) -> Document:
        """Return the XML of the host's capabilities (formatcaps.html)."""
        ...

    def domain_capabilities(self, virt_type: str, offers: tuple[Offer, ...]) -> tuple[tuple[str, Document], ...]:
        """
        Return (ARCH-MACHINE-VIRTTYPE, XML of the domain capabilities) for each offer.

        All ``offers`` are of this ``virt_type``.
        """
        ...

    def cpu_models(self, arch: str) -> tuple[str, ...]:
        """Return the names of the CPU models that libvirt can expand, in libvirt's spelling."""
        ...

    def expand(self, name: str, cpu: str) -> Document:
        """Return a ``<cpu>`` with all features that its model implies; messages and archives call it ``name``."""
        ...

    def node_devices(self) -> tuple[tuple[str, Document], ...]:
        """
        Return name and XML of at least each PCI function, network interface, mediated device and parent of those.

        Raises:
            Vanished: a device went away after it was listed and before its XML was read.
        """
        ...

    def domains(self) -> tuple["Domain", ...]:
        """
        Return every domain, running or not, in order of uuid.

        Raises:
            Vanished: a domain went away after it was listed and before its XML was read.
        """
        ...


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

    def __init__(
        self,
        uri: str,
        told: OnOperation = untold,
        opening_s: float = OPENING_S,
        borrow: Callable[[], Any] | None = None,
        functions: Path = FOLDER,
    ) -> None:
        """
        Prepare a connection to ``uri``; nothing is opened yet.

        ``told`` is called after each operation with the name of libvirt's call; several calls may count as one
        operation. ``opening_s`` limits the seconds that libvirtd may take to accept a connection. ``borrow`` returns an
        open ``virConnect`` that belongs to the caller, whose process runs libvirt's event loop; None: open one. Only of
        a connection of our own, answers are kept that rest on installed programs and on ``functions``, the kernel's
        list of PCI functions.
        """
        self._session = _Session(uri, told, opening_s, borrow, PlainFunctions(functions))
        self._keeps = borrow is None
        self._plain = self._session.plain if self._keeps and is_local(uri) else None

    @property
    def uri(self) -> str:
        """URI of libvirt, as configured."""
        return self._session.uri

    def unheard(self) -> AbstractContextManager[None]:
        return event_loop().resting()

    def hostname(self) -> str:
        """
        Return the kernel's host name, completed by libvirt, which asks the resolver.

        Without a resolver libvirt answers the short name, which would be another node. So a completed name is kept
        until the kernel's name changes or the connection is opened again.
        """
        kernels = os.uname().nodename
        completed = self._session.kept.completed
        if completed and completed[0] == kernels:
            return completed[1]
        with self._session.explained("the host name", "virConnectGetHostname"):
            name = str(self._session.libvirt.getHostname())
        self._session.kept.completed = (kernels, name) if name != kernels else None
        return name

    def versions(self) -> Versions:
        kept = self._session.kept.versions
        if kept is None:
            with self._session.explained("the versions of libvirt and the hypervisor", "virConnectGetVersion"):
                kept = Versions(libvirt=self._lib_version(), hypervisor=self._session.libvirt.getVersion())
            if self._keeps:
                self._session.kept.versions = kept
        return kept

    def _lib_version(self) -> int:
        """Return the version of libvirtd, which is read once for each connection."""
        connection = self._session.libvirt
        if self._session.kept.version is None:
            self._session.kept.version = int(connection.getLibVersion())
        return self._session.kept.version

    def hypervisor_type(self) -> str:
        if self._session.kept.type is None:
            with self._session.explained("the hypervisor's type", "virConnectGetType"):
                self._session.kept.type = str(self._session.libvirt.getType())
        return self._session.kept.type

    def cpu_map(self) -> CpuMap:
        with self._session.explained("the CPU map", "virNodeGetCPUMap"):
            total, online, _ = self._session.libvirt.getCPUMap()
        return CpuMap(total, frozenset(cpu for cpu in range(total) if online[cpu]))

    def capabilities(self) -> Document:
        with self._session.explained("the host's capabilities", "virConnectGetCapabilities"):
            text = self._session.libvirt.getCapabilities()
        self._session.agree_with(text)
        return self._session.document("capabilities", text)

    def domain_capabilities(self, virt_type: str, offers: tuple[Offer, ...]) -> tuple[tuple[str, Document], ...]:
        return tuple((f"{one.arch}-{one.machine}-{one.virt_type}", self.offered(one)) for one in offers)

    def offered(self, offer: Offer) -> Document:
        """Return the XML of the domain capabilities of one offer."""
        document = self._session.kept.offered.get(offer)
        if document is None:
            document = self._offered(offer)
            if self._keeps:
                self._session.kept.offered[offer] = document
        return document

    def _offered(self, offer: Offer) -> Document:
        what = f"the capabilities of {offer.virt_type} guests of {offer.arch} {offer.machine}"
        with self._session.explained(what, "virConnectGetDomainCapabilities"):
            connection = self._session.libvirt
            text = connection.getDomainCapabilities(offer.emulator, offer.arch, offer.machine, offer.virt_type, 0)
        return self._session.document(f"domain capabilities of {offer.arch} {offer.machine}", text)

    def cpu_models(self, arch: str) -> tuple[str, ...]:
        with self._session.explained(f"the CPU models of {arch}", "virConnectGetCPUModelNames"):
            return tuple(self._session.libvirt.getCPUModelNames(arch))

    def expand(self, name: str, cpu: str) -> Document:
        if (name, cpu) not in self._session.kept.expanded:
            document = self._expand(name, cpu)
            self._session.kept.expanded[name, cpu] = document
        return self._session.kept.expanded[name, cpu]

    def _expand(self, name: str, cpu: str) -> Document:
        with self._session.explained(f"the features of CPU {name}", "virConnectBaselineCPU"):
            import libvirt

            text = self._session.libvirt.baselineCPU([cpu], libvirt.VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES)
        return self._session.document(f"features of CPU {name}", text)

    def node_devices(self) -> tuple[tuple[str, Document], ...]:
        return self._devices(_device_kinds(), self._plain)

    def all_devices(self) -> tuple[tuple[str, Document], ...]:
        """Return name and XML of the node devices of all kinds, as libvirt has them now."""
        return self._devices(0, None)

    def _devices(self, kinds: int, plain: PlainFunctions | None) -> tuple[tuple[str, Document], ...]:
        """
        Return name and XML of the node devices of these kinds (VIR_CONNECT_LIST_NODE_DEVICES_*; 0: of all kinds).

        Only devices that exist: a mediated device that is only defined takes nothing of its card.
        """
        with self._session.explained("the node devices", "virConnectListAllNodeDevices"):
            import libvirt

            lists_defined = self._lib_version() >= LIBVIRT_DEFINED_DEVICES
            active = libvirt.VIR_CONNECT_LIST_NODE_DEVICES_ACTIVE if lists_defined else 0
            devices = self._session.libvirt.listAllDevices(kinds | active)
        with self._session.timed("virNodeDeviceGetXMLDesc"):
            return tuple((name, self._dump(device, name, plain)) for device in devices for name in (device.name(),))

    def _dump(self, device: Any, name: str, plain: PlainFunctions | None) -> Document:
        """
        Return one device's XML, which ``plain`` may have kept.

        Raises:
            Vanished: libvirt has no XML of the device. libvirt can still list a device that the kernel has removed;
                the error code then varies.
            DiscoveryError: the connection broke.
        """
        import libvirt

        try:
            text = plain.read(name, lambda: str(device.XMLDesc(0))) if plain else device.XMLDesc(0)
            return self._session.document(f"node device {name}", text)
        except libvirt.libvirtError as error:
            failed = mask(f"cannot read node device {name} from libvirt at {self.uri}: {error}")
            if self._session.drop_broken():
                raise DiscoveryError(f"{failed}: see libvirtd's log") from error
            raise Vanished(f"{failed}: it went away while the host was read, or see libvirtd's log") from error

    def domains(self) -> tuple[Domain, ...]:
        with self._session.explained("the domains", "virConnectListAllDomains"):
            found = [
                Domain(
                    domain.UUIDString(),
                    DOMAIN_STATES[domain.state()[0]],
                    self._session.document(f"domain {domain.name()}", domain.XMLDesc(0)),
                    domain.isActive() and _is_migrating(domain),
                )
                for domain in self._session.libvirt.listAllDomains(0)
            ]
        return tuple(sorted(found, key=lambda domain: domain.uuid))

    def outdate(self) -> None:
        """Note an event of the host: the next look asks for everything. May be called from any thread."""
        self._session.outdated = True

    @contextmanager
    def watching(self, wake: Wake) -> Iterator[None]:
        """
        Call ``wake`` inside the block for each libvirt event of a node device or domain.

        A connection that breaks is opened again. All connections are closed at the end of the block.

        Raises:
            DiscoveryError: libvirt cannot be reached now.
        """
        with ExitStack() as stack:
            with self._session.explained("events", "virConnectNodeDeviceEventRegisterAny"):
                event_loop().start()
                stack.enter_context(Listener(self.uri, wake).listening())
            try:
                yield
            finally:
                self._session.close()


@dataclass(slots=True)
class _Kept:
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


class _Session:
    """The open connection to libvirt, if there is one: opens it, closes it, and explains its errors."""

    def __init__(
        self,
        uri: str,
        told: OnOperation,
        opening_s: float,
        borrow: Callable[[], Any] | None,
        plain: PlainFunctions,
    ) -> None:
        self.uri = uri
        self.plain = plain
        self.outdated = False  # an event of the host came, in any thread
        self._shown = mask(uri)
        self.kept = _Kept()
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

    def agree_with(self, capabilities: str) -> None:
        """Forget answers that may be others now, as the host has these capabilities."""
        now_s = time.monotonic()
        if self.outdated or capabilities != self.kept.beside or now_s >= self.kept.until_s:
            self.outdated = False
            self._ask_again()
            self.kept.beside, self.kept.until_s = capabilities, now_s + KEPT_S

    def _ask_again(self) -> None:
        """Keep no answer about programs and functions."""
        self.kept = replace(self.kept, versions=None, offered={}, beside="")
        self.plain.forget()

    def _forget(self) -> None:
        """Keep nothing, as the connection is another one."""
        self.kept = _Kept()
        self.plain.forget()

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
        try:
            import libvirt
        except ImportError as error:
            raise DiscoveryError(
                "the Python package libvirt-python is not installed: pip install 'compute-node-agent[libvirt]'"
            ) from error
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


def is_local(uri: str) -> bool:
    """Return whether libvirt at this URI manages this machine, so that the kernel's files here describe its host."""
    parts = urlsplit(uri)
    return not parts.netloc and not parts.scheme.startswith("test")


def _is_migrating(domain: Any) -> bool:
    """
    Return whether an active domain migrates to or from this host now.

    From virDomainGetJobStats, and from the state in which an incoming domain waits.
    """
    import libvirt

    jobs = (libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_IN, libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT)
    waiting = [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION]
    try:
        return domain.state()[:2] == waiting or domain.jobStats().get(libvirt.VIR_DOMAIN_JOB_OPERATION) in jobs
    except libvirt.libvirtError as error:
        if error.get_error_code() in (libvirt.VIR_ERR_OPERATION_INVALID, libvirt.VIR_ERR_NO_SUPPORT):
            return False  # the domain ended this moment, or this hypervisor has no jobs
        raise


def _device_kinds() -> int:
    """Return the kinds of node devices that ``nodedev.py`` parses, as flags for virConnectListAllNodeDevices."""
    import libvirt

    return int(
        libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_PCI_DEV
        | libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_NET
        | libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_MDEV_TYPES
        | libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_MDEV
    )


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
