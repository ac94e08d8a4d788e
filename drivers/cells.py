"""A host's CPUs and memory divided among its NUMA cells, so that the parts always add up to the whole."""

from collections.abc import Container, Iterable, Mapping

from drivers.errors import MalformedFact, PolicyError
from drivers.facts import HostFacts, NumaCell
from drivers.policy import OF_CELLS, WITHOUT_CPUS, Policy, ReservedPages

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
    return {cell.id: cell.cpus | {cpu for cpu, home in facts.offline_cpus if home == cell.id} for cell in facts.cells}


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
        small, left = small_page_kib(cell), whole[cell.id]
        for pages in cell.pages:
            if pages.size_kib != small:
                found[cell.id, pages.size_kib] = pages.total * pages.size_kib // 1024
                left -= found[cell.id, pages.size_kib]
        if left < 0:
            raise MalformedFact(
                f"libvirt reports more huge pages in cell {cell.id} than the cell has memory: see virsh capabilities"
            )
        found[cell.id, small] = left
    return {pool: mib for pool, mib in sorted(found.items()) if mib}


def small_page_kib(cell: NumaCell) -> int:
    """Return the size in KiB of a cell's small pages, also where the cell has none left."""
    return min((pages.size_kib for pages in cell.pages), default=SMALL_PAGE_KIB)


def cells_without_cpus(facts: HostFacts) -> frozenset[int]:
    """
    Return the ids of cells that have memory and no CPUs, while other cells have both: a device's, or a slower kind.

    Empty where no cell has both: the CPUs of that host have no other memory.
    """
    with_memory = {cell.id for cell in facts.cells if cell.memory_kib}
    with_both = {id_ for id_, cpus in cpus_by_cell(facts).items() if cpus and id_ in with_memory}
    return frozenset(with_memory - with_both) if with_both else frozenset()


def reserved_cells(facts: HostFacts, policy: Policy) -> frozenset[int]:
    """
    Return the ids of cells whose memory is kept from guests, by ``[agent] reserved_cells``.

    By default these are the cells without CPUs in a layout with cells, and none in others, where nova offers them.
    They are kept too while the option names a cell that is not on this host: another one may be meant.
    """
    wanted = policy.reserved_cells
    if wanted is None:
        wanted = WITHOUT_CPUS if policy.layout in OF_CELLS else frozenset()
    if isinstance(wanted, str):
        return cells_without_cpus(facts)
    is_slip = wanted - {cell.id for cell in facts.cells}
    return wanted | cells_without_cpus(facts) if is_slip else wanted


def cells_mib(facts: HostFacts, cells: frozenset[int]) -> int:
    """Return how much memory these cells have together, as their providers report it."""
    return sum(mib for (id_, _), mib in page_mib(facts.cells).items() if id_ in cells) if cells else 0


def reserved_mib(
    facts: HostFacts, pools: Mapping[tuple[int, int], int], policy: Policy
) -> tuple[dict[tuple[int, int], int], tuple[str, ...]]:
    """
    Return the MiB to keep for the host, by (cell, page size in KiB), and a sentence on each amount that is not there.

    These are all of the cells that are reserved whole; of the others the pages that the operator listed, and
    ``reserved_memory_mib`` of the small pages in cells with CPUs: what the operator said for a cell, and the rest in
    the others, divided in proportion to each cell's. Where one has less than its part left, the parts are in proportion
    to what is left. Of pages of which there are fewer, all are kept. ``pools`` is as ``page_mib`` returns it.

    Raises:
        PolicyError: all memory would be kept and it is not enough, or pages are listed that no cell can have.
    """
    (kept, lacking), whole = _listed_mib(facts, pools, policy.reserved_pages), reserved_cells(facts, policy)
    sizes = {cell.id: small_page_kib(cell) for cell in facts.cells if cell.id not in whole}
    small = _with_cpus(facts, {id_: pools[id_, size] for id_, size in sizes.items() if (id_, size) in pools})
    left = {id_: mib - kept.get((id_, sizes[id_]), 0) for id_, mib in small.items()}
    asked_mib, said = policy.reserved_memory_mib, policy.reserved_cell_mib
    host_mib = min(asked_mib, sum(left.values()))
    shares = _shares(host_mib, small, left, said)
    lacking += tuple(
        f"[agent] reserved_cell_memory is {mib} MiB in cell {id_}, {why}"
        for id_, mib in sorted(said.items())
        if (why := _otherwise(id_, mib, shares.get(id_), sizes.keys(), whole))
    )
    kept |= {(id_, sizes[id_]): share + kept.get((id_, sizes[id_]), 0) for id_, share in shares.items()}
    kept |= {pool: mib for pool, mib in pools.items() if pool[0] in whole}
    if host_mib < asked_mib:
        short = (
            f"[DEFAULT] reserved_host_memory_mb is {asked_mib} MiB, but the cells have only {host_mib} MiB of "
            f"small pages left for it: lower that option, or reserve or allocate fewer pages on this host"
        )
        if kept.items() >= pools.items():
            raise PolicyError(short)
        lacking = (*lacking, f"{short}. All of them are kept meanwhile")
    return kept, lacking


def _shares(amount: int, small: Mapping[int, int], left: Mapping[int, int], said: Mapping[int, int]) -> dict[int, int]:
    """
    Return what each of these cells keeps of an amount, at most what is ``left`` there; ``small`` is all that it has.

    First what is ``said`` for it. The others share the rest, and what does not fit there is in the cells that were
    named after all.
    """
    own = {id_: min(mib, left[id_]) for id_, mib in said.items() if id_ in small}
    others = {id_: mib for id_, mib in small.items() if id_ not in own}
    room = {id_: left[id_] for id_ in others}
    rest = amount - sum(own.values())
    shares = apportion(min(rest, sum(room.values())), others)
    if any(shares[id_] > room[id_] for id_ in others):
        shares = apportion(min(rest, sum(room.values())), room)
    more = apportion(rest - sum(shares.values()), {id_: left[id_] - mib for id_, mib in own.items()})
    return shares | {id_: mib + more[id_] for id_, mib in own.items()}


def _otherwise(cell: int, wanted_mib: int, kept_mib: int | None, cells: Container[int], whole: Container[int]) -> str:
    """
    Return what is kept in a cell for which the operator said another amount, and why; empty: it is that amount.

    ``kept_mib`` is None where nothing is kept as the cell has no CPUs, or no small pages.
    """
    if cell in whole:
        return "which is reserved whole: remove it from that option"
    if cell not in cells:
        return "which this host does not have: remove it from that option"
    if kept_mib is None:
        text = "and nothing is kept there: it has no CPUs, or no small pages. Remove it from that option"
        return text if wanted_mib else ""
    if kept_mib < wanted_mib:
        return f"and {kept_mib} MiB are kept there, as it has no more small pages for that: allocate fewer huge pages"
    text = f"and {kept_mib} MiB are kept there, as no other cell takes the rest of [DEFAULT] reserved_host_memory_mb"
    return text if kept_mib > wanted_mib else ""


def plain_mib(facts: HostFacts, policy: Policy) -> tuple[int, int]:
    """Return the MiB that guests and the host have in pages of any size, and in small ones, without reserved cells."""
    whole, sizes = reserved_cells(facts, policy), {cell.id: small_page_kib(cell) for cell in facts.cells}
    found = page_mib(facts.cells) if memory_mib(facts.cells) else {}
    pools = {pool: mib for pool, mib in found.items() if pool[0] not in whole}
    return sum(pools.values()), sum(mib for (id_, size), mib in pools.items() if size == sizes[id_])


def _with_cpus(facts: HostFacts, small: Mapping[int, int]) -> dict[int, int]:
    """Return the cells with CPUs of those that have small pages; all of these where none has CPUs."""
    cpus = cpus_by_cell(facts)
    return {id_: mib for id_, mib in small.items() if cpus[id_]} or dict(small)


def _listed_mib(
    facts: HostFacts, pools: Mapping[tuple[int, int], int], pages: Iterable[ReservedPages]
) -> tuple[dict[tuple[int, int], int], tuple[str, ...]]:
    """
    Return the MiB of the pages that the operator listed, and a sentence where a cell has fewer: then all of them.

    Raises:
        PolicyError: this host has no such cell, or the cell no pages of this size.
    """
    possible = {(cell.id, pages.size_kib) for cell in facts.cells for pages in cell.pages} | pools.keys()
    kept: dict[tuple[int, int], int] = {}
    lacking: list[str] = []
    for wish in pages:
        pool = wish.cell, wish.size_kib
        kept[pool] = kept.get(pool, 0) - (-wish.count * wish.size_kib // 1024)
        if kept[pool] > (there := pools.get(pool, 0)):
            short = (
                f"[DEFAULT] reserved_huge_pages keeps {wish.count} pages of {wish.size_kib} KiB in cell {wish.cell}, "
                f"but that cell has {there * 1024 // wish.size_kib}: lower the count in that option"
            )
            if pool not in possible:
                raise PolicyError(short)
            lacking.append(f"{short}, or make more such pages. All of them are kept meanwhile")
            kept[pool] = there
    return kept, tuple(lacking)
