"""What the guests of a host hold of it, each with what shows it, and what is known of each guest."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args

import pytest

from beds.golden import differences
from drivers.facts import (
    CpuMap,
    Guest,
    GuestDevices,
    GuestMemory,
    HostFacts,
    Mdev,
    MdevParent,
    MdevType,
    MemoryPages,
    Namespace,
    NetDevice,
    OddDevice,
    PciIds,
    Tenant,
)
from drivers.libvirt.shape import shape
from drivers.moves.question import Question
from drivers.policy import CpuPolicy, DevicePolicy, Layout, MdevRule, Policy
from drivers.rules import parse_rule
from fakes import FACTS, PC, offering
from hardware import at, card, gpu, host, parent, plain
from reportclient.allocations import Backing, Float, GuestState, Holding, Holdings, Observed
from reportclient.ownership import MARKER
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree

EXPECTED = Path(__file__).parents[1] / "data/holdings.txt"
RULES = (
    {"product_id": "1533", "physical_network": "net0", "resource_class": "PORT"},
    {"product_id": "1600", "resource_class": "ILL"},
    {"product_id": "1a00", "resource_class": "PORT"},
    {"product_id": "1b00", "resource_class": "AWAY"},
)
POLICY = Policy(
    root_traits=frozenset({"CUSTOM_RACK"}),
    cpus=CpuPolicy(shared=frozenset({0, 2}), dedicated=frozenset({1, 3})),
    devices=DevicePolicy(
        report=True,
        discover_all=True,
        rules=tuple(parse_rule(rule, number) for number, rule in enumerate(RULES, 1)),
        mdevs=(MdevRule(type="a"),),
        pmem={"small": "PMEM"},
    ),
)
MDEVS = (
    Mdev("11111111-aa", "a", "pci_0000_84_00_0"),
    Mdev("22222222-bb", "b", "pci_0000_84_00_0"),
    Mdev("33333333-cc", "a", "pci_0000_85_00_0"),
    Mdev("44444444-dd", "a", "mtty_mtty"),
)


def cpus(*ids: int) -> frozenset[int]:
    return frozenset(ids)


ANY, FIRST, SECOND = cpus(), cpus(0), cpus(1)  # no cell or CPU is named; cells
PLAIN = Guest(uuid="plain", state="running", vcpus=(cpus(0),), memory=(GuestMemory(64),))
ODD = Guest(uuid="odd", state="running", unread="<vcpu> has no number")
FULL = GuestDevices(
    pci=frozenset(map(at, ("0000:81:10.0", "0000:81:10.5", "0000:05:00.0", "0000:06:00.0"))),
    ports=frozenset({at("0000:81:10.0")}),
    netdevs=frozenset({"v2"}),
    vdpa=frozenset({"/dev/vdpa1"}),
    mdevs=frozenset(one.uuid for one in MDEVS if one.type == "a"),
    pmem=frozenset({"/dev/dax0.0"}),
    encryption="amd_sev",
)
LOST = GuestDevices(
    pci=frozenset(map(at, ("0000:07:00.0", "0000:08:00.0", "0000:09:00.0"))),
    netdevs=frozenset({"ens1", "gone"}),
    vdpa=frozenset({"/dev/vdpa9"}),
    mdevs=frozenset({MDEVS[1].uuid, "55555555-ee"}),
    pmem=frozenset({"/dev/dax9.9"}),
    encryption="intel_tdx",
)
PORT = GuestDevices(pci=frozenset({at("0000:81:10.4")}), ports=frozenset({at("0000:81:10.4")}))
NAMED = {"VCPU": 2, "SRIOV_NET_VF": None, "CUSTOM_OTHER": 1}
GUESTS: tuple[dict[str, Any], ...] = (
    {"uuid": "full", "devices": FULL, "memory": (GuestMemory(64), GuestMemory(32))},
    {"uuid": "lost", "devices": LOST, "state": "crashed", "migrating": True},
    {"uuid": "flavored", "devices": PORT, "tenant": Tenant("p", "u", 5, NAMED)},
    {"uuid": "unseen", "devices": PORT, "tenant": Tenant("p", "u", 5, None)},
    {"uuid": "pinned and not", "vcpus": (cpus(1), cpus(0), cpus(0, 1))},
    {"uuid": "pinned to a CPU that is not offered", "vcpus": (cpus(4),)},
    {"uuid": "threads on its CPU", "vcpus": (cpus(1),), "emulator_cpus": cpus(1)},
    {"uuid": "threads on a CPU of their own", "vcpus": (cpus(1),), "emulator_cpus": cpus(3)},
    {"uuid": "only threads pinned", "vcpus": (cpus(0, 2),), "emulator_cpus": cpus(3)},
    {"uuid": "in a part of the cells", "vcpus": (cpus(0, 9),)},
    {"uuid": "one vCPU anywhere", "vcpus": (cpus(0, 9), ANY)},
    {"uuid": "near a vCPU that is bound", "vcpus": (cpus(2, 3), ANY)},
    {"uuid": "near its memory", "vcpus": (ANY,), "resident": ((7, 9), (0, 0), (1, 5))},
    {"uuid": "memory of a cell", "memory": (GuestMemory(512, SECOND), GuestMemory(0, FIRST))},
    {"uuid": "memory of both cells", "memory": (GuestMemory(64, FIRST | SECOND),)},
    {"uuid": "no such pages", "memory": (GuestMemory(64, SECOND, huge=True),)},
    {"uuid": "pages of two kinds", "memory": (GuestMemory(64), GuestMemory(32, huge=True))},
    {"uuid": "the smallest huge pages", "memory": (GuestMemory(5, FIRST), GuestMemory(64, FIRST, huge=True))},
    {"uuid": "huge pages of a size", "memory": (GuestMemory(1024, FIRST, huge=True, page_kib=1048576),)},
    {"uuid": "some off", "some_off": True},
    {"uuid": "some off by nova", "some_off": True, "tenant": Tenant("p", "u", 5)},
    {"uuid": "no vcpus", "vcpus": ()},
    {"uuid": "no memory", "memory": ()},
    {"uuid": "not understood", "vcpus": (), "memory": (), "unread": "<vcpu> has no number"},
)


def host_with(*guests: Guest) -> HostFacts:
    """A host with devices of all kinds, some of them ill, odd or not offered, and with these guests."""
    pf, *vfs = (replace(one, driver=one.driver if one.is_pf else None) for one in card(vfs=6))
    vfs[1:3] = replace(vfs[1], vdpa=("/dev/vdpa1",)), replace(vfs[2], net_devices=(NetDevice("v2"),))
    ill, other, second = (plain(f"0000:0{bus}:00.0", ids=PciIds("8086", f"1{bus}00")) for bus in "67a")
    graphics, sick = gpu("0000:84:00.0"), replace(gpu("0000:85:00.0"), power_state="error")
    facts = host(
        *(pf, *vfs, plain("0000:05:00.0"), replace(ill, power_state="error"), other, second, graphics, sick),
        parents=(parent(graphics, a=4, b=1), parent(sick, a=4), MdevParent("mtty_mtty", None, (MdevType("a", "", 1),))),
        mdevs=MDEVS,
    )
    odd = (
        OddDevice("0000:08:00.0", "it is broken"),
        OddDevice("0000:82:10.0", "it is odd", address=at("0000:82:10.0"), pf=at("0000:82:00.0")),
    )
    pmem = (Namespace("small", "/dev/dax0.0"),)
    sev = offering(replace(PC, encryption=replace(PC.encryption, sev_guests=2)))
    pages = (MemoryPages(4, 900), MemoryPages(64, 0), MemoryPages(1048576, 1), MemoryPages(2048, 100))
    cells = (replace(FACTS.cells[0], memory_kib=4 << 20, pages=pages), FACTS.cells[1])
    facts = replace(facts, cpu_map=CpuMap(5, frozenset(range(5))), cells=cells, hypervisor=sev, guests=guests)
    return replace(facts, devices=replace(facts.devices, odd=odd, namespaces=pmem))


def told(value: Any) -> str:
    """A value of ours in one line, without what is empty in it."""
    if is_dataclass(value):
        parts = ((one.name, told(getattr(value, one.name))) for one in fields(value))
        return " ".join(f"{name}={text}" for name, text in parts if text not in ("", "None", "False"))
    if isinstance(value, Mapping):
        return "; ".join(f"{key}: {told(value[key])}" for key in sorted(value))
    if isinstance(value, Set | tuple):
        return ", ".join(map(told, sorted(value) if isinstance(value, Set) else value))
    return str(value)


def standing(name: str, **stock: tuple[int, int]) -> ObservedProvider:
    """A provider of ours in placement, with total and reserved amount of each class."""
    inventories = {each: Inventory(total=total, reserved=reserved) for each, (total, reserved) in stock.items()}
    parent = None if name == "host" else "host"
    made = Provider(name=name, parent=parent, inventories=inventories, traits=frozenset({MARKER}))
    return ObservedProvider(uuid=name, generation=1, provider=made)


STOOD = ObservedTree(
    (
        standing(
            "host",
            VCPU=(4, 1),
            SRIOV_NET_VF=(8, 2),
            VGPU=(9, 1),
            CUSTOM_PORT=(3, 2),
            CUSTOM_GONE=(2, 1),
            CUSTOM_AWAY=(3, 1),
        ),
        standing("host_0000:81:00.0", SRIOV_NET_VF=(6, 1)),
        standing("host_0000:82:00.0", SRIOV_NET_VF=(2, 0)),
    )
)


def lines(layout: Layout, observed: ObservedTree | None) -> Iterator[str]:
    """What is reported of this host, each with its reason, what guests hold of it, and what is behind it."""
    facts = host_with(*(replace(PLAIN, **guest) for guest in GUESTS))
    shaped = shape(facts, replace(POLICY, layout=layout), observed)
    yield f"counted in others: {told(tuple(one.name for one in shaped.counted_in))}"
    for one in shaped.providers:
        yield f"{one.name} is below {one.parent}"
        yield from (f"{one.name} {name}: {told(one.inventories[name])}" for name in sorted(one.inventories))
        yield from (f"{one.name} {name}: {told(one.traits[name])}" for name in sorted(one.traits) if "CUSTOM" in name)
    parts = (replace(shaped.holdings, backing=Backing()), shaped.holdings.backing)
    for name, value in ((one.name, getattr(part, one.name)) for part in parts for one in fields(part)):
        every = value if isinstance(value, tuple) else value.items() if isinstance(value, dict) else [value]
        yield from (f"{name}: {told(one)}" for one in every if told(one))


def test_what_is_reported_held_and_behind_each_provider_is_as_ever(request: pytest.FixtureRequest) -> None:
    """With --update-golden it is written: review the diff."""
    found = [f"{layout} {line.rstrip()}\n" for layout in get_args(Layout) for line in lines(layout, None)]
    found += [
        f"{layout} as it stood {line.rstrip()}\n" for layout in ("devices", "flat") for line in lines(layout, STOOD)
    ]

    update = request.config.getoption("--update-golden")
    assert not differences("".join(found), EXPECTED, update=update)


@pytest.mark.parametrize(
    ("guest", "named"),
    [
        pytest.param({"vcpus": (cpus(0, 2), cpus(0))}, False, id="floats on shared CPUs"),
        pytest.param({"vcpus": (cpus(1), cpus(3))}, False, id="is pinned to dedicated CPUs"),
        pytest.param({"vcpus": (cpus(1), cpus(0, 2))}, False, id="has vCPUs of both kinds"),
        pytest.param({"vcpus": ()}, False, id="is not understood"),
        pytest.param({"vcpus": (cpus(0, 2), ANY)}, True, id="floats on all CPUs"),
        pytest.param({"vcpus": (cpus(0, 2, 3),)}, True, id="floats on a dedicated CPU too"),
        pytest.param({"vcpus": (cpus(1, 3),)}, True, id="floats on dedicated CPUs alone"),
        pytest.param({"vcpus": (ANY,), "state": "paused"}, True, id="is paused"),
        pytest.param({"vcpus": (ANY,), "state": "shutoff"}, False, id="gets the shared CPUs when it starts"),
    ],
)
@pytest.mark.parametrize("layout", get_args(Layout))
def test_running_guests_are_named_whose_floating_vcpus_may_run_on_dedicated_cpus(
    layout: Layout, guest: Mapping[str, Any], named: bool
) -> None:
    facts = host_with(replace(PLAIN, **guest))
    sets = Policy(layout=layout, cpus=POLICY.cpus)

    assert [", as they were started without that set: plain. Restart" in one for one in held(facts, sets)] == (
        [True] if named else []
    )
    assert held(facts, replace(sets, cpus=CpuPolicy(shared=frozenset({0, 1, 2, 3})))) == ()


def test_ten_guests_are_named_in_a_sentence_and_three_that_are_not_understood_in_their_own() -> None:
    guests = (replace(PLAIN, uuid=f"{number:02}", vcpus=(ANY,)) for number in range(12))
    floating, odd = (host_with(*several) for several in (guests, (replace(ODD, uuid=str(one)) for one in range(5))))

    assert "set: 00, 01, 02, 03, 04, 05, 06, 07, 08, 09 and 2 more. " in held(floating, POLICY)[0]
    assert [one.partition(" not understood")[0] for one in held(odd, POLICY)] == [
        *(f"guest {one} is" for one in range(3)),
        "2 more guests are",
    ]


def held(facts: HostFacts, policy: Policy) -> tuple[str, ...]:
    """What a person should know of guests."""
    return shape(facts, policy, None).holdings.of_guests


def test_what_the_hypervisor_reports_of_a_guest_is_found_by_class() -> None:
    lost = ("1", "2")
    question = Question(
        Observed(ObservedTree()),
        ProviderTree((Provider(name="host"),)),
        Holdings(
            units=(
                *(Holding("many", "a", "VCPU", 3, "seen"), Holding("many", "b", "VCPU", 5)),
                *(Holding("many", "a", "VCPU", 1), Holding("many", "b", "VGPU", 1), Holding("bound", "a", "VCPU", 1)),
            ),
            floats=(
                *(Float("many", "VCPU", 2, ("b", "c"), "-"), Float("many", "MEMORY_MB", 64, ("c",), "-")),
                Float("free", "VCPU", 1, ("b",), "-"),
            ),
            undecided={"many": lost},
            known={"many": GuestState(active=True, overridden=frozenset({"VCPU"}))},
            told=frozenset({"VGPU"}),
        ),
        {},
        (),
        (),
        {},
    )

    assert [question.word(guest, "VCPU").places for guest in ("many", "bound")] == [("b", "a", "c"), ("a",)]
    assert question.word("many", "VCPU").seen == {"a": "seen"}
    assert question.sums["many"] == {"MEMORY_MB": 64, "VCPU": 11, "VGPU": 1}
    for name, undecided, overridden in (("VCPU", (), True), ("VGPU", lost, False), ("CUSTOM_ANY", lost, False)):
        assert (question.word("many", name).undecided, question.word("many", name).overridden) == (
            undecided,
            overridden,
        )
    guests = ("many", "bound", "free")
    allowed = {(guest, one) for guest in guests for one in "abc" if question.word(guest, "VCPU").allows(one)}
    assert (allowed, question.word("many", "VGPU").allows("b")) == ({("bound", "a"), ("free", "b")}, False)
    assert [question.speaks_of(name) for name in ("DISK_GB", "VGPU", "CUSTOM_ANY")] == [True, True, False]
