"""
Gate to libvirt: all its answers that this project uses, read from a live host.

Answers are texts with their source; other modules parse them. Errors of libvirt become DiscoveryError.
``recorded.py`` gives the same answers from a host archive.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from drivers.base import OnOperation, Wake, untold
from drivers.errors import DiscoveryError, Vanished
from drivers.facts import CpuMap, Versions
from drivers.host.archive import Document
from drivers.libvirt.capabilities import Offer
from drivers.libvirt.event_loop import event_loop
from drivers.libvirt.library import libvirt
from drivers.libvirt.listener import Listener
from drivers.libvirt.opening import OPENING_S
from drivers.libvirt.session import Session
from drivers.libvirt.xml import unread
from reportclient.errors import mask

HOST_CPU = "host"  # name of the host's own CPU in ``expand``, beside the names of CPU models
DOMAIN_STATES = ("nostate", "running", "blocked", "paused", "shutdown", "shutoff", "crashed", "pmsuspended")


class Connection(Protocol):
    """
    One hypervisor, live or recorded.

    Every method raises DiscoveryError where libvirt or the archive gives no answer.
    """

    def hostname(self) -> str:
        """Return the host's name, which is the name of its root provider."""
        ...

    def versions(self) -> Versions:
        """Return the versions of libvirt and of the hypervisor."""
        ...

    def cpu_map(self) -> CpuMap:
        """Return which logical CPUs exist, and which of them are online."""
        ...

    def memory_mib(self) -> int | None:
        """
        Return the memory of the whole host in MiB, which libvirt tells also where it lists no NUMA cell.

        None: a host archive does not tell it.
        """
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

        A text with ``unread`` stands for XML that could not be read: a device may go away after it was listed.
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
    ) -> None:
        """
        Prepare a connection to ``uri``; nothing is opened yet.

        ``told`` is called after each operation with the name of libvirt's call; several calls may count as one
        operation. ``opening_s`` limits the seconds that libvirtd may take to accept a connection. ``borrow`` returns an
        open ``virConnect`` that belongs to the caller, whose process runs libvirt's event loop; None: open one.
        """
        self._session = Session(uri, told, opening_s, borrow)

    @property
    def uri(self) -> str:
        """URI of libvirt, as configured."""
        return self._session.uri

    def hostname(self) -> str:
        """
        Return the kernel's host name, completed by libvirt, which asks the resolver.

        Without a resolver libvirt answers the short name, which would be another node. So a completed name is kept
        until the kernel's name changes or the connection is opened again, and so is a name with a dot, which libvirt
        does not complete (src/util/virutil.c, virGetHostname).
        """
        kernels = os.uname().nodename
        completed = self._session.completed
        if completed and completed[0] == kernels:
            return completed[1]
        with self._session.explained("the host name", "virConnectGetHostname"):
            name = str(self._session.libvirt.getHostname())
        self._session.completed = (kernels, name) if name != kernels or "." in name else None
        return name

    def versions(self) -> Versions:
        with self._session.explained("the versions of libvirt and the hypervisor", "virConnectGetVersion"):
            connection = self._session.libvirt
            return Versions(connection.getLibVersion(), connection.getVersion(), connection.getType())

    def cpu_map(self) -> CpuMap:
        with self._session.explained("the CPU map", "virNodeGetCPUMap"):
            total, online, _ = self._session.libvirt.getCPUMap()
        return CpuMap(total, frozenset(cpu for cpu in range(total) if online[cpu]))

    def memory_mib(self) -> int:
        with self._session.explained("the host's memory", "virNodeGetInfo"):
            return int(self._session.libvirt.getInfo()[1])

    def capabilities(self) -> Document:
        with self._session.explained("the host's capabilities", "virConnectGetCapabilities"):
            return self._session.document("capabilities", self._session.libvirt.getCapabilities())

    def domain_capabilities(self, virt_type: str, offers: tuple[Offer, ...]) -> tuple[tuple[str, Document], ...]:
        return tuple((f"{one.arch}-{one.machine}-{one.virt_type}", self._offered(one)) for one in offers)

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
        with self._session.explained(f"the features of CPU {name}", "virConnectBaselineCPU"):
            text = self._session.libvirt.baselineCPU([cpu], libvirt.VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES)
        return self._session.document(f"features of CPU {name}", text)

    def node_devices(self) -> tuple[tuple[str, Document], ...]:
        """
        Return name and XML of the node devices of all kinds that are parsed.

        Raises:
            Vanished: a mediated device came or went meanwhile: it and its card's free instances may count it twice.
        """
        found = self._devices(_device_kinds())
        if any("mdev_types" in document.text for _, document in found):
            names = {name for name, _ in found} ^ {device.name() for device in self._listed(_device_kinds())}
            if changed := sorted(name for name in names if name.startswith("mdev_")):
                raise Vanished(f"{changed[0]} came or went while the devices were read")
        return found

    def all_devices(self) -> tuple[tuple[str, Document], ...]:
        """Return name and XML of the node devices of all kinds, as libvirt has them now."""
        return self._devices(0)

    def _devices(self, kinds: int) -> tuple[tuple[str, Document], ...]:
        """Return name and XML of the node devices of these kinds, as ``_listed``."""
        devices = self._listed(kinds)
        with self._session.timed("virNodeDeviceGetXMLDesc"):
            return tuple((name, self._dump(device, name)) for device in devices for name in (device.name(),))

    def _listed(self, kinds: int) -> list[Any]:
        """
        Return the node devices of these kinds (VIR_CONNECT_LIST_NODE_DEVICES_*; 0: of all kinds).

        Only devices that exist: a mediated device that is only defined takes nothing of its card.
        """
        with self._session.explained("the node devices", "virConnectListAllNodeDevices"):
            active = libvirt.VIR_CONNECT_LIST_NODE_DEVICES_ACTIVE
            return list(self._session.libvirt.listAllDevices(kinds | active))

    def _dump(self, device: Any, name: str) -> Document:
        """
        Return one device's XML; a text with ``unread`` where libvirt has none.

        libvirt can still list a device that the kernel has removed; the error code then varies.

        Raises:
            DiscoveryError: the connection broke.
        """
        try:
            return self._session.document(f"node device {name}", device.XMLDesc(0))
        except libvirt.libvirtError as error:
            failed = mask(f"cannot read node device {name} from libvirt at {self.uri}: {error}")
            if self._session.drop_broken():
                raise DiscoveryError(f"{failed}: see libvirtd's log") from error
            return Document(unread(failed), f"node device {name}")

    def domains(self) -> tuple[Domain, ...]:
        with self._session.explained("the domains", "virConnectListAllDomains"):
            found = [self._domain(domain) for domain in self._session.libvirt.listAllDomains(0)]
        return tuple(sorted(found, key=lambda domain: domain.uuid))

    def _domain(self, domain: Any) -> Domain:
        """Return one domain: three answers of libvirt, or two if it is shut off."""
        document = self._session.document(f"domain {domain.name()}", domain.XMLDesc(0))
        number, reason = domain.state()[:2]
        name = DOMAIN_STATES[number]
        migrating = name != "shutoff" and _is_migrating(domain, number, reason)
        return Domain(domain.UUIDString(), name, document, migrating)

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


def is_local(uri: str) -> bool:
    """Return whether libvirt at this URI manages this machine, so that the kernel's files here describe its host."""
    parts = urlsplit(uri)
    return not parts.netloc and not parts.scheme.startswith("test")


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
