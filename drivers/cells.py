"""A host's CPUs and memory dealt out to its NUMA cells, so that the parts always add up to the whole."""

from collections.abc import Iterable, Mapping

from drivers.errors import MalformedFact, PolicyError
from drivers.facts import HostFacts, MemoryPages, NumaCell
from drivers.policy import ReservedPages

SMALL_PAGE_KIB = 4  # of x86; taken where libvirt does not tell a cell's page sizes


def apportion(amount: int, weights: Mapping[int, int]) -> dict[int, int]:
    """
    ``amount`` dealt out in proportion to ``weights``: largest remainder first, lowest key on a tie.

    No part is larger than its weight as long as ``amount`` is not larger than their sum.
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
    """The CPUs of each cell: those of libvirt's topology, and those that it lacks by the kernel's word."""
    return {
        cell.id: frozenset(cpu.id for cpu in cell.cpus) | {cpu for cpu, home in facts.offline_cpus if home == cell.id}
        for cell in facts.cells
    }


def place_cpus(facts: HostFacts, cpus: frozenset[int]) -> tuple[dict[int, frozenset[int]], frozenset[int]]:
    """The CPUs of a set by cell, and those of which nobody knows a place."""
    placed = {id_: cpus & all_ for id_, all_ in cpus_by_cell(facts).items()}
    return placed, cpus - frozenset().union(*placed.values())


def memory_mib(cells: Iterable[NumaCell]) -> int:
    """The host's memory: the sum of its cells, made whole MiB once."""
    return sum(cell.memory_kib for cell in cells) // 1024


def page_mib(cells: tuple[NumaCell, ...]) -> dict[tuple[int, int], int]:
    """
    MiB by (cell, page size in KiB), which add up to ``memory_mib``; pools that hold none are left out.

    A remainder of the MiB goes to the lowest cell with memory. Small pages are what huge ones leave over.

    Raises:
        MalformedFact: a cell's huge pages are more than its memory.
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
            raise MalformedFact(f"libvirt tells more huge pages in cell {cell.id} than it has memory")
        found[cell.id, small.size_kib] = left
    return {pool: mib for pool, mib in sorted(found.items()) if mib}


def small_page_kib(cell: NumaCell) -> int:
    """The size of a cell's small pages, of which none may be left."""
    return min((pages.size_kib for pages in cell.pages), default=SMALL_PAGE_KIB)


def reserved_mib(
    cells: tuple[NumaCell, ...], pools: Mapping[tuple[int, int], int], host_mib: int, pages: Iterable[ReservedPages]
) -> dict[tuple[int, int], int]:
    """
    What is kept for the host in each pool: ``host_mib`` of the cells' small pages in proportion, and named huge pages.

    Raises:
        PolicyError: more is to be kept than there is, or pages that no cell has.
    """
    smallest = {cell.id: small_page_kib(cell) for cell in cells if (cell.id, small_page_kib(cell)) in pools}
    small = {id_: pools[id_, size] for id_, size in smallest.items()}
    if host_mib > sum(small.values()):
        raise PolicyError(
            f"[DEFAULT] reserved_host_memory_mb is {host_mib}, and the small pages of all cells are "
            f"{sum(small.values())} MiB: lower it, or have fewer huge pages"
        )
    kept = {(id_, smallest[id_]): share for id_, share in apportion(host_mib, small).items()}
    for wish in pages:
        pool = wish.cell, wish.size_kib
        mib = -(-wish.count * wish.size_kib // 1024)
        if mib + kept.get(pool, 0) > pools.get(pool, 0):
            raise PolicyError(
                f"[DEFAULT] reserved_huge_pages keeps {wish.count} pages of {wish.size_kib} KiB in cell {wish.cell}, "
                f"which has {pools.get(pool, 0) * 1024 // wish.size_kib}: correct it"
            )
        kept[pool] = kept.get(pool, 0) + mib
    return kept
