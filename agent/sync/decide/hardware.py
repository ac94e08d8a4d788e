"""
What a host's hardware can give at most, and what running guests have of it: evidence for the laws of plans. Pure.

It counts for itself, from facts, and shares no code with the shape of a tree.
"""

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from drivers.facts import Guest, HostFacts
from reportclient.names import device_address


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host's hardware, and what its guests have of it."""

    facts: HostFacts
    dedicated: frozenset[int] = frozenset()  # CPUs of which PCPU consists
    off: frozenset[int] = frozenset()  # those of them that are off and do not count
    formerly: frozenset[int] | None = None  # those of which it consisted at the last pass; None: of the same
    file_backed_mib: int = 0  # as in ``Policy``
    offered: Mapping[str, frozenset[str]] = field(default_factory=dict)  # as in ``Backing``
    in_total: Mapping[str, frozenset[str]] = field(default_factory=dict)  # ``Backing.kinds``


class Hardware:
    """The units of a host's hardware, and which of them running guests have."""

    def __init__(self, host: Host) -> None:
        facts = host.facts
        running = [guest for guest in facts.guests if guest.active]
        self._host = host
        self.dedicated = host.dedicated - host.off
        self.cpus = facts.cpu_map.online | self.dedicated
        of_cells_mib = sum(cell.memory_kib for cell in facts.cells) // 1024
        self.memory_mib = max(host.file_backed_mib, of_cells_mib, facts.whole_memory_mib or 0)
        self._vfs: dict[str, set[str]] = {}  # of each function
        for one in facts.devices.functions:
            self._vfs.setdefault(str(one.address), set()).update(map(str, one.vfs))
            if one.pf:
                self._vfs.setdefault(str(one.pf), set()).add(str(one.address))
        made = Counter(one.parent for one in facts.devices.mdevs)
        self._divided = {str(one.address) for one in facts.devices.mdev_parents if made[one.name]}
        self._mdevs = {
            one.name: made[one.name] + max((kind.available_instances for kind in one.types), default=0)
            for one in facts.devices.mdev_parents
        }
        self._held = {str(address) for guest in running for address in guest.devices.pci}
        rest_mib = of_cells_mib - sum(cell.memory_kib // 1024 for cell in facts.cells)  # of rounding, in one of them
        self.cell_mib = {cell.id: cell.memory_kib // 1024 + rest_mib for cell in facts.cells}
        self.cells = {
            cell.id: {*cell.cpus, *(cpu for cpu, home in facts.offline_cpus if home == cell.id)} for cell in facts.cells
        }

    def units(self, name: str, *, written: bool) -> int | None:
        """
        Return how many units the device of a provider can offer at most; None: not known.

        ``written``: its stock is now as it is wanted, so that it offers just what it is to offer.
        """
        for parent, count in self._mdevs.items():
            if name.endswith(f"_{parent}"):
                return count
        address = device_address(name)
        if address not in self._vfs:
            return None
        if written and (members := self._host.offered.get(name)):
            return sum(not self._is_taken(one, address) for one in members)
        return max(1, len(self._vfs[address]))

    def _is_taken(self, member: str, address: str) -> bool:
        """Return whether a function is in use in another form: a part of it, or the whole of which it is a part."""
        parts = self._vfs.get(member, set())
        whole = {address} - {member}
        return bool((parts | whole) & self._held or (parts | {member}) & self._divided)

    def claims(self, name: str, *, written: bool) -> list[str]:
        """Return the PCI functions that a provider offers: a whole PF its VFs too; ``written`` is as for ``units``."""
        address = device_address(name)
        if address is None:
            return []
        if ":" not in name:  # divided into mediated devices
            return [address]
        members = self._host.offered.get(name)
        if members is None:
            return [address, *self._vfs.get(address, ())]
        found = [part for one in members for part in (one, *self._vfs.get(one, ()))]
        return found if written else sorted(set(found))

    def in_total(self, root: str, classes: Set[str]) -> list[str]:
        """Return the PCI functions that the totals on the root offer."""
        counted = (suffix for suffix, names in self._host.in_total.items() if names & classes)
        return [part for suffix in counted for part in self.claims(f"{root}_{suffix}", written=False)]

    def idle(self, cell: int | None, *, before: bool) -> int:
        """
        Return how many dedicated CPUs of a cell no running guest is pinned to; without one, of the host.

        ``before``: of those that were dedicated at the last pass.
        """
        host = self._host
        dedicated = (host.formerly if before and host.formerly is not None else host.dedicated) - host.off
        pinned = {cpu for guest in host.facts.guests if guest.active for cpu in _pins(guest, dedicated)}
        mine = dedicated if cell is None else dedicated & self.cells.get(cell, set())
        return len(mine - pinned)


def _pins(guest: Guest, dedicated: frozenset[int]) -> frozenset[int]:
    """Return the dedicated CPUs to which a guest is pinned, with the CPU of its emulator's threads."""
    alone = frozenset[int]().union(*(cpus for cpus in guest.vcpus if len(cpus) == 1)) & dedicated
    return alone | guest.emulator_cpus if alone and len(guest.emulator_cpus) == 1 else alone
