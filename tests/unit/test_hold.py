"""What guests hold of devices that a host no longer offers stays, and nothing is ever offered twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reportclient.allocations import Allocation
from reportclient.hold import hold, is_used_up, keep_whole
from reportclient.names import ONE_TIME
from reportclient.ownership import MARKER
from reportclient.reserve import HELD, KEEP, UNHEALTHY, reserved_by_operator
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree

ROOT = Provider(name="host", inventories={"VCPU": Inventory(total=4)})


def observed(**children: dict[str, int]) -> ObservedTree:
    """A root and children with this stock."""
    providers = [ROOT] + [
        Provider(
            name=name,
            parent="host",
            inventories={key: Inventory(total=total) for key, total in stock.items()},
            traits=frozenset({MARKER}),
        )
        for name, stock in children.items()
    ]
    return ObservedTree(tuple(ObservedProvider(uuid=one.name, generation=1, provider=one) for one in providers))


def stock(tree: ProviderTree) -> dict[str, dict[str, int]]:
    return {one.name: {key: value.total for key, value in one.inventories.items()} for one in tree if one.parent}


@pytest.mark.parametrize("first", [0, 1], ids=["of a whole tree", "of a tree whose root is another's"])
def test_a_device_that_is_gone_stays_as_long_as_a_guest_has_it(first: int) -> None:
    before = ObservedTree(observed(nic={"VF": 8}).providers[first:])

    tree, notes = hold(ProviderTree((ROOT,)), before, [Allocation("g", "nic", "VF", 2)])

    kept = {"VF": Inventory(total=2, reserved=2, max_unit=2)}  # what a guest lets go of is given to nobody
    assert tree.providers[1:] == (
        Provider(name="nic", parent="host", inventories=kept, traits=frozenset({MARKER, HELD})),
    )
    assert notes == (("nic", "nic keeps 2 VF, which guests hold and this host no longer offers"),)


def test_what_nobody_has_goes() -> None:
    for rows in ([], [Allocation("g", "nic", "GPU", 2)]):
        assert hold(ProviderTree((ROOT,)), observed(nic={"VF": 8}), rows) == (ProviderTree((ROOT,)), ())


@pytest.mark.parametrize(("left", "used"), [(1, 3), (4, 6)])
def test_a_card_with_fewer_vfs_than_are_used_keeps_those(left: int, used: int) -> None:
    wanted = ProviderTree((ROOT, Provider(name="nic", parent="host", inventories={"VF": Inventory(total=left)})))

    tree, _ = hold(wanted, observed(nic={"VF": 8}), [Allocation("g", "nic", "VF", used)])

    assert stock(tree) == {"nic": {"VF": used}}


def test_a_new_card_does_not_keep_what_guests_hold_of_another_from_staying() -> None:
    wanted = ProviderTree((ROOT, Provider(name="new", parent="host", inventories={"VF": Inventory(total=8)})))

    tree, _ = hold(wanted, observed(old={"VF": 8}), [Allocation("g", "old", "VF", 2)])

    assert stock(tree) == {"new": {"VF": 8}, "old": {"VF": 2}}


def test_a_card_that_is_offered_in_other_words_is_not_kept_in_the_old_ones() -> None:
    """A rule for the PF instead of its VFs, or another class: the same hardware would be on offer twice."""
    wanted = ProviderTree((ROOT, Provider(name="nic", parent="host", inventories={"PF": Inventory(total=1)})))

    assert hold(wanted, observed(nic={"VF": 8}), [Allocation("g", "nic", "VF", 2)]) == (wanted, ())


def test_cpus_and_memory_are_not_held() -> None:
    wanted = ProviderTree((ROOT, Provider(name="cell", parent="host", inventories={})))

    assert hold(wanted, observed(cell={"VCPU": 8}), [Allocation("g", "cell", "VCPU", 2)]) == (wanted, ())


def test_the_root_is_not_held() -> None:
    tree, notes = hold(ProviderTree((Provider(name="host"),)), observed(), [Allocation("g", "host", "VCPU", 2)])

    assert (tree.root.inventories, notes) == ({}, ())


def test_what_moved_elsewhere_is_not_kept_here_too() -> None:
    """A change of layout: that is a reshape's work."""
    wanted = ProviderTree((Provider(name="host", inventories={"VF": Inventory(total=8)}),))

    assert hold(wanted, observed(nic={"VF": 8}), [Allocation("g", "nic", "VF", 1)]) == (wanted, ())
    both = tree_of(*wanted, observed(nic={"VF": 8}).providers[1].provider)
    assert stock(hold(wanted, both, [Allocation("g", "nic", "VF", 1)])[0]) == {"nic": {"VF": 1}}


@given(
    st.dictionaries(
        st.sampled_from("abc"), st.dictionaries(st.sampled_from(("X", "Y")), st.integers(1, 9), max_size=2)
    ),
    st.dictionaries(
        st.sampled_from("abc"), st.dictionaries(st.sampled_from(("X", "Y")), st.integers(1, 9), max_size=2)
    ),
    st.lists(
        st.builds(
            Allocation,
            st.sampled_from(("g", "h")),
            st.sampled_from("abc"),
            st.sampled_from(("X", "Y")),
            st.integers(1, 9),
        )
    ),
)
def test_holding_never_makes_room_for_anybody(
    stood: dict[str, dict[str, int]], wanted: dict[str, dict[str, int]], held: list[Allocation]
) -> None:
    before = observed(**stood)
    desired = ProviderTree(tuple(seen.provider for seen in observed(**wanted)))

    tree, _ = hold(desired, before, held)

    wanted_room = {(one.name, name): stock.capacity for one in desired for name, stock in one.inventories.items()}
    for one in tree:
        for name, stock in one.inventories.items():
            assert stock.capacity <= wanted_room.get((one.name, name), 0)


@pytest.mark.parametrize("lost", [True, False])
def test_what_an_operator_reserved_of_a_card_stays_while_the_card_is_lost(lost: bool) -> None:
    """Taken out of the rules it goes: that is an operator's word too."""
    totals = {name: Inventory(total=8, reserved=3) for name in ("VF", "CUSTOM_TOKEN", "DISK_GB")}
    marks = {UNHEALTHY, *(f"{KEEP}3_{name}" for name in totals)}
    before = tree_of(ROOT, Provider(name="nic", parent="host", inventories=totals, traits=frozenset({MARKER, *marks})))
    files = {"nic": {"CUSTOM_TOKEN"}}

    tree, notes = hold(ProviderTree((ROOT,)), before, [], lost=lambda _: lost, besides=files)

    assert stock(tree) == ({"nic": {"VF": 3}} if lost else {})
    assert bool(notes) == lost
    if lost:
        assert tree.providers[1].inventories["VF"] == Inventory(total=3, reserved=3, max_unit=3)
        assert tree.providers[1].traits == {MARKER, HELD, f"{KEEP}3_VF"}  # an operator's still when the card is back
        assert hold(ProviderTree((ROOT,)), tree_of(*tree), [], lost=lambda _: True)[0] == tree
        rows = [Allocation("g", "nic", "VF", 2)]
        assert stock(hold(ProviderTree((ROOT,)), before, rows, lost=lambda _: True)[0]) == {"nic": {"VF": 2}}


ONCE = frozenset({MARKER, ONE_TIME})


def tree_of(*providers: Provider) -> ObservedTree:
    return ObservedTree(tuple(ObservedProvider(uuid=one.name, generation=1, provider=one) for one in providers))


@pytest.mark.parametrize("class_beside", ["NET_BW_EGR_KILOBIT_PER_SEC", "CUSTOM_TOKEN"])
def test_a_used_one_time_device_stays_whatever_else_is_on_its_provider(class_beside: str) -> None:
    own = {"NIC": Inventory(total=1, reserved=1), class_beside: Inventory(total=4)}
    before = tree_of(ROOT, Provider(name="nic", parent="host", inventories=own, traits=ONCE))

    tree, notes = hold(ProviderTree((ROOT,)), before, [], besides={"nic": {"CUSTOM_TOKEN"}})

    assert tree.providers[1].inventories == {"NIC": own["NIC"]}
    assert [name for name, _ in notes] == ["nic"]


def test_a_used_one_time_device_stays_while_guests_hold_what_is_beside_it() -> None:
    own = {"NIC": Inventory(total=1, reserved=1), "CUSTOM_TOKEN": Inventory(total=4)}
    before = tree_of(ROOT, Provider(name="nic", parent="host", inventories=own, traits=ONCE))
    rows = [Allocation("g", "nic", "CUSTOM_TOKEN", 2)]

    tree, _ = hold(ProviderTree((ROOT,)), before, rows, besides={"nic": {"CUSTOM_TOKEN"}})
    again, _ = hold(ProviderTree((ROOT,)), tree_of(*tree), [], besides={"nic": {"CUSTOM_TOKEN"}})

    assert (stock(tree), reserved_by_operator(tree.providers[1])) == (
        {"nic": {"NIC": 1, "CUSTOM_TOKEN": 2}},
        {"NIC": 1},
    )
    assert (stock(again), reserved_by_operator(again.providers[1])) == ({"nic": {"NIC": 1}}, {"NIC": 1})


@pytest.mark.parametrize(
    ("traits", "reserved", "besides", "used"),
    [
        (ONCE, {"NIC": 1, "DISK_GB": 0}, (), True),
        (ONCE, {"NIC": 1, "GPU": 1}, (), True),
        (ONCE, {"NIC": 1, "GPU": 0}, (), False),
        (ONCE, {"NIC": 1}, ("NIC",), False),
        ({MARKER}, {"NIC": 1}, (), False),
    ],
)
def test_a_one_time_device_is_used_up_when_nothing_of_it_is_left(
    traits: set[str], reserved: dict[str, int], besides: tuple[str, ...], used: bool
) -> None:
    own = {name: Inventory(total=1, reserved=amount) for name, amount in reserved.items()}
    (seen,) = tree_of(Provider(name="nic", inventories=own, traits=frozenset(traits)))

    assert is_used_up(seen, besides) is used


@pytest.mark.parametrize("is_offered", [True, False], ids=["as much is offered", "in another form"])
def test_a_used_one_time_device_is_not_kept_where_its_hardware_is_offered(is_offered: bool) -> None:
    nic = Provider(name="nic", parent="host", inventories={"VF": Inventory(total=2, reserved=2)}, traits=ONCE)
    wanted = ProviderTree((ROOT, nic) if is_offered else (ROOT,))
    elsewhere = () if is_offered else ("nic",)

    assert hold(wanted, tree_of(ROOT, nic), [Allocation("g", "nic", "VF", 2)], elsewhere=elsewhere) == (wanted, ())


@pytest.mark.parametrize(("traits", "marks"), [(ONCE, {f"{KEEP}1_NIC"}), ({MARKER}, set())])
def test_a_one_time_device_that_a_guest_holds_counts_as_used(traits: set[str], marks: set[str]) -> None:
    nic = Provider(name="nic", parent="host", inventories={"NIC": Inventory(total=1)}, traits=frozenset(traits))

    tree, _ = hold(ProviderTree((ROOT,)), tree_of(ROOT, nic), [Allocation("g", "nic", "NIC", 1)])

    assert tree.providers[1].traits == {*traits, HELD, *marks}


@pytest.mark.parametrize("name", ["host", "old", ""])
def test_stock_that_may_come_back_is_added_as_reserved(name: str) -> None:
    """The root's own only where it is ours and called as the host is: else it is renamed first."""
    before = {"VF": Inventory(total=8, reserved=2, max_unit=4)}
    now = {"VF": Inventory(total=5, reserved=1, max_unit=5, step_size=2)}
    roots = [Provider(name=name, inventories=before)] if name else []
    stands = tree_of(*roots, Provider(name="nic", parent=name or "host", inventories=before))
    desired = ProviderTree((Provider(name="host", inventories=now),))

    root, *others = keep_whole(desired, stands, {(one, "VF"): 8 for one in ("gone", "host", "nic")}, {})

    kept = frozenset({HELD, f"{KEEP}2_VF"})
    all_of_it = {"VF": Inventory(total=8, reserved=8, max_unit=4)}
    assert others == [Provider(name="nic", parent="host", inventories=all_of_it, traits=kept)]
    added = {"VF": Inventory(total=8, reserved=4, max_unit=5, step_size=2)}
    assert root == (Provider(name="host", inventories=added, traits=kept) if name == "host" else desired.root)


@pytest.mark.parametrize(("cell", "parents"), [("goes", ["host"]), ("stays", ["cell"]), ("is another's", [])])
@pytest.mark.parametrize("kind", ["used", "reserved", "held"])
def test_what_is_kept_below_a_cell_that_goes_comes_below_the_root(kind: str, cell: str, parents: list[str]) -> None:
    above = Provider(name="cell", parent="host", traits=frozenset({MARKER, "HW_NUMA_ROOT"}))
    reserved = {"NIC": Inventory(total=1, reserved=int(kind != "held"))}
    traits = ONCE if kind == "used" else frozenset({MARKER})
    nic = Provider(name="nic", parent="cell", inventories=reserved, traits=traits)
    before = tree_of(ROOT, nic) if cell == "is another's" else tree_of(ROOT, above, nic)
    rows = [Allocation("g", "nic", "NIC", 1)] if kind == "held" else []
    wanted = ProviderTree((ROOT, above) if cell == "stays" else (ROOT,))

    tree, _ = hold(wanted, before, rows, lost=lambda _: kind == "reserved")

    assert [one.parent for one in tree if one.name == "nic"] == parents
    assert all(one.inventories["NIC"].capacity == 0 for one in tree if one.name == "nic")


@pytest.mark.parametrize("trait", ["HW_NUMA_ROOT", "CUSTOM_MEMORY_PAGE_SIZE_2048"])
@pytest.mark.parametrize("amount", [0, 2])
def test_cells_and_pools_of_pages_are_not_kept_for_what_files_put_on_them(trait: str, amount: int) -> None:
    own = {"CUSTOM_LLC": Inventory(total=11, reserved=1)}
    before = tree_of(ROOT, Provider(name="cell", parent="host", inventories=own, traits=frozenset({MARKER, trait})))
    rows = [Allocation("g", "cell", "CUSTOM_LLC", amount)] if amount else []

    assert hold(ProviderTree((ROOT,)), before, rows, lost=lambda _: True) == (ProviderTree((ROOT,)), ())


def test_a_trait_of_a_hand_does_not_make_a_pool_of_pages_of_a_card() -> None:
    mine = frozenset({MARKER, "CUSTOM_MEMORY_PAGE_SIZE_MINE"})
    nic = Provider(name="nic", parent="host", inventories={"NIC": Inventory(total=1)}, traits=mine)

    tree, _ = hold(ProviderTree((ROOT,)), tree_of(ROOT, nic), [Allocation("g", "nic", "NIC", 1)])

    assert [one.name for one in tree] == ["host", "nic"]


@pytest.mark.parametrize("came", ["NET_BW_EGR_KILOBIT_PER_SEC", "CUSTOM_TOKEN"])
def test_what_comes_beside_the_devices_is_no_other_form_of_them(came: str) -> None:
    own = {"VF": Inventory(total=1), came: Inventory(total=9)}
    wanted = ProviderTree((ROOT, Provider(name="nic", parent="host", inventories=own)))
    rows = [Allocation("g", "nic", "VF", 2)]

    tree, _ = hold(wanted, observed(nic={"VF": 2}), rows, besides={"nic": {"CUSTOM_TOKEN"}})

    assert stock(tree) == {"nic": {"VF": 2, came: 9}}
    assert tree.providers[1].inventories["VF"].capacity == 0
