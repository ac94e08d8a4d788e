"""A host's CPUs and memory divided among its NUMA cells, so that the parts always add up to the whole."""

from collections.abc import Iterable, Mapping

from drivers.errors import MalformedFact, PolicyError
from drivers.facts import HostFacts, MemoryPages, NumaCell
from drivers.policy import ReservedPages

SMALL_PAGE_KIB = 4  # of x86; used where libvirt does not report a cell's page sizes


def apportion(amount: int, weights: Mapping[int, int]) -> dict[int, int]:
    """
    Divide ``amount`` in proportion to ``weights``: largest remainder first, lowest key on a tie.

    No part is larger than its weight as long as ``amount`` is not larger than the sum of the weights. All parts are 0
    where that sum is 0.
    """
    total = sum(weights.values())
    if not total:
        return dict.fromkeys(weights, 0)
    shares = {key: amount * weight // total for key, weight in weights.items()}
    by_remainder = sorted(weights, key=lambda key: (-(amount * weights[key] % total), key))
    for key in by_remainder[: amount - sum(shares.values())]:
        shares[key] += 1
    return shares


def cpus_by_cell(facts: HostFacts) -> dict[int, frozenset[int]]:
    """Return the CPUs of each cell, by cell id: those in libvirt's topology, and others that the kernel lists."""
    return {
        cell.id: frozenset(cpu.id for cpu in cell.cpus) | {cpu for cpu, home in facts.offline_cpus if home == cell.id}
        for cell in facts.cells
    }


def place_cpus(facts: HostFacts, cpus: frozenset[int]) -> tuple[dict[int, frozenset[int]], frozenset[int]]:
    """Return the CPUs of a set by cell id, and those whose cell is unknown."""
    placed = {id_: cpus & all_ for id_, all_ in cpus_by_cell(facts).items()}
    return placed, cpus - frozenset().union(*placed.values())


def memory_mib(cells: Iterable[NumaCell]) -> int:
    """Return the host's memory in MiB: the sum of its cells, rounded down once."""
    return sum(cell.memory_kib for cell in cells) // 1024


def page_mib(cells: tuple[NumaCell, ...]) -> dict[tuple[int, int], int]:
    """
    Return the MiB by (cell, page size in KiB); they add up to ``memory_mib``, and empty pools are left out.

    The remainder of the MiB goes to the lowest cell with memory. Small pages get the memory that huge pages leave.

    Raises:
        MalformedFact: a cell's huge pages exceed its memory.
    """
    whole = {cell.id: cell.memory_kib // 1024 for cell in cells if cell.memory_kib}
    whole[min(whole)] += memory_mib(cells) - sum(whole.values())
    found: dict[tuple[int, int], int] = {}
    for cell in cells:
        if cell.id not in whole:
            continue
        small, *huge = sorted(cell.pages, key=lambda pages: pages.size_kib) or [MemoryPages(SMALL_PAGE_KIB, 0)]
        left = whole[cell.id]
        for pages in huge:
            found[cell.id, pages.size_kib] = pages.total * pages.size_kib // 1024
            left -= found[cell.id, pages.size_kib]
        if left < 0:
            raise MalformedFact(
                f"libvirt reports more huge pages in cell {cell.id} than the cell has memory: see virsh capabilities"
            )
        found[cell.id, small.size_kib] = left
    return {pool: mib for pool, mib in sorted(found.items()) if mib}


def small_page_kib(cell: NumaCell) -> int:
    """Return the size in KiB of a cell's small pages, also where the cell has none left."""
    return min((pages.size_kib for pages in cell.pages), default=SMALL_PAGE_KIB)


def reserved_mib(
    cells: tuple[NumaCell, ...], pools: Mapping[tuple[int, int], int], host_mib: int, pages: Iterable[ReservedPages]
) -> dict[tuple[int, int], int]:
    """
    Return the MiB to keep for the host, by (cell, page size in KiB).

    These are ``host_mib`` of small pages, divided in proportion to each cell's, and the ``pages`` that the operator
    listed. ``pools`` is as ``page_mib`` returns it.

    Raises:
        PolicyError: more is to be kept than there is, or pages that no cell has.
    """
    smallest = {cell.id: small_page_kib(cell) for cell in cells if (cell.id, small_page_kib(cell)) in pools}
    small = {id_: pools[id_, size] for id_, size in smallest.items()}
    if host_mib > sum(small.values()):
        raise PolicyError(
            f"[DEFAULT] reserved_host_memory_mb is {host_mib} MiB, but the small pages of all cells are only "
            f"{sum(small.values())} MiB: lower that option, or allocate fewer huge pages on this host"
        )
    kept = {(id_, smallest[id_]): share for id_, share in apportion(host_mib, small).items()}
    for wish in pages:
        pool = wish.cell, wish.size_kib
        mib = -(-wish.count * wish.size_kib // 1024)
        if mib + kept.get(pool, 0) > pools.get(pool, 0):
            raise PolicyError(
                f"[DEFAULT] reserved_huge_pages keeps {wish.count} pages of {wish.size_kib} KiB in cell {wish.cell}, "
                f"but that cell has {pools.get(pool, 0) * 1024 // wish.size_kib}: lower the count in that option"
            )
        kept[pool] = kept.get(pool, 0) + mib
    return kept
