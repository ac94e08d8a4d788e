"""The stock of a host's own: CPUs, memory and disk, class by class, with the reason for each."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from drivers.devices.stock import DeviceStock
from drivers.errors import PolicyError
from drivers.facts import CpuMap, HostFacts
from drivers.host.parse import format_cpu_set
from drivers.policy import CpuPolicy, Policy, Ratio
from drivers.reasons import Reason, Reasoned
from drivers.standing import Standing
from reportclient.ownership import MARKER
from reportclient.tree import Inventory

GIB = 1024**3
FIXED = Ratio(1.0, 1.0)  # of what cannot be overcommitted
MARK = {MARKER: Reason("this agent wrote the provider", "every provider that we write carries our mark")}

Entry = tuple[Inventory, Reason]


@dataclass(frozen=True, slots=True)
class GuestCpus:
    """The CPUs of floating and of pinned guests, and why these."""

    shared: frozenset[int]
    dedicated: frozenset[int]
    because: Mapping[str, Reason]  # by resource class


def guest_cpus(cpu_map: CpuMap, policy: CpuPolicy) -> GuestCpus:
    """
    Which CPUs there are for floating (VCPU) and for pinned guests (PCPU).

    Without any set all online CPUs are shared; with a dedicated set alone none is.

    Raises:
        PolicyError: a set names a CPU that is not online.
    """
    shared, rule = policy.shared, policy.shared_option
    if shared is None:
        shared = cpu_map.online if policy.dedicated is None else frozenset()
        rule = "no CPU set is configured, so all online CPUs are shared"
    _check_online(shared, cpu_map.online, policy.shared_option)
    exists = frozenset(range(cpu_map.total)) if policy.power_management else cpu_map.online
    dedicated = policy.dedicated or frozenset()
    _check_online(dedicated, exists, "[compute] cpu_dedicated_set")
    online = f"libvirt's CPU map: {format_cpu_set(cpu_map.online)} online"
    because = {"VCPU": Reason(online, rule), "PCPU": Reason(online, "[compute] cpu_dedicated_set")}
    return GuestCpus(shared, dedicated, because)


def _check_online(named: frozenset[int], online: frozenset[int], option: str) -> None:
    if missing := named - online:
        raise PolicyError(
            f"{option} names CPU {format_cpu_set(missing)}, and online here are "
            f"{format_cpu_set(online)}: bring it online or take it out of the set"
        )


def disk_stock(facts: HostFacts, policy: Policy, standing: Standing) -> dict[str, tuple[Inventory | None, Reason]]:
    """DISK_GB of the root: whole GiB of the instances' file system, what is reserved rounded up."""
    reserved_gib = -(-policy.reserved_disk_mib // 1024)
    total = facts.disk.total_bytes
    reason = Reason(
        f"the file system of the instances has {total} bytes", kept_text(policy.reserved_disk_mib, "disk_mb")
    )
    return {"DISK_GB": (one_class("DISK_GB", total // GIB, reserved_gib, policy.disk_ratio, standing, ""), reason)}


def one_class(
    name: str, total: int, reserved: int, ratio: Ratio, standing: Standing, suffix: str, *, step: int = 1
) -> Inventory | None:
    """One class's inventory; None when there is none of it, as placement takes no total of 0."""
    if total == 0:
        return None
    if reserved > total:
        refuse_reserve(name, total, reserved)
    chosen = ratio.configured
    if chosen is None:
        stands = standing.ratio(suffix, name)
        chosen = ratio.initial if stands is None else stands
    try:
        return Inventory(total=total, reserved=reserved, max_unit=total, step_size=step, allocation_ratio=chosen)
    except ValueError as error:
        raise PolicyError(f"{name} cannot be reported: {error}") from error


def refuse_reserve(name: str, total: int, reserved: int) -> None:
    """
    Raises:
        PolicyError: always; more is to be reserved than there is.
    """
    raise PolicyError(
        f"{reserved} {name} are to be reserved for the host, and it has {total}: lower the reserved_host_ option"
    )


def present_only(stock: Mapping[str, tuple[Inventory | None, Reason]]) -> dict[str, Entry]:
    """Without the classes of which there is nothing."""
    return {name: (inventory, reason) for name, (inventory, reason) in stock.items() if inventory}


def with_cpus(reason: Reason, cpus: frozenset[int]) -> Reason:
    """The same reason, with the CPUs that were counted."""
    return replace(reason, fact=f"{reason.fact}; counted here: {format_cpu_set(cpus)}")


def kept_text(amount: int, option: str) -> str:
    """What an option of nova\'s keeps for the host."""
    return f"{amount} MiB kept for the host by [DEFAULT] reserved_host_{option}"


def device_provider(stock: DeviceStock, root: str, parent: str) -> Reasoned:
    """A provider of devices below ``parent``, called after its device."""
    return Reasoned(
        name=f"{root}_{stock.suffix}", parent=parent, inventories=stock.inventories, traits={**stock.traits, **MARK}
    )
