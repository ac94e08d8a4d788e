"""Libvirt's part of a host archive: read behind the same interface as a live connection, and written."""

import json
from collections.abc import Iterable
from contextlib import AbstractContextManager

from drivers.base import Wake
from drivers.errors import DiscoveryError, MalformedFact
from drivers.facts import CpuMap, DiskFacts, DiskSpace, DiskUnread, PoolSpace, Versions
from drivers.host.archive import Document, HostArchive, fields, whole
from drivers.host.commands import NAMESPACES
from drivers.host.parse import HIGHEST_CPU
from drivers.libvirt.capabilities import Offer
from drivers.libvirt.connection import HOST_CPU, Domain
from drivers.libvirt.xml import unread
from drivers.policy import CephPool, DiskPlace, InstancesFolder, VolumeGroup

_VERSION = "libvirt/version.json"
CPU_MAP = "libvirt/cpumap.json"
MEMORY = "libvirt/memory.json"  # only written where libvirt lists no NUMA cell
CAPABILITIES = "libvirt/capabilities.xml"
_OFFERS = "libvirt/domcapabilities"
MODELS = "libvirt/models"
DEVICES = "libvirt/nodedevs"
DOMAINS = "libvirt/domains"
STATES = "libvirt/domains.json"
MIGRATING = "libvirt/migrating.json"  # only written while domains migrate to or from the host


def unwatched(_wake: Wake) -> AbstractContextManager[None]:
    """Refuse to watch a host that was read before."""
    raise DiscoveryError("this host has no events: only a live host can be watched")


class RecordedConnection:
    """Answers of libvirt, read from a host archive: the methods are those of ``LiveConnection``."""

    live = False
    watching = staticmethod(unwatched)

    def __init__(self, archive: HostArchive) -> None:
        self._archive = archive
        self.files = archive.files  # the kernel's
        self.compute_id, self.hostname = archive.compute_id, archive.hostname  # which read the host's identity and name

    def versions(self) -> Versions:
        record = self._archive.read_json(_VERSION)
        with fields(f"{self._archive.root}/{_VERSION}"):
            return Versions(whole(record["libvirt"]), whole(record["hypervisor"]), str(record.get("type", "")))

    def cpu_map(self) -> CpuMap:
        record = self._archive.read_json(CPU_MAP)
        with fields(f"{self._archive.root}/{CPU_MAP}"):
            total, online = whole(record["total"]), frozenset(whole(cpu) for cpu in record["online"])
            if total > HIGHEST_CPU + 1 or any(cpu >= total for cpu in online):
                raise ValueError(f"CPUs beyond {min(total, HIGHEST_CPU + 1)}")
            return CpuMap(total, online)

    def memory_mib(self) -> int | None:
        """Return the memory of the whole host in MiB; None: the archive does not tell it."""
        if self._archive.find(MEMORY) is None:
            return None
        record = self._archive.read_json(MEMORY)
        with fields(f"{self._archive.root}/{MEMORY}"):
            return whole(record["mib"])

    def capabilities(self) -> Document:
        return self._archive.read(CAPABILITIES)

    def domain_capabilities(self, virt_type: str, offers: tuple[Offer, ...]) -> tuple[tuple[str, Document], ...]:
        """
        Return all domain capabilities that were recorded for this virt type; empty where the archive has none at all.

        Raises:
            DiscoveryError: the archive has those of other virt types only.
        """
        names = self._archive.files.names(_OFFERS)
        found = [name for name in names if name.endswith(f"-{virt_type}.xml")]
        if names and not found:
            raise DiscoveryError(
                f"host archive {self._archive.root} was recorded with [libvirt] virt_type = "
                f"{', '.join(sorted({name.removesuffix('.xml').rpartition('-')[2] for name in names}))}, and it is "
                f"{virt_type} here: set the recorded value in the configuration (--config-file)"
            )
        return tuple((name.removesuffix(".xml"), self._archive.read(f"{_OFFERS}/{name}")) for name in found)

    def cpu_models(self, arch: str) -> tuple[str, ...]:
        """Return the names of the CPU models that were recorded."""
        names = (name.removesuffix(".xml") for name in self._archive.files.names(MODELS))
        return tuple(name.removeprefix(f"{arch}-") for name in names if name.startswith(f"{arch}-"))

    def expand(self, name: str, cpu: str) -> Document:
        """Return the recorded answer; for the host's CPU without a record, ``cpu`` as it is."""
        path = expanded_file(name)
        if name == HOST_CPU and self._archive.find(path) is None:
            return Document(cpu, f"{self._archive.root}/{CAPABILITIES}")
        return self._archive.read(path)

    def node_devices(self) -> tuple[tuple[str, Document], ...]:
        names = (name.removesuffix(".xml") for name in self._archive.files.names(DEVICES) if name.endswith(".xml"))
        return tuple((name, self._device(f"{DEVICES}/{name}.xml")) for name in names)

    def _device(self, path: str) -> Document:
        try:
            return self._archive.read(path)
        except MalformedFact as error:
            return Document(unread(str(error)), path)

    def domains(self) -> tuple[Domain, ...]:
        files = [name for name in self._archive.files.names(DOMAINS) if name.endswith(".xml")]
        states = self._archive.read_json(STATES) if files else {}
        migrating = self._archive.read_json(MIGRATING) if self._archive.find(MIGRATING) else {}
        return tuple(
            Domain(
                uuid,
                str(states.get(uuid, "shutoff")),
                self._archive.read(f"{DOMAINS}/{uuid}.xml"),
                uuid in migrating.get("migrating", ()),
            )
            for uuid in (name.removesuffix(".xml") for name in files)
        )

    def disk(self, place: DiskPlace) -> DiskFacts:
        """
        Return what was recorded of the disks of guests.

        Raises:
            DiscoveryError: it was recorded of another kind of storage than ``place``. Else as ``HostArchive.disk``.
        """
        found = self._archive.disk()
        if isinstance(found, DiskUnread):
            return found
        if _kind(found) != _kind(place):
            raise DiscoveryError(
                f"host archive {self._archive.root} was recorded with the disks of guests in {_kind(found)}, and "
                f"[libvirt] images_type says {_kind(place)} here: set the recorded value in the configuration "
                f"(--config-file), or record the host again"
            )
        cache = isinstance(place, InstancesFolder) and place.image_cache is not None
        if cache and isinstance(found, DiskSpace) and found.image_cache_bytes is None:
            raise DiscoveryError(
                f"host archive {self._archive.root} was recorded without nova's image cache, which [workarounds] "
                f"reserve_disk_resource_for_image_cache reserves here: record the host again, or set the option to "
                f"false"
            )
        return found

    def namespaces(self) -> Document:
        """Return what ndctl answered when the host was recorded."""
        return self._archive.read(NAMESPACES)


def _kind(storage: DiskFacts | DiskPlace) -> str:
    """Name the kind of storage that has the disks of guests, for people."""
    match storage:
        case PoolSpace(pool=name) | CephPool(name=name):
            return f"the Ceph pool {name}"
        case DiskSpace(volume_group=str(name)) | VolumeGroup(name=name):
            return f"the volume group {name}"
        case _:
            return "a file system"


def recorded_files(
    versions: Versions,
    cpu_map: CpuMap,
    memory_mib: int | None,
    capabilities: Document,
    offered: Iterable[tuple[str, Document]],
    devices: Iterable[tuple[str, Document]],
    domains: tuple[Domain, ...],
) -> dict[str, str]:
    """Return the files of a host archive with these answers of a connection, but for ``expand``: path -> text."""
    migrating = [domain.uuid for domain in domains if domain.migrating]
    records: dict[str, object] = {
        _VERSION: {"libvirt": versions.libvirt, "hypervisor": versions.hypervisor, "type": versions.type},
        CPU_MAP: {"total": cpu_map.total, "online": sorted(cpu_map.online)},
        STATES: {domain.uuid: domain.state for domain in domains},
        **({} if memory_mib is None else {MEMORY: {"mib": memory_mib}}),
        **({MIGRATING: {"migrating": migrating}} if migrating else {}),
    }
    return {
        CAPABILITIES: capabilities.text,
        **{f"{_OFFERS}/{name}.xml": document.text for name, document in offered},
        **{f"{DEVICES}/{name}.xml": document.text for name, document in devices},
        **{f"{DOMAINS}/{domain.uuid}.xml": domain.document.text for domain in domains},
        **{name: json.dumps(record) + "\n" for name, record in records.items()},
    }


def expanded_file(name: str) -> str:
    """Return the path of the file with the answer of ``expand`` for this name."""
    return f"{MODELS}/{name}.xml"
