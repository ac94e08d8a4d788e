"""Whether a request fits what a host really has, in sentences."""

from dataclasses import replace

import pytest

from agent.allocations.decide.fit import Claimant, misfits, others_stock
from drivers.facts import Tenant
from drivers.libvirt.shape import shape
from drivers.policy import DevicePolicy, Policy
from hardware import at, card, guest_with, host
from reportclient.allocations import Allocation, Holding, Slots
from reportclient.ownership import Names, Ownership
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree

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
    assert asked({"r": {"MEMORY_MB": 32}}, claimant=Claimant("mine", {"r": {"MEMORY_MB": 64}})) == ()


def test_of_what_guests_have_and_what_is_allocated_the_greater_is_told_and_allocations_where_both_agree() -> None:
    units = tuple(Holding(name, "host_nic", "VF", 1) for name in ("one", "two"))
    rows = [Allocation(name, "host_nic", "VF", 1) for name in ("one", "two")]

    assert misfits({"n": {"VF": 1}}, NAMES, TREE, rows, units) == (
        "host_nic can give 2 VF, of which 2 are allocated: 1 are asked for",
    )


@pytest.mark.parametrize(
    ("claimant", "words"),
    [
        (None, "1 are allocated, and guests really have 1 more"),
        (Claimant("new"), "1 are allocated to others, and other guests really have 1 more"),
        (Claimant("two"), None),
    ],
)
def test_what_guests_really_have_is_taken_though_it_is_not_allocated(
    claimant: Claimant | None, words: str | None
) -> None:
    """The claimant's own unit does not count, so one of the two is free for it."""
    units = Holding("one", "host_nic", "VF", 1), Holding("two", "host_nic", "VF", 1)
    rows = [Allocation("one", "host_nic", "VF", 1)]

    found = misfits({"n": {"VF": 1}}, NAMES, TREE, rows, units, claimant=claimant)

    assert found == ((f"host_nic can give 2 VF, of which {words}: 1 are asked for",) if words else ())


def test_what_one_consumer_has_booked_and_another_really_has_are_taken_both() -> None:
    units = (Holding("runs", "host_nic", "VF", 1),)
    rows = [Allocation("is not started", "host_nic", "VF", 1)]

    assert misfits({"n": {"VF": 1}}, NAMES, TREE, rows, units) == (
        "host_nic can give 2 VF, of which 1 are allocated, and guests really have 1 more: 1 are asked for",
    )


def test_what_a_migration_keeps_of_its_guest_is_taken_once() -> None:
    units = (Holding("guest", "host_nic", "VF", 1),)
    rows = [Allocation("migration", "host_nic", "VF", 1)]

    assert misfits({"n": {"VF": 1}}, NAMES, TREE, rows, units, stand_ins={"migration": "guest"}) == ()


def test_a_unit_that_is_reserved_is_not_taken_from_the_rest() -> None:
    units = reserved = (Holding("guest", "host_nic", "VF", 1),)
    tree = ProviderTree((Provider(name="host_nic", inventories={"VF": Inventory(total=2, reserved=1)}),))

    assert misfits({"n": {"VF": 1}}, NAMES, tree, (), units, reserved=reserved) == ()
    assert misfits({"n": {"VF": 2}}, NAMES, tree, (), units, reserved=reserved) == (
        "host_nic can give 1 VF, of which 0 are allocated: 2 are asked for",
    )


def test_what_no_driver_of_this_host_reports_is_for_placement_alone_to_judge() -> None:
    """A class of another service, and one that a file adds; but not what a driver reports too, or did."""
    stock = {name: Inventory(total=1) for name in ("VCPU", "THEIRS", "OF_A_FILE", "OF_BOTH", "GONE")}
    root = ObservedProvider(uuid="r", generation=1, provider=Provider(name="host", inventories=stock))
    now = ProviderTree((Provider(name="host", inventories={name: stock[name] for name in ("VCPU", "OF_BOTH")}),))
    files = {"host": Names(frozenset({"OF_A_FILE", "OF_BOTH"}))}
    ours = Ownership(emitted=Names(frozenset({"VCPU", "GONE"})), configured=files)

    theirs = others_stock(ObservedTree((root,)), now, ours, files)

    assert theirs == {("host", "THEIRS"), ("host", "OF_A_FILE")}
    assert misfits({"r": dict.fromkeys(stock, 1)}, NAMES, now, (), (), theirs=theirs) == (
        "host has no GONE on this host now",
    )


def test_a_guests_vf_that_is_reserved_for_its_port_is_told_by_the_driver() -> None:
    first, second = (frozenset({at(f"0000:81:10.{number}")}) for number in (0, 1))
    guest = guest_with(tenant=Tenant("p", "u", None), pci=first | second, ports=first)
    facts = replace(host(*card(vfs=4)), guests=(guest,))

    held = shape(facts, Policy(devices=DevicePolicy(discover_all=True)), None).holdings

    assert [one.amount for one in held.units if one.resource_class == "SRIOV_NET_VF"] == [2]
    assert held.reserved == (Holding("guest", "host_0000:81:00.0", "SRIOV_NET_VF", 1),)
