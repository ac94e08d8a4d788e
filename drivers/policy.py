"""Values of the operator's options; ``agent.settings.read`` builds them from options that carry nova's names."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from drivers.pci import PciAddress

Layout = Literal["flat", "devices", "cells", "numa"]
WITHOUT_CPUS: Literal["without_cpus"] = "without_cpus"
ReservedCells = frozenset[int] | Literal["without_cpus"]  # ids of NUMA cells
OF_CELLS: tuple[Layout, ...] = ("cells", "numa")  # layouts with a provider for each NUMA cell


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuPolicy:
    """Which CPUs guests may use; None for a set means that its option is not set."""

    shared: frozenset[int] | None = None
    shared_option: str = "[compute] cpu_shared_set"  # the option that named ``shared``, for messages
    dedicated: frozenset[int] | None = None
    reserved: int = 0  # number of shared CPUs kept for the host itself
    power_management: bool = False  # nova switches unused dedicated CPUs off, so offline ones count

    def off(self, online: frozenset[int]) -> frozenset[int]:
        """Return the dedicated CPUs that do not count, as they are off."""
        return frozenset() if self.power_management else (self.dedicated or frozenset()) - online


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancesFolder:
    """The folder that has the disks of guests, on a file system of this host."""

    instances: Path  # nova's folder of instances
    may_be_missing: bool = False  # the folder is a default, and nova may not have made it yet
    image_cache: Path | None = None  # nova's folder of cached images, if what they occupy is to be reserved


@dataclass(frozen=True, slots=True)
class VolumeGroup:
    """The volume group of LVM that has the disks of guests."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CephPool:
    """The pool of a Ceph cluster that has the disks of guests."""

    name: str
    config: str = ""  # file of Ceph's configuration; empty: where Ceph looks for it
    user: str | None = None  # without "client." before it; None: Ceph's own choice
    timeout_s: int = 5  # for the cluster's answer


DiskPlace = InstancesFolder | VolumeGroup | CephPool


@dataclass(frozen=True, slots=True)
class Ratio:
    """An allocation ratio: the configured one, else the one that placement has, else the initial one."""

    initial: float
    configured: float | None = None
    is_initial_set: bool = False  # False: the initial one is the option's default


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """Allocation ratios of CPUs, memory and disk."""

    cpu: Ratio = Ratio(4.0)
    ram: Ratio = Ratio(1.0)
    disk: Ratio = Ratio(1.0)

    @property
    def free(self) -> frozenset[str]:
        """Classes whose allocation ratio is not configured, so that people may set it in placement."""
        ratios = {"VCPU": self.cpu, "MEMORY_MB": self.ram, "DISK_GB": self.disk}
        return frozenset(name for name, ratio in ratios.items() if ratio.configured is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestPolicy:
    """How guests are run, which decides the traits of the host."""

    virt_type: Literal["kvm", "qemu"] = "kvm"
    cpu_mode: Literal["host-model", "host-passthrough", "custom", "none"] | None = None
    cpu_models: tuple[str, ...] = ()
    cpu_flags: Mapping[str, bool] = field(default_factory=dict)  # feature -> added (True) or removed (False)
    machine_types: Mapping[str, str] = field(default_factory=dict)  # arch -> default machine type
    tpm: bool = False
    tpm_secret_security: tuple[str, ...] = ("user", "host", "deployment")
    excluded_image_types: frozenset[str] = frozenset()
    # option of [libvirt] -> FILE:LINE, for messages
    places: Mapping[str, str] = field(default_factory=dict, compare=False)

    def place(self, option: str) -> str:
        """Return where an option of ``[libvirt]`` is set, as the beginning of a message; empty: nowhere."""
        return f"{self.places[option]}: " if option in self.places else ""


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bandwidth of a PF in kbit/s; None: the speed of its link."""

    egress_kbps: int | None = None
    ingress_kbps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RulePlace:
    """Where a rule looks for devices; each part of an address has its own pattern."""

    address: tuple[re.Pattern[str], ...] = ()  # of domain, bus, slot and function in hex digits; empty: any
    exact: PciAddress | None = None  # the only address that matches; for a PF, its VFs match too
    interface: str | None = None  # of a rule by devname, which counts for nothing: the name of a network interface


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleNetwork:
    """What a rule offers Neutron's networks."""

    name: str | None = None  # of the physical network; None: the devices are not Neutron's
    bandwidth: Bandwidth | None = None  # of the PF; None: not in the rule


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRule:
    """
    One rule of ``[pci] device_spec``: the PCI functions that it matches, and how these are offered.

    Ids are four lower-case hex digits; None matches any.
    """

    number: int  # position among the rules, from 1, for messages
    vendor_id: str | None = None
    product_id: str | None = None
    place: RulePlace = RulePlace()
    resource_class: str | None = None  # None: CUSTOM_PCI_<vendor>_<product>
    class_attribute: str | None = None  # file below the function's folder in sysfs that gives the class; None: no file
    traits: frozenset[str] = frozenset()
    network: RuleNetwork = RuleNetwork()
    one_time_use: bool | None = None  # None: not in the rule
    live_migratable: bool = False
    remote_managed: bool = False  # VFs that are set up on the card itself (a SmartNIC): only those of a known card

    @property
    def novas(self) -> bool:
        """Whether nova reports these devices too: not those of Neutron's networks, nor those of our own key."""
        return self.network.name is None and self.class_attribute is None


@dataclass(frozen=True, slots=True, kw_only=True)
class MdevRule:
    """One of ``[devices] enabled_mdev_types``: its cards, its resource class, and its limit on this host."""

    type: str
    addresses: frozenset[str] = frozenset()  # cards, by PCI address or libvirt's name; empty: all that have the type
    max_instances: int | None = None  # on this host; None: no limit
    resource_class: str = "VGPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePolicy:
    """Which devices are offered to guests."""

    report: bool = False  # nova's [pci] report_in_placement
    rules: tuple[DeviceRule, ...] = ()
    discover_all: bool = False  # offer every VF of an SR-IOV NIC, without a rule
    link_bandwidth: bool = False  # report the bandwidth of every PF whose VFs are offered, from its link
    mdevs: tuple[MdevRule, ...] = ()
    pmem: Mapping[str, str] = field(default_factory=dict)  # name of a namespace of persistent memory -> its class
    tdx: bool = False  # guests see the host's own CPU, which Intel TDX needs
    tdx_guests: int | None = None  # of Intel TDX, at most so many; None: as many as the kernel says


@dataclass(frozen=True, slots=True)
class ReservedPages:
    """Huge pages kept for the host: nova's ``reserved_huge_pages``."""

    cell: int
    size_kib: int
    count: int


FOUND = "sharing"  # of ``DiskPolicy.shared``: this host's Ceph pool, or the only storage that its aggregates give it


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskPolicy:
    """How much of the disks of guests is reported, and on which provider."""

    reserved_mib: int = 0
    by_pool: bool = False  # of a Ceph cluster, report what its pool can hold, and not all that the cluster has
    shared: str = ""  # provider that guests' disks are counted on: name, uuid or FOUND; empty: the root
    reports_pool: bool = False  # this agent reports the provider of its Ceph pool too


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The operator's decisions about one host."""

    layout: Layout = "devices"
    cpus: CpuPolicy = field(default_factory=CpuPolicy)
    guests: GuestPolicy = field(default_factory=GuestPolicy)
    devices: DevicePolicy = field(default_factory=DevicePolicy)
    reserved_pages: tuple[ReservedPages, ...] = ()
    file_backed_mib: int = 0  # memory of guests that is in files; 0: it is the host's own
    reserved_memory_mib: int = 512
    reserved_cell_mib: Mapping[int, int] = field(default_factory=dict)  # of these, by cell
    # cells whose memory is kept from guests; None: as drivers/cells.py says for the layout
    reserved_cells: ReservedCells | None = None
    disk: DiskPolicy = field(default_factory=DiskPolicy)
    ratios: Ratios = field(default_factory=Ratios)
    root_traits: frozenset[str] = frozenset()  # traits that the operator lists, for services on this host
