"""
Shapes the layouts cells and numa: a provider for each cell, with the cell's pools of pages and devices below it.

In the layout cells the small pages are stock of the cell itself, and only huge pages have providers.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from drivers.by_suffix import BySuffix
from drivers.cells import apportion, cpus_by_cell, page_mib, reserved_cells, reserved_mib, small_page_kib
from drivers.devices.inventories import DeviceStock
from drivers.errors import PolicyError
from drivers.facts import HostFacts, NumaCell
from drivers.host.parse import format_cpu_set
from drivers.libvirt.host_inventories import (
    FIXED,
    MARK,
    Entry,
    device_provider,
    guest_cpus,
    kept_text,
    one_class,
    refuse_reserve,
    reserved_cells_text,
    with_cpus,
)
from drivers.policy import Policy
from drivers.reasons import Reason, Reasoned
from reportclient.names import CELL, PAGES


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
    memory = _Memory(pools, reserved_mib(facts, pools, policy)[0], reserved_cells(facts, policy))
    providers: list[Reasoned] = []
    for cell in facts.cells:
        place = Reason(f"libvirt's capabilities: cell {cell.id}", f"[compute] layout = {policy.layout}")
        own, pages = _memory_of(cell, memory, root, policy, standing)
        stock = {**cpus[cell.id], **own}
        if stock or pages or any(device.cell == cell.id for device in devices):
            traits = {CELL: place, **MARK}
            providers.append(Reasoned(name=f"{root}_NUMA{cell.id}", parent=root, inventories=stock, traits=traits))
        providers += pages
    for device in devices:
        providers.append(device_provider(device, root, names.get(device.cell, root)))
    return cpus[None], providers


@dataclass(frozen=True, slots=True)
class _Memory:
    """The memory of a host, by (cell, page size in KiB)."""

    mib: Mapping[tuple[int, int], int]
    reserved_mib: Mapping[tuple[int, int], int]
    whole: frozenset[int]  # cells whose memory is all kept from guests


def _memory_of(
    cell: NumaCell, memory: _Memory, root: str, policy: Policy, standing: BySuffix
) -> tuple[dict[str, Entry], list[Reasoned]]:
    """
    Return the MEMORY_MB of a cell itself, in the layout cells that of its small pages, and the providers of its pages.

    The ratio of small pages is the same on the cell and on a provider of their own. Huge pages cannot be overcommitted.
    """
    name, own = f"NUMA{cell.id}", dict[str, Entry]()
    providers: list[Reasoned] = []
    for size_kib, mib in ((size, mib) for (id_, size), mib in memory.mib.items() if id_ == cell.id):
        is_small, suffix = size_kib == small_page_kib(cell), f"{name}_PAGES_{size_kib}"
        fact = f"libvirt's capabilities: {mib} MiB in pages of {size_kib} KiB in cell {cell.id}"
        kept_mib = memory.reserved_mib.get((cell.id, size_kib), 0)
        rule = kept_text(kept_mib, "memory_mb or reserved_huge_pages, in pages of this size")
        reason = Reason(fact, reserved_cells_text(policy) if cell.id in memory.whole else rule)
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
    found: dict[int | None, dict[str, Entry]] = {None: {}, **{id_: {} for id_ in cells}}
    for name, wanted, reserved, ratio in (
        ("VCPU", cpus.shared, policy.cpus.reserved, policy.ratios.cpu),
        ("PCPU", cpus.dedicated, 0, FIXED),
    ):
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
            refuse_reserve(name, len(wanted), reserved)
        shares = apportion(reserved, {-1: len(homeless), **{id_: len(ids) for id_, ids in placed.items()}})
        for id_, ids in [(None, homeless), *placed.items()]:
            suffix, share = ("", shares[-1]) if id_ is None else (f"NUMA{id_}", shares[id_])
            reason = with_cpus(cpus.because[name], ids)
            found[id_] |= one_class(name, len(ids), share, ratio, standing, suffix, reason=reason)
    return found
