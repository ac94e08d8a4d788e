"""Every fact about a host on one page, with its unit and where it comes from. Empty means: none there."""

from dataclasses import dataclass, field

from drivers.pci import PciAddress


@dataclass(frozen=True, slots=True)
class HostCpu:
    """One logical CPU, as ``<cpu>`` in libvirt's capabilities places it."""

    id: int
    socket: int
    core: int
    siblings: frozenset[int]  # logical CPUs of the same core, itself included


@dataclass(frozen=True, slots=True)
class MemoryPages:
    """The pages of one size in one cell, as ``<pages>`` counts them; small pages are what huge ones left over."""

    size_kib: int
    total: int


@dataclass(frozen=True, slots=True)
class NumaCell:
    """One NUMA cell as the kernel numbers it; ids may have gaps."""

    id: int
    memory_kib: int  # libvirt's <memory>; 0 for a cell without memory
    cpus: tuple[HostCpu, ...]  # lowest id first; empty for a memory-only cell
    pages: tuple[MemoryPages, ...] = ()  # smallest first; empty where libvirt does not tell
    distances: tuple[tuple[int, int], ...] = ()  # (cell, relative distance), lowest cell first; 10 is the cell itself


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
    sev_guests: int = 0  # how many SEV guests can run at a time; 0 where SEV is not supported
    sev_es_guests: int = 0  # and how many of SEV-ES or SEV-SNP
    launch_security: frozenset[str] = frozenset()  # for instance "sev-snp"; empty where libvirt before 10.5 says none


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions as libvirt counts them: major * 1,000,000 + minor * 1,000 + release."""

    libvirt: int
    hypervisor: int


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """The file system that holds the instances."""

    total_bytes: int
    free_bytes: int = field(compare=False)  # of no concern for the tree, and another at each look


@dataclass(frozen=True, slots=True)
class NetDevice:
    """A network interface of a PCI function."""

    name: str
    state: str | None = None  # the kernel's operstate, for instance "up" or "down"; None where libvirt does not say
    speed_mbps: int | None = None  # of the link; None while it has none
    carries_host_traffic: bool = False  # it has routes or addresses of the host's own, or is part of a bond or bridge
    represents: str | None = None  # the port of another function that it stands for, for instance "pf0vf1"; None: none


@dataclass(frozen=True, slots=True, kw_only=True)
class PciFunction:
    """One PCI function: a physical function (PF), a virtual one (VF), or a plain device."""

    address: PciAddress
    vendor_id: str  # four lower-case hex digits
    product_id: str
    device_class: int | None = None  # base class, subclass and interface, for instance 0x020000: an Ethernet controller
    driver: str | None = None  # None: bound to none
    iommu_group: int | None = None
    cell: int | None = None  # None: the kernel knows no affinity (numa_node is -1)
    pf: PciAddress | None = None  # of a VF: its physical function
    total_vfs: int | None = None  # of a PF: how many VFs it can have; None: it is no PF
    vfs: tuple[PciAddress, ...] = ()  # of a PF: those that are made, lowest first
    net_devices: tuple[NetDevice, ...] = ()
    power_state: str | None = None  # sysfs-bus-pci's power_state, for instance "D0" or "error"; None: not told
    attributes: tuple[tuple[str, str], ...] = ()  # files of the vendor's driver that rules name: (path, first line)

    @property
    def is_pf(self) -> bool:
        return self.total_vfs is not None

    @property
    def is_vf(self) -> bool:
        return self.pf is not None

    @property
    def links(self) -> tuple[NetDevice, ...]:
        """Its interfaces without those that only represent VFs on a switch in the card (switchdev)."""
        return tuple(net for net in self.net_devices if net.represents is None)


@dataclass(frozen=True, slots=True)
class MdevType:
    """A kind of mediated device that a parent can make: ``<type>`` of its ``mdev_types`` capability."""

    id: str  # for instance "nvidia-222"
    name: str  # the vendor's; may be empty
    available_instances: int  # how many more can be made now


@dataclass(frozen=True, slots=True)
class MdevParent:
    """A device that can be divided into mediated devices; not every such parent is on PCI."""

    name: str  # libvirt's: "pci_0000_84_00_0", "mtty_mtty"
    address: PciAddress | None
    types: tuple[MdevType, ...]  # in order of id


@dataclass(frozen=True, slots=True)
class Mdev:
    """A mediated device that exists."""

    uuid: str
    type: str
    parent: str  # libvirt's name of it


@dataclass(frozen=True, slots=True)
class GuestMemory:
    """Memory of a guest, or of one of the cells that it is shown."""

    mib: int
    cells: frozenset[int] = frozenset()  # of the host, that it is bound to (numatune, strict); empty: to none
    huge: bool = False
    page_kib: int | None = None  # of huge pages; None: the host's default, or no huge pages


@dataclass(frozen=True, slots=True)
class Tenant:
    """Whose guest a domain is, and its disk, from the metadata that nova leaves in it."""

    project: str
    user: str
    disk_gb: int | None  # of the host's own, by the flavor; None: not told
    overridden: frozenset[str] = frozenset()  # classes of which the flavor asks for other amounts than the guest has


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """A domain and what of the host it has or, not running, will have."""

    uuid: str
    state: str  # libvirt's: "running", "paused", "shutoff" ...
    pci: frozenset[PciAddress] = frozenset()  # <hostdev> and <interface type='hostdev'>
    ports: frozenset[PciAddress] = frozenset()  # those of <interface type='hostdev'>: a port of a network has them
    netdevs: frozenset[str] = (
        frozenset()
    )  # the host's interfaces that it has whole: <interface type='direct'>, passthrough
    vdpa: frozenset[str] = frozenset()  # vhost-vdpa devices, of which nothing tells the VF
    mdevs: frozenset[str] = frozenset()  # uuids
    vcpus: tuple[frozenset[int], ...] = ()  # the host's CPUs that each may run on, empty: any; () where not told
    emulator_cpus: frozenset[int] = frozenset()  # those of emulatorpin; empty: any
    memory: tuple[GuestMemory, ...] = ()  # () where not told
    encryption: str | None = None  # which contexts it takes: "amd_sev", "amd_sev_es", "amd_sev_snp"
    resident: tuple[tuple[int, int], ...] = ()  # (cell, KiB) of a running one's memory; () where the kernel is silent
    migrating: bool = False  # to or from here, at this moment
    tenant: Tenant | None = None  # None: whoever made the domain did not say


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """Everything with an address; empty where there is none."""

    functions: tuple[PciFunction, ...] = ()  # lowest address first
    mdev_parents: tuple[MdevParent, ...] = ()  # by name
    mdevs: tuple[Mdev, ...] = ()  # by uuid


@dataclass(frozen=True, slots=True)
class SevKernel:
    """Which kinds of memory encryption kvm_amd was loaded with: its parameters sev, sev_es and sev_snp."""

    sev: bool
    sev_es: bool
    sev_snp: bool


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
    devices: Devices = Devices()
    guests: tuple[Guest, ...] = ()  # every domain, by uuid
    isolated_cpus: frozenset[int] | None = None  # kept from the kernel's scheduler; None: not told
    sev: SevKernel | None = None  # None: not told, or no kvm_amd
    offline_cpus: tuple[tuple[int, int], ...] = ()  # (CPU that the topology lacks, as those that are off, its cell)
