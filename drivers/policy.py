"""What the operator wants, typed; built by ``agent.config`` from options that carry nova's names."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

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
class Policy:
    """Everything about a host that is the operator's to say."""

    layout: Layout = "devices"
    cpus: CpuPolicy = field(default_factory=CpuPolicy)
    guests: GuestPolicy = field(default_factory=GuestPolicy)
    reserved_memory_mib: int = 512
    reserved_disk_mib: int = 0
    cpu_ratio: Ratio = Ratio(4.0)
    ram_ratio: Ratio = Ratio(1.0)
    disk_ratio: Ratio = Ratio(1.0)
    root_traits: frozenset[str] = frozenset()  # listed by the operator: promises of services on this host
