"""The libvirt driver: surveys one host through its libvirt connection, and shapes its provider tree."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import ClassVar

from drivers.base import Survey, Wake
from drivers.errors import DiscoveryError, Vanished
from drivers.facts import Cpu, CpuMap, Devices, DiskFacts, DomainCapabilities, Guest, HostFacts, Hypervisor
from drivers.host.archive import DISK, KernelFiles, encode_disk
from drivers.host.commands import NAMESPACES, parse_namespaces
from drivers.host.kernel import (
    hides_groups,
    hides_tdx,
    probe_boot,
    probe_offline,
    probe_residency,
    probe_sev,
    probe_tdx,
)
from drivers.host.parse import format_cpu_set
from drivers.host.pci_functions import complete
from drivers.libvirt import shape
from drivers.libvirt.capabilities import (
    Capabilities,
    check_virt_type,
    known_models,
    offers,
    parse_capabilities,
    parse_cpu_features,
    parse_domain_capabilities,
    refusals,
    unusable_models,
)
from drivers.libvirt.connection import HOST_CPU, Domain, LiveConnection
from drivers.libvirt.domains import parse_guest
from drivers.libvirt.nodedev import parse_devices
from drivers.libvirt.recorded import RecordedConnection, expanded_file, recorded_files
from drivers.policy import OF_CELLS, DiskPlace, Policy
from drivers.rules import rule_attributes
from reportclient.allocations import Holdings
from reportclient.ownership import Names
from reportclient.tree import ObservedTree, ProviderTree

Connection = LiveConnection | RecordedConnection
X86 = ("i686", "x86_64")
OLDEST_LIBVIRT = 9_000_000  # 9.0; as libvirt counts: major * 1,000,000 + minor * 1,000 + release
DEFAULT_MODELS = {"i686": "qemu32", "ppc64le": "POWER8", "aarch64": "max"}  # QEMU's defaults, for cpu_mode none


def _shape(survey: Survey, policy: Policy, observed: ObservedTree | None) -> tuple[ProviderTree, Holdings]:
    shaped = shape.shape(survey.facts, policy, observed)
    return shaped.tree, shaped.holdings


@dataclass
class LibvirtDriver:
    """Driver for one host, live or recorded; nothing is read before a method is called."""

    emitted: ClassVar[Names] = shape.EMITTED

    connection: Connection
    policy: Policy  # which decides what is read
    storage: DiskPlace  # that has the disks of guests
    _odd: frozenset[str] = field(default=frozenset(), init=False)  # names of odd devices at the last look

    def name(self) -> str:
        return self.connection.hostname()

    def survey(self, name: str) -> Survey:
        texts: dict[str, str] = {}
        files = self.connection.files.recording(texts)
        disk, identity = self.connection.disk(self.storage), self.connection.compute_id()
        facts = _Look(self.connection, files, self.policy, texts).facts(name, disk)
        self._check_odd(facts.devices)
        texts[DISK] = encode_disk(disk)
        if self.policy.devices.pmem:
            listed = self.connection.namespaces()
            devices = replace(facts.devices, namespaces=parse_namespaces(listed))
            facts, texts[NAMESPACES] = replace(facts, devices=devices), listed.text
        return Survey(facts, identity, texts)

    def _check_odd(self, devices: Devices) -> None:
        """
        Ask for another look at a live host if a device is odd that was not at the last look: it may come or go now.

        Raises:
            Vanished: there is such a device.
        """
        before, self._odd = self._odd, frozenset(one.name for one in devices.odd)
        passing = [one for one in devices.odd if one.name not in before and not one.hangs]
        if passing and self.connection.live:
            raise Vanished(f"{passing[0].name}: {passing[0].because}: did it come or go while the host was read?")

    shape = staticmethod(_shape)

    def watching(self, wake: Wake) -> AbstractContextManager[None]:
        return self.connection.watching(wake)


@dataclass(frozen=True, slots=True)
class SurveyedElsewhere:
    """Driver of a host whose name, surveys and events come from functions."""

    emitted: ClassVar[Names] = shape.EMITTED

    name: Callable[[], str]
    survey: Callable[[str], Survey]
    watching: Callable[[Wake], AbstractContextManager[None]]

    shape = staticmethod(_shape)


@dataclass(frozen=True, slots=True)
class _Look:
    """One look at a host."""

    connection: Connection
    files: KernelFiles  # the kernel's; of another machine it has none, and only libvirt can be read
    policy: Policy
    texts: dict[str, str]  # what is read, as the files of a host archive: path -> text

    def facts(self, name: str, disk: DiskFacts) -> HostFacts:
        """Read all facts of the host; errors as ``Driver.survey``."""
        document = self.connection.capabilities()
        capabilities = parse_capabilities(document)
        check_virt_type(self.policy.guests, capabilities)
        wanted = offers(capabilities.guests, self.policy.guests.virt_type, self.policy.guests.machine_types)
        documents = self.connection.domain_capabilities(self.policy.guests.virt_type, wanted)
        offered = tuple(parse_domain_capabilities(text) for _, text in documents)
        versions, cpu_map = self.connection.versions(), self.connection.cpu_map()
        if versions.libvirt < OLDEST_LIBVIRT:
            raise DiscoveryError(
                f"libvirt on {name} is older than 9.0, and would get traits that its guests cannot have: upgrade it"
            )
        whole_memory_mib = None if capabilities.cells else self.connection.memory_mib()
        devices, domains = self.connection.node_devices(), self.connection.domains()
        self.texts.update(recorded_files(versions, cpu_map, whole_memory_mib, document, documents, devices, domains))
        return HostFacts(
            hostname=name,
            hypervisor=Hypervisor(versions, offered, refusals(self.policy.guests, capabilities, offered)),
            cpu=Cpu(
                capabilities.arch,
                self._features(capabilities, offered),
                capabilities.vendor,
                sev=probe_sev(self.files),
                tdx_guests=probe_tdx(self.files),
                tdx_hidden=hides_tdx(self.files),
            ),
            cpu_map=cpu_map,
            cells=capabilities.cells,
            whole_memory_mib=whole_memory_mib,
            disk=disk,
            devices=complete(self.files, parse_devices(devices), rule_attributes(self.policy.devices)),
            guests=tuple(map(self._guest, domains)),
            boot=probe_boot(self.files),
            product=capabilities.uuid,
            offline_cpus=self._homes(capabilities, cpu_map),
        )

    def _homes(self, capabilities: Capabilities, cpu_map: CpuMap) -> tuple[tuple[int, int], ...]:
        """
        Return (CPU, cell) of the CPUs that libvirt's topology lacks, from the kernel's files.

        Raises:
            Vanished: an online CPU has no cell, and the topology has changed: the CPU came online while it was read.
        """
        placed = _placed(capabilities)
        cells = (cell.id for cell in capabilities.cells)
        homes = probe_offline(self.files, cpu_map, cells, unplaced=cpu_map.online - placed)
        homeless = cpu_map.online - placed - {cpu for cpu, _ in homes}
        if homeless and _placed(parse_capabilities(self.connection.capabilities())) != placed:
            raise Vanished(f"CPU {format_cpu_set(homeless)} came online while the host was read")
        return homes

    def _guest(self, domain: Domain) -> Guest:
        guest = parse_guest(domain.document, domain.uuid, domain.state, migrating=domain.migrating)
        if guest.machine is None or self.policy.layout not in OF_CELLS:
            return guest
        shown = probe_residency(self.files, *guest.machine)  # also in a container that has libvirt and the guests too
        return replace(guest, resident=shown or (None if hides_groups(self.files) else ()))

    def _features(self, capabilities: Capabilities, offered: tuple[DomainCapabilities, ...]) -> frozenset[str]:
        """
        Return the CPU features that guests can have; where libvirt expands no CPU, what the capabilities list.

        With KVM no guest starts with a model that this host cannot run (qemu_process.c, qemuProcessUpdateGuestCPU).
        Without it QEMU leaves out what it does not emulate.
        """
        arch = capabilities.arch
        custom = self.policy.guests.cpu_mode == "custom"
        unusable = {f"{arch}-{name}" for name in unusable_models(arch, offered)} if custom else set[str]()
        is_emulated = unusable and self.policy.guests.virt_type == "qemu"
        emulated = self._emulated(arch, offered) if is_emulated else frozenset[str]()
        found = frozenset[str]()
        for name, cpu in self._models(capabilities, offered).items():
            if name not in unusable:
                found |= self._expanded(name, cpu)
            elif emulated:
                found |= self._expanded(name, cpu) & emulated
        return found or (frozenset() if self.policy.guests.cpu_mode in ("custom", "none") else capabilities.features)

    def _emulated(self, arch: str, offered: tuple[DomainCapabilities, ...]) -> frozenset[str]:
        """Return what QEMU emulates, which is the host-model of guests without KVM; empty: it is not told."""
        best = next((one.host_model for one in offered if one.arch == arch and one.host_model), None)
        if best is None or best.model not in self.connection.cpu_models(arch):
            return frozenset()
        return (self._expanded(f"{arch}-{best.model}", _model(arch, best.model)) | best.has) - best.lacks

    def _expanded(self, name: str, cpu: str) -> frozenset[str]:
        document = self.connection.expand(name, cpu)
        self.texts[expanded_file(name)] = document.text
        return parse_cpu_features(document)

    def _models(self, capabilities: Capabilities, offered: tuple[DomainCapabilities, ...]) -> dict[str, str]:
        """
        Return the ``<cpu>`` elements that decide which features guests can have under ``cpu_mode``, by name.

        Empty where libvirt expands no CPU.

        Raises:
            PolicyError: libvirt does not know a configured model.
        """
        arch = capabilities.arch
        if self.policy.guests.cpu_mode == "none":
            models: tuple[str, ...] = (DEFAULT_MODELS.get(arch, "qemu64"),)
        elif self.policy.guests.cpu_mode == "custom":
            models = known_models(self.policy.guests, arch, self.connection.cpu_models(arch), offered)
            models = models or (("max",) if arch == "aarch64" else ())
        elif arch in X86 and capabilities.cpu:
            return {HOST_CPU: capabilities.cpu}
        else:
            return {}  # only features of x86 have traits, and libvirt can expand few other CPUs
        return {f"{arch}-{model}": _model(arch, model) for model in models}


def _model(arch: str, name: str) -> str:
    """Return a ``<cpu>`` of a model for libvirt to expand."""
    return f"<cpu><arch>{arch}</arch><model>{name}</model></cpu>"


def _placed(capabilities: Capabilities) -> frozenset[int]:
    """Return the CPUs that libvirt's topology lists."""
    return frozenset[int]().union(*(cell.cpus for cell in capabilities.cells))
