"""What each guest of a libvirt host really has: the units of the tree that the host is to have."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Set
from dataclasses import replace

from drivers.cells import cpus_by_cell, page_mib, small_page_kib
from drivers.devices.match import PHYSNET
from drivers.devices.stock import DeviceStock
from drivers.facts import Guest, GuestMemory, HostFacts, NumaCell
from drivers.libvirt.stock import guest_cpus
from drivers.policy import Policy
from reportclient.allocations import Float, GuestState, Holding, Holdings, Undecided
from reportclient.names import CPUS

_CONTEXT = "MEM_ENCRYPTION_CONTEXT"
HOST_CLASSES = CPUS | {"MEMORY_MB"}


def holdings(facts: HostFacts, policy: Policy, devices: tuple[DeviceStock, ...]) -> Holdings:
    """
    The units of all guests, running or not, and what of theirs floats.

    A vCPU has a unit of PCPU when it is pinned to one dedicated CPU. In the layout numa a vCPU has its unit where all
    the CPUs are that it may run on, and memory where numatune binds it, in pages of its size; what is not bound floats.
    """
    facts = replace(facts, guests=tuple(_with_netdevs(guest, facts) for guest in facts.guests))
    spread = _Cells(facts) if policy.layout == "numa" else None
    dedicated = guest_cpus(facts.cpu_map, policy.cpus).dedicated
    owners = _owners(facts.hostname, policy, devices)
    units: list[Holding] = []
    floats: list[Float] = []
    ports = {guest.uuid: _ports(guest, devices, owners) for guest in facts.guests}
    undecided = tuple(one for guest in facts.guests for one in _undecided(guest, facts, devices, owners))
    for guest in facts.guests:
        units += _units_of(guest.uuid, (*map(str, guest.pci), *guest.mdevs), owners)
        units += _context_units(guest, facts.hostname, policy, devices)
        pinned = [cpus for cpus in guest.vcpus if len(cpus) == 1 and cpus <= dedicated]
        others = [cpus for cpus in guest.vcpus if not (len(cpus) == 1 and cpus <= dedicated)]
        alone = len(guest.emulator_cpus) == 1 and guest.emulator_cpus <= dedicated - frozenset().union(*pinned)
        pinned += [guest.emulator_cpus] if alone and pinned else []  # hw:emulator_threads_policy=isolate takes one more
        if spread is None:
            units += _count(guest.uuid, facts.hostname, "PCPU", len(pinned))
            units += _count(guest.uuid, facts.hostname, "VCPU", len(others))
            units += _count(guest.uuid, facts.hostname, "MEMORY_MB", sum(part.mib for part in guest.memory))
            continue
        for name, wanted in (("PCPU", pinned), ("VCPU", others)):
            bound, floating = spread.place_cpus(guest, name, wanted)
            units += bound
            floats += floating
        bound, floating = spread.place_memory(guest)
        units += bound
        floats += floating
    of_devices = {name for device in devices for name in device.members.values()} | _contexts(devices)
    doubtful = {one.consumer for one in undecided}
    return Holdings(
        frozenset(guest.uuid for guest in facts.guests),
        tuple(units),
        tuple(floats),
        known={
            guest.uuid: _known(guest, of_devices if guest.uuid in doubtful else set(), ports[guest.uuid])
            for guest in facts.guests
        },
        ports=tuple(one for several in ports.values() for one in several),
        told=HOST_CLASSES | of_devices,
        undecided=undecided,
    )


def _with_netdevs(guest: Guest, facts: HostFacts) -> Guest:
    """A guest with the functions of the interfaces that it has whole, as ports of networks; others stay as they are."""
    functions = {net.name: one.address for one in facts.devices.functions for net in one.net_devices}
    told = {functions[name] for name in guest.netdevs if name in functions}
    left = guest.netdevs - functions.keys()
    return replace(guest, pci=guest.pci | told, ports=guest.ports | told, netdevs=left) if guest.netdevs else guest


def _known(guest: Guest, of_devices: Set[str], ports: Iterable[Holding]) -> GuestState:
    """
    What is known of a guest; ``of_devices`` are the classes that one of its devices may or may not count as.

    Nova allocates nothing for the devices of Neutron's ports, unless the flavor names their class. Who made a guest
    without nova's metadata may allocate them or not.
    """
    tenant = guest.tenant
    of_ports = {one.resource_class for one in ports}
    overridden = tenant.overridden & HOST_CLASSES if tenant else frozenset()
    return GuestState(
        active=guest.state not in ("shutoff", "crashed"),
        migrating=guest.migrating,
        project=tenant.project if tenant else None,
        user=tenant.user if tenant else None,
        disk_gb=tenant.disk_gb if tenant else None,
        untold=frozenset(of_devices)
        | (of_ports & tenant.overridden if tenant else of_ports)
        | (frozenset() if guest.vcpus else CPUS)
        | (frozenset() if guest.memory else {"MEMORY_MB"})
        | overridden,
        overridden=overridden,
        named=tenant.overridden if tenant else frozenset(),
    )


def _contexts(devices: Iterable[DeviceStock]) -> frozenset[str]:
    return frozenset({_CONTEXT} if any(_CONTEXT in device.inventories for device in devices) else ())


def _owners(root: str, policy: Policy, devices: Iterable[DeviceStock]) -> dict[str, tuple[str, str]]:
    """(provider, class) of each unit with a name: a PCI address, or the uuid of a mediated device."""
    return {
        unit: (root if policy.layout == "flat" else f"{root}_{device.suffix}", name)
        for device in devices
        for unit, name in device.members.items()
    }


def _units_of(guest: str, devices: Iterable[str], owners: Mapping[str, tuple[str, str]]) -> list[Holding]:
    held = Counter(owners[device] for device in devices if device in owners)
    return [Holding(guest, provider, name, amount) for (provider, name), amount in sorted(held.items())]


def _ports(guest: Guest, devices: Iterable[DeviceStock], owners: Mapping[str, tuple[str, str]]) -> list[Holding]:
    """
    The units that a guest has by ports of networks: as interfaces, or from rules with a physical network.

    Nova attaches a port with the vnic_type direct-physical like a device of a flavor's alias.
    """
    of_networks = {
        unit for device in devices for unit in device.members if any(name.startswith(PHYSNET) for name in device.traits)
    }
    ports = set(map(str, guest.ports)) | (set(map(str, guest.pci)) & of_networks)
    return _units_of(guest.uuid, ports, owners)


def _context_units(guest: Guest, root: str, policy: Policy, devices: Iterable[DeviceStock]) -> Iterator[Holding]:
    for device in devices:
        if guest.encryption == device.suffix:
            yield Holding(guest.uuid, root if policy.layout == "flat" else f"{root}_{device.suffix}", _CONTEXT, 1)


def _undecided(
    guest: Guest, facts: HostFacts, devices: Iterable[DeviceStock], owners: Container[str]
) -> Iterator[Undecided]:
    """The devices of a guest that no device of this survey and policy has as a member, and why."""
    shown = {str(function.address) for function in facts.devices.functions}
    mdevs = {mdev.uuid: mdev for mdev in facts.devices.mdevs}
    for address in sorted(map(str, guest.pci)):
        if address not in owners:
            why = "[pci] device_spec does not offer it" if address in shown else "the host does not show it"
            yield Undecided(guest.uuid, address, why)
    for uuid in sorted(guest.mdevs):
        if uuid not in owners:
            mdev = mdevs.get(uuid)
            of = f"[devices] enabled_mdev_types does not offer its type {mdev.type} on {mdev.parent}" if mdev else ""
            yield Undecided(guest.uuid, uuid, of or "the host does not show it")
    for name in sorted(guest.netdevs):
        yield Undecided(guest.uuid, name, "no device of the host has an interface of this name")
    for name in sorted(guest.vdpa):
        yield Undecided(guest.uuid, name, "nothing tells of which VF a vhost-vdpa device is")
    if guest.encryption and guest.encryption not in {device.suffix for device in devices}:
        yield Undecided(guest.uuid, guest.encryption, "the host does not offer such contexts")


def _count(guest: str, provider: str, name: str, amount: int) -> list[Holding]:
    return [Holding(guest, provider, name, amount)] if amount else []


class _Cells:
    """A host's cells and pools of pages, by the names of their providers."""

    def __init__(self, facts: HostFacts) -> None:
        self._root = facts.hostname
        self._cells = {cell.id: cell for cell in facts.cells}
        self._pools = page_mib(facts.cells)
        self._cpus = cpus_by_cell(facts)

    def place_cpus(self, guest: Guest, name: str, wanted: list[frozenset[int]]) -> tuple[list[Holding], list[Float]]:
        """vCPUs that run in one cell only have their unit there; the others float over the cells of their CPUs."""
        counts: dict[int, int] = {}
        floating: list[frozenset[int]] = []
        for pins in wanted:
            home = next((id_ for id_, cpus in self._cpus.items() if pins and pins <= cpus), None)
            if home is None:
                floating.append(pins)
            else:
                counts[home] = counts.get(home, 0) + 1
        units = [Holding(guest.uuid, self._provider(id_), name, count) for id_, count in sorted(counts.items())]
        if not floating:
            return units, []
        allowed = frozenset().union(*floating) if all(floating) else frozenset()
        near = [id_ for id_ in self._order(guest) if not allowed or allowed & self._cpus[id_]]
        places = (*(self._provider(id_) for id_ in near), self._root)
        return units, [Float(guest.uuid, name, len(floating), places, self._why(guest))]

    def place_memory(self, guest: Guest) -> tuple[list[Holding], list[Float]]:
        """Bound memory has its unit in the pool of its pages; the rest floats over the pools of its kind of pages."""
        units: dict[str, int] = {}
        floating: dict[tuple[str, ...], int] = {}
        for part in guest.memory:
            pools = tuple(pool for id_ in self._order(guest) if (pool := self._pool(part, id_)) is not None)
            if len(part.cells) == 1 and pools:
                units[pools[0]] = units.get(pools[0], 0) + part.mib
            else:
                floating[pools] = floating.get(pools, 0) + part.mib
        found = [Holding(guest.uuid, pool, "MEMORY_MB", mib) for pool, mib in sorted(units.items()) if mib]
        if not floating:
            return found, []
        places = next(iter(floating)) if len(floating) == 1 else ()  # of several kinds nobody can tell which is where
        return found, [Float(guest.uuid, "MEMORY_MB", sum(floating.values()), places, self._why(guest))]

    def _order(self, guest: Guest) -> list[int]:
        """All cells: first those in which most of the guest's memory is, then those of the CPUs that it is bound to."""
        told = [id_ for id_, kib in guest.resident if id_ in self._cells and kib]
        near = [id_ for id_, cpus in self._cpus.items() if any(pins and pins <= cpus for pins in guest.vcpus)]
        return list(dict.fromkeys((*told, *near, *self._cells)))

    def _why(self, guest: Guest) -> str:
        if guest.resident:
            return "it floats over the cells, and goes where most of its memory is as far as there is room"
        return "it floats over the cells, and goes where there is room"

    def _pool(self, part: GuestMemory, id_: int) -> str | None:
        """The pool of a cell that memory of this kind is of; None where there is none, or where it may not be."""
        if part.cells and id_ not in part.cells:
            return None
        cell = self._cells[id_]
        size = self._page_kib(part, cell)
        return f"{self._root}_NUMA{id_}_PAGES_{size}" if (id_, size) in self._pools else None

    def _page_kib(self, part: GuestMemory, cell: NumaCell) -> int | None:
        """The pages of memory; the host's default of huge ones is its only or smallest size."""
        if not part.huge:
            return small_page_kib(cell)
        huge = [pages.size_kib for pages in cell.pages if pages.total and pages.size_kib != small_page_kib(cell)]
        return part.page_kib if part.page_kib is not None else min(huge, default=None)

    def _provider(self, id_: int) -> str:
        return f"{self._root}_NUMA{id_}"
