"""Finds what each guest of a libvirt host holds, as units on the providers of the desired tree."""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace

from drivers.cells import cpus_by_cell, page_mib, small_page_kib
from drivers.devices.inventories import DeviceStock
from drivers.devices.match import PHYSNET
from drivers.devices.use import functions_by_interface, passed_through
from drivers.facts import Guest, GuestMemory, HostFacts, NumaCell
from drivers.host.parse import format_cpu_set
from drivers.libvirt.host_inventories import DEDICATED_OPTION, guest_cpus
from drivers.policy import OF_CELLS, Layout, Policy
from reportclient.allocations import Float, GuestState, Holding, Holdings
from reportclient.errors import few
from reportclient.names import CPUS

_SHOWN = 3  # guests that have a sentence each
HOST_CLASSES = CPUS | {"MEMORY_MB"}


def holdings(facts: HostFacts, policy: Policy, devices: tuple[DeviceStock, ...]) -> Holdings:
    """
    Return the units of all guests, running or not, and their floats.

    A vCPU that is pinned to one dedicated CPU is a unit of PCPU, any other of VCPU. In the layouts cells and numa a
    vCPU has its unit in the cell that has all the CPUs it may run on, and memory in the pool of its page size in the
    cell to which numatune binds it; all else floats. In the layout cells the cell is itself the pool of small pages.
    A guest may be pinned to a CPU that went off: it keeps its unit.
    """
    facts = replace(facts, guests=tuple(_with_netdevs(guest, facts) for guest in facts.guests))
    cells = _Cells(facts, policy.layout) if policy.layout in OF_CELLS else None
    dedicated = policy.cpus.dedicated or frozenset()
    named = guest_cpus(facts.cpu_map, policy.cpus)["VCPU"].union(policy.cpus.shared or (), dedicated)
    owners = _Owners(facts.hostname, policy, devices)
    units: list[Holding] = []
    floats: list[Float] = []
    ports = {guest.uuid: owners.ports(guest) for guest in facts.guests}
    undecided = {guest.uuid: found for guest in facts.guests if (found := owners.undecided(guest))}
    for guest in facts.guests:
        units += owners.units(guest.uuid, _devices_of(guest))
        cpus = _cpus_by_class(guest, dedicated)
        if cells is None:
            memory_mib = sum(part.mib for part in guest.memory)
            amounts = {name: len(pins) for name, pins in cpus.items()} | {"MEMORY_MB": memory_mib}
            units += [Holding(guest.uuid, facts.hostname, name, amount) for name, amount in amounts.items() if amount]
        else:
            placed, floating = cells.place(guest, cpus)
            units += placed
            floats += floating
    of_devices = {name for device in devices for name in device.members.values()}
    return Holdings(
        frozenset(guest.uuid for guest in facts.guests),
        tuple(units),
        tuple(floats),
        known={
            guest.uuid: replace(
                _known(guest, of_devices if guest.uuid in undecided else set(), ports[guest.uuid], named),
                mediated=frozenset(one.resource_class for one in owners.units(guest.uuid, guest.devices.mdevs)),
            )
            for guest in facts.guests
        },
        ports=tuple(one for several in ports.values() for one in several),
        told=HOST_CLASSES | of_devices,
        undecided=undecided,
        of_guests=(*_not_understood(facts), *_on_dedicated(facts, dedicated)),
    )


def _not_understood(facts: HostFacts) -> list[str]:
    """Return a sentence on each guest that is not understood, and one on all beyond the first ones."""
    odd = [guest for guest in facts.guests if guest.unread]
    more = [f"{len(odd) - _SHOWN} more guests are not understood"] if len(odd) > _SHOWN else []
    return [
        f"guest {guest.uuid} is not understood: {guest.unread}. What it has of CPUs, memory and encryption is not "
        f"known: no audit judges it, and a conversion that must know it is refused. Correct it with virsh edit, or "
        f"report this to the authors of compute-node-agent"
        for guest in odd[:_SHOWN]
    ] + more


def _on_dedicated(facts: HostFacts, dedicated: Set[int]) -> Iterator[str]:
    """Yield a sentence on the running guests whose floating vCPUs may run on dedicated CPUs."""
    odd = [
        guest.uuid
        for guest in facts.guests
        if guest.active and any(len(cpus) != 1 and (not cpus or cpus & dedicated) for cpus in guest.vcpus)
    ]
    if odd and dedicated:
        yield (
            f"guests may run on CPUs of {DEDICATED_OPTION}, which pinned guests get, as they were started without that "
            f"set: {few(odd, 10)}. Restart them (openstack server reboot --hard), or give those that "
            f"are not nova's a cpuset"
        )


def _cpus_by_class(guest: Guest, dedicated: frozenset[int]) -> dict[str, list[frozenset[int]]]:
    """
    Return the CPUs that each vCPU may run on, by class: PCPU where pinned to one dedicated CPU, else VCPU.

    The emulator's threads of a guest with pinned vCPUs count as one more PCPU where they are pinned to a CPU of their
    own (hw:emulator_threads_policy=isolate).
    """
    pinned = [cpus for cpus in guest.vcpus if len(cpus) == 1 and dedicated.issuperset(cpus)]
    others = [cpus for cpus in guest.vcpus if not (len(cpus) == 1 and dedicated.issuperset(cpus))]
    alone = len(guest.emulator_cpus) == 1 and guest.emulator_cpus <= dedicated - frozenset().union(*pinned)
    return {"PCPU": [*pinned, guest.emulator_cpus] if alone and pinned else pinned, "VCPU": others}


def _with_netdevs(guest: Guest, facts: HostFacts) -> Guest:
    """
    Return the guest with its passthrough interfaces and vDPA devices replaced by their PCI functions.

    These count as ports of networks. What has no function on this host stays.
    """
    functions = functions_by_interface(facts)
    has, found = guest.devices, passed_through(guest, functions)
    netdevs, vdpa = has.netdevs - functions.keys(), has.vdpa - functions.keys()
    devices = replace(has, pci=has.pci | found, ports=has.ports | found, netdevs=netdevs, vdpa=vdpa)
    return replace(guest, devices=devices)


def _known(guest: Guest, of_devices: Set[str], ports: Iterable[Holding], named_cpus: Set[int]) -> GuestState:
    """
    Return what is known of a guest; ``of_devices`` are the classes that its undecided devices may count as.

    A vCPU that is pinned to one CPU outside ``named_cpus`` counts as neither class: the sets changed since it started.
    Nova allocates nothing for the devices of Neutron's ports, unless the flavor names their class, which is not known
    where the flavor is not shown. Without nova's metadata, another program made the guest, and may allocate or not;
    so it may for vCPUs that are switched off.
    """
    tenant = guest.tenant
    of_ports = {one.resource_class for one in ports}
    shown = tenant.overridden if tenant else None  # None: it is not nova's, or its flavor is not shown
    named = shown or {}
    overridden = HOST_CLASSES & named.keys()
    are_pins_named = all(cpus <= named_cpus for cpus in guest.vcpus if len(cpus) == 1)
    are_cpus_told = guest.vcpus and are_pins_named and (tenant or not guest.some_off)
    return GuestState(
        active=guest.active,
        migrating=guest.migrating,
        project=tenant.project if tenant else None,
        user=tenant.user if tenant else None,
        disk_gb=tenant.disk_gb if tenant else None,
        untold=frozenset(of_devices)
        | (of_ports if shown is None else of_ports & named.keys())
        | (frozenset() if are_cpus_told else CPUS)
        | (frozenset() if guest.memory else {"MEMORY_MB"})
        | overridden,
        overridden=overridden,
        named=named,
        unread=bool(guest.unread),
        flavor_unseen=tenant is not None and shown is None,
    )


def _devices_of(guest: Guest) -> tuple[str, ...]:
    """Return the devices that a guest has whole, and its kind of memory encryption, as ``DeviceStock.members``."""
    has = guest.devices
    kind = [has.encryption] if has.encryption else []
    return *sorted(map(str, has.pci)), *sorted(has.mdevs), *sorted(has.pmem), *kind


class _Owners:
    """The provider and the class of each device, by PCI address, uuid of a mediated device, or path of a namespace."""

    def __init__(self, root: str, policy: Policy, devices: tuple[DeviceStock, ...]) -> None:
        self._slots = {
            unit: (root if policy.layout == "flat" or device.of_root else f"{root}_{device.suffix}", name)
            for device in devices
            for unit, name in device.members.items()
        }
        of_networks = [one for one in devices if any(name.startswith(PHYSNET) for name in one.traits)]
        self._of_networks = frozenset(unit for device in of_networks for unit in device.members)
        self._has_namespaces = any(device.of_root for device in devices)

    def units(self, guest: str, devices: Iterable[str]) -> list[Holding]:
        """Return the units that a guest has by these devices; none for a device without an owner."""
        held: dict[tuple[str, str], list[str]] = {}
        for device in devices:
            if device in self._slots:
                held.setdefault(self._slots[device], []).append(device)
        return [
            Holding(guest, provider, name, len(those), f"has {few(sorted(those), 3)}")
            for (provider, name), those in sorted(held.items())
        ]

    def ports(self, guest: Guest) -> list[Holding]:
        """
        Return the units that a guest has through ports of networks.

        These are devices of its interfaces, and devices of rules with a physical network: nova attaches a port with the
        vnic_type direct-physical like a device of a flavor's alias.
        """
        of_networks = self._of_networks.intersection(map(str, guest.devices.pci))
        return self.units(guest.uuid, of_networks.union(map(str, guest.devices.ports)))

    def undecided(self, guest: Guest) -> tuple[str, ...]:
        """Return the guest's devices of unknown class and provider; netdevs and vDPA devices have no function."""
        has = guest.devices
        unreported = frozenset[str]() if self._has_namespaces else has.pmem
        found = [one for one in _devices_of(guest) if one not in self._slots and one not in unreported]
        unread = ["what is not understood of it"] if guest.unread else []
        return *found, *sorted(has.netdevs), *sorted(has.vdpa), *unread


class _Cells:
    """Places CPUs and memory of guests on the providers of the host's cells and pools of pages."""

    def __init__(self, facts: HostFacts, layout: Layout) -> None:
        self._root = facts.hostname
        self._small_on_cell = layout == "cells"
        self._cells = {cell.id: cell for cell in facts.cells}
        self._pools = page_mib(facts.cells)
        self._cpus = cpus_by_cell(facts)

    def place(self, guest: Guest, cpus: Mapping[str, list[frozenset[int]]]) -> tuple[list[Holding], list[Float]]:
        """Return the units and floats of a guest's CPUs, given by class, and of its memory."""
        parts = [*(self._place_cpus(guest, name, pins) for name, pins in cpus.items()), self._place_memory(guest)]
        return [unit for units, _ in parts for unit in units], [one for _, floats in parts for one in floats]

    def _place_cpus(self, guest: Guest, name: str, wanted: list[frozenset[int]]) -> tuple[list[Holding], list[Float]]:
        """Return a unit in a cell for each vCPU that may run in this cell only, and a float for the other vCPUs."""
        homes: dict[int, list[frozenset[int]]] = {}
        floating: list[frozenset[int]] = []
        for pins in wanted:
            home = next((id_ for id_, cpus in self._cpus.items() if pins and pins <= cpus), None)
            if home is None:
                floating.append(pins)
            else:
                homes.setdefault(home, []).append(pins)
        units = [
            Holding(
                guest.uuid,
                self._provider(id_),
                name,
                len(those),
                f"pinned to CPUs {format_cpu_set(frozenset().union(*those))} in cell {id_}",
            )
            for id_, those in sorted(homes.items())
        ]
        if not floating:
            return units, []
        allowed = frozenset().union(*floating) if all(floating) else frozenset()
        near = [id_ for id_ in self._order(guest) if not allowed or allowed & self._cpus[id_]]
        places = (*(self._provider(id_) for id_ in near), self._root)
        return units, [Float(guest.uuid, name, len(floating), places, self._why(guest), guest.resident is None)]

    def _place_memory(self, guest: Guest) -> tuple[list[Holding], list[Float]]:
        """Return units of bound memory in the pools of its page size, and a float over such pools for the rest."""
        units: dict[str, int] = {}
        bound: dict[str, str] = {}
        floating: dict[tuple[str, ...], int] = {}
        for part in guest.memory:
            pools = tuple(pool for id_ in self._order(guest) if (pool := self._pool(part, id_)) is not None)
            if len(part.cells) == 1 and pools:
                units[pools[0]] = units.get(pools[0], 0) + part.mib
                (cell,) = part.cells
                pages = f" in pages of {self._page_kib(part, self._cells[cell])} KiB" if part.huge else ""
                bound[pools[0]] = f"memory bound to cell {cell}{pages}"
            else:
                floating[pools] = floating.get(pools, 0) + part.mib
        found = [Holding(guest.uuid, pool, "MEMORY_MB", mib, bound[pool]) for pool, mib in sorted(units.items()) if mib]
        if not floating:
            return found, []
        places = next(iter(floating)) if len(floating) == 1 else ()  # several kinds of pages: unknown which is where
        hidden = guest.resident is None
        return found, [Float(guest.uuid, "MEMORY_MB", sum(floating.values()), places, self._why(guest), hidden)]

    def _order(self, guest: Guest) -> list[int]:
        """Return all cells: first by how much of the guest's memory they hold, then those to which a vCPU is bound."""
        resident = [id_ for id_, kib in guest.resident or () if id_ in self._cells and kib]
        near = [id_ for id_, cpus in self._cpus.items() if any(pins and pins <= cpus for pins in guest.vcpus)]
        return list(dict.fromkeys((*resident, *near, *self._cells)))

    def _why(self, guest: Guest) -> str:
        """Return why a float goes where it goes, for people."""
        most = "the cells with most of the guest's memory, as far as they have room"
        return f"not bound to one cell: counted in {most if guest.resident else 'cells that have room'}"

    def _pool(self, part: GuestMemory, id_: int) -> str | None:
        """Return the cell's pool for this part of memory; None where there is none, or where numatune forbids it."""
        if part.cells and id_ not in part.cells:
            return None
        cell = self._cells[id_]
        size = self._page_kib(part, cell)
        if (id_, size) not in self._pools:
            return None
        if self._small_on_cell and size == small_page_kib(cell):
            return self._provider(id_)
        return f"{self._provider(id_)}_PAGES_{size}"

    def _page_kib(self, part: GuestMemory, cell: NumaCell) -> int | None:
        """Return the page size of a part of memory; without a named size, huge pages have the cell's smallest."""
        if not part.huge:
            return small_page_kib(cell)
        huge = [pages.size_kib for pages in cell.pages if pages.total and pages.size_kib != small_page_kib(cell)]
        return part.page_kib if part.page_kib is not None else min(huge, default=None)

    def _provider(self, id_: int) -> str:
        return f"{self._root}_NUMA{id_}"
