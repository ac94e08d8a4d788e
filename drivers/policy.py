"""What the operator wants, typed; built by ``agent.settings.read`` from options that carry nova's names."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from drivers.pci import PciAddress

Layout = Literal["flat", "devices", "numa"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuPolicy:
    """Which CPUs guests may use; a set of None means: the operator named none."""

    shared: frozenset[int] | None = None
    shared_option: str = "[compute] cpu_shared_set"  # the option that named ``shared``, for messages
    dedicated: frozenset[int] | None = None
    reserved: int = 0  # of the shared ones, for the host itself
    power_management: bool = False  # nova switches unused dedicated CPUs off, so offline ones count


@dataclass(frozen=True, slots=True)
class Ratio:
    """An allocation ratio: configured, else what placement already has, else the initial one."""

    initial: float
    configured: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestPolicy:
    """How guests are run; decides which traits the host can promise."""

    virt_type: Literal["kvm", "qemu"] = "kvm"
    cpu_mode: Literal["host-model", "host-passthrough", "custom", "none"] | None = None
    cpu_models: tuple[str, ...] = ()
    cpu_flags: Mapping[str, bool] = field(default_factory=dict)  # feature -> wanted (True) or taken away
    machine_types: Mapping[str, str] = field(default_factory=dict)  # arch -> default machine type
    tpm: bool = False
    tpm_secret_security: tuple[str, ...] = ("user", "host", "deployment")
    excluded_image_types: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRule:
    """
    One rule of ``[pci] device_spec``: which PCI functions it is about, and how these are offered.

    Ids are four lower-case hex digits; None matches any. Of an address each part is matched by a pattern of its own.
    """

    number: int  # its place among the rules, from 1, for messages
    vendor_id: str | None = None
    product_id: str | None = None
    address: tuple[re.Pattern[str], ...] = ()  # for domain, bus, slot and function as hex digits; empty: any
    exact: PciAddress | None = None  # the one address that is meant; if that is a PF, its VFs are meant too
    resource_class: str | None = None  # None: CUSTOM_PCI_<vendor>_<product>
    class_attribute: str | None = None  # the class comes from this file below the function's folder in sysfs
    traits: frozenset[str] = frozenset()
    physical_network: str | None = None
    one_time_use: bool | None = None  # None: the rule does not say
    live_migratable: bool = False
    bandwidth: "Bandwidth | None" = None


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """What a PF carries, in kbit/s; None: as much as its link."""

    egress_kbps: int | None = None
    ingress_kbps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MdevRule:
    """One of ``[devices] enabled_mdev_types``: where it is offered, as what, and how many at most on the host."""

    type: str
    addresses: frozenset[str] = frozenset()  # PCI addresses or libvirt's names of parents; empty: wherever it can be
    max_instances: int | None = None
    resource_class: str = "VGPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePolicy:
    """Which devices are offered to guests."""

    report: bool = False  # nova's [pci] report_in_placement
    rules: tuple[DeviceRule, ...] = ()
    discover_all: bool = False  # every VF of an SR-IOV NIC, without a rule
    link_bandwidth: bool = False  # of every PF whose VFs are offered, from its link
    mdevs: tuple[MdevRule, ...] = ()


@dataclass(frozen=True, slots=True)
class ReservedPages:
    """Huge pages kept for the host: nova's ``reserved_huge_pages``."""

    cell: int
    size_kib: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Everything about a host that is the operator's to say."""

    layout: Layout = "devices"
    cpus: CpuPolicy = field(default_factory=CpuPolicy)
    guests: GuestPolicy = field(default_factory=GuestPolicy)
    devices: DevicePolicy = field(default_factory=DevicePolicy)
    reserved_pages: tuple[ReservedPages, ...] = ()
    reserved_memory_mib: int = 512
    reserved_disk_mib: int = 0
    cpu_ratio: Ratio = Ratio(4.0)
    ram_ratio: Ratio = Ratio(1.0)
    disk_ratio: Ratio = Ratio(1.0)
    root_traits: frozenset[str] = frozenset()  # listed by the operator: promises of services on this host

    @property
    def free_ratios(self) -> frozenset[str]:
        """The classes whose allocation ratio nobody configured, so that it may be set by hand."""
        ratios = {"VCPU": self.cpu_ratio, "MEMORY_MB": self.ram_ratio, "DISK_GB": self.disk_ratio}
        return frozenset(name for name, ratio in ratios.items() if ratio.configured is None)
