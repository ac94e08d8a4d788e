"""What is ours, and how a second writer shows."""

import re
from dataclasses import replace
from typing import Any

import pytest

from reportclient.names import SHARES
from reportclient.ownership import (
    MANAGED,
    MARKER,
    OWNER_NOVA,
    SET,
    Contest,
    Names,
    Ownership,
    contest,
    is_novas,
    joined,
)
from reportclient.reserve import HELD
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree

OURS = Ownership(emitted=Names(frozenset({"VCPU", "MEMORY_MB"}), frozenset({"COMPUTE_NODE"})))
ROOT = ObservedProvider(
    uuid="r",
    generation=4,
    provider=Provider(
        name="host",
        inventories={"VCPU": Inventory(total=8), "CUSTOM_X": Inventory(total=1)},
        traits=frozenset({MARKER, "CUSTOM_T"}),
    ),
)
VGPU = {"VGPU": Inventory(total=4)}
CHILD = replace(ROOT, uuid="c", provider=replace(ROOT.provider, name="host_c", parent="host"))


def found(generation: int = 5, **changes: object) -> ObservedTree:
    provider = replace(ROOT.provider, **changes)  # type: ignore[arg-type]
    return ObservedTree((replace(ROOT, generation=generation, provider=provider),))


def judge(now: ObservedTree, keep_ratio: frozenset[str] = frozenset()) -> Contest | None:
    return contest(ObservedTree((ROOT,)), now, ProviderTree((ROOT.provider,)), OURS, keep_ratio)


def test_on_the_root_ours_is_what_drivers_emit_and_operators_configure() -> None:
    configured = replace(OURS, configured={"host": Names(frozenset({"CUSTOM_X"}), frozenset({"CUSTOM_T"}))})

    assert OURS.classes(ROOT) == {"VCPU", "MEMORY_MB"}
    assert configured.classes(ROOT) == {"VCPU", "MEMORY_MB", "CUSTOM_X"}
    assert configured.traits(ROOT) == {"COMPUTE_NODE", "CUSTOM_T"}


@pytest.mark.parametrize(
    ("reserved", "marks", "ours"), [(2, {HELD}, {"CUSTOM_X"}), (0, {HELD}, set()), (2, set(), set())]
)
def test_on_the_root_a_class_is_ours_too_while_just_what_we_left_of_it_is_reserved(
    reserved: int, marks: set[str], ours: set[str]
) -> None:
    stock = {"CUSTOM_X": Inventory(total=4, reserved=reserved)}
    root = found(inventories=stock, traits=frozenset({"CUSTOM_DEVICE_UNHEALTHY_LEFT_2_CUSTOM_X", *marks})).root

    assert root is not None
    assert OURS.classes(root) - OURS.emitted.classes == ours


def test_on_a_child_of_ours_every_class_is_ours_and_traits_of_others_are_not() -> None:
    assert OURS.classes(CHILD) == {"VCPU", "CUSTOM_X"}
    assert OURS.traits(CHILD) == {"COMPUTE_NODE"}


def test_on_a_foreign_child_nothing_is_ours() -> None:
    foreign = replace(CHILD, provider=replace(CHILD.provider, traits=frozenset()))

    assert (OURS.classes(foreign), OURS.traits(foreign)) == (frozenset(), frozenset())
    configured = replace(OURS, configured={"host_c": Names(traits=frozenset({"CUSTOM_T"}))})
    assert configured.traits(foreign) == {"CUSTOM_T"}


def test_traits_are_ours_by_name_by_their_beginning_or_by_the_mark_that_we_set_them() -> None:
    below = Names(traits=frozenset({"HW_NUMA_ROOT"}), prefixes=("CUSTOM_PAGES_",))
    names = Names(traits=frozenset({"COMPUTE_NODE"}), prefixes=("HW_CPU_",), below=below)
    stands = frozenset({"HW_CPU_X", "CUSTOM_PAGES_4", "CUSTOM_T", f"{SET}CUSTOM_S"})
    root = replace(ROOT, provider=replace(ROOT.provider, traits=stands))
    child = replace(CHILD, provider=replace(CHILD.provider, traits=stands | {MARKER}))
    ours = Ownership(emitted=names)

    assert ours.writes(root)
    assert ours.traits(root) == {"COMPUTE_NODE", "HW_CPU_X", "CUSTOM_S"}
    assert ours.traits(child) == ours.traits(root) | {"HW_NUMA_ROOT", "CUSTOM_PAGES_4"}


def test_names_of_two_origins_are_joined_by_provider() -> None:
    one = {"a": Names(frozenset("A"), frozenset("T")), "b": Names(frozenset("B"))}
    other = {"a": Names(frozenset("C"), frozenset("U")), "c": Names(traits=frozenset("V"))}

    assert joined(one, other) == {**one, **other, "a": Names(frozenset("AC"), frozenset("TU"))}


@pytest.mark.parametrize(
    ("now", "change"),
    [
        pytest.param(
            found(inventories={"VCPU": Inventory(total=4)}), "VCPU total 8 .* became total 4", id="another total"
        ),
        pytest.param(found(inventories={}), "VCPU was removed", id="stock gone"),
        pytest.param(found(traits=frozenset()), f"trait {MARKER} was removed", id="our mark gone"),
    ],
)
def test_a_change_of_what_we_left_is_a_sign_of_a_second_writer(now: ObservedTree, change: str) -> None:
    sign = judge(now)

    assert sign is not None
    assert not sign.nova
    assert not sign.marked
    with pytest.raises(AssertionError, match=change):
        raise AssertionError(sign.changes[0])


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(found(), id="same terms at a newer generation: somebody claimed"),
        pytest.param(found(4, inventories={}), id="same generation: nobody wrote"),
        pytest.param(found(traits=frozenset({MARKER, "CUSTOM_NEW"})), id="a foreign trait"),
        pytest.param(
            found(inventories={"VCPU": Inventory(total=8), "CUSTOM_Y": Inventory(total=1)}), id="a foreign class"
        ),
        pytest.param(ObservedTree(), id="no root at all"),
        pytest.param(ObservedTree((replace(ROOT, uuid="other"),)), id="another root"),
    ],
)
def test_what_is_not_ours_is_no_sign(now: ObservedTree) -> None:
    assert judge(now) is None
    assert contest(None, now, ProviderTree((ROOT.provider,)), OURS, frozenset()) is None


def test_a_ratio_set_by_hand_is_the_operators_where_none_is_configured() -> None:
    now = found(inventories={"VCPU": Inventory(total=8, allocation_ratio=2.0)})

    assert judge(now, frozenset({"VCPU"})) is None
    assert judge(now) is not None


def test_nova_is_known_by_its_trait_when_that_came_with_the_change() -> None:
    marked = frozenset({OWNER_NOVA, MARKER})
    came, stood = found(inventories={}, traits=marked), replace(ROOT, provider=replace(ROOT.provider, traits=marked))

    fresh = judge(came)
    old = contest(ObservedTree((stood,)), came, ProviderTree((ROOT.provider,)), OURS, frozenset())

    assert fresh is not None
    assert old is not None
    assert (fresh.nova, old.nova) == (True, False)


def test_what_somebody_made_as_we_want_it_is_no_contest() -> None:
    now = found(inventories={"VCPU": Inventory(total=4)})

    assert contest(ObservedTree((ROOT,)), now, ProviderTree((now.providers[0].provider,)), OURS, frozenset()) is None


def test_a_ratio_in_single_precision_is_the_same_ratio() -> None:
    left = ObservedTree((replace(ROOT, provider=replace(ROOT.provider, inventories={"VCPU": third(4 / 3)})),))
    now = found(inventories={"VCPU": third(1.33333)})

    assert contest(left, now, ProviderTree((Provider(name="host"),)), OURS, frozenset()) is None


def third(ratio: float) -> Inventory:
    return Inventory(total=8, allocation_ratio=ratio)


@pytest.mark.parametrize("trait", ["OWNER_CYBORG", "CUSTOM_OWNER_SOMEBODY"])
def test_a_provider_with_another_owners_mark_is_neither_novas_nor_ours(trait: str) -> None:
    marked = CHILD.provider.traits | {trait, OWNER_NOVA, MANAGED}
    foreign = replace(CHILD, provider=replace(CHILD.provider, inventories=VGPU, traits=marked))
    ours = replace(
        OURS, adopted=frozenset({"host_c"}), configured={"host_c": Names(frozenset({"VGPU"}), frozenset({"CUSTOM_T"}))}
    )

    assert not is_novas(foreign)
    assert not ours.writes(foreign)
    assert (ours.classes(foreign), ours.traits(foreign)) == (frozenset(), frozenset())


def test_an_owners_mark_that_our_own_rule_gave_is_not_anothers() -> None:
    given = replace(CHILD, provider=replace(CHILD.provider, traits=frozenset({MARKER, "CUSTOM_OWNER_TEAM"})))

    assert replace(OURS, configured={"host_c": Names(traits=frozenset({"CUSTOM_OWNER_TEAM"}))}).writes(given)


CELL = Provider(
    name="host_NUMA0",
    parent="host",
    inventories={"VCPU": Inventory(total=4, allocation_ratio=2.0), "MEMORY_MB": Inventory(total=64, reserved=8)},
    traits=frozenset({MARKER, "HW_NUMA_ROOT"}),
)
GPU = Provider(name="host_gpu", parent="host", inventories=VGPU, traits=frozenset({MARKER}))
LEFT = (ROOT.provider, CELL, GPU)


def tree_of(*providers: Provider, generation: int) -> ObservedTree:
    return ObservedTree(
        tuple(ObservedProvider(uuid=one.name, generation=generation, provider=one) for one in providers)
    )


@pytest.mark.parametrize(
    ("now", "change"),
    [
        pytest.param((ROOT.provider, CELL), "host_gpu was deleted", id="a child gone"),
        pytest.param((ROOT.provider, CELL, replace(GPU, inventories={})), "VGPU was removed", id="a class gone"),
        pytest.param(
            (ROOT.provider, CELL, replace(GPU, inventories={"VGPU": Inventory(total=2)})),
            "total 4 .* total 2",
            id="total",
        ),
        pytest.param(
            (ROOT.provider, CELL, replace(GPU, inventories={**VGPU, "CUSTOM_X": Inventory(total=1)})),
            "CUSTOM_X total 1 was added",
            id="a class more",
        ),
        pytest.param((ROOT.provider, CELL, replace(GPU, traits=frozenset())), f"{MARKER} was removed", id="our mark"),
        pytest.param(
            (ROOT.provider, replace(CELL, inventories={**CELL.inventories, "MEMORY_MB": Inventory(total=64)}), GPU),
            "MEMORY_MB .* reserved 0",
            id="a cell's reservation",
        ),
        pytest.param(
            (ROOT.provider, replace(CELL, inventories={**CELL.inventories, "VCPU": Inventory(total=4)}), GPU),
            "VCPU .* ratio 1",
            id="a cell's ratio",
        ),
    ],
)
def test_a_second_writer_is_seen_by_what_it_does_to_children(now: tuple[Provider, ...], change: str) -> None:
    left, found = tree_of(*LEFT, generation=4), tree_of(*now, generation=5)

    sign = contest(left, found, ProviderTree(LEFT), OURS, frozenset())

    assert sign is not None
    assert sign.provider in ("host_NUMA0", "host_gpu")
    assert re.search(change, "; ".join(sign.changes))


POOL = replace(GPU, inventories={"DISK_GB": Inventory(total=4)}, traits=GPU.traits | {SHARES})
THEIRS = replace(GPU, traits=frozenset())


@pytest.mark.parametrize(
    ("left", "now"),
    [
        pytest.param(GPU, {"inventories": {"VGPU": Inventory(total=4, reserved=4)}}, id="reserved by an operator"),
        pytest.param(GPU, {"inventories": {"VGPU": Inventory(total=4, allocation_ratio=2.0)}}, id="a ratio"),
        pytest.param(GPU, {"traits": GPU.traits | {"CUSTOM_THEIRS"}}, id="a trait"),
        pytest.param(POOL, {"inventories": {"DISK_GB": Inventory(total=4, reserved=1)}}, id="a pool's reservation"),
        pytest.param(THEIRS, {"inventories": {}}, id="anything of a child of others"),
        pytest.param(THEIRS, None, id="a child of others"),
    ],
)
def test_what_operators_and_others_may_change_is_no_sign(left: Provider, now: dict[str, Any] | None) -> None:
    before = (ROOT.provider, CELL, left)
    after = before[:2] if now is None else (*before[:2], replace(left, **now))
    stood, found = tree_of(*before, generation=4), tree_of(*after, generation=5)

    assert contest(stood, found, ProviderTree(before), OURS, frozenset()) is None


@pytest.mark.parametrize("stays", [(), (replace(GPU, inventories={}),)], ids=["deleted", "emptied"])
def test_a_child_that_is_not_wanted_any_more_may_go(stays: tuple[Provider, ...]) -> None:
    left, found = tree_of(*LEFT, generation=4), tree_of(ROOT.provider, CELL, *stays, generation=5)
    without = tree_of(ROOT.provider, CELL, generation=0)

    assert contest(left, found, ProviderTree((ROOT.provider, CELL)), OURS, frozenset()) is None
    assert contest(left, found, ProviderTree(LEFT), OURS, frozenset(), tried=(without,)) is None


@pytest.mark.parametrize(
    "stands",
    [
        pytest.param((replace(CELL, inventories={**CELL.inventories, "VCPU": Inventory(total=4)}), GPU), id="a total"),
        pytest.param((replace(CELL, inventories={}), GPU), id="stock removed"),
        pytest.param((CELL, replace(GPU, inventories={**GPU.inventories, "CUSTOM_B": Inventory(total=1)})), id="added"),
        pytest.param((CELL,), id="a child deleted"),
    ],
)
def test_what_a_cut_off_attempt_of_this_pass_wrote_is_no_sign(stands: tuple[Provider, ...]) -> None:
    """The host changed back between two attempts: what is wanted now is as it was before."""
    left, found = tree_of(*LEFT, generation=4), tree_of(ROOT.provider, *stands, generation=5)
    other = tree_of(ROOT.provider, CELL, GPU, generation=0)

    assert contest(left, found, ProviderTree(LEFT), OURS, frozenset(), tried=(other, found)) is None
    assert contest(left, found, ProviderTree(LEFT), OURS, frozenset(), tried=(other,)) is not None


def test_several_providers_are_named() -> None:
    card = replace(GPU, name="host_card")
    before = (*LEFT, card)
    emptied = replace(CELL, inventories={}, traits=CELL.traits | {OWNER_NOVA}), replace(GPU, inventories={})
    found = tree_of(ROOT.provider, *emptied, generation=5)

    sign = contest(tree_of(*before, generation=4), found, ProviderTree(before), OURS, frozenset())

    assert sign is not None
    assert sign.provider == "host_NUMA0, host_gpu, host_card"
    assert sign.changes == (
        "MEMORY_MB of host_NUMA0 was removed",
        "VCPU of host_NUMA0 was removed",
        "VGPU of host_gpu was removed",
        "host_card was deleted",
    )
    assert (sign.nova, sign.marked, sign.uuids) == (True, True, frozenset({"host_NUMA0", "host_gpu"}))
    two = contest(tree_of(*LEFT, generation=4), found, ProviderTree(LEFT), OURS, frozenset())
    assert two is not None
    assert two.changes == sign.changes[:3]
