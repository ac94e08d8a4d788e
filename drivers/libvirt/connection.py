"""
The gate to libvirt: every question that we ask it, live or from a host archive.

Answers are texts with their source; what they mean is decided elsewhere. libvirt's own errors become ours here.
"""

import logging
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from drivers.errors import DiscoveryError, Vanished
from drivers.events import OnOperation, Wake, untold
from drivers.facts import CpuMap, Versions
from drivers.host.archive import Document
from drivers.libvirt.capabilities import Offer
from drivers.libvirt.listener import Listener
from drivers.libvirt.loop import event_loop
from drivers.libvirt.opening import OPENING_S, aside, open_connection

LOG = logging.getLogger(__name__)
HOST_CPU = "host"  # the name of the host's own CPU among those that libvirt expands
LIBVIRT_DEFINED_DEVICES = 7_003_000  # from which on node devices can be defined without being there
DOMAIN_STATES = ("nostate", "running", "blocked", "paused", "shutdown", "shutoff", "crashed", "pmsuspended")


class Connection(Protocol):
    """One hypervisor, live or recorded."""

    def unheard(self) -> AbstractContextManager[None]:
        """Inside, many calls cost less, and events come later."""
        ...

    def hostname(self) -> str: ...
    def versions(self) -> Versions: ...

    def hypervisor_type(self) -> str:
        """libvirt's name of the driver behind it, as "QEMU"; for people."""
        ...

    def cpu_map(self) -> CpuMap: ...
    def capabilities(self) -> Document: ...

    def domain_capabilities(self, virt_type: str, offers: tuple[Offer, ...]) -> tuple[tuple[str, Document], ...]:
        """The answers to all ``offers``, which are those of this virt type, each with ARCH-MACHINE-VIRTTYPE."""
        ...

    def cpu_models(self, arch: str) -> tuple[str, ...]:
        """The names of the CPU models that libvirt can expand, as it spells them."""
        ...

    def expand(self, name: str, cpu: str) -> Document:
        """A ``<cpu>`` with all features that its model implies; ``name`` says which one in messages and archives."""
        ...

    def node_devices(self) -> tuple[tuple[str, Document], ...]:
        """
        Name and XML of every PCI function, network interface, mediated device and parent of such, at least.

        Raises:
            Vanished: one went away between the list and its XML.
        """
        ...

    def domains(self) -> tuple["Domain", ...]:
        """
        Every domain, running or not, by uuid.

        Raises:
            Vanished: one went away between the list and its XML.
        """
        ...


@dataclass(frozen=True, slots=True)
class Domain:
    """One domain's XML, live where it runs, and its state in libvirt's word."""

    uuid: str
    state: str
    document: Document
    migrating: bool = False  # to or from here, at this moment


class LiveConnection:
    """libvirt on this host. Opens on first use; ``getDomainCapabilities`` needs more than its read-only socket."""

    def __init__(self, uri: str, told: OnOperation = untold, opening_s: float = OPENING_S) -> None:
        """
        ``told`` hears of each operation, by libvirt's name of the call, or of one for several.

        ``opening_s`` is how long libvirtd may take to give us a connection.
        """
        self._uri = uri
        self._opening_s = opening_s
        self._told = told
        self._open: Any = None
        self._version: int | None = None  # libvirt's own
        self._type: str | None = None
        self._completed: tuple[str, str] | None = None  # the kernel's host name, and what libvirt made of it
        self._expanded: dict[tuple[str, str], Document] = {}  # by this connection

    @property
    def uri(self) -> str:
        return self._uri

    def unheard(self) -> AbstractContextManager[None]:
        return event_loop().resting()

    def hostname(self) -> str:
        """
        As libvirt completes the kernel's by asking the resolver; what it completed once stays as long as the kernel's.

        A resolver that is away has libvirt answer with the short name, which would be another node.
        """
        kernels = os.uname().nodename
        if self._completed and self._completed[0] == kernels:
            return self._completed[1]
        with self._explained("its host name", "virConnectGetHostname"):
            name = str(self._libvirt.getHostname())
        self._completed = (kernels, name) if name != kernels else None
        return name

    def versions(self) -> Versions:
        with self._explained("its version", "virConnectGetVersion"):
            return Versions(libvirt=self._lib_version(), hypervisor=self._libvirt.getVersion())

    def _lib_version(self) -> int:
        """Of the libvirtd behind this connection, which keeps it for as long as it lasts."""
        connection = self._libvirt
        if self._version is None:
            self._version = int(connection.getLibVersion())
        return self._version

    def hypervisor_type(self) -> str:
        connection = self._libvirt
        if self._type is None:
            with self._explained("its type", "virConnectGetType"):
                self._type = str(connection.getType())
        return self._type

    def cpu_map(self) -> CpuMap:
        with self._explained("the CPU map", "virNodeGetCPUMap"):
            total, online, _ = self._libvirt.getCPUMap()
        return CpuMap(total, frozenset(cpu for cpu in range(total) if online[cpu]))

    def capabilities(self) -> Document:
        with self._explained("the host's capabilities", "virConnectGetCapabilities"):
            return self._document("capabilities", self._libvirt.getCapabilities())

    def domain_capabilities(self, virt_type: str, offers: tuple[Offer, ...]) -> tuple[tuple[str, Document], ...]:
        return tuple((f"{one.arch}-{one.machine}-{one.virt_type}", self.offered(one)) for one in offers)

    def offered(self, offer: Offer) -> Document:
        """The domain capabilities of one offer."""
        what = f"the capabilities of {offer.virt_type} guests of {offer.arch} {offer.machine}"
        with self._explained(what, "virConnectGetDomainCapabilities"):
            text = self._libvirt.getDomainCapabilities(offer.emulator, offer.arch, offer.machine, offer.virt_type, 0)
        return self._document(f"domain capabilities of {offer.arch} {offer.machine}", text)

    def cpu_models(self, arch: str) -> tuple[str, ...]:
        with self._explained(f"the CPU models of {arch}", "virConnectGetCPUModelNames"):
            return tuple(self._libvirt.getCPUModelNames(arch))

    def expand(self, name: str, cpu: str) -> Document:
        if (name, cpu) not in self._expanded:  # it rests on nothing but libvirt's own maps
            self._expanded[name, cpu] = self._expand(name, cpu)
        return self._expanded[name, cpu]

    def _expand(self, name: str, cpu: str) -> Document:
        with self._explained(f"the features of CPU {name}", "virConnectBaselineCPU"):
            import libvirt

            text = self._libvirt.baselineCPU([cpu], libvirt.VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES)
        return self._document(f"features of CPU {name}", text)

    def node_devices(self) -> tuple[tuple[str, Document], ...]:
        return self.all_devices(self._device_kinds())

    def all_devices(self, kinds: int = 0) -> tuple[tuple[str, Document], ...]:
        """
        Node devices of these kinds (VIR_CONNECT_LIST_NODE_DEVICES_*; 0: of all) with their names.

        Those that exist: mediated devices can also be defined only, and then take nothing of their card.
        """
        with self._explained("the node devices", "virConnectListAllNodeDevices"):
            import libvirt

            tells_active = self._lib_version() >= LIBVIRT_DEFINED_DEVICES
            active = libvirt.VIR_CONNECT_LIST_NODE_DEVICES_ACTIVE if tells_active else 0
            devices = self._libvirt.listAllDevices(kinds | active)
        with self._timed("virNodeDeviceGetXMLDesc"):
            return tuple((name, self._dump(device, name)) for device in devices for name in (device.name(),))

    def _dump(self, device: Any, name: str) -> Document:
        """
        One device's XML.

        Raises:
            Vanished: libvirt cannot tell it. A device can be gone for the kernel while libvirt still lists it; its
                error is then one of many. DiscoveryError: the connection broke.
        """
        import libvirt

        try:
            return self._document(f"node device {name}", device.XMLDesc(0))
        except libvirt.libvirtError as error:
            told = f"libvirt at {self._uri} does not tell node device {name}: {error}"
            if self._forget_if_dead():
                raise DiscoveryError(f"{told}: see libvirtd's log") from error
            raise Vanished(f"{told}: it went away while the host was read, or see libvirtd's log") from error

    def _forget_if_dead(self) -> bool:
        """Whether the connection broke: then the next look makes another."""
        dead = self._open is not None and not self._open.isAlive()
        if dead:
            self._open = None
        return dead

    def domains(self) -> tuple[Domain, ...]:
        with self._explained("the domains", "virConnectListAllDomains"):
            found = [
                Domain(
                    domain.UUIDString(),
                    DOMAIN_STATES[domain.state()[0]],
                    self._document(f"domain {domain.name()}", domain.XMLDesc(0)),
                    domain.isActive() and self._migrates(domain),
                )
                for domain in self._libvirt.listAllDomains(0)
            ]
        return tuple(sorted(found, key=lambda domain: domain.uuid))

    @staticmethod
    def _migrates(domain: Any) -> bool:
        """Whether a migration of an active domain goes on: virDomainGetJobStats, and what an incoming one waits in."""
        import libvirt

        jobs = (libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_IN, libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT)
        waiting = [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION]
        try:
            return domain.state()[:2] == waiting or domain.jobStats().get(libvirt.VIR_DOMAIN_JOB_OPERATION) in jobs
        except libvirt.libvirtError as error:
            if error.get_error_code() in (libvirt.VIR_ERR_OPERATION_INVALID, libvirt.VIR_ERR_NO_SUPPORT):
                return False  # it ended this moment, or this driver has no jobs
            raise

    @staticmethod
    def _device_kinds() -> int:
        import libvirt

        return int(
            libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_PCI_DEV
            | libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_NET
            | libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_MDEV_TYPES
            | libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_MDEV
        )

    @property
    def _libvirt(self) -> Any:
        if self._open is None:
            event_loop().start()  # for keep-alive
            self._open = open_connection(self._uri, seconds=self._opening_s)
            self._expanded.clear()
            self._version = self._type = self._completed = None
        return self._open

    @contextmanager
    def _explained(self, what: str, operation: str) -> Iterator[None]:
        """Inside, a libvirt error becomes a DiscoveryError with the way out of it."""
        try:
            import libvirt
        except ImportError as error:
            raise DiscoveryError(
                "the Python package libvirt-python is not installed: pip install 'compute-node-agent[libvirt]'"
            ) from error
        started = time.monotonic()
        try:
            with self._timed(operation):
                yield
            LOG.info("libvirt told %s seconds=%.1f", what, time.monotonic() - started)
        except libvirt.libvirtError as error:
            advice = _advice(str(error)) if self._open is None else "see libvirtd's log"
            self._forget_if_dead()
            if error.get_error_code() in (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_NO_NODE_DEVICE):
                raise Vanished(f"libvirt at {self._uri}: {error}: it went away while the host was read") from error
            raise DiscoveryError(f"libvirt at {self._uri} does not tell {what}: {error}: {advice}") from error

    @contextmanager
    def _timed(self, operation: str) -> Iterator[None]:
        started, served = time.monotonic(), False
        try:
            yield
            served = True
        finally:
            self._told(operation, time.monotonic() - started, served)

    @contextmanager
    def watching(self, wake: Wake) -> Iterator[None]:
        """
        Inside, libvirt's events of node devices and domains wake. A connection that breaks is made again; none stays.

        Raises:
            DiscoveryError: libvirt cannot be reached now.
        """
        with ExitStack() as stack:
            with self._explained("its events", "virConnectNodeDeviceEventRegisterAny"):
                event_loop().start()
                stack.enter_context(Listener(self._uri, wake).listening())
            try:
                yield
            finally:
                self._let_go()

    def _let_go(self) -> None:
        """Close what is asked over; a libvirtd that hangs does not keep us."""
        made, self._open = self._open, None
        if made is not None:
            aside(made.close)

    def _document(self, what: str, text: str) -> Document:
        return Document(text, f"libvirt at {self._uri}: {what}")


def is_local(uri: str) -> bool:
    """Whether libvirt at this URI looks at the machine that we run on, so that the kernel's files tell of the same."""
    parts = urlsplit(uri)
    return not parts.netloc and not parts.scheme.startswith("test")


def _advice(message: str) -> str:
    if "system bus" in message:
        return "run as root: for other users libvirt asks polkit over D-Bus, which does not answer here"
    if "keepalive" in message:
        return "does libvirtd hang? see its log, and restart it"
    if "ermission denied" in message or "authentication" in message:
        return "run as root, or as a user of the group libvirt"
    if "No such file" in message or "refused" in message:
        return "start it (systemctl start libvirtd), or set [libvirt] connection_uri"
    return "is [libvirt] connection_uri right?"
