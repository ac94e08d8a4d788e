"""Facts about a host, each with its unit and source. Empty means that the host has none, unless a comment differs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from drivers.pci import PciAddress

# PCI's classes of host bridges, and of bridges between two buses (the kernel's include/linux/pci_ids.h)
BRIDGE_CLASSES = frozenset({0x0600, 0x0604})

HIGHEST_DOMAIN = 0xFFFF  # nova knows PCI domains of 16 bits only (MAX_DOMAIN in nova/pci/devspec.py)


@dataclass(frozen=True, slots=True)
class MemoryPages:
    """Pages of one size in one cell, from ``<pages>``; the total of small pages excludes what huge pages take."""

    size_kib: int
    total: int


@dataclass(frozen=True, slots=True)
class NumaCell:
    """One NUMA cell as the kernel numbers it; ids may have gaps."""

    id: int
    memory_kib: int  # libvirt's <memory>; 0 for a cell without memory
    cpus: frozenset[int]  # ids of its logical CPUs; empty for a memory-only cell
    pages: tuple[MemoryPages, ...] = ()  # smallest first; empty where libvirt does not report them
    has_siblings: bool = False  # some of its CPUs are of the same core
    sockets: frozenset[int] = field(default=frozenset(), compare=False)  # of its CPUs; empty where libvirt tells none


@dataclass(frozen=True, slots=True)
class CpuMap:
    """The number of logical CPUs and the ids of the online ones, from virNodeGetCPUMap."""

    total: int
    online: frozenset[int]


@dataclass(frozen=True, slots=True)
class GuestArch:
    """An architecture that this host can run guests of, from ``<guest><arch>``."""

    name: str
    # (virt type, path of the emulator), for instance ("kvm", "/usr/bin/qemu-...")
    emulators: tuple[tuple[str, str], ...]
    machine_aliases: tuple[str, ...]  # short names of the current machine types, for instance "pc" and "q35"
    machines: frozenset[str] = frozenset()  # names of all machine types; empty: libvirt lists none


@dataclass(frozen=True, slots=True)
class HostModel:
    """The CPU of guests with cpu_mode = host-model, from ``<mode name=host-model>``; without KVM the best of QEMU."""

    model: str
    has: frozenset[str]  # features beyond the model's own
    lacks: frozenset[str]  # features of the model that guests do not get


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedEncryption:
    """Kinds of memory encryption that guests can have."""

    sev_guests: int = 0  # how many SEV guests can run at a time
    sev_es_guests: int = 0  # how many SEV-ES or SEV-SNP guests can run at a time
    tdx: bool = False  # guests can have Intel TDX; older releases of libvirt do not tell
    launch_security: frozenset[str] = frozenset()  # for instance "sev-snp"; libvirt before 10.5 reports none


@dataclass(frozen=True, slots=True)
class DomainCapabilities:
    """Features that one emulator offers guests of one machine type, from virConnectGetDomainCapabilities."""

    arch: str
    disk_buses: frozenset[str]
    video_models: frozenset[str]
    secure_boot: bool
    tpm_models: frozenset[str]
    tpm_versions: frozenset[str]
    encryption: OfferedEncryption = OfferedEncryption()
    cpu_modes: frozenset[str] = frozenset()  # CPU modes that guests can have; empty: libvirt does not tell
    cpu_models: tuple[tuple[str, str], ...] = ()  # (CPU model, "yes", "no" or "unknown": whether this host can run it)
    host_model: HostModel | None = None  # None: libvirt does not tell


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions as libvirt counts them: major * 1,000,000 + minor * 1,000 + release."""

    libvirt: int
    hypervisor: int
    type: str = field(default="", compare=False)  # libvirt's name of the hypervisor, for instance "QEMU", for people


def dotted(version: int) -> str:
    """Return a version, as libvirt counts it, for people: 9000000 is "9.0.0"."""
    return f"{version // 1_000_000}.{version // 1000 % 1000}.{version % 1000}"


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """The file system or the volume group that has the disks of guests."""

    total_bytes: int
    free_bytes: int = field(compare=False)  # not compared: it differs at each look, and the tree does not use it
    image_cache_bytes: int | None = None  # of nova's cached images; None: not read, as they are not to be reserved
    volume_group: str | None = None  # its name; None: it is a file system
    folder: str | None = None  # whose file system it is; None: it is a volume group, or an archive does not tell
    missing: str | None = None  # the folder of the instances, which does not exist, so ``folder`` is above it


@dataclass(frozen=True, slots=True)
class PoolSpace:
    """The Ceph cluster that has the disks of guests in one of its pools."""

    pool: str
    cluster_bytes: int  # of all its disks, however often they keep each byte
    pool_gib: int  # what the pool has and could have more, each byte once; whole GiB, as bytes differ at each look
    fsid: str = ""  # uuid of the cluster; empty: it was not asked for


@dataclass(frozen=True, slots=True)
class DiskUnread:
    """What has the disks of guests did not answer."""

    because: str  # the same text as long as it does not answer


DiskFacts = DiskSpace | PoolSpace | DiskUnread


@dataclass(frozen=True, slots=True)
class NetDevice:
    """A network interface of a PCI function."""

    name: str
    state: str | None = None  # the kernel's operstate, for instance "up" or "down"; None: unknown, or InfiniBand
    speed_mbps: int | None = None  # speed of the link; None while the link has none
    # it has the host's own routes or addresses, or is part of a bond or bridge; None: the kernel does not tell
    carries_host_traffic: bool | None = False
    represents: str | None = None  # port of another function that it represents or is: "pf0vf1", "sf88"; None: none


@dataclass(frozen=True, slots=True)
class PciIds:
    """What the configuration space of a PCI function says of its kind."""

    vendor: str  # four lower-case hex digits
    product: str
    device_class: int = 0  # base class, subclass and interface, for instance 0x020000: an Ethernet controller
    has_bridge_header: bool = False  # its header is of type 1 or 2; libvirt shows it as pci-bridge or cardbus-bridge

    def __str__(self) -> str:
        return f"{self.vendor}:{self.product}"

    @property
    def is_bridge(self) -> bool:
        """
        Return whether this only connects buses: vfio-pci takes functions with header type 0 only (vfio_pci_core.c).

        The base class 06 does not tell it: an NVSwitch has class 0680, "other" (pci_ids.h).
        """
        return self.has_bridge_header or self.device_class >> 8 in BRIDGE_CLASSES


@dataclass(frozen=True, slots=True)
class Sriov:
    """What a physical function tells of its VFs, of those that could be made too."""

    total: int  # how many it can have
    step: tuple[int, int] | None = None  # routing ids to the first VF (0: none), and to the next; None: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class PciFunction:
    """One PCI function: a physical function (PF), a virtual one (VF), or a plain device."""

    address: PciAddress
    ids: PciIds
    driver: str | None = None  # None: no driver is bound
    cell: int | None = None  # NUMA cell; None: the kernel knows no affinity (sysfs-bus-pci: numa_node is -1)
    pf: PciAddress | None = None  # address of a VF's physical function; None: it is no VF
    sriov: Sriov | None = None  # None: it is no PF
    vfs: tuple[PciAddress, ...] = ()  # existing VFs of a PF, lowest address first
    net_devices: tuple[NetDevice, ...] = ()
    vdpa: tuple[str, ...] = ()  # paths of the vhost-vdpa devices on it, which guests have as interfaces
    power_state: str | None = None  # sysfs-bus-pci's power_state, for instance "D0" or "error"; None: unknown
    attributes: tuple[tuple[str, str], ...] = ()  # (path, number) of each file that rules name and that exists
    serial_number: str | None = None  # of its card, from the vital product data (VPD); None: it has none

    @property
    def can_be_given(self) -> bool:
        """Return whether nova can give this to a guest: it is no bridge, and its PCI domain has 16 bits."""
        return not self.ids.is_bridge and self.address.domain <= HIGHEST_DOMAIN

    @property
    def is_pf(self) -> bool:
        """Return whether this is a physical function: it can have VFs."""
        return self.sriov is not None

    @property
    def is_vf(self) -> bool:
        """Return whether this is a virtual function."""
        return self.pf is not None

    def has_vf_at(self, place: PciAddress) -> bool:
        """Return whether a VF of this PF is at this place, or would be, as far as the kernel tells it."""
        if not self.sriov or not self.sriov.step or place.domain != self.address.domain:
            return False
        (first, stride), far = self.sriov.step, place.routing_id - self.address.routing_id
        return first > 0 and far in range(first, first + self.sriov.total * stride, stride)

    @property
    def counted_on(self) -> PciAddress:
        """Return the address of the function that offers this one: its PF, or itself."""
        return self.pf or self.address

    @property
    def links(self) -> tuple[NetDevice, ...]:
        """Interfaces of this function, without those of subfunctions, and of VFs on the card's switch (switchdev)."""
        return tuple(net for net in self.net_devices if net.represents is None)


@dataclass(frozen=True, slots=True)
class MdevType:
    """A type of mediated device that a parent can make, from ``<type>`` of its ``mdev_types`` capability."""

    id: str  # for instance "nvidia-222"
    name: str  # the vendor's; may be empty
    available_instances: int  # how many more can be made now


@dataclass(frozen=True, slots=True)
class MdevParent:
    """A device that can be divided into mediated devices; not every such parent is on PCI."""

    name: str  # libvirt's: "pci_0000_84_00_0", "mtty_mtty"
    address: PciAddress | None  # None: not on PCI
    types: tuple[MdevType, ...]  # in order of id


@dataclass(frozen=True, slots=True)
class Mdev:
    """A mediated device that exists."""

    uuid: str
    type: str
    parent: str  # libvirt's name of the parent device


@dataclass(frozen=True, slots=True)
class OddDevice:
    """A device of which something cannot be read or understood, or that hangs on such a device; in no other list."""

    name: str  # a PCI address, or libvirt's name of what is not on PCI
    because: str  # what is wrong, and where: part of a sentence, the same as long as it lasts
    address: PciAddress | None = None  # None: not on PCI, or a mediated device
    pf: PciAddress | None = None  # of a VF; None: it is none, or no PF that is listed names it
    card: str = ""  # libvirt's name of the parent that makes mediated devices; empty: there is none
    hangs: bool = False  # nothing is wrong with it but its PF


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace of persistent memory, from ``ndctl list``."""

    name: str  # the operator's; several may have the same
    path: str | None  # of its character device, for instance "/dev/dax0.0"; None: no guest can have it now


@dataclass(frozen=True, slots=True)
class GuestMemory:
    """Memory of a guest, or of one of the NUMA cells that the guest sees."""

    mib: int
    cells: frozenset[int] = frozenset()  # host cells that the memory is bound to (numatune, strict); empty: not bound
    huge: bool = False
    page_kib: int | None = None  # size of huge pages; None: the host's default size, or no huge pages


@dataclass(frozen=True, slots=True)
class Tenant:
    """Project, user and disk of a domain, from the metadata that nova writes into it."""

    project: str
    user: str
    disk_gb: int | None  # on the host's own disk, by the flavor; None: unknown
    # amounts that the flavor's extra specs name, by class; None: the amount cannot be read
    # None instead of the mapping: nova up to 2025.1 started the domain, and did not write the extra specs
    overridden: Mapping[str, int | None] | None = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestDevices:
    """Devices of the host that a guest has whole, and its encryption; empty where it has none."""

    pci: frozenset[PciAddress] = frozenset()  # <hostdev> and <interface type='hostdev'>
    ports: frozenset[PciAddress] = frozenset()  # those of <interface type='hostdev'>, which belong to network ports
    netdevs: frozenset[str] = frozenset()  # names of host interfaces: <interface type='direct'>, passthrough
    shared: frozenset[str] = frozenset()  # the same in other modes: not whole, other guests may have the same
    vdpa: frozenset[str] = frozenset()  # paths of the vhost-vdpa devices of its interfaces
    mdevs: frozenset[str] = frozenset()  # uuids of mediated devices
    pmem: frozenset[str] = frozenset()  # paths of namespaces of persistent memory
    tpm: bool = False  # an emulated TPM
    encryption: str | None = None  # kind of encryption context: "amd_sev", "amd_sev_snp", "intel_tdx"; None: none


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """A domain, with the resources of the host that it has or, while it does not run, will have."""

    uuid: str
    state: str  # libvirt's: "running", "paused", "shutoff" ...
    name: str = field(default="", compare=False)  # nova's for its user, else libvirt's (an archive has this); may be ""
    machine: tuple[int, str] | None = field(default=None, compare=False)  # libvirt's id and name; None: it does not run
    devices: GuestDevices = GuestDevices()
    vcpus: tuple[frozenset[int], ...] = ()  # host CPUs that each vCPU may run on, empty: any; (): unknown
    some_off: bool = False  # whether some of ``vcpus`` are switched off (virsh setvcpus)
    emulator_cpus: frozenset[int] = frozenset()  # host CPUs of emulatorpin; empty: any
    memory: tuple[GuestMemory, ...] = ()  # (): unknown
    # (cell, KiB) of a running guest's memory; (): unknown; None: unknown, as a container hides it
    resident: tuple[tuple[int, int], ...] | None = ()
    migrating: bool = False  # to or from this host, at this moment
    tenant: Tenant | None = None  # None: the domain has no metadata of nova
    unread: str = ""  # what of its CPUs, memory or encryption is not understood, so that all of these are unknown

    @property
    def active(self) -> bool:
        """Whether it has its resources now: neither shut off nor crashed."""
        return self.state not in ("shutoff", "crashed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """PCI functions, mediated devices and persistent memory of a host; empty where it has none."""

    functions: tuple[PciFunction, ...] = ()  # lowest address first
    mdev_parents: tuple[MdevParent, ...] = ()  # by name
    mdevs: tuple[Mdev, ...] = ()  # by uuid
    odd: tuple[OddDevice, ...] = ()  # by name, those that hang on others last
    namespaces: tuple[Namespace, ...] = ()  # of persistent memory, by name; read only if the configuration names some


@dataclass(frozen=True, slots=True)
class SevKernel:
    """Kinds of memory encryption that kvm_amd was loaded with: its parameters sev, sev_es and sev_snp."""

    sev: bool
    sev_es: bool
    sev_snp: bool


@dataclass(frozen=True, slots=True)
class Cpu:
    """The kind of the host's CPUs, and what guests can have of them."""

    arch: str  # for instance "x86_64"
    guest_features: frozenset[str] = frozenset()  # that guests can have under cpu_mode, in libvirt's names; x86 only
    vendor: str = ""  # as libvirt names it, for instance "Intel"; empty: unknown
    sev: SevKernel | None = None  # None: unknown, or kvm_amd is not loaded
    tdx_guests: int | None = None  # how many guests can have Intel TDX at a time; None: the kernel does not tell
    tdx_hidden: bool = False  # True: unknown, as the host's control groups are not to be seen


@dataclass(frozen=True, slots=True)
class Hypervisor:
    """Libvirt and the emulators of a host."""

    versions: Versions
    domain_capabilities: tuple[DomainCapabilities, ...] = ()
    refusals: tuple[str, ...] = ()  # a sentence on each option whose value libvirt refuses on this host


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """All facts about one host at one moment."""

    hostname: str  # virConnectGetHostname: the name of the root provider
    hypervisor: Hypervisor
    cpu: Cpu
    cpu_map: CpuMap
    cells: tuple[NumaCell, ...]  # lowest id first; empty where libvirt lists none
    disk: DiskFacts
    devices: Devices = Devices()
    guests: tuple[Guest, ...] = ()  # every domain, by uuid
    boot: str | None = None  # the kernel's boot id (random(4)); None: unknown
    product: str = ""  # uuid of the machine, by libvirt; empty: unknown
    whole_memory_mib: int | None = None  # virNodeGetInfo's; None: not known; or not asked, as the cells have the memory
    offline_cpus: tuple[tuple[int, int], ...] = ()  # (CPU, cell) of CPUs that libvirt's topology lacks, as offline ones

    @property
    def disk_unread(self) -> tuple[str, ...]:
        """One sentence if what has the disks of guests did not answer; empty: it did."""
        return (f"DISK_GB cannot be read: {self.disk.because}",) if isinstance(self.disk, DiskUnread) else ()


@dataclass(frozen=True, slots=True)
class ServiceSigns:
    """What shows that another service runs on this host, or will be started; both empty: nothing does."""

    processes: tuple[int, ...] = ()  # process ids, lowest first
    units: tuple[str, ...] = ()  # names of systemd units that are enabled, sorted
    hidden: bool = False  # True: there are processes that this user may not see

    @property
    def any(self) -> bool:
        """Whether there is a sign."""
        return bool(self.processes or self.units)
