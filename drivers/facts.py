"""Every fact about a host on one page, with its unit and where it comes from. Empty means: none there."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostCpu:
    """One logical CPU, as ``<cpu>`` in libvirt's capabilities places it."""

    id: int
    socket: int
    core: int
    siblings: frozenset[int]  # logical CPUs of the same core, itself included


@dataclass(frozen=True, slots=True)
class NumaCell:
    """One NUMA cell as the kernel numbers it; ids may have gaps."""

    id: int
    memory_kib: int  # libvirt's <memory>; 0 for a cell without memory
    cpus: tuple[HostCpu, ...]  # lowest id first; empty for a memory-only cell


@dataclass(frozen=True, slots=True)
class CpuMap:
    """Which logical CPUs exist and which are online: virNodeGetCPUMap."""

    total: int
    online: frozenset[int]


@dataclass(frozen=True, slots=True)
class GuestArch:
    """An architecture that this host can run guests of, from ``<guest><arch>``."""

    name: str
    emulators: tuple[
        tuple[str, str], ...
    ]  # (virt type, path of the emulator), for instance ("kvm", "/usr/bin/qemu-...")
    machine_aliases: tuple[str, ...]  # short names of the current machine types, for instance "pc" and "q35"


@dataclass(frozen=True, slots=True)
class DomainCapabilities:
    """What one emulator offers guests of one machine type: virConnectGetDomainCapabilities."""

    arch: str
    disk_buses: frozenset[str]
    video_models: frozenset[str]
    secure_boot: bool
    tpm_models: frozenset[str]
    tpm_versions: frozenset[str] | None  # None: libvirt before 8.6 does not say


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions as libvirt counts them: major * 1,000,000 + minor * 1,000 + release."""

    libvirt: int
    hypervisor: int


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """The file system that holds the instances."""

    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """One host at one moment."""

    hostname: str  # virConnectGetHostname: the name of the root provider
    versions: Versions
    cpu_map: CpuMap
    arch: str  # of the host's CPU, for instance "x86_64"
    guest_features: frozenset[str]  # CPU features that guests can have under cpu_mode, in libvirt's names; x86 only
    cells: tuple[NumaCell, ...]  # lowest id first
    domain_capabilities: tuple[DomainCapabilities, ...]
    disk: DiskSpace
