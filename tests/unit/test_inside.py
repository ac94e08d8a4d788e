"""
Our driver's answers inside nova-compute: trees and allocations as nova has them.

``make nova-test`` runs these tests with nova's own ``ProviderTree`` too.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from beds.inside import ABROAD, ROOT, Inside, MemoryTree
from drivers.base import Survey
from drivers.errors import PolicyError
from drivers.policy import Layout, Policy
from inside_nova.decide import AllocationsNeeded
from inside_nova.trees import COMPUTE_NODE, apply_plan, decode_consumers, decode_tree, rows_of, take_away
from reportclient.errors import TreeMismatch, Unplaceable, UnsafePlan
from reportclient.ownership import MANAGED, MARKER, OWNER_NOVA
from reportclient.plan import (
    Create,
    Operation,
    Plan,
    Rename,
    Reshape,
    Rewrite,
    SetAggregates,
)
from reportclient.reserve import HELD

GUEST = "446773c1-567b-485b-9bc7-596961fe33b5"  # on full-guest: has a VF of 0000:81:00.0
REWRITE = Rewrite(consumer=GUEST, generation=1, project="p", user="u", kind=None, before={}, after={})
PF = "queens-second_0000:01:00.0"
GIB_KIB = 1 << 20  # a huge page of 1 GiB
FLAT = {"full-guest": {"VCPU": 1, "MEMORY_MB": 64, "SRIOV_NET_VF": 1}}


def novas_tree(name: str, uuid: str) -> Any:
    from nova.compute.provider_tree import ProviderTree

    tree = ProviderTree()
    tree.new_root(name, uuid, generation=0)
    return tree


TREES = [MemoryTree, novas_tree] if importlib.util.find_spec("nova") else [MemoryTree]


@pytest.fixture(params=TREES)
def make(request: pytest.FixtureRequest) -> Callable[[str], Inside]:
    return lambda name: Inside(name, request.param(name, ROOT))


@pytest.fixture
def inside(make: Callable[[str], Inside]) -> Inside:
    """A new host with a guest."""
    return make("full-guest")


def started(inside: Inside, layout: Layout) -> None:
    """Start nova-compute with a layout: it asks again with allocations where the driver needs them."""
    try:
        inside.call(layout)
    except AllocationsNeeded:
        inside.call(layout, given=True)


def test_a_new_host_gets_its_tree_at_the_first_call(inside: Inside) -> None:
    inside.call("devices")

    assert inside.names() == {
        "full-guest", "full-guest_0000:41:00.0", "full-guest_0000:81:00.0", "full-guest_mtty_mtty",
    }  # fmt: skip
    assert inside.totals() == {"VCPU": 4, "MEMORY_MB": 3918, "DISK_GB": 2, "SRIOV_NET_VF": 8, "CUSTOM_MTTY": 22}


@pytest.mark.parametrize("layout", ["flat", "devices", "numa"])
def test_a_call_without_a_change_changes_nothing(inside: Inside, layout: Layout) -> None:
    inside.call(layout)

    assert inside.call(layout, starting=False).plan == Plan()


def test_a_host_and_its_guest_go_through_all_layouts_and_back(inside: Inside) -> None:
    inside.call("flat")
    inside.allocate(GUEST, FLAT)
    totals = inside.totals()
    card = {"full-guest_0000:81:00.0": {"SRIOV_NET_VF": 1}}
    homes = []

    for layout in ("devices", "flat", "numa", "flat"):
        with pytest.raises(AllocationsNeeded):
            inside.call(layout)
        inside.call(layout, given=True)
        assert inside.totals() == totals, layout
        homes.append(inside.held(GUEST))

    assert homes[0] == {"full-guest": {"VCPU": 1, "MEMORY_MB": 64}} | card
    assert homes[2].keys() >= card.keys()
    assert {name: amount for home in homes[2].values() for name, amount in home.items()} == FLAT["full-guest"]
    assert "full-guest" not in homes[2]
    assert homes[1] == homes[3] == FLAT
    assert inside.names() == {"full-guest"}


class Ruled(Inside):
    """A host that offers devices by rules alone, which nova's PCI tracker reports."""

    def policy(self, layout: Layout) -> Policy:
        one = super().policy(layout)
        return replace(one, devices=replace(one.devices, discover_all=False))


def test_what_nova_s_pci_tracker_reports_stays_below_the_root_in_all_layouts_with_what_guests_have_of_it() -> None:
    inside = Ruled("queens-second", MemoryTree("queens-second", ROOT))
    inside.call("devices")
    inside.allocate(GUEST, {"queens-second": {"VCPU": 1, "MEMORY_MB": 64}, PF: {"CUSTOM_SRIOV_NET_PF": 1}})
    before, totals = inside.tree.data(PF), inside.totals()

    for layout in ("cells", "numa", "flat", "devices"):
        started(inside, layout)
        assert inside.tree.data(PF) == before
        assert inside.held(GUEST)[PF] == {"CUSTOM_SRIOV_NET_PF": 1}
        assert inside.totals() == totals, layout
        assert inside.call(layout, starting=False).plan == Plan()

    assert inside.names() == {"queens-second", PF}


def test_a_total_of_the_agents_of_devices_that_the_tracker_will_report_is_refused_with_the_way_round() -> None:
    inside = Ruled("queens-second", MemoryTree("queens-second", ROOT))
    inside.call("flat")
    pf = {"total": 1, "reserved": 0, "min_unit": 1, "max_unit": 1, "step_size": 1, "allocation_ratio": 1.0}
    inside.tree.update_inventory(ROOT, {**inside.tree.data(ROOT).inventory, "CUSTOM_SRIOV_NET_PF": pf})

    with pytest.raises(TreeMismatch, match="once with"):
        inside.call("cells")
    started(inside, "devices")
    started(inside, "cells")

    assert inside.totals()["CUSTOM_SRIOV_NET_PF"] == 1


@dataclass
class Alike(Inside):
    """A host whose rules and ``discover = all`` give devices of one class."""

    def policy(self, layout: Layout) -> Policy:
        one = super().policy(layout)
        rules = tuple(replace(rule, resource_class="SRIOV_NET_VF") for rule in one.devices.rules)
        return replace(one, devices=replace(one.devices, rules=rules))


def test_a_total_of_devices_of_ours_and_of_the_tracker_is_refused() -> None:
    inside = Alike("queens-second", MemoryTree("queens-second", ROOT))

    with pytest.raises(PolicyError, match="have the class SRIOV_NET_VF"):
        inside.call("flat")


@dataclass
class Renetworked(Ruled):
    """The same, whose device can be of a physical network: then it is Neutron's, and no longer nova's."""

    network: str | None = None

    def policy(self, layout: Layout) -> Policy:
        one = super().policy(layout)
        rules = tuple(replace(rule, network=replace(rule.network, name=self.network)) for rule in one.devices.rules)
        return replace(one, devices=replace(one.devices, rules=rules))


@pytest.mark.parametrize(
    ("before", "after", "mark"), [(None, "physnet0", False), ("physnet0", None, False), ("physnet0", None, True)]
)
def test_a_device_that_becomes_the_trackers_or_ours_in_cells_is_refused(
    before: str | None, after: str | None, mark: bool
) -> None:
    inside = Renetworked("queens-second", MemoryTree("queens-second", ROOT), network=before)
    if before is None:
        inside.call("devices")  # where the tracker makes its provider
    started(inside, "cells")
    if mark:  # the tracker's, but not where the tracker makes its own
        inside.tree.update_traits(PF, {*inside.tree.data(PF).traits, MANAGED})
    tree = decode_tree(inside.tree, "queens-second")
    inside.network = after

    with pytest.raises(TreeMismatch, match="take back the last change"):
        inside.call("cells")

    assert decode_tree(inside.tree, "queens-second") == tree


def test_what_a_consumer_has_elsewhere_stays_with_all_its_fields(inside: Inside) -> None:
    inside.call("flat")
    inside.allocate(GUEST, FLAT)

    inside.call("devices", given=True)

    record = inside.allocations[GUEST]
    assert record["allocations"][ABROAD] == {"generation": 4, "resources": {"DISK_GB": 5}}
    assert record["allocations"][ROOT] == {"generation": 3, "resources": {"VCPU": 1, "MEMORY_MB": 64}}
    assert (record["project_id"], record["user_id"], record["consumer_generation"]) == ("project", "user", 2)


@pytest.mark.parametrize("starting", [True, False])
def test_a_change_of_shape_asks_for_allocations_and_changes_nothing_before(inside: Inside, starting: bool) -> None:
    inside.call("flat")
    before = decode_tree(inside.tree, "full-guest")

    with pytest.raises(AllocationsNeeded):
        inside.call("numa", starting=starting)

    assert decode_tree(inside.tree, "full-guest") == before


def test_an_allocation_without_a_certain_place_is_refused_and_nothing_changes(inside: Inside) -> None:
    inside.call("flat")
    inside.allocate("stranger", {"full-guest": {"SRIOV_NET_VF": 2}})
    before = decode_tree(inside.tree, "full-guest")

    with pytest.raises(Unplaceable, match="stranger"):
        inside.call("devices", given=True)

    assert decode_tree(inside.tree, "full-guest") == before


def test_a_device_that_would_get_another_parent_is_refused_with_the_way_round(inside: Inside) -> None:
    inside.call("devices")
    before = decode_tree(inside.tree, "full-guest")

    with pytest.raises(TreeMismatch, match="layout = flat"):
        started(inside, "numa")

    assert decode_tree(inside.tree, "full-guest") == before


def test_a_provider_is_not_renamed(inside: Inside) -> None:
    with pytest.raises(TreeMismatch, match="cannot rename"):
        apply_plan(Plan((Rename(ROOT, "new", "full-guest"),)), inside.tree, None)


def test_aggregates_of_a_plan_are_set(inside: Inside) -> None:
    apply_plan(Plan((SetAggregates(ROOT, "full-guest", frozenset({ABROAD})),)), inside.tree, None)

    assert inside.tree.data(ROOT).aggregates == {ABROAD}


def test_aggregates_that_nova_knows_are_seen(inside: Inside) -> None:
    inside.call("flat")
    inside.tree.update_aggregates(ROOT, {ABROAD})

    root = decode_tree(inside.tree, "full-guest").root

    assert root is not None
    assert root.provider.aggregates == {ABROAD}


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(Create(ROOT, "full-guest", None), id="a second root"),
        pytest.param(Reshape((), (REWRITE,)), id="a move without allocations"),
    ],
)
def test_a_plan_that_was_not_made_for_a_tree_of_nova_s_is_a_bug(operation: Operation) -> None:
    with pytest.raises(AssertionError):
        apply_plan(Plan((operation,)), MemoryTree("full-guest", ROOT), None)


def without_card(survey: Survey) -> Survey:
    devices = survey.facts.devices
    left = tuple(one for one in devices.functions if one.address.bus != 0x81)
    return replace(survey, facts=replace(survey.facts, devices=replace(devices, functions=left)))


def test_a_card_that_is_gone_stays_reserved_until_it_is_back(inside: Inside) -> None:
    inside.call("devices")
    card = "full-guest_0000:81:00.0"
    whole = inside.tree.data(card)

    answer = inside.call("devices", starting=False, seen=without_card)

    gone = inside.tree.data(card)
    assert answer.kept == (f"SRIOV_NET_VF of {card}",)
    assert (gone.inventory["SRIOV_NET_VF"]["total"], gone.inventory["SRIOV_NET_VF"]["reserved"]) == (4, 4)
    assert HELD in gone.traits
    assert inside.call("devices", starting=False, seen=without_card).plan == Plan()

    inside.call("devices", starting=False)

    assert inside.tree.data(card).inventory == whole.inventory
    assert inside.tree.data(card).traits == whole.traits


def test_the_next_start_removes_a_card_that_is_gone(inside: Inside) -> None:
    inside.call("devices")

    with pytest.raises(AllocationsNeeded):
        inside.call("devices", seen=without_card)
    inside.call("devices", given=True, seen=without_card)

    assert "full-guest_0000:81:00.0" not in inside.names()


def test_the_next_start_keeps_what_a_guest_holds_of_a_card_that_is_gone(inside: Inside) -> None:
    inside.call("devices")
    card = "full-guest_0000:81:00.0"
    inside.allocate(GUEST, {"full-guest": {"VCPU": 1, "MEMORY_MB": 64}, card: {"SRIOV_NET_VF": 1}})

    inside.call("devices", given=True, seen=without_card)

    assert inside.tree.data(card).inventory["SRIOV_NET_VF"]["total"] == 1
    assert inside.held(GUEST)[card] == {"SRIOV_NET_VF": 1}
    assert inside.call("devices", starting=False, seen=without_card).plan == Plan()


def test_stock_of_the_root_that_is_gone_stays_as_it_is(inside: Inside) -> None:
    inside.call("flat")

    def bare(survey: Survey) -> Survey:
        return replace(survey, facts=replace(survey.facts, devices=replace(survey.facts.devices, functions=())))

    answer = inside.call("flat", starting=False, seen=bare)

    assert answer.kept == ("SRIOV_NET_VF of full-guest",)
    assert inside.tree.data("full-guest").inventory["SRIOV_NET_VF"]["total"] == 8


def test_stock_of_the_root_that_is_gone_and_that_a_guest_has_is_refused(make: Callable[[str], Inside]) -> None:
    inside = make("queens-second")
    inside.call("devices")
    old = {**inside.tree.data("queens-second").inventory, "VGPU": {"total": 3}}  # nova's, before it had children
    inside.tree.update_inventory("queens-second", old)
    inside.allocate(GUEST, {"queens-second": {"VCPU": 1, "MEMORY_MB": 64, "VGPU": 1}})

    with pytest.raises(UnsafePlan, match="1 VGPU on queens-second are allocated"):
        inside.call("devices", given=True)

    assert inside.tree.data("queens-second").inventory["VGPU"]["total"] == 3


@pytest.mark.parametrize("layout", ["cells", "numa"])
def test_pages_that_are_gone_while_nova_runs_stay_and_are_reserved(
    make: Callable[[str], Inside], layout: Layout
) -> None:
    inside = make("four-cells")
    inside.call(layout)
    before = inside.names()

    def without_pages(survey: Survey) -> Survey:
        cells = tuple(
            replace(cell, pages=tuple(one for one in cell.pages if one.size_kib < GIB_KIB))
            for cell in survey.facts.cells
        )
        return replace(survey, facts=replace(survey.facts, cells=cells))

    answer = inside.call(layout, starting=False, seen=without_pages)

    pools = {name for name in before if name.endswith(f"_PAGES_{GIB_KIB}")}
    assert inside.names() == before
    assert {name.rpartition(" ")[2] for name in answer.kept} == pools
    for pool in pools:
        stock = inside.tree.data(pool).inventory["MEMORY_MB"]
        assert stock["reserved"] == stock["total"]
    inside.call(layout, starting=False)
    assert [inside.tree.data(pool).inventory["MEMORY_MB"]["reserved"] for pool in pools] == [0] * len(pools)


def test_fewer_cpus_need_no_allocations_while_nova_runs_though_a_card_comes(inside: Inside) -> None:
    inside.call("devices", seen=without_card)
    foreign = inside.tree.new_child("foreign", "full-guest", uuid="22222222-2222-2222-2222-222222222222")
    inside.tree.update_inventory(foreign, {"SRIOV_NET_VF": {"total": 4}})

    def fewer(survey: Survey) -> Survey:
        cpus = survey.facts.cpu_map
        return replace(survey, facts=replace(survey.facts, cpu_map=replace(cpus, online=frozenset({0, 1, 2}))))

    inside.call("devices", starting=False, seen=fewer)

    assert inside.tree.data("full-guest").inventory["VCPU"]["total"] == 3


def test_each_provider_carries_our_mark_and_nova_s(inside: Inside) -> None:
    inside.call("numa")

    for name in inside.names():
        assert inside.tree.data(name).traits >= {MARKER, OWNER_NOVA}, name


def test_stock_and_traits_of_others_stay(inside: Inside) -> None:
    other = {"total": 4, "reserved": 0, "min_unit": 1, "max_unit": 4, "step_size": 1, "allocation_ratio": 1.0}
    inside.tree.update_inventory("full-guest", {"CUSTOM_LICENSE": other})
    inside.tree.update_traits("full-guest", {"CUSTOM_RACK_7", "COMPUTE_STATUS_DISABLED", "OWNER_NOVA"})
    child = inside.tree.new_child("foreign", "full-guest", uuid="22222222-2222-2222-2222-222222222222")
    inside.tree.update_inventory(child, {"CUSTOM_X": other})

    started(inside, "devices")

    root = inside.tree.data("full-guest")
    assert root.inventory["CUSTOM_LICENSE"] == other
    assert root.traits >= {"CUSTOM_RACK_7", "COMPUTE_STATUS_DISABLED", "OWNER_NOVA", MARKER}
    assert inside.tree.data("foreign").inventory == {"CUSTOM_X": other}


def test_nova_s_allocations_become_rows_of_this_tree_alone() -> None:
    inside = Inside("full-guest", MemoryTree("full-guest", ROOT))
    inside.allocate(GUEST, FLAT)
    consumers = decode_consumers(inside.allocations)

    rows = rows_of(consumers, decode_tree(inside.tree, "full-guest"))

    assert {(one.provider, one.resource_class, one.amount) for one in rows} == {
        ("full-guest", "VCPU", 1), ("full-guest", "MEMORY_MB", 64), ("full-guest", "SRIOV_NET_VF", 1),
    }  # fmt: skip
    assert consumers[0].slots[ABROAD] == {"DISK_GB": 5}


@pytest.mark.parametrize(
    ("provider", "named"),
    [
        ("full-guest", COMPUTE_NODE),
        ("full-guest", "full-guest"),
        ("full-guest_0000:81:00.0", "full-guest_0000:81:00.0"),
    ],
)
def test_what_novas_files_add_is_taken_out_of_novas_tree(provider: str, named: str) -> None:
    inside = Inside("full-guest", MemoryTree("full-guest", ROOT))
    inside.call("devices")
    before = inside.tree.data(provider)
    inside.tree.update_inventory(provider, {**before.inventory, "CUSTOM_LICENSE": {"total": 4}})

    take_away(inside.tree, "full-guest", {named: frozenset({"CUSTOM_LICENSE"}), "another": frozenset({"VCPU"})})

    assert inside.tree.data(provider) == before
