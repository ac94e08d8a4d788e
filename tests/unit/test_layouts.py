"""One host in all layouts: another shape, the same sums."""

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.by_suffix import BySuffix
from drivers.cells import apportion, cells_without_cpus, page_mib
from drivers.devices.inventories import nova_name
from drivers.errors import MalformedFact, PolicyError
from drivers.facts import (
    CpuMap,
    Devices,
    Guest,
    HostFacts,
    MdevParent,
    MdevType,
    MemoryPages,
    NetDevice,
    NumaCell,
    OfferedEncryption,
    PciFunction,
    SevKernel,
    Versions,
)
from drivers.libvirt.shape import idle, shape
from drivers.policy import (
    OF_CELLS,
    WITHOUT_CPUS,
    Bandwidth,
    CpuPolicy,
    DevicePolicy,
    DeviceRule,
    Layout,
    MdevRule,
    Policy,
    Ratio,
    Ratios,
    ReservedCells,
    ReservedPages,
    RuleNetwork,
)
from fakes import FACTS, PC, offering
from hardware import card, gpu, host, hosts, parent, plain, policies, rules
from reportclient.allocations import Holding
from reportclient.names import HUGE
from reportclient.ownership import MARKER
from reportclient.reserve import KEEP, UNHEALTHY
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree

LAYOUTS: tuple[Layout, ...] = get_args(Layout)


def tree(facts: HostFacts, layout: Layout, observed: ObservedTree | None = None, **policy: object) -> ProviderTree:
    return shape(facts, Policy(layout=layout, **policy), observed).tree  # type: ignore[arg-type]


def sums(providers: Iterable[Provider], term: str = "total") -> dict[str, int]:
    found: dict[str, int] = {}
    for provider in providers:
        for name, stock in provider.inventories.items():
            found[name] = found.get(name, 0) + getattr(stock, term)
    return found


@given(hosts(), policies, st.integers(0, 600), st.sampled_from((None, WITHOUT_CPUS, "none", "last")))
def test_the_totals_of_every_class_are_the_same_in_each_layout(
    facts: HostFacts, devices: DevicePolicy, reserved_mib: int, whole: str | None
) -> None:
    """What is reserved too, unless the layouts with cells keep those without CPUs from guests by themselves."""
    last = frozenset(cell.id for cell in facts.cells[1:][-1:])
    named = {"none": frozenset(), "last": last}.get(str(whole), whole)
    policy: dict[str, Any] = {"devices": devices, "cpus": CpuPolicy(reserved=len(facts.cpu_map.online) // 3)}
    policy |= {"reserved_memory_mib": reserved_mib, "reserved_cells": named}
    shapes = [tree(facts, layout, **policy) for layout in LAYOUTS]

    for term in ("total", "reserved") if whole or not cells_without_cpus(facts) else ("total",):
        assert all(sums(one, term) == sums(shapes[0], term) for one in shapes)


@given(hosts())
def test_the_vfs_of_a_card_are_reserved_if_it_has_links_and_all_are_down_and_else_on_offer(facts: HostFacts) -> None:
    found = {one.name: one for one in tree(facts, "devices", devices=DevicePolicy(discover_all=True))}

    for pf in facts.devices.functions:
        if pf.vfs:
            stock = found[f"host_{nova_name(str(pf.address))}"].inventories["SRIOV_NET_VF"]
            down = [link.state == "down" for link in pf.net_devices]
            assert (stock.total, stock.reserved) == (len(pf.vfs), len(pf.vfs) if down and all(down) else 0)


@given(hosts(), policies, st.sampled_from(OF_CELLS))
def test_a_child_is_under_a_cell_only_if_the_host_has_that_cell(
    facts: HostFacts, devices: DevicePolicy, layout: Layout
) -> None:
    found = tree(facts, layout, devices=devices, reserved_memory_mib=0)

    cells = {f"host_NUMA{cell.id}" for cell in facts.cells}
    parents = {provider.parent for provider in found if provider.parent}
    assert parents <= cells | {"host"}
    shown = {provider.name for provider in found if "HW_NUMA_ROOT" in provider.traits}
    assert shown == {provider.name for provider in found if provider.name in cells}
    assert all(provider.inventories for provider in found if provider.name in shown - parents)


@given(st.integers(0, 1000), st.dictionaries(st.integers(0, 9), st.integers(0, 500), min_size=1))
def test_what_is_dealt_out_adds_up_and_nobody_gets_more_than_there_is(amount: int, weights: dict[int, int]) -> None:
    amount = min(amount, sum(weights.values()))

    shares = apportion(amount, weights)

    assert sum(shares.values()) == amount
    assert all(0 <= shares[key] <= weights[key] for key in weights)


@pytest.mark.parametrize(
    ("amount", "weights", "shares"),
    [
        pytest.param(512, {0: 1000, 1: 1000}, {0: 256, 1: 256}, id="evenly"),
        pytest.param(1, {3: 5, 7: 5}, {3: 1, 7: 0}, id="a tie goes to the lowest"),
        pytest.param(10, {0: 70, 1: 25, 2: 5}, {0: 7, 1: 3, 2: 0}, id="largest remainder first, then lowest id"),
        pytest.param(0, {0: 0}, {0: 0}, id="nothing of nothing"),
    ],
)
def test_apportion(amount: int, weights: dict[int, int], shares: dict[int, int]) -> None:
    assert apportion(amount, weights) == shares


def test_in_cells_small_pages_are_on_the_cell_and_huge_ones_below_it() -> None:
    pages = (MemoryPages(4, 0), MemoryPages(2048, 512))
    facts = replace(FACTS, cells=(replace(FACTS.cells[0], memory_kib=8 << 20, pages=pages), FACTS.cells[1]))
    reserved, ratios = (ReservedPages(0, 4, 256), ReservedPages(0, 2048, 64)), Ratios(ram=Ratio(1.5))

    cells, numa = (tree(facts, layout, reserved_pages=reserved, ratios=ratios) for layout in OF_CELLS)

    by_name, pools = ({one.name: one for one in each} for each in (cells, numa))
    assert by_name.keys() == pools.keys() - {"host_NUMA0_PAGES_4", "host_NUMA1_PAGES_4"}
    for cell in ("host_NUMA0", "host_NUMA1"):
        small = pools[f"{cell}_PAGES_4"].inventories
        assert by_name[cell].inventories == {**pools[cell].inventories, **small}
        assert (small["MEMORY_MB"].allocation_ratio, small["MEMORY_MB"].reserved > 0) == (1.5, True)
        assert by_name[cell].traits == pools[cell].traits == {"HW_NUMA_ROOT", MARKER}
    assert by_name["host_NUMA0_PAGES_2048"] == pools["host_NUMA0_PAGES_2048"]
    assert pools["host_NUMA0_PAGES_2048"].inventories["MEMORY_MB"].allocation_ratio == 1.0


def test_a_cell_with_huge_pages_alone_has_no_memory_of_its_own() -> None:
    cell = replace(FACTS.cells[0], memory_kib=4 << 20, pages=(MemoryPages(4, 0), MemoryPages(2048, 2048)))
    facts = replace(FACTS, cells=(cell,))

    cells, numa = (tree(facts, layout, reserved_memory_mib=0) for layout in OF_CELLS)

    assert cells == numa


@pytest.mark.parametrize("layout", OF_CELLS)
def test_the_ratio_of_the_provider_itself_comes_before_that_of_the_other_layouts(layout: Layout) -> None:
    """Both have MEMORY_MB of one cell only where somebody else put it on one of them."""
    ratios = {"host_NUMA0": 2.0, "host_NUMA0_PAGES_4": 3.0}
    root, *_ = tree(FACTS, layout)
    seen = [ObservedProvider(uuid="r", generation=1, provider=root)]
    for name, ratio in ratios.items():
        stock = {"MEMORY_MB": Inventory(total=1024, allocation_ratio=ratio)}
        one = Provider(name=name, parent="host", inventories=stock, traits=frozenset({MARKER}))
        seen.append(ObservedProvider(uuid=name, generation=1, provider=one))

    found = tree(FACTS, layout, ObservedTree(tuple(seen)))

    (memory,) = (one for one in found if one.name in ratios and "MEMORY_MB" in one.inventories)
    assert memory.inventories["MEMORY_MB"].allocation_ratio == ratios[memory.name]


def test_the_remainder_of_the_mib_goes_to_the_lowest_cell_with_memory() -> None:
    cells = tuple(NumaCell(id_, kib, frozenset()) for id_, kib in ((0, 0), (2, 1536), (5, 1536)))

    assert page_mib(cells) == {(2, 4): 2, (5, 4): 1}


def test_more_huge_pages_than_memory_are_not_believed() -> None:
    cells = (NumaCell(0, 1024, frozenset(), (MemoryPages(4, 0), MemoryPages(2048, 5))),)

    with pytest.raises(MalformedFact, match="more huge pages in cell 0"):
        page_mib(cells)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        pytest.param(
            {"reserved_memory_mib": 2002}, "is 2002 MiB, but the cells have only 2001", id="more than the small pages"
        ),
        pytest.param(
            {"reserved_pages": (ReservedPages(7, 4, 1),)}, "1 pages of 4 KiB in cell 7, .* has 0: ", id="no such cell"
        ),
        pytest.param(
            {"reserved_pages": (ReservedPages(0, 1 << 20, 1),)}, "pages of 1048576 KiB in cell 0, ", id="no such size"
        ),
        pytest.param({"cpus": CpuPolicy(reserved=9)}, "9 VCPU are to be reserved", id="more than all CPUs"),
    ],
)
def test_what_cannot_be_reserved_is_refused(policy: dict[str, object], message: str) -> None:
    assert memory(tree(FACTS, "numa", reserved_memory_mib=2001, cpus=CpuPolicy(reserved=4))) == {
        "NUMA0": (1001, 1001),
        "NUMA1": (1000, 1000),
    }
    with pytest.raises(PolicyError, match=message):
        tree(FACTS, "numa", None, **policy)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        pytest.param({}, (301, 300), id="in proportion"),
        pytest.param({1: 500}, (101, 500), id="one cell said, and the rest in the other"),
        pytest.param({0: 0}, (0, 601), id="none of one cell"),
        pytest.param({0: 100, 1: 201}, (259, 342), id="all cells said, and the rest in proportion to what is left"),
    ],
)
@pytest.mark.parametrize("layout", OF_CELLS)
def test_what_the_host_keeps_of_a_cells_memory_can_be_said(
    layout: Layout, said: dict[int, int], kept: tuple[int, int]
) -> None:
    found = memory(tree(FACTS, layout, reserved_memory_mib=601, reserved_cell_mib=said))

    assert (found["NUMA0"][1], found["NUMA1"][1]) == kept


HBM = replace(FACTS, cells=(*FACTS.cells, NumaCell(2, 1 << 20, frozenset())))


@pytest.mark.parametrize(
    ("facts", "more", "said", "kept", "told"),
    [
        pytest.param(FACTS, {}, {0: 1500}, (1001, 599), "and 1001 MiB are kept there, as it has no", id="too much"),
        pytest.param(FACTS, {}, {0: 100}, (600, 1000), "and 600 MiB are kept there, as no other cell", id="too little"),
        pytest.param(FACTS, {}, {7: 300}, (800, 800), "which this host does not have", id="no such cell"),
        pytest.param(FACTS, {}, {7: 0}, (800, 800), "which this host does not have", id="nothing of no such cell"),
        pytest.param(
            HBM, {"reserved_cells": frozenset()}, {2: 300}, (800, 800), "and nothing is kept", id="a cell without CPUs"
        ),
        pytest.param(
            HBM, {"reserved_cells": frozenset({2})}, {2: 300}, (800, 800), "which is reserved whole", id="a whole cell"
        ),
    ],
)
def test_what_the_host_cannot_keep_of_a_cell_is_kept_in_others_and_told(
    facts: HostFacts, more: dict[str, Any], said: dict[int, int], kept: tuple[int, int], told: str
) -> None:
    shaped = shape(facts, Policy(layout="numa", reserved_memory_mib=1600, reserved_cell_mib=said, **more), None)

    found = memory(shaped.tree)
    assert (found["NUMA0"][1], found["NUMA1"][1]) == kept
    ((cell, mib),) = said.items()
    start = f"[agent] reserved_cell_memory is {mib} MiB in cell {cell}, {told}"
    assert any(each.startswith(start) for each in shaped.holdings.lacking), shaped.holdings.lacking


@pytest.mark.parametrize("layout", ["flat", "devices", "cells", "numa"])
def test_what_is_said_for_a_cell_is_told_where_it_has_no_effect(layout: Layout) -> None:
    found = idle(FACTS, Policy(layout=layout, reserved_memory_mib=100, reserved_cell_mib={0: 50}))

    assert any("[agent] reserved_cell_memory has no effect" in each for each in found) == (layout not in OF_CELLS)


@pytest.mark.parametrize("layout", OF_CELLS)
def test_what_is_said_for_a_cell_changes_no_sum(layout: Layout) -> None:
    """Also where the others have no room for the rest."""
    pages = (ReservedPages(1, 4, 51_200),)  # 200 MiB

    for said in ({}, {0: 500}, {1: 100}, {0: 1, 1: 1}):
        found = memory(tree(FACTS, layout, reserved_memory_mib=1700, reserved_pages=pages, reserved_cell_mib=said))
        assert sum(reserved for _, reserved in found.values()) == 1900, said


def test_reserved_huge_pages_are_kept_in_their_pool() -> None:
    pages = (MemoryPages(4, 0), MemoryPages(2048, 100))
    facts = replace(FACTS, cells=(replace(FACTS.cells[0], memory_kib=4 << 20, pages=pages),))

    found = tree(facts, "numa", reserved_pages=(ReservedPages(0, 2048, 64),))

    pool = next(one for one in found if one.name == "host_NUMA0_PAGES_2048")
    assert (pool.inventories["MEMORY_MB"].total, pool.inventories["MEMORY_MB"].reserved) == (200, 128)


@pytest.mark.parametrize(
    ("host_mib", "count", "fits"), [(1024, 786_432, True), (1024, 786_433, False), (0, 1 << 20, True)]
)
def test_small_pages_are_reserved_beside_the_hosts_memory_as_far_as_there_are_any(
    host_mib: int, count: int, fits: bool
) -> None:
    facts = replace(FACTS, cells=(NumaCell(0, 4 << 20, FACTS.cells[0].cpus, (MemoryPages(4, 0),)),))
    wishes = {"reserved_memory_mib": host_mib, "reserved_pages": (ReservedPages(0, 4, count),)}

    if not fits:
        with pytest.raises(PolicyError, match="reserved_host_memory_mb is 1024 MiB, but the cells have only 1023"):
            tree(facts, "cells", None, **wishes)
        return
    assert sums(tree(facts, "cells", None, **wishes), "reserved")["MEMORY_MB"] == 4096


@pytest.mark.parametrize("layout", ["devices", *OF_CELLS])
@pytest.mark.parametrize(("sockets", "told"), [((0, 0), "; cell 0, of the cells 0-1 of socket 0"), ((0, 1), "")])
def test_a_card_tells_its_cell_where_a_socket_has_several(layout: Layout, sockets: tuple[int, int], told: str) -> None:
    cells = tuple(replace(one, sockets=frozenset({of})) for one, of in zip(FACTS.cells, sockets, strict=True))
    policy = Policy(layout=layout, devices=DevicePolicy(mdevs=(MdevRule(type="a"),)))
    facts = host(gpu(), parents=(parent(gpu(), a=4),))

    shaped = shape(replace(facts, cells=cells), policy, None)

    (card,) = (one for one in shaped.providers if "VGPU" in one.inventories)
    ((_, reason),) = card.inventories.values()
    assert reason.fact.partition(" can be made")[2] == told


@pytest.mark.parametrize("layout", OF_CELLS)
@pytest.mark.parametrize("there", [50, 0])
def test_of_huge_pages_of_which_fewer_are_there_than_are_listed_all_are_kept(layout: Layout, there: int) -> None:
    """The kernel may find fewer than were asked for at a boot, as memory is in pieces."""
    facts = replace(
        FACTS, cells=tuple(replace(one, pages=(MemoryPages(4, 0), MemoryPages(2048, there))) for one in FACTS.cells)
    )
    policy = Policy(layout=layout, reserved_memory_mib=0, reserved_pages=(ReservedPages(0, 2048, 64),))

    shaped = shape(facts, policy, None)

    assert memory(shaped.tree).get("NUMA0_PAGES_2048") == ((there * 2, there * 2) if there else None)
    assert memory(shaped.tree).get("NUMA1_PAGES_2048") == ((there * 2, 0) if there else None)
    (said,) = shaped.holdings.lacking
    assert f"64 pages of 2048 KiB in cell 0, but that cell has {there}: " in said
    assert said.endswith("All of them are kept meanwhile")


@pytest.mark.parametrize("layout", OF_CELLS)
def test_of_small_pages_of_which_fewer_are_left_than_the_host_needs_all_are_kept(layout: Layout) -> None:
    """Somebody made huge pages of them."""
    cells = tuple(replace(one, pages=(MemoryPages(4, 0), MemoryPages(2048, 400))) for one in FACTS.cells)
    policy = Policy(layout=layout, reserved_memory_mib=512)

    shaped = shape(replace(FACTS, cells=cells), policy, None)

    assert memory(shaped.tree) == {
        **{"NUMA0": (201, 201), "NUMA1": (200, 200)},
        **{f"NUMA{cell}_PAGES_2048": (800, 0) for cell in (0, 1)},
    }
    (said,) = shaped.holdings.lacking
    assert "reserved_host_memory_mb is 512 MiB, but the cells have only 401 MiB of small pages left" in said
    assert said.endswith("All of them are kept meanwhile")


def test_cpus_without_a_place_stay_on_the_root() -> None:
    facts = replace(FACTS, cpu_map=CpuMap(6, frozenset(range(6))))

    found = {one.name: one.inventories["VCPU"].total for one in tree(facts, "numa") if "VCPU" in one.inventories}

    assert found == {"host": 2, "host_NUMA0": 2, "host_NUMA1": 2}


def test_more_vgpus_than_placement_can_count_are_an_error_and_no_traceback() -> None:
    graphics = gpu()
    facts = host(graphics, parents=(parent(graphics, a=2**32),))

    devices = DevicePolicy(mdevs=(MdevRule(type="a"),))

    with pytest.raises(MalformedFact, match="cannot compute the inventory"):
        tree(facts, "devices", devices=devices)
    most = host(graphics, parents=(parent(graphics, a=2**31 - 1),))
    assert sums(tree(most, "flat", devices=devices))["VGPU"] == 2**31 - 1


def test_in_flat_what_a_person_reserved_on_the_root_stays() -> None:
    stock = {"SRIOV_NET_VF": Inventory(total=4, reserved=1)}
    root = ObservedProvider(uuid="r", generation=1, provider=Provider(name="host", inventories=stock))
    devices = DevicePolicy(discover_all=True)

    well = tree(host(*card(vfs=4)), "flat", ObservedTree((root,)), devices=devices).root
    ill = tree(host(*card(vfs=4, driver=None)), "flat", ObservedTree((root,)), devices=devices).root
    sick = replace(root, provider=replace(root.provider, inventories=dict(ill.inventories), traits=ill.traits))
    after = tree(host(*card(vfs=4)), "flat", ObservedTree((sick,)), devices=devices).root

    assert [one.inventories["SRIOV_NET_VF"].reserved for one in (well, ill, after)] == [1, 4, 1]


@pytest.mark.parametrize(
    ("others", "before"),
    [
        pytest.param(card("0000:81:00.0", power_state="error"), 20_000_000, id="beside the link of an ill card"),
        pytest.param(card("0000:81:00.0", power_state="error"), 19_000_000, id="another amount"),
        pytest.param(card("0000:81:00.0", power_state="error"), 10_000_001, id="one unit more"),
        pytest.param(card("0000:81:00.0", power_state="error"), 10_000_000, id="nothing is left"),
        pytest.param((), 10_000_000, id="alone"),
    ],
)
def test_in_flat_the_rest_of_a_link_without_a_speed_is_reserved(others: tuple[PciFunction, ...], before: int) -> None:
    stock = {"NET_BW_EGR_KILOBIT_PER_SEC": Inventory(total=before)}
    root = ObservedProvider(uuid="r", generation=1, provider=Provider(name="host", inventories=stock))
    silent = card("0000:83:00.0", net_devices=(NetDevice("ens3", "up"),))
    devices = DevicePolicy(discover_all=True, link_bandwidth=True)

    shaped = shape(host(*others, *silent), Policy(layout="flat", devices=devices), ObservedTree((root,)))

    kept, reason = shaped.providers[0].inventories["NET_BW_EGR_KILOBIT_PER_SEC"]
    assert (kept.total, kept.reserved) == (before, before)
    assert ("does not show" in reason.fact) == (before != 10_000_000 or not others)
    assert ("0000:81:00.0" in reason.fact) == bool(others)
    assert UNHEALTHY in shaped.providers[0].traits


@pytest.mark.parametrize(("first", "second"), [(1, 15), (15, 1)])
def test_in_flat_a_guest_can_take_no_more_of_a_total_than_of_one_device(first: int, second: int) -> None:
    sev = replace(PC, encryption=OfferedEncryption(sev_guests=first, sev_es_guests=second))
    offered = offering(sev, versions=Versions(10_005_000, 8_002_000))
    cpu = replace(FACTS.cpu, sev=SevKernel(sev=True, sev_es=True, sev_snp=False))

    stock = tree(replace(FACTS, hypervisor=offered, cpu=cpu), "flat").root.inventories

    assert stock["MEM_ENCRYPTION_CONTEXT"] == Inventory(total=16, max_unit=1)


@pytest.mark.parametrize(("length", "fits"), [(200, True), (201, False)])
def test_a_provider_whose_name_is_too_long_for_placement_is_refused(length: int, fits: bool) -> None:
    facts = host(parents=(MdevParent("m" * (length - len("host_")), None, (MdevType("a", "", 1),)),))

    with nullcontext() if fits else pytest.raises(MalformedFact, match="is longer than the 200 characters that"):
        assert len(tree(facts, "devices", devices=DevicePolicy(mdevs=(MdevRule(type="a"),))).providers) == 2


@pytest.mark.parametrize(
    ("before", "reserved", "kept"),
    [
        pytest.param(15_000_000, 7, 0, id="of which card is not known"),
        pytest.param(10_000_000, 10_000_000, 10_000_000, id="all that is there"),
    ],
)
def test_a_link_without_a_speed_gets_nothing_of_a_total_and_what_is_reserved_may_be_its_own(
    before: int, reserved: int, kept: int
) -> None:
    total = {"NET_BW_EGR_KILOBIT_PER_SEC": Inventory(total=before, reserved=reserved)}
    root = ObservedProvider(uuid="r", generation=1, provider=Provider(name="host", inventories=total))
    silent = card("0000:83:00.0", net_devices=(NetDevice("ens3", "up"),))
    devices = DevicePolicy(discover_all=True, link_bandwidth=True)

    found = tree(host(*card("0000:81:00.0"), *silent), "devices", ObservedTree((root,)), devices=devices)
    stock = {one.name: one.inventories for one in found}
    shown, mute = stock["host_0000:81:00.0"], stock["host_0000:83:00.0"]

    assert shown["NET_BW_EGR_KILOBIT_PER_SEC"].reserved == kept
    assert "NET_BW_EGR_KILOBIT_PER_SEC" not in mute


def test_a_reservation_that_the_root_remembers_of_a_class_without_inventory_is_no_cards() -> None:
    traits = frozenset({MARKER, UNHEALTHY, f"{KEEP}3_SRIOV_NET_VF"})
    root = ObservedProvider(uuid="r", generation=1, provider=Provider(name="host", traits=traits))

    found = tree(host(*card(vfs=4)), "devices", ObservedTree((root,)), devices=DevicePolicy(discover_all=True))

    assert {one.inventories["SRIOV_NET_VF"].reserved for one in found if one.parent} == {0}


def standing(name: str, ratio: float, *traits: str) -> ObservedProvider:
    stock = {"VCPU": Inventory(total=1, allocation_ratio=ratio)}
    parent = None if name == "host" else "host"
    one = Provider(name=name, parent=parent, inventories=stock, traits=frozenset(traits))
    return ObservedProvider(uuid=name, generation=1, provider=one)


@pytest.mark.parametrize(
    ("others", "ratio"),
    [
        pytest.param((), 2.0, id="the root, whoever made it"),
        pytest.param((standing("host_NUMA1", 2.00001, MARKER),), 2.0, id="as far as placement can tell"),
        pytest.param((standing("host_NUMA1", 2.1, MARKER),), None, id="two that differ"),
        pytest.param((standing("host_x", 3.0), standing("host_y", 1.0, MARKER, HUGE)), 2.0, id="somebody's, and pages"),
    ],
)
def test_a_new_provider_has_the_ratio_on_which_all_others_agree(
    others: tuple[ObservedProvider, ...], ratio: float | None
) -> None:
    assert BySuffix(ObservedTree((standing("host", 2.0), *others))).ratio("VCPU", "NUMA0") == ratio


def test_a_one_time_device_cannot_be_told_from_others_in_a_total() -> None:
    policy = rules(DeviceRule(number=1, product_id="1533", one_time_use=True))

    with pytest.raises(PolicyError, match="needs a provider of its own"):
        tree(host(plain()), "flat", devices=policy)


LINKED = DeviceRule(number=1, product_id="1515", network=RuleNetwork(bandwidth=Bandwidth()))


@pytest.mark.parametrize(
    ("policy", "option"),
    [
        pytest.param(DevicePolicy(report=True, discover_all=True, link_bandwidth=True), "link_bandwidth", id="option"),
        pytest.param(rules(LINKED), "device_spec, rule 1", id="rule"),
    ],
)
def test_a_flat_total_above_what_placement_counts_to_is_refused_with_class_and_option(
    policy: DevicePolicy, option: str
) -> None:
    fast = (NetDevice("ens1", "up", 1_200_000),)
    facts = host(*card(net_devices=fast), *card("0000:82:00.0", net_devices=fast))

    with pytest.raises(PolicyError, match=rf"2400000000 NET_BW_EGR_KILOBIT_PER_SEC together .*{option}\), .*layout"):
        tree(facts, "flat", devices=policy)
    assert len(tree(facts, "devices", devices=policy).providers) == 3


MANAGED_CPUS = CpuPolicy(dedicated=frozenset({1, 2, 3}), shared=frozenset({0}), power_management=True)


def switched_off(*cpus: int, told: bool = True) -> HostFacts:
    """The host with CPUs off: libvirt's topology leaves them out, and the kernel tells their cells."""
    homes = tuple((cpu, cell.id) for cell in FACTS.cells for cpu in sorted(cell.cpus.intersection(cpus)))
    cells = tuple(replace(cell, cpus=cell.cpus.difference(cpus)) for cell in FACTS.cells)
    cpu_map = CpuMap(FACTS.cpu_map.total, FACTS.cpu_map.online - set(cpus))
    return replace(FACTS, cells=cells, cpu_map=cpu_map, offline_cpus=homes if told else ())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("cpus", [(1,), (2,), (1, 2, 3)])
def test_a_cpu_that_is_switched_off_changes_no_shape(layout: Layout, cpus: tuple[int, ...]) -> None:
    assert tree(switched_off(*cpus), layout, cpus=MANAGED_CPUS) == tree(FACTS, layout, cpus=MANAGED_CPUS)


def test_a_guest_that_is_off_has_its_cpus_in_their_cell() -> None:
    guest = Guest(uuid="u", state="shutoff", vcpus=(frozenset({2}), frozenset({3})))
    policy = Policy(layout="numa", cpus=MANAGED_CPUS)

    shaped = shape(replace(switched_off(2, 3), guests=(guest,)), policy, None)

    assert [one for one in shaped.holdings.units if one.resource_class == "PCPU"] == [
        Holding("u", "host_NUMA1", "PCPU", 2)
    ]


def test_a_cpu_that_is_off_without_a_known_cell_is_never_stock_of_the_root() -> None:
    facts = switched_off(2, told=False)

    with pytest.raises(PolicyError, match=r"cpu_dedicated_set names CPU 2, which is off, .* switch it on"):
        tree(facts, "numa", cpus=MANAGED_CPUS)
    assert sums(tree(facts, "devices", cpus=MANAGED_CPUS))["PCPU"] == 3


@pytest.mark.parametrize("layout", OF_CELLS)
@pytest.mark.parametrize("told", ["by libvirt", "by the kernel, as it is off"])
def test_a_cpu_of_several_cells_is_counted_once_or_its_layout_is_refused(layout: Layout, told: str) -> None:
    both = replace(FACTS.cells[1], cpus=FACTS.cells[1].cpus | {1})
    facts = replace(FACTS, cells=(FACTS.cells[0], both))
    if told != "by libvirt":
        facts = replace(FACTS, offline_cpus=((1, 1),))

    with pytest.raises(PolicyError, match=r"CPU 1 of host in several NUMA cells .* layout = devices or flat"):
        tree(facts, layout)
    for each in ("flat", "devices"):
        assert sums(tree(facts, each)) == sums(tree(FACTS, each))


def test_a_host_without_cells_has_its_cpus_and_its_memory_on_the_root_and_no_layout_with_cells() -> None:
    facts = replace(FACTS, cells=(), whole_memory_mib=9000)

    for layout in ("flat", "devices"):
        assert sums(tree(facts, layout)) == {"VCPU": 4, "MEMORY_MB": 9000, "DISK_GB": 100}
    for layout in OF_CELLS:
        with pytest.raises(PolicyError, match=r"libvirt lists no NUMA cell of host .* layout = devices or flat"):
            tree(facts, layout)
    (note,) = shape(replace(facts, whole_memory_mib=None), Policy(), None).holdings.notes
    assert note.startswith("MEMORY_MB is not reported")
    assert shape(facts, Policy(), None).holdings.notes == ()
    with pytest.raises(MalformedFact, match="neither NUMA cells nor memory of host"):
        tree(replace(facts, whole_memory_mib=0), "flat")


GPUS = tuple(NumaCell(id_, 16 << 20, frozenset(), (MemoryPages(4, 0), MemoryPages(2048, 0))) for id_ in (254, 255))
WITH_GPUS = replace(FACTS, cells=(*FACTS.cells, *GPUS, NumaCell(256, 0, frozenset())))
KEPT = {"NUMA254": (16384, 16384), "NUMA255": (16384, 16384)}
OFFERED = {"NUMA254": (16384, 0), "NUMA255": (16384, 0)}


def memory(found: Iterable[Provider]) -> dict[str, tuple[int, int]]:
    """Total and reserved MEMORY_MB, by the cell of the provider; of the root by an empty name."""
    stock = {one.name.removeprefix("host").removeprefix("_").removesuffix("_PAGES_4"): one.inventories for one in found}
    return {name: (s["MEMORY_MB"].total, s["MEMORY_MB"].reserved) for name, s in stock.items() if "MEMORY_MB" in s}


@pytest.mark.parametrize("layout", OF_CELLS)
@pytest.mark.parametrize(
    ("option", "cells"),
    [
        pytest.param(None, KEPT, id="not set"),
        pytest.param(WITHOUT_CPUS, KEPT, id="those without CPUs"),
        pytest.param(frozenset({255}), {**OFFERED, "NUMA255": (16384, 16384)}, id="one of them"),
        pytest.param(frozenset(), OFFERED, id="none"),
        pytest.param(frozenset({1}), {**OFFERED, "NUMA0": (1001, 512), "NUMA1": (1000, 1000)}, id="one with CPUs"),
    ],
)
def test_the_reserve_of_the_host_is_in_cells_with_cpus_and_a_cell_is_reserved_whole(
    layout: Layout, option: ReservedCells | None, cells: dict[str, tuple[int, int]]
) -> None:
    found = memory(tree(WITH_GPUS, layout, reserved_cells=option))

    assert found == {"NUMA0": (1001, 256), "NUMA1": (1000, 256), **cells}
    shaped = shape(WITH_GPUS, Policy(layout=layout, reserved_cells=option), None).providers
    rules = {reason.rule for one in shaped for _, reason in one.inventories.values()}
    assert any("the cell is reserved whole by [agent] reserved_cells;" in rule for rule in rules) == bool(option)


@pytest.mark.parametrize("layout", ["flat", "devices"])
@pytest.mark.parametrize(
    ("option", "reserved"), [(None, 512), (frozenset(), 512), (WITHOUT_CPUS, 512 + 32768), (frozenset({255}), 16896)]
)
def test_without_cells_nova_s_numbers_stay_unless_cells_are_reserved(
    layout: Layout, option: ReservedCells | None, reserved: int
) -> None:
    assert memory(tree(WITH_GPUS, layout, reserved_cells=option)) == {"": (34769, reserved)}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("option", [None, WITHOUT_CPUS, frozenset()])
def test_a_person_is_told_of_memory_without_cpus_until_the_option_is_set(
    layout: Layout, option: ReservedCells | None
) -> None:
    policy = Policy(layout=layout, reserved_cells=option)

    notes = shape(WITH_GPUS, policy, None).holdings.notes

    assert [note.partition(":")[0] for note in notes] == (
        [
            "32768 MiB of memory are in NUMA cells without CPUs (254-255). They may belong to a GPU, or to a socket "
            "whose CPUs are all off"
        ]
        if option is None
        else []
    )
    assert all(("this memory is reserved" in note) == (layout in OF_CELLS) for note in notes)
    assert shape(FACTS, policy, None).holdings.notes == ()
    in_files = Policy(file_backed_mib=4096, reserved_cells=option)
    assert shape(WITH_GPUS, in_files, None).holdings.notes == ()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_where_no_cell_has_cpus_and_memory_all_memory_is_the_cpus_own(layout: Layout) -> None:
    cpus = NumaCell(2, 0, frozenset(cpu for cell in FACTS.cells for cpu in cell.cpus))
    facts = replace(FACTS, cells=(*(replace(cell, cpus=frozenset()) for cell in FACTS.cells), cpus))

    assert sums(tree(facts, layout), "reserved")["MEMORY_MB"] == 512


@pytest.mark.parametrize("layout", OF_CELLS)
def test_a_cell_with_neither_stock_nor_devices_has_no_provider(layout: Layout) -> None:
    assert "host_NUMA256" not in {one.name for one in tree(WITH_GPUS, layout)}
    with_card = replace(WITH_GPUS, devices=Devices(functions=(plain(cell=256),)))
    devices = rules(DeviceRule(number=1, product_id="1533"))

    found = {one.name: one.parent for one in tree(with_card, layout, devices=devices)}

    assert found["host_0000:05:00.0"] == "host_NUMA256"
    assert found["host_NUMA256"] == "host"


@pytest.mark.parametrize("cell", [0, 254])
def test_a_cell_whose_pages_are_all_listed_is_reserved_whole_and_the_others_bear_the_host_s_part(cell: int) -> None:
    """By nova's own option; the part of a cell with CPUs goes to the other one."""
    size = {0: 1001, 254: 16384}[cell]
    pages = (ReservedPages(cell, 4, size * 256),)

    found = memory(tree(WITH_GPUS, "cells", reserved_pages=pages, reserved_cells=frozenset()))

    assert found[f"NUMA{cell}"] == (size, size)
    assert found["NUMA1"] == (1000, 256 if cell else 512)
    enough = memory(tree(WITH_GPUS, "cells", reserved_pages=(ReservedPages(0, 4, 745 * 256),)))
    assert (enough["NUMA0"], enough["NUMA1"]) == ((1001, 745 + 256), (1000, 256))  # just its part is left


def test_a_cell_that_is_not_on_the_host_is_named() -> None:
    policy = Policy(reserved_cells=frozenset({1, 7, 8}))

    assert idle(FACTS, policy) == (
        "[agent] reserved_cells names cells that are not on this host: 7-8: name some of 0-1, or set it to "
        "without_cpus or none",
    )
    assert idle(replace(FACTS, cells=()), policy) == ()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_slip_in_the_reserved_cells_gives_no_guest_the_memory_of_a_gpu(layout: Layout) -> None:
    slip, meant = (Policy(layout=layout, reserved_cells=frozenset(ids)) for ids in ({1, 25}, {1, 254, 255}))

    assert sums(shape(WITH_GPUS, slip, None).tree, "reserved") == sums(shape(WITH_GPUS, meant, None).tree, "reserved")
    (said,) = idle(WITH_GPUS, slip)
    assert "all cells without CPUs (254-255) are reserved meanwhile: name some of" in said
    assert idle(WITH_GPUS, Policy(reserved_cells=WITHOUT_CPUS)) == ()
