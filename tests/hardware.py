"""Made-up hardware for unit tests: values at the edge where drivers shape them, and Hypothesis strategies of them."""

from dataclasses import replace
from uuid import UUID

from hypothesis import strategies as st

from drivers.facts import (
    CpuMap,
    Devices,
    Guest,
    GuestMemory,
    HostCpu,
    HostFacts,
    Mdev,
    MdevParent,
    MdevType,
    MemoryPages,
    NetDevice,
    NumaCell,
    PciFunction,
)
from drivers.pci import PciAddress, parse_pci_address
from drivers.policy import DevicePolicy, DeviceRule, MdevRule
from fakes import FACTS

NETWORK, DISPLAY, BRIDGE = 0x020000, 0x030200, 0x060400
UP = NetDevice("ens1", "up", 10_000)


def at(text: str) -> PciAddress:
    return parse_pci_address(text)


def plain(address: str = "0000:05:00.0", **changes: object) -> PciFunction:
    """A device without VFs."""
    one = PciFunction(
        address=at(address), vendor_id="8086", product_id="1533", device_class=NETWORK, driver="igb", cell=0
    )
    return replace(one, **changes)  # type: ignore[arg-type]


def card(address: str = "0000:81:00.0", vfs: int = 2, **changes: object) -> tuple[PciFunction, ...]:
    """An SR-IOV network card: its PF, changed as said, then its VFs in the same cell."""
    place = at(address)
    addresses = tuple(replace(place, slot=0x10 + n // 8, function=n % 8) for n in range(vfs))
    pf = PciFunction(
        address=place,
        vendor_id="8086",
        product_id="1528",
        device_class=NETWORK,
        driver="ixgbe",
        cell=1,
        total_vfs=63,
        vfs=addresses,
        net_devices=(UP,),
    )
    pf = replace(pf, **changes)  # type: ignore[arg-type]
    ids = {"vendor_id": "8086", "product_id": "1515", "device_class": NETWORK, "driver": "ixgbevf"}
    return (pf, *(PciFunction(address=one, cell=pf.cell, pf=place, **ids) for one in addresses))  # type: ignore[arg-type]


def gpu(address: str = "0000:84:00.0", cell: int | None = 0, driver: str | None = "nvidia") -> PciFunction:
    return PciFunction(
        address=at(address), vendor_id="10de", product_id="1eb8", device_class=DISPLAY, driver=driver, cell=cell
    )


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
        cpus = tuple(
            HostCpu(cpu, id_, cpu, frozenset({cpu})) for cpu, home in zip(everyone, homes, strict=True) if home == id_
        )
        huge = tuple(MemoryPages(size, draw(st.integers(0, 3))) for size in (2048, 1048576))
        floor = (16 << 20) if number == 0 else 0
        memory_kib = draw(st.sampled_from((floor, floor + (8 << 20) + draw(st.integers(0, 4000)))))
        pages = (MemoryPages(4, 0), *huge) if memory_kib else ()
        cells.append(NumaCell(id_, memory_kib, cpus, pages))
    functions: list[PciFunction] = []
    parents = []
    for bus in range(draw(st.integers(0, 5))):
        cell = draw(st.sampled_from([*ids, 77, None]))
        kind = draw(st.sampled_from(("nic", "plain", "gpu")))
        if kind == "nic":
            functions += card(f"0000:{bus:02x}:00.0", draw(st.integers(0, 9)), cell=cell)
        elif kind == "plain":
            functions.append(plain(f"0000:{bus:02x}:00.0", cell=cell))
        else:
            functions.append(gpu(f"0000:{bus:02x}:00.0", cell))
            parents.append(parent(functions[-1], a=draw(st.integers(0, 16)), b=draw(st.integers(0, 4))))
    facts = host(*functions, parents=tuple(parents))
    return replace(facts, cells=tuple(cells), cpu_map=CpuMap(len(everyone), frozenset(everyone)))


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
    free_mdevs = [mdev.uuid for mdev in mdevs]
    homes = [cell for cell in facts.cells if cell.cpus and cell.memory_kib >= 8 << 20]
    guests = []
    for number in range(draw(st.integers(0, 6))):
        vcpus: tuple[frozenset[int], ...] = (frozenset(),) * draw(st.integers(1, 3))
        memory = (GuestMemory(draw(st.integers(1, 300))),)
        home = draw(st.sampled_from([None, *homes]))
        if home:
            cpus = frozenset(cpu.id for cpu in home.cpus)
            vcpus = (cpus,) * draw(st.integers(1, len(cpus)))
            memory = (GuestMemory(draw(st.integers(1, 300)), frozenset({home.id})),)
        vfs = frozenset(free_vfs.pop() for _ in range(min(len(free_vfs), draw(st.integers(0, 2)))))
        held = frozenset(free_mdevs.pop() for _ in range(min(len(free_mdevs), draw(st.integers(0, 2)))))
        guests.append(
            Guest(uuid=str(UUID(int=number)), state="running", pci=vfs, mdevs=held, vcpus=vcpus, memory=memory)
        )
    return replace(facts, devices=replace(facts.devices, mdevs=mdevs), guests=tuple(guests))
