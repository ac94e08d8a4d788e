"""The layout cells: a cell has CPUs and small pages on one provider, and conversions keep guests in their cell."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args
from uuid import UUID

import pytest

from agent.audit.audit import witness
from agent.audit.decide.findings import Kind
from agent.audit.heal import Healed, HealPolicy, heal
from agent.command.verbs import VERBS
from agent.settings.read import Role
from agent.state.memory import NodeState
from agent.sync.outcome import Status
from beds.one_host import FORCE, RESHAPE, OneHost
from drivers.facts import CpuMap, Guest, GuestDevices, GuestMemory, HostFacts, MemoryPages, NumaCell, Tenant
from drivers.libvirt.shape import shape
from drivers.policy import OF_CELLS, CpuPolicy, DevicePolicy, Layout, Policy, Ratio, Ratios, ReservedPages
from hardware import at, card, host
from reportclient.ownership import MANAGED, OWNER_NOVA
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider

CPUS = {0: frozenset({0, 1, 2, 3}), 1: frozenset({4, 5, 6, 7})}
DEDICATED = frozenset({2, 3, 6, 7})
NIC = "0000:81:00.0"  # of cell 1
FLOATING, BOUND, PINNED, HUGE, WIDE, FLAVORED, STRANGER = (str(UUID(int=number)) for number in range(1, 8))
MEMORY = {"cells": "NUMA{}", "numa": "NUMA{}_PAGES_4"}  # the provider of a cell's small pages
Slots = dict[str, dict[str, int]]


def cells(*guests: Guest, huge: int = 512) -> HostFacts:
    """Two cells of 8 GiB, each with some huge pages, and a card with VFs."""
    made = tuple(
        NumaCell(
            id_,
            8 << 20,
            frozenset(cpus),
            (MemoryPages(4, 0), *((MemoryPages(2048, huge),) if huge else ())),
        )
        for id_, cpus in CPUS.items()
    )
    return replace(host(*card(NIC, 4)), cpu_map=CpuMap(8, frozenset(range(8))), cells=made, guests=guests)


def guest(uuid: str, *vcpus: frozenset[int], memory: tuple[GuestMemory, ...], **more: object) -> Guest:
    return Guest(uuid=uuid, state="running", vcpus=vcpus, memory=memory, **more)  # type: ignore[arg-type]


ANYWHERE = frozenset[int]()
FLOATS = guest(FLOATING, ANYWHERE, ANYWHERE, memory=(GuestMemory(512),))
VF = GuestDevices(pci=frozenset({at("0000:81:10.0")}))
IS_BOUND = guest(BOUND, frozenset({4, 5}), memory=(GuestMemory(256, frozenset({1})),), devices=VF)
IS_PINNED = guest(PINNED, frozenset({6}), frozenset({7}), memory=(GuestMemory(1024, frozenset({1})),))
IS_HUGE = guest(HUGE, frozenset({0, 1}), memory=(GuestMemory(512, frozenset({0}), huge=True, page_kib=2048),))
IS_WIDE = guest(WIDE, ANYWHERE, ANYWHERE, memory=(GuestMemory(600), GuestMemory(600)))
BY_FLAVOR = Tenant("p", "u", 0, {"VCPU": 1, "MEMORY_MB": 256})
IS_FLAVORED = guest(FLAVORED, ANYWHERE, ANYWHERE, memory=(GuestMemory(300),), tenant=BY_FLAVOR)
EVERYBODY = (FLOATS, IS_BOUND, IS_PINNED, IS_HUGE, IS_WIDE, IS_FLAVORED)


def rows(layout: str) -> dict[str, Slots]:
    """What everybody has in cells or numa; nobody floats in the first cell, where a conversion would put it."""
    first, second = (MEMORY[layout].format(cell) for cell in (0, 1))
    return {
        FLOATING: with_memory("NUMA1", {"VCPU": 2}, second, 512),
        BOUND: with_memory("NUMA1", {"VCPU": 1}, second, 256) | {NIC: {"SRIOV_NET_VF": 1}},
        PINNED: with_memory("NUMA1", {"PCPU": 2}, second, 1024),
        HUGE: {"NUMA0": {"VCPU": 1}, "NUMA0_PAGES_2048": {"MEMORY_MB": 512}},
        WIDE: with_memory("NUMA0", {"VCPU": 1}, first, 500) | with_memory("NUMA1", {"VCPU": 1}, second, 700),
        FLAVORED: with_memory("NUMA1", {"VCPU": 1}, second, 64),
        STRANGER: with_memory("NUMA1", {"VCPU": 1}, second, 128),
    }


def with_memory(cell: str, cpus: Mapping[str, int], pool: str, mib: int) -> Slots:
    found: Slots = {cell: dict(cpus)}
    found.setdefault(pool, {})["MEMORY_MB"] = mib
    return found


def held(one: OneHost) -> dict[str, Slots]:
    return {
        uuid: {name.removeprefix("host_"): dict(each) for name, each in one.held(uuid).items()} for uuid in rows("numa")
    }


Start = Callable[..., OneHost]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts such a host in a layout, whose guests have been given what they have."""

    def begin(layout: Layout, facts: HostFacts, given: Mapping[str, Slots], **policy: object) -> OneHost:
        cpus = CpuPolicy(shared=frozenset(range(8)) - DEDICATED, dedicated=DEDICATED)
        devices = DevicePolicy(discover_all=True)
        fixed = {"layout": layout, "cpus": cpus, "devices": devices, "reserved_memory_mib": 0}
        made = Policy(**{**fixed, **policy})  # type: ignore[arg-type]
        one = OneHost(tmp_path, facts, made)
        assert one.sync().status is Status.CHANGED
        for uuid, slots in given.items():
            one.claim(slots, consumer=uuid)
        return one

    return begin


@pytest.mark.parametrize(("first", "second"), [("cells", "numa"), ("numa", "cells")])
def test_everybody_stays_in_its_cell_between_cells_and_numa_and_all_is_as_it_was_afterwards(
    start: Start, first: Layout, second: Layout
) -> None:
    pages = (ReservedPages(0, 2048, 64), ReservedPages(1, 4, 25_600))
    one = start(first, cells(*EVERYBODY), rows(first), reserved_memory_mib=600, reserved_pages=pages)
    for cell, ratio in ((0, 1.5), (1, 3.0)):
        one.set_by_hand(MEMORY[first].format(cell), "MEMORY_MB", allocation_ratio=ratio)
        one.set_by_hand(f"NUMA{cell}", "VCPU", allocation_ratio=4.0 + cell)
    one.set_by_hand(NIC, "SRIOV_NET_VF", reserved=2)
    one.sync()
    before = [seen.provider for seen in one.tree()]
    reserved = {cell: one.stock(MEMORY[first].format(cell))["MEMORY_MB"] for cell in (0, 1)}
    assert reserved == {0: (7168, 300), 1: (7168, 400)}

    there = one.reshape(second)

    assert there.status is Status.CHANGED, there.notes
    assert held(one) == rows(second)
    assert {cell: one.stock(MEMORY[second].format(cell))["MEMORY_MB"] for cell in (0, 1)} == reserved
    assert one.stock("NUMA0_PAGES_2048")["MEMORY_MB"] == (1024, 128)
    assert one.ratios("MEMORY_MB") == {
        **{f"host_{MEMORY[second].format(cell)}": ratio for cell, ratio in ((0, 1.5), (1, 3.0))},
        **{f"host_NUMA{cell}_PAGES_2048": 1.0 for cell in (0, 1)},
    }
    assert one.stock(NIC)["SRIOV_NET_VF"] == (4, 2)
    assert one.sync().status is Status.UNCHANGED
    one.reshape(first)
    assert held(one) == rows(first)
    assert [seen.provider for seen in one.tree()] == before


@pytest.mark.parametrize("first", ["flat", "devices"])
def test_a_host_with_guests_becomes_cells_and_goes_back(start: Start, first: Layout) -> None:
    """A guest that is bound to no cell comes whole to one cell: to that with its memory, if the kernel tells."""
    resident = replace(FLOATS, resident=((1, 400_000), (0, 100_000)))
    given: dict[str, Slots] = {
        FLOATING: {"": {"VCPU": 2, "MEMORY_MB": 512}},
        BOUND: {"": {"VCPU": 1, "MEMORY_MB": 256}, NIC: {"SRIOV_NET_VF": 1}},
        PINNED: {"": {"PCPU": 2, "MEMORY_MB": 1024}},
        HUGE: {"": {"VCPU": 1, "MEMORY_MB": 512}},
        FLAVORED: {"": {"VCPU": 1, "MEMORY_MB": 64}},
        STRANGER: {"": {"VCPU": 1, "MEMORY_MB": 128}},
    }
    if first == "flat":
        given[BOUND] = {"": {"VCPU": 1, "MEMORY_MB": 256, "SRIOV_NET_VF": 1}}
    facts = cells(resident, IS_BOUND, IS_PINNED, IS_HUGE, IS_FLAVORED)
    one = start(first, facts, given)
    before = {uuid: one.held(uuid) for uuid in given}

    outcome = one.reshape("cells")

    assert outcome.status is Status.CHANGED, outcome.notes
    assert {uuid: one.held(uuid) for uuid in given} == {
        FLOATING: {"host_NUMA1": {"VCPU": 2, "MEMORY_MB": 512}},
        BOUND: {"host_NUMA1": {"VCPU": 1, "MEMORY_MB": 256}, f"host_{NIC}": {"SRIOV_NET_VF": 1}},
        PINNED: {"host_NUMA1": {"PCPU": 2, "MEMORY_MB": 1024}},
        HUGE: {"host_NUMA0": {"VCPU": 1}, "host_NUMA0_PAGES_2048": {"MEMORY_MB": 512}},
        FLAVORED: {"host_NUMA0": {"VCPU": 1, "MEMORY_MB": 64}},
        STRANGER: {"host_NUMA0": {"VCPU": 1, "MEMORY_MB": 128}},
    }
    one.reshape(first)
    assert {uuid: one.held(uuid) for uuid in given} == before


@pytest.mark.parametrize("layout", OF_CELLS)
def test_the_cell_of_a_floating_guest_is_not_guessed_where_a_container_hides_its_memory(
    start: Start, layout: Layout
) -> None:
    given: dict[str, Slots] = {FLOATING: {"": {"VCPU": 2, "MEMORY_MB": 512}}}
    one = start("devices", cells(replace(FLOATS, resident=None)), given)

    outcome = one.reshape(layout)

    assert outcome.status is Status.UNSAFE
    assert "nothing shows in which cell the guest's memory is: give the container" in " ".join(outcome.notes)
    assert one.held(FLOATING) == {"host": given[FLOATING][""]}


@pytest.mark.parametrize("layout", OF_CELLS)
def test_a_floating_guest_whose_memory_a_container_hides_stays_in_its_cell(start: Start, layout: Layout) -> None:
    one = start(layout, cells(replace(FLOATS, resident=None)), {FLOATING: rows(layout)[FLOATING]})
    other = next(each for each in OF_CELLS if each != layout)

    assert one.reshape(other).status is Status.CHANGED
    assert one.held(FLOATING) == {f"host_{name}": each for name, each in rows(other)[FLOATING].items()}


@pytest.mark.parametrize("layout", OF_CELLS)
def test_the_memory_of_a_floating_guest_stays_in_its_cell_though_the_kernel_has_it_in_another(
    start: Start, layout: Layout
) -> None:
    resident = replace(FLOATS, resident=((0, 500_000),))
    one = start(layout, cells(resident), {FLOATING: rows(layout)[FLOATING]})
    other = next(each for each in OF_CELLS if each != layout)

    one.reshape(other)

    assert one.held(FLOATING) == {f"host_{name}": each for name, each in rows(other)[FLOATING].items()}


def test_a_bound_guest_goes_to_its_cell_from_another_one_where_it_was_counted(start: Start) -> None:
    one = start("numa", cells(IS_BOUND), {BOUND: {"NUMA1": {"VCPU": 1}, "NUMA0_PAGES_4": {"MEMORY_MB": 256}}})

    one.reshape("cells")

    assert one.held(BOUND) == {"host_NUMA1": {"VCPU": 1, "MEMORY_MB": 256}}


def test_a_floating_guest_makes_room_for_a_guest_that_is_bound_to_its_cell(start: Start) -> None:
    """The bound one was counted in the wrong cell; with it the cell's small pages are full."""
    bound = replace(IS_BOUND, memory=(GuestMemory(7000, frozenset({1})),), devices=GuestDevices())
    given = {
        BOUND: {"NUMA1": {"VCPU": 1}, "NUMA0_PAGES_4": {"MEMORY_MB": 7000}},
        FLOATING: {"NUMA1": {"VCPU": 2}, "NUMA1_PAGES_4": {"MEMORY_MB": 512}},
    }
    one = start("numa", cells(FLOATS, bound), given)

    one.reshape("cells")

    assert one.held(BOUND) == {"host_NUMA1": {"VCPU": 1, "MEMORY_MB": 7000}}
    assert one.held(FLOATING) == {"host_NUMA1": {"VCPU": 2}, "host_NUMA0": {"MEMORY_MB": 512}}


@pytest.mark.parametrize("mib", [100, 4000])
def test_a_bound_guest_with_another_amount_than_allocated_stays_in_its_cell(start: Start, mib: int) -> None:
    one = start("numa", cells(IS_BOUND), {BOUND: {"NUMA1": {"VCPU": 1}, "NUMA1_PAGES_4": {"MEMORY_MB": mib}}})

    one.reshape("cells")

    assert one.held(BOUND) == {"host_NUMA1": {"VCPU": 1, "MEMORY_MB": mib}}
    one.reshape("numa")
    assert one.held(BOUND) == {"host_NUMA1": {"VCPU": 1}, "host_NUMA1_PAGES_4": {"MEMORY_MB": mib}}


def test_what_contradicts_the_cell_of_a_bound_guest_is_refused(start: Start) -> None:
    """Another amount, in another cell: nothing shows what the allocation means."""
    slots = {"NUMA1": {"VCPU": 1}, "NUMA0_PAGES_4": {"MEMORY_MB": 100}}
    one = start("numa", cells(IS_BOUND), {BOUND: slots})

    outcome = one.reshape("cells")

    assert outcome.status is Status.UNSAFE
    assert "the hypervisor gives its guest 256 on host_NUMA1" in outcome.notes[0]
    assert one.held(BOUND) == {f"host_{name}": each for name, each in slots.items()}


def test_huge_pages_that_come_take_nobody_out_of_the_small_ones(start: Start) -> None:
    given = {uuid: slots for uuid, slots in rows("cells").items() if uuid != HUGE}
    one = start("cells", cells(*(each for each in EVERYBODY if each.uuid != HUGE), huge=0), given)

    outcome = one.sync(facts=cells(*(each for each in EVERYBODY if each.uuid != HUGE)))

    assert outcome.status is Status.CHANGED
    assert (one.stock("NUMA1")["MEMORY_MB"], one.stock("NUMA1_PAGES_2048")["MEMORY_MB"]) == ((7168, 0), (1024, 0))
    assert {uuid: one.held(uuid) for uuid in given} == {
        uuid: {f"host_{name}": each for name, each in slots.items()} for uuid, slots in given.items()
    }


@pytest.mark.parametrize("layout", OF_CELLS)
@pytest.mark.parametrize("guests", [(IS_HUGE,), ()], ids=["a guest", "a stranger"])
def test_huge_pages_that_go_are_not_replaced_by_small_ones(
    start: Start, layout: Layout, guests: tuple[Guest, ...]
) -> None:
    one = start(layout, cells(*guests), {HUGE: rows(layout)[HUGE]})
    before = one.held(HUGE)

    outcome = one.sync(RESHAPE, facts=cells(*guests, huge=0))

    assert outcome.status is Status.UNSAFE
    assert one.held(HUGE) == before


def test_huge_pages_of_an_only_cell_that_go_are_not_replaced_by_small_ones(start: Start) -> None:
    def only(facts: HostFacts) -> HostFacts:
        return replace(facts, cells=facts.cells[:1], cpu_map=CpuMap(4, frozenset(range(4))))

    one = start("cells", only(cells()), {HUGE: rows("cells")[HUGE]}, cpus=CpuPolicy())
    before = one.held(HUGE)

    assert one.sync(RESHAPE, facts=only(cells(huge=0))).status is Status.UNSAFE
    assert one.held(HUGE) == before


@pytest.mark.parametrize("layout", OF_CELLS)
def test_more_of_a_cells_small_pages_than_it_has_cannot_be_overcommitted_by_another_cells_ratio(
    start: Start, layout: Layout
) -> None:
    """One cell's ratio is not the other's: each comes along by itself, though they differ."""
    one = start(layout, cells(), {})
    one.set_by_hand(MEMORY[layout].format(0), "MEMORY_MB", allocation_ratio=2.0)
    one.sync()
    other = next(each for each in OF_CELLS if each != layout)

    one.reshape(other)

    assert {name: ratio for name, ratio in one.ratios("MEMORY_MB").items() if "2048" not in name} == {
        f"host_{MEMORY[other].format(0)}": 2.0,
        f"host_{MEMORY[other].format(1)}": 1.0,
    }
    assert one.sync(FORCE, policy=replace(one.policy, ratios=Ratios(ram=Ratio(1.0, 1.25)))).status is Status.CHANGED
    assert set(one.ratios("MEMORY_MB").values()) == {1.25, 1.0}  # huge pages cannot be overcommitted


@pytest.mark.parametrize(
    ("tenant", "booked"),
    [
        pytest.param(IS_BOUND.tenant, {"VCPU": 1, "MEMORY_MB": 256}, id="what it has"),
        pytest.param(
            Tenant("p", "u", 20, {"VCPU": 2, "MEMORY_MB": 512}),
            {"VCPU": 2, "MEMORY_MB": 512},
            id="what its flavor says",
        ),
    ],
)
def test_an_audit_finds_a_bound_guest_in_another_cell_and_no_fault_with_the_others(
    start: Start, tenant: Tenant | None, booked: dict[str, int]
) -> None:
    given = rows("cells") | {BOUND: {"NUMA0": booked, NIC: {"SRIOV_NET_VF": 1}}}
    everybody = (*(one for one in EVERYBODY if one.uuid != BOUND), replace(IS_BOUND, tenant=tenant))
    one = start("cells", cells(*everybody), {uuid: slots for uuid, slots in given.items() if uuid != STRANGER})
    node = replace(one.node, settings=replace(one.settings, audit_grace_s=0))

    found = {(each.kind.value, each.consumer, each.provider, each.resource_class) for each in witness(node).findings}

    assert found == {
        ("wrong-provider", BOUND, f"host_{cell}", name) for cell in ("NUMA0", "NUMA1") for name in ("VCPU", "MEMORY_MB")
    }


A_GUEST, ANOTHER = BOUND, HUGE


@pytest.mark.parametrize(
    ("resident", "rows_of_it"),
    [
        pytest.param(
            guest(
                A_GUEST,
                frozenset({3}),
                frozenset({7}),
                memory=tuple(GuestMemory(256, frozenset({cell})) for cell in (0, 1)),
                tenant=Tenant("p", "u", 0, {"PCPU": 2}),
            ),
            {f"NUMA{cell}": {"PCPU": 1, "MEMORY_MB": 256} for cell in (0, 1)},
            id="one of its dedicated CPUs is to be a shared one",
        ),
        pytest.param(
            guest(
                A_GUEST,
                frozenset({0, 1}),
                memory=(GuestMemory(512, frozenset({0}), huge=True, page_kib=2048),),
                tenant=Tenant("p", "u", 0, {"MEMORY_MB": 129}),
            ),
            {"NUMA0": {"VCPU": 1, "MEMORY_MB": 129}},
            id="its flavor's amount is not in whole huge pages",
        ),
    ],
)
def test_the_place_of_what_a_flavor_gives_is_not_judged_where_it_is_not_one_that_can_give_it(
    start: Start, resident: Guest, rows_of_it: dict[str, dict[str, int]]
) -> None:
    cpus = CpuPolicy(shared=frozenset({0, 1}), dedicated=DEDICATED)
    one = start("cells", cells(resident), {A_GUEST: rows_of_it}, cpus=cpus)
    one.policy = replace(one.policy, cpus=CpuPolicy(shared=frozenset({0, 1, 7}), dedicated=frozenset({2, 3, 6})))

    assert witness(replace(one.node, settings=replace(one.settings, audit_grace_s=0))).findings == ()


def pinned(who: str, first: int, cell: int) -> Guest:
    """A guest with two dedicated CPUs and memory of one cell."""
    return guest(who, frozenset({first}), frozenset({first + 1}), memory=(GuestMemory(256, frozenset({cell})),))


@pytest.mark.parametrize("layout", ["devices", "cells"])
def test_the_cpus_of_a_guest_are_not_judged_that_is_pinned_to_one_that_is_in_neither_set_any_more(
    start: Start, layout: Layout
) -> None:
    place = "" if layout == "devices" else "NUMA0"
    resident, cpus = pinned(A_GUEST, 2, 0), CpuPolicy(shared=frozenset({0, 1}), dedicated=DEDICATED)
    one = start(layout, cells(resident), {A_GUEST: {place: {"PCPU": 2, "MEMORY_MB": 256}}}, cpus=cpus)
    one.policy = replace(one.policy, cpus=CpuPolicy(shared=frozenset({0, 1}), dedicated=frozenset({2, 6, 7})))

    assert witness(replace(one.node, settings=replace(one.settings, audit_grace_s=0))).findings == ()


def healed_at_once(start: Start, given: dict[str, Any], *several: Guest) -> dict[str | None, Healed]:
    """What became of each guest, with what others have of the places that are theirs."""
    one = start("cells", cells(*several), given)
    node = replace(one.node, settings=replace(one.settings, audit_grace_s=0))
    policy = HealPolicy(kinds=frozenset({Kind.WRONG_PROVIDER}), at_once=True, limit=1)
    healed = {each.finding.consumer: each.healed for each in heal(node, witness(node), policy)}
    assert all(healed[each.consumer] is not Healed.HEALED for each in witness(node).findings)
    return healed


CROSSED = {A_GUEST: {"NUMA1": {"PCPU": 2, "MEMORY_MB": 256}}, ANOTHER: {"NUMA0": {"PCPU": 2, "MEMORY_MB": 256}}}


def test_repairs_that_fail_do_not_keep_others_off(start: Start) -> None:
    """Two guests are pinned to the same CPUs, of which one has the allocations: the other's place has no room."""
    third = guest(FLAVORED, frozenset({0, 1}), memory=(GuestMemory(256, frozenset({0})),))
    given = CROSSED | {FLAVORED: {"NUMA1": {"VCPU": 1, "MEMORY_MB": 256}}}

    healed = healed_at_once(start, given, pinned(A_GUEST, 2, 0), pinned(ANOTHER, 2, 0), third)

    assert healed == {A_GUEST: Healed.FAILED, FLAVORED: Healed.HEALED}


def test_two_guests_that_have_each_others_dedicated_cpus_get_their_own_at_once(start: Start) -> None:
    healed = healed_at_once(start, CROSSED, pinned(A_GUEST, 2, 0), pinned(ANOTHER, 6, 1))

    assert healed == {A_GUEST: Healed.HEALED, ANOTHER: Healed.HEALED}


@pytest.mark.parametrize(("role", "layout"), [("audit", "flat"), ("sole", "devices")])
def test_what_novas_pci_tracker_reports_below_the_root_is_no_other_layout_where_the_agent_only_audits(
    start: Start, role: Role, layout: Layout
) -> None:
    one = start("flat", cells(), {})
    stock = {"CUSTOM_PCI_8086_10ED": Inventory(total=8, max_unit=8)}
    tracked = Provider(name="host_card", parent="host", inventories=stock, traits=frozenset({MANAGED, OWNER_NOVA}))
    tree = ObservedTree(
        (
            ObservedProvider(uuid="root", generation=1, provider=Provider(name="host")),
            ObservedProvider(uuid="card", generation=1, provider=tracked),
        )
    )
    node = replace(one.node, settings=replace(one.settings, role=role))

    assert node.standing_layout(tree, NodeState()) == layout


def test_every_layout_can_be_planned_by_name() -> None:
    choices = {option.choices for option in VERBS["reshape"].options if option.name == "--to"}

    assert choices == {get_args(Layout)}


def with_gpu(*guests: Guest) -> HostFacts:
    """The host with a cell of 16 GiB that has no CPUs, as a GPU shows its memory."""
    facts = cells(*guests)
    return replace(
        facts, cells=(*facts.cells, NumaCell(255, 16 << 20, frozenset(), (MemoryPages(4, 0), MemoryPages(2048, 0))))
    )


LARGE = guest(FLOATING, ANYWHERE, memory=(GuestMemory(6000),))


@pytest.mark.parametrize("layout", OF_CELLS)
def test_no_guest_comes_to_the_memory_of_a_gpu_on_the_way_to_cells_and_all_is_as_it_was_back(
    start: Start, layout: Layout
) -> None:
    """Guests with most of their memory there too: the kernel may put it there."""
    there = replace(LARGE, resident=((255, 6000 << 10),))
    one = start("devices", with_gpu(there), {FLOATING: {"": {"VCPU": 1, "MEMORY_MB": 6000}}})
    before = [seen.provider for seen in one.tree()]

    converted = one.reshape(layout, force=False)

    assert converted.status is Status.CHANGED, converted.notes
    assert any("NUMA cells without CPUs (255)" in note for note in converted.notes)
    assert one.stock(MEMORY[layout].format(255))["MEMORY_MB"] == (16384, 16384)
    assert one.held(FLOATING) == {
        f"host_{name}": slots
        for name, slots in with_memory("NUMA0", {"VCPU": 1}, MEMORY[layout].format(0), 6000).items()
    }
    assert one.sync().status is Status.UNCHANGED
    assert witness(one.node).findings == ()
    one.reshape("devices", force=False)
    assert [seen.provider for seen in one.tree()] == before


@pytest.mark.parametrize("layout", OF_CELLS)
def test_a_guest_that_was_given_memory_without_cpus_is_not_robbed_of_it(start: Start, layout: Layout) -> None:
    pool = MEMORY[layout].format(255)
    given = {FLOATING: with_memory("NUMA0", {"VCPU": 1}, pool, 6000)}
    one = start(layout, with_gpu(LARGE), given, reserved_cells=frozenset())
    assert one.stock(pool)["MEMORY_MB"] == (16384, 0)

    refused = one.sync(policy=replace(one.policy, reserved_cells=None))

    assert refused.status is Status.UNSAFE
    assert f"6000 MEMORY_MB on host_{pool} are allocated, and the plan would leave room for 0" in refused.notes[0]
    assert one.sync(policy=replace(one.policy, reserved_cells=frozenset())).status is Status.CHANGED
    assert one.stock(pool)["MEMORY_MB"] == (16384, 0)
    assert one.sync(FORCE, policy=replace(one.policy, reserved_cells=None)).status is Status.CHANGED
    assert one.held(FLOATING) == {f"host_{name}": slots for name, slots in given[FLOATING].items()}
    assert one.sync().status is Status.UNCHANGED


@pytest.mark.parametrize("layout", get_args(Layout))
def test_other_dedicated_cpus_come_not_on_offer_while_a_guest_without_allocations_is_pinned_to_them(
    start: Start, layout: Layout
) -> None:
    """As many as before, in the same cell; until the guest has its allocations."""
    first, other = (CpuPolicy(shared=frozenset({0, 1}), dedicated=frozenset(cpus)) for cpus in ({4, 5}, {6, 7}))
    one = start(layout, cells(IS_PINNED), {}, cpus=first)

    for _ in range(2):
        refused = one.sync(policy=replace(one.policy, cpus=other))
        assert refused.status is Status.UNSAFE
        assert f"guest {PINNED} is pinned to 2 CPUs" in refused.notes[0]
    cell = "NUMA1" if layout in OF_CELLS else ""
    one.claim({cell: {"PCPU": 2}}, consumer=PINNED)
    assert one.sync().status is Status.UNCHANGED
    one.claim({}, consumer=PINNED)
    assert one.sync().status is Status.UNCHANGED, "what is on offer already is the audit's business"
    assert one.sync(policy=replace(one.policy, cpus=first), facts=cells()).status is Status.UNCHANGED


@pytest.mark.parametrize("layout", get_args(Layout))
@pytest.mark.parametrize("remembered", [True, False], ids=["", "with lost state"])
@pytest.mark.parametrize("now", [frozenset({4, 5}), frozenset({5, 7}), None], ids=["others", "one of them", "none"])
@pytest.mark.parametrize("state", ["running", "shutoff"])
def test_cpus_that_are_dedicated_no_more_come_not_on_offer_while_a_guest_that_has_pcpu_is_pinned_to_them(
    start: Start, layout: Layout, remembered: bool, now: frozenset[int] | None, state: str
) -> None:
    first = CpuPolicy(shared=frozenset({0, 1}), dedicated=frozenset({6, 7}))
    other = CpuPolicy(shared=frozenset(range(8)) - (now or frozenset()), dedicated=now)
    cell = "NUMA1" if layout in OF_CELLS else ""
    one = start(layout, cells(replace(IS_PINNED, state=state)), {PINNED: {cell: {"PCPU": 2}}}, cpus=first)
    before = one.tree()
    if not remembered:
        one.forget()

    for wishes in (RESHAPE, FORCE):
        refused = one.sync(wishes, policy=replace(one.policy, cpus=other))
        assert refused.status is Status.UNSAFE
        assert f"guest {PINNED} has 2 PCPU in placement and is pinned to CPUs 6" in refused.notes[0]
    assert one.tree() == before
    assert one.sync(policy=replace(one.policy, cpus=first)).status is Status.UNCHANGED
    one.claim({}, consumer=PINNED)
    assert one.sync(FORCE, policy=replace(one.policy, cpus=other), facts=cells()).status is Status.CHANGED


ODD = "memory in the unit 'TiB'"
NOT_UNDERSTOOD = Guest(uuid=PINNED, state="running", unread=ODD)


@pytest.mark.parametrize("layout", get_args(Layout))
@pytest.mark.parametrize("remembered", [True, False], ids=["", "with lost state"])
def test_other_cpus_become_dedicated_only_where_no_guest_is_not_understood(
    start: Start, layout: Layout, remembered: bool
) -> None:
    first, other = (CpuPolicy(shared=frozenset({0, 1}), dedicated=frozenset(cpus)) for cpus in ({4, 5}, {6, 7, 2}))
    one = start(
        layout, cells(NOT_UNDERSTOOD), {PINNED: {"NUMA1" if layout in OF_CELLS else "": {"PCPU": 2}}}, cpus=first
    )
    before = one.tree()
    if not remembered:
        one.forget()

    for _ in range(2):
        refused = one.sync(FORCE, policy=replace(one.policy, cpus=other))
        assert refused.status is Status.UNSAFE
        assert f"guest {PINNED} may be pinned to CPUs" in refused.notes[0]
    assert one.tree() == before
    again = one.sync(policy=replace(one.policy, cpus=first))
    assert again.status is Status.UNCHANGED
    assert again.notes[0].startswith(f"guest {PINNED} is not understood: {ODD}. What it has")
    assert one.sync(FORCE, policy=replace(one.policy, cpus=other), facts=cells()).status is Status.CHANGED


def test_a_conversion_that_divides_what_a_guest_that_is_not_understood_has_is_refused(start: Start) -> None:
    one = start("flat", cells(NOT_UNDERSTOOD), {PINNED: {"": {"VCPU": 1}}})

    refused = one.reshape("cells")

    assert refused.status is Status.UNSAFE
    assert f"consumer {PINNED} has 1 VCPU on host, and the hypervisor gives its guest none" in refused.notes[0]
    assert one.reshape("devices").status is Status.CHANGED, "its CPUs stay where they are"


def test_the_cpu_of_a_guests_emulator_comes_not_on_offer_while_it_is_used(start: Start) -> None:
    first = CpuPolicy(shared=frozenset({0, 1}), dedicated=frozenset({5, 6, 7}))
    other = CpuPolicy(shared=frozenset({0, 1, 5}), dedicated=frozenset({4, 6, 7}))
    resident = replace(IS_PINNED, emulator_cpus=frozenset({5}))
    one = start("devices", cells(resident), {PINNED: {"": {"PCPU": 3, "MEMORY_MB": 1024}}}, cpus=first)

    refused = one.sync(policy=replace(one.policy, cpus=other))

    assert refused.status is Status.UNSAFE
    assert f"guest {PINNED} has 3 PCPU in placement and is pinned to CPUs 5" in refused.notes[0]


def without(cpu: int, *guests: Guest) -> HostFacts:
    """The host while a CPU is off: libvirt's topology lacks it, and the kernel tells its cell."""
    facts = cells(*guests)
    left = tuple(replace(cell, cpus=cell.cpus - {cpu}) for cell in facts.cells)
    home = next(id_ for id_, cpus in CPUS.items() if cpu in cpus)
    return replace(facts, cpu_map=CpuMap(8, facts.cpu_map.online - {cpu}), cells=left, offline_cpus=((cpu, home),))


OFF = "cpu_dedicated_set names CPU 7, off on this host"


@pytest.mark.parametrize("layout", get_args(Layout))
def test_a_dedicated_cpu_that_goes_off_is_taken_off_offer_and_comes_back(start: Start, layout: Layout) -> None:
    """A guest that is pinned to it keeps its PCPU, and another CPU counts for the guest."""
    cell = "NUMA1" if layout in OF_CELLS else ""
    resident = replace(IS_PINNED, vcpus=(frozenset({7}),), memory=())
    one = start(layout, cells(resident), {PINNED: {cell: {"PCPU": 1}}})
    before, audited = one.tree(), replace(one.node, settings=replace(one.settings, audit_grace_s=0))

    gone = one.sync(FORCE, facts=without(7, resident))
    stock, quiet = one.stock(cell)["PCPU"], one.sync()
    back = one.sync(facts=cells(resident))

    assert gone.status is back.status is Status.CHANGED
    assert stock == ((1, 0) if cell else (3, 0))
    assert (quiet.status, len(quiet.notes), OFF in quiet.notes[0]) == (Status.UNCHANGED, 1, True)
    assert [replace(seen, generation=0) for seen in one.tree()] == [replace(seen, generation=0) for seen in before]
    assert (back.notes, one.held(PINNED)) == ((), {f"host_{cell}" if cell else "host": {"PCPU": 1}})
    assert witness(audited).findings == ()


@pytest.mark.parametrize("layout", get_args(Layout))
def test_a_dedicated_cpu_that_goes_off_while_all_are_used_refuses_the_plan_alone(start: Start, layout: Layout) -> None:
    cell = "NUMA1" if layout in OF_CELLS else ""
    used = {PINNED: {cell: {"PCPU": 2 if cell else 4}}}
    one = start(layout, cells(IS_PINNED), used)

    gone = one.sync(facts=without(7, IS_PINNED))

    assert gone.status is Status.UNSAFE
    assert any(OFF in note for note in gone.notes), gone.notes
    assert any("PCPU" in note and "--force" in note for note in gone.notes), gone.notes
    assert one.sync(facts=cells(IS_PINNED)).status is Status.UNCHANGED


@pytest.mark.parametrize("layout", get_args(Layout))
def test_a_shared_cpu_that_goes_off_is_taken_off_offer_and_comes_back(start: Start, layout: Layout) -> None:
    cell = "NUMA1" if layout in OF_CELLS else ""
    one = start(layout, cells(), {})
    before = one.stock(cell)

    gone, stock = one.sync(facts=without(5)), one.stock(cell)
    back = one.sync(facts=cells())

    assert (gone.status, back.status, back.notes) == (Status.CHANGED, Status.CHANGED, ())
    assert "cpu_shared_set names CPU 5, off on this host" in gone.notes[0]
    assert stock == before | {"VCPU": (before["VCPU"][0] - 1, 0)}
    assert one.stock(cell) == before


@pytest.mark.parametrize("tenant", [None, Tenant("p", "u", 0, {})], ids=["another program's", "nova's"])
def test_of_a_guest_of_another_program_that_has_vcpus_switched_off_the_cpus_are_not_told(tenant: Tenant | None) -> None:
    resident = replace(FLOATS, some_off=True, tenant=tenant)
    policy = Policy(layout="cells", devices=DevicePolicy(discover_all=True))

    known = shape(cells(resident), policy, None).holdings.known[FLOATING]

    assert ("VCPU" in known.untold - known.overridden) is (tenant is None)
