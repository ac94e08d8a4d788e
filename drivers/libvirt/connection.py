"""
The gate to libvirt: every call that we make of it, live or from a host archive.

Answers are texts with their source; what they mean is decided elsewhere. libvirt's own errors become ours here.
"""

import json
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from drivers.errors import DiscoveryError, Vanished
from drivers.facts import CpuMap, Versions
from drivers.host.archive import Document, HostArchive, fields, whole
from drivers.host.parse import HIGHEST_CPU
from drivers.libvirt.capabilities import Offer

LOG = logging.getLogger(__name__)
HOST_CPU = "host"  # the name of the host's own CPU among those that libvirt expands
DOMAIN_STATES = ("nostate", "running", "blocked", "paused", "shutdown", "shutoff", "crashed", "pmsuspended")


class Connection(Protocol):
    """One hypervisor, live or recorded."""

    def hostname(self) -> str: ...
    def versions(self) -> Versions: ...
    def cpu_map(self) -> CpuMap: ...
    def capabilities(self) -> Document: ...

    def domain_capabilities(self, virt_type: str, offers: tuple[Offer, ...]) -> tuple[Document, ...]:
        """The answers to all ``offers``, which are those of this virt type."""
        ...

    def cpu_models(self, arch: str) -> tuple[str, ...]:
        """The names of the CPU models that libvirt can expand, as it spells them."""
        ...

    def expand(self, name: str, cpu: str) -> Document:
        """A ``<cpu>`` with all features that its model implies; ``name`` says which one in messages and archives."""
        ...


class LiveConnection:
    """libvirt on this host. Opens on first use; ``getDomainCapabilities`` needs more than its read-only socket."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._open: Any = None

    def hostname(self) -> str:
        with self._explained("its host name"):
            return str(self._libvirt.getHostname())

    def versions(self) -> Versions:
        with self._explained("its version"):
            return Versions(libvirt=self._libvirt.getLibVersion(), hypervisor=self._libvirt.getVersion())

    def hypervisor_type(self) -> str:
        with self._explained("its type"):
            return str(self._libvirt.getType())

    def cpu_map(self) -> CpuMap:
        with self._explained("the CPU map"):
            total, online, _ = self._libvirt.getCPUMap()
        return CpuMap(total, frozenset(cpu for cpu in range(total) if online[cpu]))

    def capabilities(self) -> Document:
        with self._explained("the host's capabilities"):
            return self._document("capabilities", self._libvirt.getCapabilities())

    def domain_capabilities(self, virt_type: str, offers: tuple[Offer, ...]) -> tuple[Document, ...]:
        return tuple(self.offered(offer) for offer in offers)

    def offered(self, offer: Offer) -> Document:
        """The domain capabilities of one offer."""
        with self._explained(f"the capabilities of {offer.virt_type} guests of {offer.arch} {offer.machine}"):
            text = self._libvirt.getDomainCapabilities(offer.emulator, offer.arch, offer.machine, offer.virt_type, 0)
        return self._document(f"domain capabilities of {offer.arch} {offer.machine}", text)

    def cpu_models(self, arch: str) -> tuple[str, ...]:
        with self._explained(f"the CPU models of {arch}"):
            return tuple(self._libvirt.getCPUModelNames(arch))

    def expand(self, name: str, cpu: str) -> Document:
        with self._explained(f"the features of CPU {name}"):
            import libvirt

            text = self._libvirt.baselineCPU([cpu], libvirt.VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES)
        return self._document(f"features of CPU {name}", text)

    def node_devices(self) -> Mapping[str, str]:
        """
        Every node device's XML by name, for a host archive.

        Raises:
            Vanished: one went away between the list and its XML.
        """
        with self._explained("the node devices"):
            return {device.name(): device.XMLDesc(0) for device in self._libvirt.listAllDevices(0)}

    def domains(self) -> Mapping[str, tuple[str, str]]:
        """
        Every domain's (XML, state) by uuid, running or not, for a host archive.

        Raises:
            Vanished: one went away between the list and its XML.
        """
        with self._explained("the domains"):
            return {
                domain.UUIDString(): (domain.XMLDesc(0), DOMAIN_STATES[domain.state()[0]])
                for domain in self._libvirt.listAllDomains(0)
            }

    @property
    def _libvirt(self) -> Any:
        if self._open is None:
            import libvirt

            libvirt.registerErrorHandler(lambda *_: None, None)  # else every error is also printed on stderr
            self._open = libvirt.open(self._uri)
        return self._open

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Inside, a libvirt error becomes a DiscoveryError with the way out of it."""
        try:
            import libvirt
        except ImportError as error:
            raise DiscoveryError(
                "the Python package libvirt-python is not installed: pip install 'compute-node-agent[libvirt]'"
            ) from error
        started = time.monotonic()
        try:
            yield
            LOG.info("libvirt told %s seconds=%.1f", what, time.monotonic() - started)
        except libvirt.libvirtError as error:
            if error.get_error_code() in (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_NO_NODE_DEVICE):
                raise Vanished(f"libvirt at {self._uri}: {error}: it went away while the host was read") from error
            advice = _advice(str(error)) if self._open is None else "see libvirtd's log"
            raise DiscoveryError(f"libvirt at {self._uri} does not tell {what}: {error}: {advice}") from error

    def _document(self, what: str, text: str) -> Document:
        return Document(text, f"libvirt at {self._uri}: {what}")


class RecordedConnection:
    """libvirt as a host archive recorded it."""

    def __init__(self, archive: HostArchive) -> None:
        self._archive = archive

    def hostname(self) -> str:
        return self._archive.hostname()

    def versions(self) -> Versions:
        record = self._archive.read_json("libvirt/version.json")
        with fields(f"{self._archive.root}/libvirt/version.json"):
            return Versions(libvirt=whole(record["libvirt"]), hypervisor=whole(record["hypervisor"]))

    def cpu_map(self) -> CpuMap:
        record = self._archive.read_json("libvirt/cpumap.json")
        with fields(f"{self._archive.root}/libvirt/cpumap.json"):
            total, online = whole(record["total"]), frozenset(whole(cpu) for cpu in record["online"])
            if total > HIGHEST_CPU + 1 or any(cpu >= total for cpu in online):
                raise ValueError(f"CPUs beyond {min(total, HIGHEST_CPU + 1)}")
            return CpuMap(total, online)

    def capabilities(self) -> Document:
        return self._archive.read("libvirt/capabilities.xml")

    def domain_capabilities(self, virt_type: str, offers: tuple[Offer, ...]) -> tuple[Document, ...]:
        """
        All that was recorded for this virt type; none where an archive has no such folder.

        Raises:
            DiscoveryError: it was recorded for other virt types only.
        """
        names = self._archive.names("libvirt/domcapabilities")
        found = [name for name in names if name.endswith(f"-{virt_type}.xml")]
        if names and not found:
            raise DiscoveryError(
                f"host archive {self._archive.root} was recorded without [libvirt] virt_type = {virt_type}: "
                f"record the host with this configuration"
            )
        return tuple(self._archive.read(f"libvirt/domcapabilities/{name}") for name in found)

    def cpu_models(self, arch: str) -> tuple[str, ...]:
        """Those that were recorded."""
        names = (name.removesuffix(".xml") for name in self._archive.names("libvirt/models"))
        return tuple(name.removeprefix(f"{arch}-") for name in names if name.startswith(f"{arch}-"))

    def expand(self, name: str, cpu: str) -> Document:
        """As recorded. Without a record the host's CPU stays as its capabilities name it."""
        path = f"libvirt/models/{name}.xml"
        if name == HOST_CPU and not (self._archive.root / path).exists():
            return Document(cpu, f"{self._archive.root}/libvirt/capabilities.xml")
        return self._archive.read(path)


def write_archive(connection: LiveConnection, offers: tuple[Offer, ...], models: Mapping[str, str]) -> dict[str, str]:
    """libvirt's part of a host archive: file name -> text. ``models`` are the CPUs to expand, by name."""
    versions, cpu_map, domains = connection.versions(), connection.cpu_map(), connection.domains()
    return {
        "libvirt/version.json": _json(
            {"libvirt": versions.libvirt, "hypervisor": versions.hypervisor, "type": connection.hypervisor_type()}
        ),
        "libvirt/cpumap.json": _json({"total": cpu_map.total, "online": sorted(cpu_map.online)}),
        "libvirt/capabilities.xml": connection.capabilities().text,
        "libvirt/domains.json": _json({uuid: state for uuid, (_, state) in sorted(domains.items())}),
        **{
            f"libvirt/domcapabilities/{offer.arch}-{offer.machine}-{offer.virt_type}.xml": connection.offered(
                offer
            ).text
            for offer in offers
        },
        **{f"libvirt/models/{name}.xml": connection.expand(name, cpu).text for name, cpu in models.items()},
        **{f"libvirt/nodedevs/{name}.xml": text for name, text in connection.node_devices().items()},
        **{f"libvirt/domains/{uuid}.xml": text for uuid, (text, _) in domains.items()},
    }


def _advice(message: str) -> str:
    if "system bus" in message:
        return "run as root: for other users libvirt asks polkit over D-Bus, which does not answer here"
    if "ermission denied" in message or "authentication" in message:
        return "run as root, or as a user of the group libvirt"
    if "No such file" in message or "refused" in message:
        return "start it (systemctl start libvirtd), or set [libvirt] connection_uri"
    return "is [libvirt] connection_uri right?"


def _json(value: object) -> str:
    return json.dumps(value, indent=1) + "\n"
