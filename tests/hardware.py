"""Made-up hardware for unit tests: values at the edge where drivers shape them, and Hypothesis strategies of them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args
from uuid import UUID

from hypothesis import strategies as st

from drivers.facts import (
    CpuMap,
    Devices,
    Guest,
    GuestDevices,
    GuestMemory,
    HostFacts,
    Mdev,
    MdevParent,
    MdevType,
    MemoryPages,
    NetDevice,
    NumaCell,
    PciFunction,
    PciIds,
    Sriov,
    Tenant,
)
from drivers.pci import PciAddress, parse_pci_address
from drivers.policy import CpuPolicy, DevicePolicy, DeviceRule, Layout, MdevRule, Policy
from drivers.rules import parse_rule
from fakes import FACTS

NETWORK, DISPLAY, BRIDGE = 0x020000, 0x030200, 0x060400
NVIDIA = PciIds("10de", "1515", NETWORK)  # of a VF
UP = NetDevice("ens1", "up", 10_000)


def at(text: str) -> PciAddress:
    return parse_pci_address(text)


def plain(address: str = "0000:05:00.0", **changes: object) -> PciFunction:
    """A device without VFs."""
    one = PciFunction(address=at(address), ids=PciIds("8086", "1533", NETWORK), driver="igb", cell=0)
    return replace(one, **changes)  # type: ignore[arg-type]


def guest_with(uuid: str = "guest", tenant: Tenant | None = None, **devices: Any) -> Guest:
    return Guest(uuid=uuid, state="running", devices=GuestDevices(**devices), tenant=tenant)


def card(
    address: str = "0000:81:00.0", vfs: int = 2, vendor: str = "8086", **changes: object
) -> tuple[PciFunction, ...]:
    """An SR-IOV network card: its PF, of this vendor and changed as said, then its VFs in the same cell."""
    place = at(address)
    addresses = tuple(replace(place, slot=0x10 + n // 8, function=n % 8) for n in range(vfs))
    pf = PciFunction(
        address=place,
        ids=PciIds(vendor, "1528", NETWORK),
        driver="ixgbe",
        cell=1,
        sriov=Sriov(63, (0x80, 1)),
        vfs=addresses,
        net_devices=(UP,),
    )
    pf = replace(pf, **changes)  # type: ignore[arg-type]
    vf = PciFunction(address=place, ids=PciIds("8086", "1515", NETWORK), driver="ixgbevf", cell=pf.cell, pf=place)
    return (pf, *(replace(vf, address=one) for one in addresses))


def gpu(address: str = "0000:84:00.0", cell: int | None = 0, driver: str | None = "nvidia") -> PciFunction:
    return PciFunction(address=at(address), ids=PciIds("10de", "1eb8", DISPLAY), driver=driver, cell=cell)


def parent(function: PciFunction, **types: int) -> MdevParent:
    """The same card as a parent of mediated devices: ``parent(card, a=16)`` can make 16 of type ``a``."""
    name = "pci_" + str(function.address).replace(":", "_").replace(".", "_")
    return MdevParent(name, function.address, tuple(MdevType(id_, "", count) for id_, count in sorted(types.items())))


def host(*functions: PciFunction, parents: tuple[MdevParent, ...] = (), mdevs: tuple[Mdev, ...] = ()) -> HostFacts:
    """A host of two cells with these devices."""
    found = tuple(sorted(functions, key=lambda function: function.address))
    return replace(FACTS, devices=Devices(functions=found, mdev_parents=parents, mdevs=mdevs))


def rules(*rules: DeviceRule) -> DevicePolicy:
    return DevicePolicy(report=True, rules=rules)


@st.composite
def hosts(draw: st.DrawFn) -> HostFacts:
    """Cells with gaps in their ids, some without CPUs or memory, CPUs without a place, and devices of every kind."""
    ids = sorted(draw(st.sets(st.integers(0, 9), min_size=1, max_size=4)))
    everyone = list(range(draw(st.integers(1, 24))))
    homes = [draw(st.sampled_from([*ids, None])) for _ in everyone]
    cells = []
    for number, id_ in enumerate(ids):
        cpus = frozenset(cpu for cpu, home in zip(everyone, homes, strict=True) if home == id_)
        huge = tuple(MemoryPages(size, draw(st.integers(0, 3))) for size in (2048, 1048576))
        floor = (16 << 20) if number == 0 else 0
        memory_kib = draw(st.sampled_from((floor, floor + (8 << 20) + draw(st.integers(0, 4000)))))
        pages = (MemoryPages(4, 0), *huge) if memory_kib else ()
        cells.append(NumaCell(id_, memory_kib, cpus, pages))
    functions: list[PciFunction] = []
    parents = []
    for number in range(draw(st.integers(0, 5))):
        bus = 0x1B * number  # some have letters
        cell = draw(st.sampled_from([*ids, 77, None]))
        kind = draw(st.sampled_from(("nic", "plain", "gpu")))
        if kind == "nic":
            functions += draw(_nics(f"0000:{bus:02x}:00.0", cell))
        elif kind == "plain":
            functions.append(plain(f"0000:{bus:02x}:00.0", cell=cell))
        else:
            functions.append(gpu(f"0000:{bus:02x}:00.0", cell))
            parents.append(parent(functions[-1], a=draw(st.integers(0, 16)), b=draw(st.integers(0, 4))))
    facts = host(*functions, parents=tuple(parents))
    return replace(facts, cells=tuple(cells), cpu_map=CpuMap(len(everyone), frozenset(everyone)))


@st.composite
def _nics(draw: st.DrawFn, address: str, cell: int | None) -> tuple[PciFunction, ...]:
    """An SR-IOV network card with up to three links, some down, and VFs with an interface each or without."""
    links = st.builds(NetDevice, st.just("ens1"), st.sampled_from(("up", "down")), st.sampled_from((None, 10_000)))
    named = draw(st.lists(links, max_size=3))
    pf, *vfs = card(address, draw(st.integers(0, 9)), cell=cell, net_devices=tuple(named))
    if draw(st.booleans()):
        vfs = [replace(vf, net_devices=(NetDevice(f"v{vf.address}", "up"),)) for vf in vfs]
    return (pf, *vfs)


policies = st.builds(
    DevicePolicy,
    report=st.just(True),
    rules=st.sampled_from(
        (
            (),
            (DeviceRule(number=1, product_id="1533"),),
            (DeviceRule(number=1, product_id="1515", resource_class="CUSTOM_X"),),
        )
    ),
    discover_all=st.booleans(),
    link_bandwidth=st.booleans(),
    mdevs=st.sampled_from(
        ((), (MdevRule(type="a"),), (MdevRule(type="b", max_instances=3, resource_class="CUSTOM_B"),))
    ),
)


@st.composite
def occupied_hosts(draw: st.DrawFn) -> HostFacts:
    """Hosts with guests on their VFs, mediated devices, CPUs, cells and huge pages, and with guests that float."""
    facts = draw(hosts())
    mdevs = tuple(
        Mdev(str(UUID(int=draw(st.integers(0, 2**64 - 1)) << 64 | number)), "a", one.name)
        for one in facts.devices.mdev_parents
        for number in range(draw(st.integers(0, 3)))
    )
    free_vfs = [function.address for function in facts.devices.functions if function.is_vf]
    names = {one.address: one.net_devices[0].name for one in facts.devices.functions if one.is_vf and one.net_devices}
    free_mdevs = [mdev.uuid for mdev in mdevs]
    homes = [cell for cell in facts.cells if cell.cpus and cell.memory_kib >= 8 << 20]
    guests = []
    for number in range(draw(st.integers(0, 6))):
        vcpus: tuple[frozenset[int], ...] = (frozenset(),) * draw(st.integers(1, 3))
        memory = (GuestMemory(draw(st.integers(1, 300))),)
        home = draw(st.sampled_from([None, *homes]))
        if home:
            cpus = home.cpus
            vcpus = (cpus,) * draw(st.integers(1, len(cpus)))
            memory = (GuestMemory(draw(st.integers(1, 300)), frozenset({home.id})),)
        vfs = frozenset(free_vfs.pop() for _ in range(min(len(free_vfs), draw(st.integers(0, 2)))))
        held = frozenset(free_mdevs.pop() for _ in range(min(len(free_mdevs), draw(st.integers(0, 2)))))
        passed = {one: names[one] for one in vfs if one in names and draw(st.booleans())}  # as passthrough interfaces
        guests.append(
            Guest(
                uuid=str(UUID(int=number)),
                state="running",
                devices=GuestDevices(pci=vfs - passed.keys(), netdevs=frozenset(passed.values()), mdevs=held),
                vcpus=vcpus,
                memory=memory,
            )
        )
    return replace(facts, devices=replace(facts.devices, mdevs=mdevs), guests=tuple(guests))


@dataclass(frozen=True, slots=True)
class Change:
    """A host and its configuration before and after, while its guests run on."""

    before: HostFacts
    earlier: Policy
    after: HostFacts
    later: Policy
    overridden: Mapping[str, int]  # by guest: how much VCPU its flavor asks for, whatever it has


@st.composite
def changes(draw: st.DrawFn) -> Change:
    """
    Odd hosts that change: cards of one class that go, fall silent or get another class, and CPUs that are dedicated.

    Guests are pinned over several cells, some with a CPU for their emulator alone; some have their VCPU overridden, or
    a device that nothing offers.
    """
    facts = draw(crowded_hosts())
    pins = frozenset().union(*(one for guest in facts.guests for one in (*guest.vcpus, guest.emulator_cpus)))
    single = frozenset().union(*(one for guest in facts.guests for one in guest.vcpus if len(one) == 1))
    dedicated = CpuPolicy(dedicated=pins, shared=facts.cpu_map.online - pins or None) if single else CpuPolicy()
    cpus = (draw(st.sampled_from((CpuPolicy(), dedicated))), draw(st.sampled_from((dedicated, dedicated, CpuPolicy()))))
    layouts: st.SearchStrategy[Layout] = st.sampled_from(get_args(Layout))
    overridden = {guest.uuid: draw(st.integers(1, 3)) for guest in facts.guests if guest.tenant}
    return Change(
        before=facts,
        earlier=Policy(layout=draw(layouts), cpus=cpus[0], devices=draw(_offers(facts)), reserved_memory_mib=0),
        after=draw(_losses(facts)),
        later=Policy(layout=draw(layouts), cpus=cpus[1], devices=draw(_offers(facts)), reserved_memory_mib=0),
        overridden=overridden,
    )


@st.composite
def crowded_hosts(draw: st.DrawFn) -> HostFacts:
    """Two cells, up to three vGPU cards of two types and two network cards, and guests on all of it."""
    cpus = [frozenset(range(8 * cell, 8 * cell + 8)) for cell in (0, 1)]
    cells = tuple(NumaCell(id_, 16 << 20, cpus[id_], (MemoryPages(4, 0),)) for id_ in (0, 1))
    gpus = [gpu(f"0000:{0x84 + n:02x}:00.0", draw(st.integers(0, 1))) for n in range(draw(st.integers(1, 3)))]
    kinds = [draw(st.sampled_from("ab")) for _ in gpus]
    parents = tuple(parent(one, **{kind: 8}) for one, kind in zip(gpus, kinds, strict=True))
    nics = [card(f"0000:{0x21 + n:02x}:00.0", 3, cell=draw(st.integers(0, 1))) for n in range(draw(st.integers(0, 2)))]
    mdevs = tuple(
        Mdev(str(UUID(int=0x100 * number + n)), kind, one.name)
        for number, (one, kind) in enumerate(zip(parents, kinds, strict=True))
        for n in range(2)
    )
    facts = host(*gpus, *(function for nic in nics for function in nic), parents=parents, mdevs=mdevs)
    free_cpus = list(draw(st.permutations(range(12))))
    free_mdevs = list(draw(st.permutations([mdev.uuid for mdev in mdevs])))
    free_vfs = list(draw(st.permutations([function.address for nic in nics for function in nic[1:]])))
    guests = []
    for number in range(draw(st.integers(1, 3))):
        pinned = [frozenset({free_cpus.pop()}) for _ in range(draw(st.integers(0, 3)))]
        where = draw(st.sampled_from((frozenset(), frozenset({6, 7}), frozenset({12, 13}))))
        vcpus = (*pinned, *((where,) * draw(st.integers(0 if pinned else 1, 2))))
        alone = bool(pinned) and draw(st.booleans())
        bound = draw(st.sampled_from((frozenset(), frozenset({0}), frozenset({1}))))
        guests.append(
            Guest(
                uuid=f"guest-{number}",
                state="running",
                devices=GuestDevices(
                    pci=frozenset(free_vfs.pop() for _ in range(min(len(free_vfs), draw(st.integers(0, 2))))),
                    mdevs=frozenset(free_mdevs.pop() for _ in range(min(len(free_mdevs), draw(st.integers(0, 2))))),
                ),
                vcpus=vcpus,
                emulator_cpus=frozenset({free_cpus.pop()}) if alone else frozenset(),
                memory=(GuestMemory(draw(st.integers(1, 300)), bound),),
                tenant=Tenant("p", "u", None, {"VCPU": 1}) if draw(st.integers(0, 4)) == 0 else None,
            )
        )
    online = frozenset[int]().union(*(cell.cpus for cell in cells))
    return replace(facts, cells=cells, cpu_map=CpuMap(16, online), guests=tuple(guests))


@st.composite
def _offers(draw: st.DrawFn, facts: HostFacts) -> DevicePolicy:
    """Each type of vGPU under one of two classes or not at all, each network card by a rule of its own or by itself."""
    parents = facts.devices.mdev_parents
    mdevs = []
    for kind in "ab":
        names = frozenset(one.name for one in parents if one.types[0].id == kind)
        name = draw(st.sampled_from(("VGPU", "VGPU", "CUSTOM_A", None)))
        mdevs += [MdevRule(type=kind, addresses=names, resource_class=name)] if names and name else []
    found: list[DeviceRule] = []
    for function in facts.devices.functions:
        name = draw(st.sampled_from(("CUSTOM_VF", None, None))) if function.is_pf else None
        if name:
            address = f"{str(function.address)[:-4]}10.*"
            found.append(parse_rule({"address": address, "product_id": "1515", "resource_class": name}, len(found) + 1))
    everything = draw(st.sampled_from((True, True, False)))
    return DevicePolicy(report=True, rules=tuple(found), discover_all=everything, mdevs=tuple(mdevs))


@st.composite
def _losses(draw: st.DrawFn, facts: HostFacts) -> HostFacts:
    """The same host, of which a card may be out of sight, or without its driver."""
    devices = facts.devices
    cards = [function.address for function in devices.functions if not function.is_vf]
    lost = draw(st.sampled_from([None, None, *cards]))
    silent = draw(st.booleans())
    parents = tuple(one for one in devices.mdev_parents if one.address != lost)
    if silent:
        left = [replace(one, driver=None) if one.address == lost else one for one in devices.functions]
    else:
        left = [one for one in devices.functions if lost is None or lost not in (one.address, one.pf)]
    names = {one.name for one in parents}
    mdevs = tuple(mdev for mdev in devices.mdevs if mdev.parent in names)
    return replace(facts, devices=Devices(functions=tuple(left), mdev_parents=parents, mdevs=mdevs))
