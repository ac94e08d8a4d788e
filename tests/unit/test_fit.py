"""Whether a request fits what a host really has, in sentences."""

import pytest

from agent.allocations.decide.fit import Claimant, misfits
from reportclient.allocations import Allocation, Holding, Slots
from reportclient.tree import Inventory, Provider, ProviderTree

NAMES = {"r": "host", "n": "host_nic"}
MEMORY = Inventory(total=1000, reserved=100, min_unit=64, max_unit=512, step_size=32)
TREE = ProviderTree(
    (
        Provider(name="host", inventories={"VCPU": Inventory(total=4, allocation_ratio=2.0), "MEMORY_MB": MEMORY}),
        Provider(name="host_nic", parent="host", inventories={"VF": Inventory(total=2)}),
    )
)


def asked(request: Slots, *rows: Allocation, claimant: Claimant | None = None) -> tuple[str, ...]:
    return misfits(request, NAMES, TREE, rows, (), claimant=claimant)


@pytest.mark.parametrize(
    ("request_", "reasons"),
    [
        pytest.param({"r": {"VCPU": 8, "MEMORY_MB": 512}}, (), id="all that the host can give"),
        pytest.param({"elsewhere": {"VCPU": 99}}, (), id="another host's is that host's to judge"),
        pytest.param({"r": {"VGPU": 1}}, ("host has no VGPU on this host now",), id="what the host does not have"),
        pytest.param(
            {"r": {"MEMORY_MB": 32}},
            ("host gives MEMORY_MB only in amounts from 64 to 512, and 32 are asked for",),
            id="too little at once",
        ),
        pytest.param(
            {"r": {"MEMORY_MB": 544}},
            ("host gives MEMORY_MB only in amounts from 64 to 512, and 544 are asked for",),
            id="too much at once",
        ),
        pytest.param(
            {"r": {"MEMORY_MB": 100}},
            ("host gives MEMORY_MB in steps of 32, and 100 are asked for",),
            id="between two steps",
        ),
    ],
)
def test_a_request_is_judged_by_the_stock_of_this_host(request_: Slots, reasons: tuple[str, ...]) -> None:
    assert asked(request_) == reasons


def test_a_request_finds_what_others_have_taken() -> None:
    rows = Allocation("one", "host", "VCPU", 3), Allocation("two", "host", "VCPU", 4)

    assert asked({"r": {"VCPU": 1}}, *rows) == ()
    assert asked({"r": {"VCPU": 2}}, *rows) == ("host can give 8 VCPU, of which 7 are allocated: 2 are asked for",)


def test_what_the_claimant_has_does_not_stand_against_its_new_request() -> None:
    rows = Allocation("mine", "host_nic", "VF", 1), Allocation("other", "host_nic", "VF", 1)

    assert asked({"n": {"VF": 1}}, *rows, claimant=Claimant("mine")) == ()
    assert asked({"n": {"VF": 2}}, *rows, claimant=Claimant("mine")) == (
        "host_nic can give 2 VF, of which 1 are allocated to others: 2 are asked for",
    )


def test_what_the_claimant_keeps_is_judged_with_its_request() -> None:
    claimant = Claimant("mine", {"r": {"MEMORY_MB": 512}})

    assert asked({"r": {"MEMORY_MB": 64}}, claimant=claimant) == (
        "host gives MEMORY_MB only in amounts from 64 to 512, and 64 are asked for in addition to the 512 that the "
        "consumer keeps",
    )


def test_of_what_guests_have_and_what_is_allocated_the_greater_is_told_and_allocations_where_both_agree() -> None:
    units = tuple(Holding(name, "host_nic", "VF", 1) for name in ("one", "two"))
    rows = [Allocation(name, "host_nic", "VF", 1) for name in ("one", "two")]

    assert misfits({"n": {"VF": 1}}, NAMES, TREE, rows, units) == (
        "host_nic can give 2 VF, of which 2 are allocated: 1 are asked for",
    )


@pytest.mark.parametrize(
    ("claimant", "words"),
    [(None, "guests really have 2"), (Claimant("new"), "other guests really have 2"), (Claimant("two"), None)],
)
def test_what_guests_really_have_is_taken_though_it_is_not_allocated(
    claimant: Claimant | None, words: str | None
) -> None:
    """The claimant's own unit does not count, so one of the two is free for it."""
    units = Holding("one", "host_nic", "VF", 1), Holding("two", "host_nic", "VF", 1)
    rows = [Allocation("one", "host_nic", "VF", 1)]

    found = misfits({"n": {"VF": 1}}, NAMES, TREE, rows, units, claimant=claimant)

    assert found == ((f"host_nic can give 2 VF, of which {words}: 1 are asked for",) if words else ())
