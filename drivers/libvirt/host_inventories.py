"""
Makes the inventories of the host itself, on the root or cell by cell, each with its reason.

In the layouts cells and numa each cell has a provider, with its pools of pages and devices below it. In the layout
cells the small pages are stock of the cell itself, and only huge pages have providers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import isclose

from drivers.by_suffix import BySuffix
from drivers.cells import apportion, cpus_by_cell, page_mib, reserved_cells, reserved_mib, small_page_kib
from drivers.devices.inventories import DeviceStock
from drivers.errors import PolicyError
from drivers.facts import CpuMap, DiskUnread, HostFacts, NumaCell, PoolSpace
from drivers.host.parse import format_cpu_set
from drivers.policy import CpuPolicy, Policy, Ratio
from drivers.pools import GIB, pool_gib
from drivers.reasons import Reason, Reasoned
from reportclient.names import CELL, PAGES
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
RATIO_OPTIONS = {
    "VCPU": "cpu_allocation_ratio",
    "MEMORY_MB": "ram_allocation_ratio",
    "DISK_GB": "disk_allocation_ratio",
}

Entry = tuple[Inventory, Reason]


def guest_cpus(cpu_map: CpuMap, policy: CpuPolicy) -> dict[str, frozenset[int]]:
    """
    Return the CPUs that guests may use, by class: VCPU for floating vCPUs, PCPU for pinned ones.

    Without any configured set all online CPUs are shared; with a dedicated set alone no CPU is shared. CPUs that are
    off do not count, but for dedicated ones with power management.

    Raises:
        PolicyError: a set names a CPU that does not exist.
    """
    shared = policy.shared
    if shared is None:
        shared = cpu_map.online if policy.dedicated is None else frozenset()
    exists = frozenset(range(cpu_map.total))
    switched = exists if policy.power_management else cpu_map.online
    return {
        "VCPU": _counted(shared, exists, cpu_map.online, policy.shared_option),
        "PCPU": _counted(policy.dedicated or frozenset(), exists, switched, DEDICATED_OPTION),
    }


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
        _refuse_reserve(name, total, reserved)
    chosen, option = ratio.configured, RATIO_OPTIONS.get(name, "")
    source = f"by [DEFAULT] {option}"
    if chosen is None:
        stands = standing.ratio(name, *suffixes)
        chosen = ratio.initial if stands is None else stands
        by_hand = "" if isclose(chosen, ratio.initial, rel_tol=1e-5) else ", by hand or an earlier option"
        new = f"by {'' if ratio.is_initial_set else 'the default of '}[DEFAULT] initial_{option}"
        source = new if stands is None else f"as in placement{by_hand}"
    if option:
        reason = Reason(reason.fact, f"{reason.rule}; ratio {source}")
    try:
        stock = Inventory(total=total, reserved=reserved, max_unit=total, step_size=step, allocation_ratio=chosen)
    except ValueError as error:
        raise PolicyError(f"{name} cannot be reported: {error}") from error
    return {name: (stock, reason)}


def _refuse_reserve(name: str, total: int, reserved: int) -> None:
    """
    Refuse a reserve that is larger than the total of its class.

    Raises:
        PolicyError: always.
    """
    option = RESERVE_OPTIONS.get(name, "what is reserved")
    raise PolicyError(f"{reserved} {name} are to be reserved for the host, and it has {total}: lower {option}")


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


def device_provider(stock: DeviceStock, facts: HostFacts, parent: str) -> Reasoned:
    """Return the provider of a device below ``parent``, named after the device; its facts name a cell of several."""
    cells = (
        f"; cell {one.id}{text}"
        for one in facts.cells
        if one.id == stock.cell and (text := _socket_text(one, facts.cells))
    )
    place = next(cells, "")
    return Reasoned(
        name=f"{facts.hostname}_{stock.suffix}",
        parent=parent,
        inventories={
            name: (one, replace(reason, fact=f"{reason.fact}{place}"))
            for name, (one, reason) in stock.inventories.items()
        },
        traits={**stock.traits, **MARK},
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
        of = disk.folder or "the instances"
        place = f"the volume group {disk.volume_group}" if disk.volume_group else f"the file system of {of}"
        total_gib, fact = disk.total_bytes // GIB, f"{place} has {disk.total_bytes} bytes"
        fact += f" ({disk.missing} does not exist)" if disk.missing else ""
        if disk.image_cache_bytes:
            reserved_gib += -(-disk.image_cache_bytes // GIB)
            rule += f", and {disk.image_cache_bytes} bytes for nova's image cache"
    return one_class("DISK_GB", total_gib, reserved_gib, policy.ratios.disk, standing, "", reason=Reason(fact, rule))


def shape_cells(
    facts: HostFacts, policy: Policy, standing: BySuffix, devices: tuple[DeviceStock, ...]
) -> tuple[dict[str, Entry], list[Reasoned]]:
    """
    Return the root's inventories of CPUs without a known cell, and all providers below the root, parents first.

    A cell without CPUs for guests, memory and devices has no provider. A device without a known cell gets its provider
    below the root.

    Raises:
        PolicyError, MalformedFact: as ``drivers.cells``.
    """
    root = facts.hostname
    names: dict[int | None, str] = {cell.id: f"{root}_NUMA{cell.id}" for cell in facts.cells}
    cpus = cpu_stock(facts, policy, standing, cpus_by_cell(facts))
    pools = page_mib(facts.cells)
    kept_mib, whole = reserved_mib(facts, pools, policy)[0], reserved_cells(facts, policy)
    providers: list[Reasoned] = []
    for cell in facts.cells:
        fact = f"libvirt's capabilities: cell {cell.id}{_socket_text(cell, facts.cells)}"
        place = Reason(fact, f"[compute] layout = {policy.layout}")
        parts = {size: (mib, kept_mib.get((id_, size), 0)) for (id_, size), mib in pools.items() if id_ == cell.id}
        own, pages = _memory_of(cell, parts, root, policy, standing, whole=cell.id in whole)
        stock = {**cpus[cell.id], **own}
        if stock or pages or any(device.cell == cell.id for device in devices):
            traits = {CELL: place, **MARK}
            providers.append(Reasoned(name=f"{root}_NUMA{cell.id}", parent=root, inventories=stock, traits=traits))
        providers += pages
    for device in devices:
        providers.append(device_provider(device, facts, names.get(device.cell, root)))
    return cpus[None], providers


def _socket_text(cell: NumaCell, cells: Iterable[NumaCell]) -> str:
    """Return the cells of a cell's socket, where it has several (SNC, NPS4); empty: it has one, or several sockets."""
    alike = format_cpu_set(frozenset(one.id for one in cells if one.sockets == cell.sockets))
    return (
        f", of the cells {alike} of socket {min(cell.sockets)}"
        if len(cell.sockets) == 1 and alike != str(cell.id)
        else ""
    )


def _memory_of(
    cell: NumaCell, parts: Mapping[int, tuple[int, int]], root: str, policy: Policy, standing: BySuffix, *, whole: bool
) -> tuple[dict[str, Entry], list[Reasoned]]:
    """
    Return the MEMORY_MB of a cell itself, in the layout cells that of its small pages, and the providers of its pages.

    ``parts`` are (MiB, MiB kept from guests) by page size in KiB; ``whole``: the cell is kept from guests. The ratio of
    small pages is the same on the cell and on a provider of their own. Huge pages cannot be overcommitted.
    """
    name, own = f"NUMA{cell.id}", dict[str, Entry]()
    providers: list[Reasoned] = []
    for size_kib, (mib, kept_mib) in parts.items():
        is_small, suffix = size_kib == small_page_kib(cell), f"{name}_PAGES_{size_kib}"
        fact = f"libvirt's capabilities: {mib} MiB in pages of {size_kib} KiB in cell {cell.id}"
        rule = kept_text(kept_mib, "memory_mb or reserved_huge_pages, in pages of this size")
        if kept_mib and is_small and cell.id in policy.reserved_cell_mib:
            rule = f"{kept_mib} MiB kept by [agent] reserved_cell_memory, of [DEFAULT] reserved_host_memory_mb"
        reason = Reason(fact, reserved_cells_text(policy) if whole else rule)
        ratio, step = policy.ratios.ram if is_small else FIXED, max(1, size_kib // 1024)
        places = (name, suffix) if policy.layout == "cells" else (suffix, name)
        stock = one_class("MEMORY_MB", mib, kept_mib, ratio, standing, *places, reason=reason, step=step)
        if is_small and policy.layout == "cells":
            own = stock
            continue
        kinds = f"{PAGES}{size_kib}", f"{PAGES}SMALL" if is_small else f"{PAGES}LARGE"
        traits = {**dict.fromkeys(kinds, Reason(fact, f"[compute] layout = {policy.layout}")), **MARK}
        providers.append(Reasoned(name=f"{root}_{suffix}", parent=f"{root}_{name}", inventories=stock, traits=traits))
    return own, providers


def cpu_stock(
    facts: HostFacts, policy: Policy, standing: BySuffix, cells: Mapping[int, frozenset[int]]
) -> dict[int | None, dict[str, Entry]]:
    """
    Return VCPU and PCPU by cell; under None those of CPUs without a known cell, which are all where ``cells`` is empty.

    Raises:
        PolicyError: as ``guest_cpus`` and ``one_class``, or a CPU that is off is in none of the cells.
    """
    cpus = guest_cpus(facts.cpu_map, policy.cpus)
    online = f"libvirt's CPU map: {format_cpu_set(facts.cpu_map.online)} online"
    unset = "no CPU set is configured, so all online CPUs are shared"
    shared_rule = unset if policy.cpus.shared is None else policy.cpus.shared_option
    found: dict[int | None, dict[str, Entry]] = {None: {}, **{id_: {} for id_ in cells}}
    for name, reserved, ratio, rule in (
        ("VCPU", policy.cpus.reserved, policy.ratios.cpu, shared_rule),
        ("PCPU", 0, FIXED, DEDICATED_OPTION),
    ):
        wanted = cpus[name]
        placed = {id_: wanted & every for id_, every in cells.items()}
        homeless = wanted - frozenset().union(*placed.values())
        off = homeless - facts.cpu_map.online
        if cells and off:  # one would move to its cell when a guest switches it on
            raise PolicyError(
                f"[compute] cpu_dedicated_set names CPU {format_cpu_set(off)}, which is off, and neither libvirt nor "
                f"the kernel (/sys/devices/system/cpu/cpu{min(off)}/node*) says in which NUMA cell it is: switch it "
                f"on, take it out of the set, or use [compute] layout = devices"
            )
        if cells and reserved > len(wanted):
            _refuse_reserve(name, len(wanted), reserved)
        shares = apportion(reserved, {-1: len(homeless), **{id_: len(ids) for id_, ids in placed.items()}})
        for id_, ids in [(None, homeless), *placed.items()]:
            suffix, share = ("", shares[-1]) if id_ is None else (f"NUMA{id_}", shares[id_])
            reason = Reason(f"{online}; counted here: {format_cpu_set(ids)}", rule)
            found[id_] |= one_class(name, len(ids), share, ratio, standing, suffix, reason=reason)
    return found
