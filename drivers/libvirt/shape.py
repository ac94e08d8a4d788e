"""A libvirt host's facts and the operator's policy, shaped into the provider tree that it should have."""

from collections.abc import Mapping

from drivers.errors import MalformedFact, PolicyError
from drivers.facts import CpuMap, DiskSpace, HostFacts
from drivers.host.parse import format_cpu_set
from drivers.libvirt.traits import emitted_traits, root_traits
from drivers.policy import CpuPolicy, Policy, Ratio
from reportclient.ownership import MARKER, Names
from reportclient.tree import Inventory, ObservedTree, Provider, ProviderTree

GIB = 1024**3

EMITTED = Names(frozenset({"VCPU", "PCPU", "MEMORY_MB", "DISK_GB"}), emitted_traits() | {MARKER})


def shape(facts: HostFacts, policy: Policy, observed: ObservedTree | None) -> ProviderTree:
    """
    The tree of one host.

    Raises:
        PolicyError: the policy names CPUs that are not online here, or reserves more than there is.
    """
    root = observed.root if observed else None
    standing = root.provider.inventories if root else {}
    if not facts.cpu_map.online:
        raise MalformedFact(f"libvirt tells of no online CPU on {facts.hostname}")
    vcpus, pcpus = guest_cpus(facts.cpu_map, policy.cpus)
    memory_mib = sum(cell.memory_kib for cell in facts.cells) // 1024
    inventories = {
        "VCPU": _stock("VCPU", vcpus, policy.cpus.reserved, policy.cpu_ratio, standing),
        "PCPU": _stock("PCPU", pcpus, 0, Ratio(1.0, 1.0), standing),
        "MEMORY_MB": _stock("MEMORY_MB", memory_mib, policy.reserved_memory_mib, policy.ram_ratio, standing),
        "DISK_GB": _disk(facts.disk, policy, standing),
    }
    return ProviderTree(
        (
            Provider(
                name=facts.hostname,
                inventories={name: stock for name, stock in inventories.items() if stock},
                traits=root_traits(facts, policy.guests) | policy.root_traits | {MARKER},
            ),
        )
    )


def guest_cpus(cpu_map: CpuMap, policy: CpuPolicy) -> tuple[int, int]:
    """
    How many CPUs there are for floating (VCPU) and for pinned guests (PCPU).

    Without any set all online CPUs are shared; with a dedicated set alone none is.

    Raises:
        PolicyError: a set names a CPU that is not online.
    """
    shared = policy.shared
    if shared is None:
        shared = cpu_map.online if policy.dedicated is None else frozenset()
    _check_online(shared, cpu_map.online, policy.shared_option)
    exists = frozenset(range(cpu_map.total)) if policy.power_management else cpu_map.online
    _check_online(policy.dedicated or frozenset(), exists, "[compute] cpu_dedicated_set")
    return len(shared), len(policy.dedicated or ())


def _check_online(named: frozenset[int], online: frozenset[int], option: str) -> None:
    if missing := named - online:
        raise PolicyError(
            f"{option} names CPU {format_cpu_set(missing)}, and online here are "
            f"{format_cpu_set(online)}: bring it online or take it out of the set"
        )


def _disk(disk: DiskSpace, policy: Policy, standing: Mapping[str, Inventory]) -> Inventory | None:
    reserved_gib = -(-policy.reserved_disk_mib // 1024)
    return _stock("DISK_GB", disk.total_bytes // GIB, reserved_gib, policy.disk_ratio, standing)


def _stock(name: str, total: int, reserved: int, ratio: Ratio, standing: Mapping[str, Inventory]) -> Inventory | None:
    """One class's inventory; None when there is none of it, as placement takes no total of 0."""
    if total == 0:
        return None
    if reserved > total:
        raise PolicyError(
            f"{reserved} {name} are to be reserved for the host, and it has {total}: lower the reserved_host_ option"
        )
    stands = standing.get(name)
    kept = stands.allocation_ratio if stands else ratio.initial
    chosen = kept if ratio.configured is None else ratio.configured
    try:
        return Inventory(total=total, reserved=reserved, max_unit=total, allocation_ratio=chosen)
    except ValueError as error:
        raise PolicyError(f"{name} cannot be reported: {error}") from error
