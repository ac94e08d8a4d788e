"""A hypervisor as a host archive recorded it: libvirt's part of the archive, written and read."""

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from drivers.errors import DiscoveryError
from drivers.facts import CpuMap, Versions
from drivers.host.archive import Document, HostArchive, fields, whole
from drivers.host.parse import HIGHEST_CPU
from drivers.libvirt.capabilities import Offer
from drivers.libvirt.connection import HOST_CPU, Domain, LiveConnection


class RecordedConnection:
    """libvirt as a host archive recorded it."""

    def __init__(self, archive: HostArchive) -> None:
        self._archive = archive

    def unheard(self) -> AbstractContextManager[None]:
        return nullcontext()

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
                f"host archive {self._archive.root} was recorded with [libvirt] virt_type = "
                f"{', '.join(sorted({name.removesuffix('.xml').rpartition('-')[2] for name in names}))}, and it is "
                f"{virt_type} here: set it in the configuration (--config-file)"
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

    def node_devices(self) -> tuple[Document, ...]:
        names = self._archive.names("libvirt/nodedevs")
        return tuple(self._archive.read(f"libvirt/nodedevs/{name}") for name in names if name.endswith(".xml"))

    def domains(self) -> tuple[Domain, ...]:
        files = [name for name in self._archive.names("libvirt/domains") if name.endswith(".xml")]
        states = self._archive.read_json("libvirt/domains.json") if files else {}
        return tuple(
            Domain(uuid, str(states.get(uuid, "shutoff")), self._archive.read(f"libvirt/domains/{uuid}.xml"))
            for uuid in (name.removesuffix(".xml") for name in files)
        )


def write_archive(connection: LiveConnection, offers: tuple[Offer, ...], models: Mapping[str, str]) -> dict[str, str]:
    """libvirt's part of a host archive: file name -> text. ``models`` are the CPUs to expand, by name."""
    versions, cpu_map, domains = connection.versions(), connection.cpu_map(), connection.domains()
    return {
        "libvirt/version.json": _json(
            {"libvirt": versions.libvirt, "hypervisor": versions.hypervisor, "type": connection.hypervisor_type()}
        ),
        "libvirt/cpumap.json": _json({"total": cpu_map.total, "online": sorted(cpu_map.online)}),
        "libvirt/capabilities.xml": connection.capabilities().text,
        "libvirt/domains.json": _json({domain.uuid: domain.state for domain in domains}),
        **{
            f"libvirt/domcapabilities/{offer.arch}-{offer.machine}-{offer.virt_type}.xml": connection.offered(
                offer
            ).text
            for offer in offers
        },
        **{f"libvirt/models/{name}.xml": connection.expand(name, cpu).text for name, cpu in models.items()},
        **{f"libvirt/nodedevs/{name}.xml": document.text for name, document in connection.named_devices()},
        **{f"libvirt/domains/{domain.uuid}.xml": domain.document.text for domain in domains},
    }


def _json(value: object) -> str:
    return json.dumps(value, indent=1) + "\n"
