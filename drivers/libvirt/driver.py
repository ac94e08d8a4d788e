"""The libvirt driver: surveys one host through its libvirt connection, and shapes its provider tree."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType

from drivers.base import Event, Survey, Wake
from drivers.devices import idle, present
from drivers.errors import DiscoveryError, Vanished
from drivers.facts import Cpu, CpuMap, Devices, DiskFacts, DomainCapabilities, HostFacts, Hypervisor
from drivers.host import udev
from drivers.host.archive import DISK, Document, encode_disk
from drivers.host.commands import NAMESPACES, parse_namespaces
from drivers.host.kernel import probe_boot, probe_offline, probe_residency, probe_sev, probe_tdx
from drivers.host.parse import format_cpu_set
from drivers.host.pci_functions import PciReading, completed, probe_pci
from drivers.host.sysfs import KernelFiles
from drivers.libvirt import shape
from drivers.libvirt.capabilities import (
    Capabilities,
    Offer,
    offers,
    parse_capabilities,
    parse_cpu_features,
    parse_domain_capabilities,
)
from drivers.libvirt.connection import HOST_CPU, Connection, LiveConnection
from drivers.libvirt.domains import machine_of, parse_guest
from drivers.libvirt.nodedev import parse_devices
from drivers.libvirt.recorded import RecordingConnection
from drivers.libvirt.refusals import check_virt_type, known_models, refusals, unusable_models, with_machines
from drivers.policy import GuestPolicy, Policy
from drivers.reasons import Explained
from reportclient.allocations import Holdings
from reportclient.tree import ObservedTree, ProviderTree

X86 = ("i686", "x86_64")
DEFAULT_MODELS = {"i686": "qemu32", "ppc64le": "POWER8", "aarch64": "max"}  # QEMU's defaults, for cpu_mode none


class LibvirtDriver:
    """Driver for one host, behind one libvirt connection."""

    emitted = shape.EMITTED

    def __init__(
        self,
        connection: Connection,
        guests: GuestPolicy,
        disk: Callable[[], DiskFacts],
        compute_id: Callable[[], str | None] = lambda: None,
        files: KernelFiles | None = None,
        attributes: Mapping[str, frozenset[str]] = MappingProxyType({}),
        *,
        residency: bool = False,
        namespaces: Callable[[], Document] | None = None,
    ) -> None:
        """
        Make the driver; nothing is read yet.

        ``disk`` reads what has the disks of guests. ``compute_id`` reads the identity of a recorded host. ``files``
        are the kernel's files, None where only libvirt can be read. ``attributes`` is passed to ``probe_pci``. With
        ``residency`` the kernel is also read for the cells in which each guest's memory is. ``namespaces`` reads what
        ``ndctl list`` answers; None: persistent memory is of no interest.
        """
        self._connection = connection
        self._guests = guests
        self._disk = disk
        self._compute_id = compute_id
        self._files = files
        self._attributes = attributes
        self._residencies = residency
        self._namespaces = namespaces
        self._parsers = _Parsers()
        self._facts: HostFacts | None = None  # of the last survey
        self._asked: tuple[object, ...] = (None, None, None)
        self._answer: tuple[ProviderTree, Holdings]
        self._odd: frozenset[str] = frozenset()  # names of odd devices at the last look
        self._seen: tuple[Survey | None, frozenset[str]] = None, frozenset()  # the names of the last survey

    def nodes(self) -> tuple[str, ...]:
        return (self._connection.hostname(),)

    def survey(self, node: str) -> Survey:
        files: dict[str, str] = {}
        look = _Look(
            RecordingConnection(self._connection, files),
            self._files.recording(files) if self._files else None,
            self._parsers,
            self._guests,
            self._attributes,
            residency=self._residencies,
        )
        disk, identity = self._disk(), self._compute_id()
        facts = look.facts(node, disk)
        self._check_odd(facts.devices)
        files[DISK] = encode_disk(disk)
        if self._namespaces:
            listed = self._namespaces()
            devices = replace(facts.devices, namespaces=parse_namespaces(listed))
            facts, files[NAMESPACES] = replace(facts, devices=devices), listed.text
        if facts != self._facts:
            self._facts = facts  # equal facts stay one object, so that what rests on them is compared at once
        return Survey(self._facts, identity, files)

    def _check_odd(self, devices: Devices) -> None:
        """
        Ask for another look at a live host if a device is odd that was not at the last look: it may come or go now.

        Raises:
            Vanished: there is such a device.
        """
        before, self._odd = self._odd, frozenset(one.name for one in devices.odd)
        passing = [one for one in devices.odd if one.name not in before and not one.hangs]
        if passing and (self._files is None or self._files.live):
            raise Vanished(f"{passing[0].name}: {passing[0].because}: did it come or go while the host was read?")

    def shape(self, survey: Survey, policy: Policy, observed: ObservedTree | None) -> tuple[ProviderTree, Holdings]:
        asked = (survey, policy, observed)
        if asked != self._asked:  # the same survey, policy and tree in placement give the same result
            shaped = shape.shape(survey.facts, policy, observed)
            self._asked, self._answer = asked, (shaped.tree, shaped.holdings)
        return self._answer

    def explain(self, survey: Survey, policy: Policy, observed: ObservedTree | None) -> Explained:
        return shape.shape(survey.facts, policy, observed)

    def present(self, survey: Survey) -> frozenset[str]:
        if self._seen[0] is not survey:  # a pass asks several times
            self._seen = survey, frozenset(f"{survey.facts.hostname}_{suffix}" for suffix in present(survey.facts))
        return self._seen[1]

    def idle(self, survey: Survey, policy: Policy) -> tuple[str, ...]:
        cells = shape.unknown_cells(survey.facts, policy)
        return (*survey.facts.hypervisor.refusals, *idle(survey.facts, policy.devices), *cells)

    @contextmanager
    def watching(self, wake: Wake) -> Iterator[None]:
        if not isinstance(self._connection, LiveConnection):
            raise DiscoveryError("a host archive has no events: only a live host can be watched")
        connection = self._connection

        def woken(event: Event) -> None:
            connection.outdate()
            wake(event)

        with connection.watching(woken):
            if self._files is None:
                yield
            else:
                with udev.watching(woken):
                    yield


class _Parsers:
    """
    Parsers of documents that seldom change and are read at each pass; each keeps the results for one host.

    Every driver has its own parsers, so that several hosts in one process do not evict each other's results.
    """

    def __init__(self) -> None:
        self.capabilities = lru_cache(1)(parse_capabilities)
        self.domain_capabilities = lru_cache(64)(parse_domain_capabilities)
        self.cpu_features = lru_cache(16)(parse_cpu_features)
        self.devices = lru_cache(1)(parse_devices)
        self._completed: tuple[Devices, tuple[PciReading | str | None, ...], Devices] | None = None

    def completed(self, found: Devices, readings: tuple[PciReading | str | None, ...]) -> Devices:
        """Return devices with what the kernel says of them; the same object where both are as at the last pass."""
        last = self._completed
        if last is None or last[0] is not found or last[1] != readings:
            last = found, readings, completed(found, readings)
            self._completed = last
        return last[2]


class _Look:
    """One look at a host, through one connection."""

    def __init__(
        self,
        connection: Connection,
        files: KernelFiles | None,
        parsers: _Parsers,
        guests: GuestPolicy,
        attributes: Mapping[str, frozenset[str]],
        *,
        residency: bool = False,
    ) -> None:
        self._connection = connection
        self._files = files
        self._parsers = parsers
        self._guests = guests
        self._attributes = attributes
        self._residencies = residency

    def facts(self, node: str, disk: DiskFacts) -> HostFacts:
        """Read all facts of the host; errors as ``Driver.survey``."""
        capabilities = self._parsers.capabilities(self._connection.capabilities())
        documents = self._connection.domain_capabilities(self._guests.virt_type, self._offers(capabilities))
        offered = tuple(self._parsers.domain_capabilities(document) for _, document in documents)
        features = self._features(capabilities, offered)
        cpu_map = self._connection.cpu_map()
        return HostFacts(
            hostname=node,
            hypervisor=Hypervisor(self._connection.versions(), offered, refusals(self._guests, capabilities, offered)),
            cpu=Cpu(
                capabilities.arch,
                features or self._listed(capabilities),
                capabilities.vendor,
                sev=probe_sev(self._files) if self._files else None,
                tdx_guests=probe_tdx(self._files) if self._files else None,
            ),
            cpu_map=cpu_map,
            cells=capabilities.cells,
            whole_memory_mib=None if capabilities.cells else self._connection.memory_mib(),
            disk=disk,
            devices=self.devices(),
            guests=tuple(
                parse_guest(
                    domain.document,
                    domain.uuid,
                    domain.state,
                    self._residency(domain.document),
                    migrating=domain.migrating,
                )
                for domain in self._connection.domains()
            ),
            boot=probe_boot(self._files) if self._files else None,
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
        homes = probe_offline(self._files, cpu_map, cells, unplaced=cpu_map.online - placed) if self._files else ()
        homeless = cpu_map.online - placed - {cpu for cpu, _ in homes}
        if homeless and _placed(self._parsers.capabilities(self._connection.capabilities())) != placed:
            raise Vanished(f"CPU {format_cpu_set(homeless)} came online while the host was read")
        return homes

    def devices(self) -> Devices:
        """
        Return all PCI functions and mediated devices, from libvirt and, where they can be read, the kernel's files.

        Raises:
            DiscoveryError: the list of devices could not be read.
        """
        found = self._parsers.devices(self._connection.node_devices())
        if self._files is None:
            return found
        return self._parsers.completed(found, probe_pci(self._files, found.functions, self._attributes))

    def _residency(self, domain: Document) -> tuple[tuple[int, int], ...]:
        machine = machine_of(domain) if self._files and self._residencies else None
        return probe_residency(self._files, *machine) if self._files and machine else ()

    def _offers(self, capabilities: Capabilities) -> tuple[Offer, ...]:
        """
        Return the emulators and machine types whose domain capabilities are to be read.

        Raises:
            PolicyError: libvirt runs no guests of this virt type on the host's own architecture.
        """
        check_virt_type(self._guests, capabilities)
        every = offers(capabilities.guests, self._guests.virt_type, dict(self._guests.machine_types))
        return with_machines(every, capabilities)

    def _features(self, capabilities: Capabilities, offered: tuple[DomainCapabilities, ...]) -> frozenset[str]:
        """
        Return the CPU features that guests can have; empty where libvirt expands no CPU.

        With KVM no guest starts with a model that this host cannot run (qemu_process.c, qemuProcessUpdateGuestCPU).
        Without it QEMU leaves out what it does not emulate.
        """
        arch = capabilities.arch
        custom = self._guests.cpu_mode == "custom"
        unusable = {f"{arch}-{name}" for name in unusable_models(arch, offered)} if custom else set[str]()
        emulated = self._emulated(arch, offered) if unusable and self._guests.virt_type == "qemu" else frozenset[str]()
        found = frozenset[str]()
        for name, cpu in self._models(capabilities, offered).items():
            if name not in unusable:
                found |= self._expanded(name, cpu)
            elif emulated:
                found |= self._expanded(name, cpu) & emulated
        return found

    def _emulated(self, arch: str, offered: tuple[DomainCapabilities, ...]) -> frozenset[str]:
        """Return what QEMU emulates, which is the host-model of guests without KVM; empty: it is not told."""
        best = next((one.host_model for one in offered if one.arch == arch and one.host_model), None)
        if best is None or best.model not in self._connection.cpu_models(arch):
            return frozenset()
        return (self._expanded(f"{arch}-{best.model}", _model(arch, best.model)) | best.has) - best.lacks

    def _expanded(self, name: str, cpu: str) -> frozenset[str]:
        return self._parsers.cpu_features(self._connection.expand(name, cpu))

    def _models(self, capabilities: Capabilities, offered: tuple[DomainCapabilities, ...]) -> dict[str, str]:
        """
        Return the ``<cpu>`` elements that decide which features guests can have under ``cpu_mode``, by name.

        Empty where libvirt expands no CPU; then ``_listed`` has the features.

        Raises:
            PolicyError: libvirt does not know a configured model.
        """
        arch = capabilities.arch
        if self._guests.cpu_mode == "none":
            models: tuple[str, ...] = (DEFAULT_MODELS.get(arch, "qemu64"),)
        elif self._guests.cpu_mode == "custom":
            models = known_models(self._guests, arch, self._connection.cpu_models(arch), offered)
            models = models or (("max",) if arch == "aarch64" else ())
        elif arch in X86 and capabilities.cpu:
            return {HOST_CPU: capabilities.cpu}
        else:
            return {}  # only features of x86 have traits, and libvirt can expand few other CPUs
        return {f"{arch}-{model}": _model(arch, model) for model in models}

    def _listed(self, capabilities: Capabilities) -> frozenset[str]:
        """Return the features in the capabilities' ``<cpu>``; empty where guests get another CPU than the host's."""
        return frozenset() if self._guests.cpu_mode in ("custom", "none") else capabilities.features


def _model(arch: str, name: str) -> str:
    """Return a ``<cpu>`` of a model for libvirt to expand."""
    return f"<cpu><arch>{arch}</arch><model>{name}</model></cpu>"


def _placed(capabilities: Capabilities) -> frozenset[int]:
    """Return the CPUs that libvirt's topology lists."""
    return frozenset(cpu.id for cell in capabilities.cells for cpu in cell.cpus)
