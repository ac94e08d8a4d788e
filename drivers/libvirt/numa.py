"""
Shapes the layouts cells and numa: a provider for each cell, with the cell's pools of pages and devices below it.

In the layout cells the small pages are stock of the cell itself, and only huge pages have providers.
"""

from dataclasses import dataclass

from drivers.by_suffix import BySuffix
from drivers.cells import apportion, cpus_by_cell, page_mib, reserved_cells, reserved_mib, small_page_kib
from drivers.devices.inventories import DeviceStock
from drivers.errors import PolicyError
from drivers.facts import HostFacts
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
    cpus = _cpus_by_cell(facts, policy, standing)
    pools = page_mib(facts.cells)
    small = {cell.id: small_page_kib(cell) for cell in facts.cells}
    kept, whole = reserved_mib(facts, pools, policy)[0], reserved_cells(facts, policy)
    providers: list[Reasoned] = []
    for id_, small_kib in small.items():
        place = Reason(f"libvirt's capabilities: cell {id_}", f"[compute] layout = {policy.layout}")
        mine = [
            _Pages(id_, size, mib, kept.get((id_, size), 0), is_small=size == small_kib, whole=id_ in whole)
            for (cell, size), mib in pools.items()
            if cell == id_
        ]
        own = [pages for pages in mine if pages.is_small and policy.layout == "cells"]
        stock = {**cpus[id_], **(own[0].stock(policy, standing) if own else {})}
        if stock or mine or any(device.cell == id_ for device in devices):
            traits = {CELL: place, **MARK}
            providers.append(Reasoned(name=names[id_], parent=root, inventories=stock, traits=traits))
        providers += [pages.provider(root, policy, standing) for pages in mine if pages not in own]
    for device in devices:
        providers.append(device_provider(device, root, names.get(device.cell, root)))
    return cpus[None], providers


@dataclass(frozen=True, slots=True)
class _Pages:
    """The pages of one size in one cell; huge pages cannot be overcommitted."""

    cell: int
    size_kib: int
    mib: int
    reserved_mib: int
    is_small: bool
    whole: bool  # all memory of the cell is kept from guests

    @property
    def suffix(self) -> str:
        """Suffix of the provider of these pages alone."""
        return f"NUMA{self.cell}_PAGES_{self.size_kib}"

    @property
    def fact(self) -> str:
        """What libvirt reports, for people."""
        return f"libvirt's capabilities: {self.mib} MiB in pages of {self.size_kib} KiB in cell {self.cell}"

    def stock(self, policy: Policy, standing: BySuffix) -> dict[str, Entry]:
        """
        Return MEMORY_MB of these pages.

        The ratio of small pages is the same on the cell and on a provider of their own.
        """
        ratio = policy.ratios.ram if self.is_small else FIXED
        cell = f"NUMA{self.cell}"
        places = (cell, self.suffix) if policy.layout == "cells" else (self.suffix, cell)
        kept = kept_text(self.reserved_mib, "memory_mb or reserved_huge_pages, in pages of this size")
        reason = Reason(self.fact, reserved_cells_text(policy) if self.whole else kept)
        step = max(1, self.size_kib // 1024)
        return one_class("MEMORY_MB", self.mib, self.reserved_mib, ratio, standing, *places, reason=reason, step=step)

    def provider(self, root: str, policy: Policy, standing: BySuffix) -> Reasoned:
        """Return the provider of these pages, below their cell."""
        reason = Reason(self.fact, f"[compute] layout = {policy.layout}")
        kind = f"{PAGES}SMALL" if self.is_small else f"{PAGES}LARGE"
        return Reasoned(
            name=f"{root}_{self.suffix}",
            parent=f"{root}_NUMA{self.cell}",
            inventories=self.stock(policy, standing),
            traits={f"{PAGES}{self.size_kib}": reason, kind: reason, **MARK},
        )


def _cpus_by_cell(facts: HostFacts, policy: Policy, standing: BySuffix) -> dict[int | None, dict[str, Entry]]:
    """Return VCPU and PCPU by cell; under None those of CPUs without a known cell."""
    cpus = guest_cpus(facts.cpu_map, policy.cpus)
    found: dict[int | None, dict[str, Entry]] = {None: {}, **{cell.id: {} for cell in facts.cells}}
    for name, wanted, reserved, ratio in (
        ("VCPU", cpus.shared, policy.cpus.reserved, policy.ratios.cpu),
        ("PCPU", cpus.dedicated, 0, FIXED),
    ):
        placed = {id_: wanted & every for id_, every in cpus_by_cell(facts).items()}
        homeless = wanted - frozenset().union(*placed.values())
        if off := homeless - facts.cpu_map.online:  # one would move to its cell when a guest switches it on
            raise PolicyError(
                f"[compute] cpu_dedicated_set names CPU {format_cpu_set(off)}, which is off, and neither libvirt nor "
                f"the kernel (/sys/devices/system/cpu/cpu{min(off)}/node*) says in which NUMA cell it is: switch it "
                f"on, take it out of the set, or use [compute] layout = devices"
            )
        if reserved > len(wanted):
            refuse_reserve(name, len(wanted), reserved)
        shares = apportion(reserved, {-1: len(homeless), **{id_: len(ids) for id_, ids in placed.items()}})
        for id_, ids in [(None, homeless), *placed.items()]:
            suffix, share = ("", shares[-1]) if id_ is None else (f"NUMA{id_}", shares[id_])
            reason = with_cpus(cpus.because[name], ids)
            found[id_] |= one_class(name, len(ids), share, ratio, standing, suffix, reason=reason)
    return found
