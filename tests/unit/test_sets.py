"""What a consumer holds at each step of a guest's life, and that a move that is reverted was none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.allocations.decide.sets import (
    evacuated_set,
    merge_set,
    moved_sets,
    replace_set,
    reverted_set,
    settled,
)
from reportclient.allocations import Slots
from reportclient.errors import UnsafePlan

HERE, THERE, STORAGE, FASTER = "here", "there", "storage", "faster"
SHARED = frozenset({STORAGE, FASTER})
HELD = {HERE: {"VCPU": 2}, STORAGE: {"DISK_GB": 20}}


@pytest.mark.parametrize(
    ("request_", "after"),
    [
        pytest.param({HERE: {"VCPU": 4}}, {HERE: {"VCPU": 4}, STORAGE: {"DISK_GB": 20}}, id="other CPUs keep the disk"),
        pytest.param(
            {THERE: {"VCPU": 2, "DISK_GB": 5}}, {THERE: {"DISK_GB": 5, "VCPU": 2}}, id="a disk takes its place"
        ),
        pytest.param(
            {HERE: {"VCPU": 2}, FASTER: {"DISK_GB": 9}}, {FASTER: {"DISK_GB": 9}, HERE: {"VCPU": 2}}, id="moved"
        ),
    ],
)
def test_a_new_set_keeps_shared_storage_that_the_request_does_not_speak_of(request_: Slots, after: Slots) -> None:
    assert replace_set(HELD, request_, SHARED) == after


@pytest.mark.parametrize(
    ("before", "request_", "after"),
    [
        pytest.param(
            {HERE: {"VCPU": 2}}, {HERE: {"VCPU": 3}}, {HERE: {"VCPU": 3}, STORAGE: {"DISK_GB": 20}}, id="grows"
        ),
        pytest.param({HERE: {"VCPU": 1}}, {}, {HERE: {"VCPU": 1}, STORAGE: {"DISK_GB": 20}}, id="others' part stays"),
        pytest.param(HELD, {}, {}, id="all of it goes"),
        pytest.param({}, {THERE: {"VGPU": 1}}, {**HELD, THERE: {"VGPU": 1}}, id="a device comes beside it"),
    ],
)
def test_a_merge_takes_away_what_the_caller_had_and_leaves_the_rest(
    before: Slots, request_: Slots, after: Slots
) -> None:
    assert merge_set(HELD, before, request_) == after


@pytest.mark.parametrize(("place", "amount"), [(HERE, 3), (THERE, 1)])
def test_a_merge_of_more_than_there_is_fails(place: str, amount: int) -> None:
    with pytest.raises(ValueError, match=f"it has less than {amount} VCPU on provider {place}"):
        merge_set(HELD, {place: {"VCPU": amount}}, {})


@pytest.mark.parametrize(
    ("request_", "after"),
    [
        pytest.param(
            {THERE: {"VCPU": 2}, STORAGE: {"DISK_GB": 20}},
            {HERE: {"VCPU": 2}, STORAGE: {"DISK_GB": 20}, THERE: {"VCPU": 2}},
            id="its shared disk is not taken twice",
        ),
        pytest.param({THERE: {"VCPU": 2}}, {**HELD, THERE: {"VCPU": 2}}, id="its shared disk stays"),
        pytest.param({HERE: {"VCPU": 1}}, {HERE: {"VCPU": 3}, STORAGE: {"DISK_GB": 20}}, id="sums on one provider"),
    ],
)
def test_an_evacuated_guest_keeps_what_it_has_on_the_host_that_is_down(request_: Slots, after: Slots) -> None:
    assert evacuated_set(HELD, request_, SHARED) == after


@pytest.mark.parametrize(
    ("held", "request_", "kept"),
    [
        pytest.param(HELD, {THERE: {"VCPU": 2}}, {HERE: {"VCPU": 2}}, id="to another host"),
        pytest.param(HELD, {HERE: {"VCPU": 2}}, {HERE: {"VCPU": 2}}, id="to its own host"),
        pytest.param(
            {**HELD, FASTER: {"CUSTOM_X": 1}},
            {THERE: {"VCPU": 2}, STORAGE: {"DISK_GB": 30}},
            HELD,
            id="to a larger disk",
        ),
    ],
)
def test_shared_storage_goes_with_the_guest_of_a_move_and_the_migration_keeps_the_rest(
    held: Slots, request_: Slots, kept: Slots
) -> None:
    migration, guest = moved_sets(held, request_, SHARED)

    assert migration == kept
    assert guest == {uuid: resources for uuid, resources in held.items() if uuid in SHARED} | {**request_}


def test_a_migration_keeps_all_where_only_that_tells_the_way_back() -> None:
    """The guest takes another class of storage that it shares: less would leave that class with it for good."""
    held = {STORAGE: {"DISK_GB": 20}, FASTER: {"DISK_GB": 5}}
    migration, guest = moved_sets(held, {THERE: {"VCPU": 2}, STORAGE: {"DISK_GB": 20}}, SHARED)

    assert migration == held
    assert reverted_set(guest, migration, SHARED) == held


def test_a_move_that_could_not_be_reverted_is_refused() -> None:
    with pytest.raises(UnsafePlan, match="adds a class of shared storage that the guest does not have yet"):
        moved_sets({HERE: {"VCPU": 2}}, {THERE: {"VCPU": 2}, STORAGE: {"DISK_GB": 20}}, SHARED)


slots = st.dictionaries(
    st.sampled_from((HERE, THERE, STORAGE, FASTER)),
    st.dictionaries(st.sampled_from(("VCPU", "DISK_GB")), st.integers(1, 3), min_size=1),
    min_size=1,
)


@given(slots, slots)
def test_a_reverted_move_was_none(held: Slots, request_: Slots) -> None:
    try:
        migration, guest = moved_sets(held, request_, SHARED)
    except UnsafePlan:
        return

    assert migration
    assert reverted_set(guest, migration, SHARED) == settled(held)


@given(slots, slots)
def test_no_move_is_refused_that_takes_of_shared_storage_only_what_the_guest_had_before(
    held: Slots, request_: Slots
) -> None:
    had = {name for resources in held.values() for name in resources}
    known = {
        uuid: kept
        for uuid, resources in request_.items()
        if (kept := {name: amount for name, amount in resources.items() if uuid not in SHARED or name in had})
    }

    migration, guest = moved_sets(held, known, SHARED)

    assert reverted_set(guest, migration, SHARED) == settled(held)
