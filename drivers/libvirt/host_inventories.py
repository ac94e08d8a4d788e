"""Makes the inventories of the host itself, with that of its disk, each with its reason."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from drivers.by_suffix import BySuffix
from drivers.devices.inventories import DeviceStock
from drivers.errors import PolicyError
from drivers.facts import CpuMap, DiskUnread, HostFacts, PoolSpace
from drivers.host.parse import format_cpu_set
from drivers.policy import CpuPolicy, Policy, Ratio
from drivers.pools import GIB, pool_gib
from drivers.reasons import Reason, Reasoned
from reportclient.ownership import MARKER
from reportclient.tree import Inventory

FIXED = Ratio(1.0, 1.0)  # for resources that cannot be overcommitted
DEDICATED_OPTION = "[compute] cpu_dedicated_set"
MARK = {MARKER: Reason("this agent wrote the provider", "the agent marks every provider that it writes")}
RESERVE_OPTIONS = {
    "VCPU": "[DEFAULT] reserved_host_cpus",
    "MEMORY_MB": "[DEFAULT] reserved_host_memory_mb",
    "DISK_GB": "[DEFAULT] reserved_host_disk_mb",
}

Entry = tuple[Inventory, Reason]


@dataclass(frozen=True, slots=True)
class GuestCpus:
    """The CPUs that guests may use, and the reasons."""

    shared: frozenset[int]  # for floating vCPUs: VCPU
    dedicated: frozenset[int]  # for pinned vCPUs: PCPU
    because: Mapping[str, Reason]  # by resource class


def guest_cpus(cpu_map: CpuMap, policy: CpuPolicy) -> GuestCpus:
    """
    Return the CPUs for floating vCPUs (VCPU) and for pinned vCPUs (PCPU).

    Without any configured set all online CPUs are shared; with a dedicated set alone no CPU is shared. CPUs that are
    off do not count, but for dedicated ones with power management.

    Raises:
        PolicyError: a set names a CPU that does not exist.
    """
    shared, rule = policy.shared, policy.shared_option
    if shared is None:
        shared = cpu_map.online if policy.dedicated is None else frozenset()
        rule = "no CPU set is configured, so all online CPUs are shared"
    exists = frozenset(range(cpu_map.total))
    shared = _counted(shared, exists, cpu_map.online, policy.shared_option)
    switched = exists if policy.power_management else cpu_map.online
    dedicated = _counted(policy.dedicated or frozenset(), exists, switched, DEDICATED_OPTION)
    online = f"libvirt's CPU map: {format_cpu_set(cpu_map.online)} online"
    because = {"VCPU": Reason(online, rule), "PCPU": Reason(online, DEDICATED_OPTION)}
    return GuestCpus(shared, dedicated, because)


def _counted(named: frozenset[int], exists: frozenset[int], online: frozenset[int], option: str) -> frozenset[int]:
    """Return those of the named CPUs that are online; errors as ``guest_cpus``."""
    if missing := named - exists:
        raise PolicyError(
            f"{option} names CPU {format_cpu_set(missing)}, but only {format_cpu_set(online)} are online on "
            f"this host: bring CPU {format_cpu_set(missing)} online or take it out of the set"
        )
    return named & online


def cpus_off(cpu_map: CpuMap, policy: CpuPolicy) -> tuple[str, ...]:
    """Return a sentence on the CPUs of each set that are off and do not count."""
    sets = {
        policy.shared_option: (policy.shared or frozenset()) - cpu_map.online,
        DEDICATED_OPTION: policy.off(cpu_map.online),
    }
    return tuple(
        f"{option} names CPU {format_cpu_set(off)}, off on this host: bring CPU {format_cpu_set(off)} online or take "
        f"it out of the set"
        for option, off in sets.items()
        if off
    )


def one_class(
    name: str,
    total: int,
    reserved: int,
    ratio: Ratio,
    standing: BySuffix,
    *suffixes: str,
    reason: Reason,
    step: int = 1,
) -> dict[str, Entry]:
    """
    Return the inventory of one class with its reason; empty for a total of 0, which placement refuses.

    Without a configured ratio, the one in placement is kept; a new inventory gets the initial one. ``suffixes`` are of
    the provider, and then of the one that has the same stock in another layout.

    Raises:
        PolicyError: more is reserved than there is, or placement would refuse the inventory.
    """
    if total == 0:
        return {}
    if reserved > total:
        refuse_reserve(name, total, reserved)
    chosen = ratio.configured
    if chosen is None:
        stands = standing.ratio(name, *suffixes)
        chosen = ratio.initial if stands is None else stands
    try:
        stock = Inventory(total=total, reserved=reserved, max_unit=total, step_size=step, allocation_ratio=chosen)
    except ValueError as error:
        raise PolicyError(f"{name} cannot be reported: {error}") from error
    return {name: (stock, reason)}


def refuse_reserve(name: str, total: int, reserved: int) -> None:
    """
    Refuse a reserve that is larger than the total of its class.

    Raises:
        PolicyError: always.
    """
    option = RESERVE_OPTIONS.get(name, "what is reserved")
    raise PolicyError(f"{reserved} {name} are to be reserved for the host, and it has {total}: lower {option}")


def with_cpus(reason: Reason, cpus: frozenset[int]) -> Reason:
    """Return the reason with the counted CPUs added."""
    return replace(reason, fact=f"{reason.fact}; counted here: {format_cpu_set(cpus)}")


def kept_text(amount: int, option: str) -> str:
    """Return a text that says how much ``[DEFAULT] reserved_host_<option>`` keeps for the host."""
    return f"{amount} MiB kept for the host by [DEFAULT] reserved_host_{option}"


def reserved_cells_text(policy: Policy) -> str:
    """Return the rule by which the memory of a cell is reserved whole."""
    if policy.reserved_cells is None:
        return (
            f"a cell without CPUs is reserved whole in the layout {policy.layout}, as [agent] reserved_cells is not set"
        )
    return "the cell is reserved whole by [agent] reserved_cells"


def device_provider(stock: DeviceStock, root: str, parent: str) -> Reasoned:
    """Return the provider of a device below ``parent``, named after the device."""
    return Reasoned(
        name=f"{root}_{stock.suffix}", parent=parent, inventories=stock.inventories, traits={**stock.traits, **MARK}
    )


def disk_stock(facts: HostFacts, policy: Policy, standing: BySuffix) -> dict[str, Entry]:
    """
    Return DISK_GB in whole GiB, rounded down; each reserved amount is rounded up. Empty where there is nothing.

    What did not answer has what it has in placement. A storage that is shared has a provider of its own.
    """
    disk = facts.disk
    if policy.disk.shared:
        return {}
    before = standing.stock("").get("DISK_GB")
    if isinstance(disk, DiskUnread):
        return {"DISK_GB": (before, Reason(disk.because, "what placement has stays"))} if before else {}
    reserved_gib, rule = -(-policy.disk.reserved_mib // 1024), kept_text(policy.disk.reserved_mib, "disk_mb")
    if isinstance(disk, PoolSpace):
        total_gib, fact = pool_gib(disk, before, by_pool=policy.disk.by_pool)
    else:
        place = f"the volume group {disk.volume_group}" if disk.volume_group else "the file system of the instances"
        total_gib, fact = disk.total_bytes // GIB, f"{place} has {disk.total_bytes} bytes"
        if disk.image_cache_bytes:
            reserved_gib += -(-disk.image_cache_bytes // GIB)
            rule += f", and {disk.image_cache_bytes} bytes for nova's image cache"
    return one_class("DISK_GB", total_gib, reserved_gib, policy.ratios.disk, standing, "", reason=Reason(fact, rule))
