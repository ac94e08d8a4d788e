"""Shapes the layout numa: a provider for each cell; below it one for each page size, and the cell's devices."""

from drivers.cells import apportion, page_mib, place_cpus, reserved_mib, small_page_kib
from drivers.devices.stock import DeviceStock
from drivers.errors import PolicyError
from drivers.facts import HostFacts
from drivers.host.parse import format_cpu_set
from drivers.libvirt.stock import (
    FIXED,
    MARK,
    Entry,
    device_provider,
    guest_cpus,
    kept_text,
    one_class,
    present_only,
    refuse_reserve,
    with_cpus,
)
from drivers.policy import Policy
from drivers.reasons import Reason, Reasoned
from drivers.standing import Standing

_PAGES = "CUSTOM_MEMORY_PAGE_SIZE_"


def shape_cells(
    facts: HostFacts, policy: Policy, standing: Standing, devices: tuple[DeviceStock, ...]
) -> tuple[dict[str, Entry], list[Reasoned]]:
    """
    Return the root's inventories of CPUs without a known cell, and all providers below the root, parents first.

    A device without a known cell gets its provider below the root.

    Raises:
        PolicyError, MalformedFact: as ``drivers.cells``.
    """
    root = facts.hostname
    cells = {cell.id: f"{root}_NUMA{cell.id}" for cell in facts.cells}
    cpus = _cpus_by_cell(facts, policy, standing)
    pools = page_mib(facts.cells)
    small = {cell.id: small_page_kib(cell) for cell in facts.cells}
    kept = reserved_mib(facts.cells, pools, policy.reserved_memory_mib, policy.reserved_pages)
    providers: list[Reasoned] = []
    for id_, name in cells.items():
        place = Reason(f"libvirt's capabilities: cell {id_}", "[compute] layout = numa")
        providers.append(
            Reasoned(name=name, parent=root, inventories=cpus[id_], traits={"HW_NUMA_ROOT": place, **MARK})
        )
        providers += [
            _pool(root, id_, size, pools[id_, size], kept.get((id_, size), 0), policy, standing, small=small[id_])
            for cell, size in pools
            if cell == id_
        ]
    for device in devices:
        cell = cells.get(device.cell) if device.cell is not None else None
        providers.append(device_provider(device, root, cell or root))
    return cpus[None], providers


def _cpus_by_cell(facts: HostFacts, policy: Policy, standing: Standing) -> dict[int | None, dict[str, Entry]]:
    """Return VCPU and PCPU by cell; under None those of CPUs without a known cell."""
    cpus = guest_cpus(facts.cpu_map, policy.cpus)
    found: dict[int | None, dict[str, Entry]] = {None: {}, **{cell.id: {} for cell in facts.cells}}
    for name, wanted, reserved, ratio in (
        ("VCPU", cpus.shared, policy.cpus.reserved, policy.cpu_ratio),
        ("PCPU", cpus.dedicated, 0, FIXED),
    ):
        placed, homeless = place_cpus(facts, wanted)
        _refuse_homeless(homeless - facts.cpu_map.online)
        if reserved > len(wanted):
            refuse_reserve(name, len(wanted), reserved)
        shares = apportion(reserved, {-1: len(homeless), **{id_: len(ids) for id_, ids in placed.items()}})
        for id_, ids in [(None, homeless), *placed.items()]:
            suffix, share = ("", shares[-1]) if id_ is None else (f"NUMA{id_}", shares[id_])
            stock = one_class(name, len(ids), share, ratio, standing, suffix)
            if stock:
                found[id_][name] = stock, with_cpus(cpus.because[name], ids)
    return found


def _refuse_homeless(cpus: frozenset[int]) -> None:
    """
    Refuse CPUs that are off and have no known cell.

    Such a CPU would count on the root, and move to its cell when a guest starts and switches it on.

    Raises:
        PolicyError: there is such a CPU.
    """
    if cpus:
        raise PolicyError(
            f"[compute] cpu_dedicated_set names CPU {format_cpu_set(cpus)}, which is off, and neither libvirt nor the "
            f"kernel (/sys/devices/system/cpu/cpu{min(cpus)}/node*) says in which NUMA cell it is: switch it on, take "
            f"it out of the set, or use [compute] layout = devices"
        )


def _pool(
    root: str, cell: int, size_kib: int, mib: int, reserved: int, policy: Policy, standing: Standing, *, small: int
) -> Reasoned:
    """Return the provider of the pages of one size in one cell; huge pages cannot be overcommitted."""
    suffix = f"NUMA{cell}_PAGES_{size_kib}"
    is_small = size_kib == small
    ratio = policy.ram_ratio if is_small else FIXED
    stock = one_class("MEMORY_MB", mib, reserved, ratio, standing, suffix, step=max(1, size_kib // 1024))
    fact = f"libvirt's capabilities: {mib} MiB in pages of {size_kib} KiB in cell {cell}"
    kept = Reason(fact, kept_text(reserved, "memory_mb or reserved_huge_pages, in this pool"))
    reason = Reason(fact, "[compute] layout = numa")
    kind = f"{_PAGES}SMALL" if is_small else f"{_PAGES}LARGE"
    return Reasoned(
        name=f"{root}_{suffix}",
        parent=f"{root}_NUMA{cell}",
        inventories=present_only({"MEMORY_MB": (stock, kept)}),
        traits={f"{_PAGES}{size_kib}": reason, kind: reason, **MARK},
    )
