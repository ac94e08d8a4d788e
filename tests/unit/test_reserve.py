"""Whose a reservation is: what this agent reserved is given back, and what an operator reserved is not."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import pytest

from agent.audit.audit import witness
from agent.sync.decide.view import Wishes
from agent.sync.leave import hand_over_node, retire_node
from agent.sync.outcome import Status
from beds.histories import ModelDriver
from beds.memory import MemoryAnswer, MemoryPlacement
from beds.one_host import FORCE, GUEST, MIGRATION, ROOT, Cut, OneHost, begun
from drivers.facts import Guest, GuestMemory, HostFacts, MdevParent, NetDevice, PciFunction
from drivers.policy import CpuPolicy, DevicePolicy, DeviceRule, Layout, MdevRule, Policy
from hardware import card, gpu, host, parent, plain, rules
from reportclient.errors import Forbidden
from reportclient.ownership import MANAGED, MARKER
from reportclient.reserve import (
    HELD,
    KEEP,
    LEFT,
    UNHEALTHY,
    given_back,
    used_up,
    with_marks_of,
    with_reservations,
)
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider

VF, EGRESS = "SRIOV_NET_VF", "NET_BW_EGR_KILOBIT_PER_SEC"
NIC, GPU = "0000:81:00.0", "pci_0000_84_00_0"
LINKED = DevicePolicy(discover_all=True, link_bandwidth=True)
VFS = DevicePolicy(discover_all=True)
NAMED = rules(
    DeviceRule(number=1, product_id="1515", resource_class="CUSTOM_FAST"),
    DeviceRule(number=2, product_id="1533", resource_class="CUSTOM_CARD"),
)
Start = Callable[..., OneHost]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts a host with these functions, and makes its first pass."""
    return lambda *functions, devices, layout="devices": begun(tmp_path, host(*functions), devices, layout)


def nic(mbps: int | None = 10_000, vfs: int = 4, state: str = "up") -> tuple[PciFunction, ...]:
    return card(NIC, vfs, net_devices=(NetDevice("ens1", state, mbps),))


@pytest.mark.parametrize(
    ("reserved", "claimed", "story"),
    [
        pytest.param(
            {EGRESS: 2_000_000},
            {EGRESS: 5_000_000},
            [(nic(1000), {EGRESS: (5_000_000, 5_000_000)})],
            id="a link dips under use",
        ),
        pytest.param(
            {EGRESS: 4_000_000}, {VF: 1}, [(nic(1000), {EGRESS: (1_000_000, 1_000_000)})], id="a link dips below that"
        ),
        pytest.param({}, {VF: 2}, [(nic(vfs=1), {VF: (2, 2)})], id="fewer VFs"),
        pytest.param({VF: 2}, {VF: 2}, [(nic(vfs=1), {VF: (2, 2)})], id="fewer VFs than are reserved and held"),
        pytest.param({}, {VF: 1}, [((), {VF: (1, 1)})], id="the card is gone"),
        pytest.param(
            {VF: 1},
            {VF: 2},
            [(nic(vfs=1), {VF: (2, 2)}), (nic(state="down", vfs=1), {VF: (2, 2)}), (nic(state="down"), {VF: (4, 4)})],
            id="fewer VFs, and then ill",
        ),
    ],
)
@pytest.mark.parametrize("lets_go", [False, True])
def test_a_card_that_is_well_again_is_as_before(
    start: Start,
    reserved: dict[str, int],
    claimed: dict[str, int],
    story: list[tuple[tuple[PciFunction, ...], dict[str, tuple[int, int]]]],
    lets_go: bool,
) -> None:
    one = start(*nic(), plain(), devices=LINKED)
    for name, amount in reserved.items():
        one.set_by_hand(NIC, name, reserved=amount)
    one.claim({NIC: claimed})
    before = one.stock(NIC)

    for functions, expected in story:
        one.sync(FORCE, facts=host(*functions, plain()))
        assert expected.items() <= one.stock(NIC).items()
        assert one.sync().status is Status.UNCHANGED
    if lets_go:
        one.claim({})
    one.sync(facts=host(*nic(), plain()))

    assert (one.stock(NIC), one.marks(NIC)) == (before, frozenset())


@pytest.mark.parametrize("ill", [False, True])
def test_a_one_time_device_that_was_used_stays_used_whatever_else_befell_it(start: Start, ill: bool) -> None:
    """Ill, gone, let go of, back and well: no guest gets it before a person says so."""
    once = rules(DeviceRule(number=1, product_id="1533", resource_class="CUSTOM_NIC", one_time_use=True))
    sick = plain(power_state="error")
    one = start(plain(), devices=once)
    one.claim({"0000:05:00.0": {"CUSTOM_NIC": 1}})

    one.sync(FORCE, facts=host(sick) if ill else host())
    one.sync(FORCE, facts=host())
    one.claim({})
    one.sync(FORCE, facts=host())
    one.sync(facts=host(sick))
    one.sync(facts=host(plain()))

    assert one.stock("0000:05:00.0") == {"CUSTOM_NIC": (1, 1)}


def test_an_ill_one_time_device_that_nobody_used_goes_with_its_card(start: Start) -> None:
    once = rules(DeviceRule(number=1, product_id="1533", resource_class="CUSTOM_NIC", one_time_use=True))
    one = start(plain(), devices=once)

    one.sync(facts=host(plain(power_state="error")))
    assert one.stock("0000:05:00.0") == {"CUSTOM_NIC": (1, 1)}
    one.sync(FORCE, facts=host())

    assert one.stock("0000:05:00.0") == {}


def test_a_gpu_whose_driver_went_while_it_was_held_is_as_before_when_it_is_back(start: Start) -> None:
    mdevs = DevicePolicy(mdevs=(MdevRule(type="a"),))
    well = replace(host(gpu()), devices=replace(host(gpu()).devices, mdev_parents=(parent(gpu(), a=4),)))
    one = start(gpu(), devices=mdevs)
    one.sync(facts=well)
    one.claim({GPU: {"VGPU": 2}})
    one.set_by_hand(GPU, "VGPU", reserved=1)

    one.sync(FORCE, facts=host())
    assert one.stock(GPU) == {"VGPU": (2, 2)}
    one.sync(facts=host(gpu(driver=None)))
    one.sync(facts=well)

    assert (one.stock(GPU), one.marks(GPU)) == ({"VGPU": (4, 1)}, frozenset())
    assert MARKER in one.tree().by_name[f"host_{GPU}"].provider.traits


@pytest.mark.parametrize("at", range(4))
def test_a_pass_that_holds_or_gives_back_may_be_cut_off_at_any_request(start: Start, at: int) -> None:
    """The next pass goes on as if nothing had happened: whose a reservation is, is written before it and goes after."""
    one = start(*nic(), devices=LINKED)
    one.set_by_hand(NIC, EGRESS, reserved=2_000_000)
    one.set_by_hand(NIC, "SRIOV_NET_VF", reserved=1)
    one.claim({NIC: {EGRESS: 5_000_000, "SRIOV_NET_VF": 3}})
    before = one.stock(NIC)

    for facts in (host(*nic(1000, vfs=2)), host(*nic(state="down", vfs=2)), host(*nic())):
        with suppress(Cut), one.ending_after(at):
            one.sync(FORCE, facts=facts)
        one.sync(FORCE)

    assert (one.stock(NIC), one.marks(NIC)) == (before, frozenset())


def test_hand_over_looks_once_for_the_root_of_a_host_that_was_recorded_without_an_identity(start: Start) -> None:
    one = start(*nic(), devices=VFS)
    reads = []
    for identity in (ROOT, None):
        before = one.sender.reads
        node = replace(one.node, driver=ModelDriver(one.facts, identity))
        assert hand_over_node(node, dry=True).plan.operations
        reads.append(one.sender.reads - before)

    assert reads[1] == reads[0] + 1


def test_hand_over_gives_back_what_we_reserved_and_keeps_what_an_operator_did(start: Start) -> None:
    ill = card("0000:01:00.0", 4, driver=None)
    one = start(*nic(), *card("0000:01:00.0", 4), devices=VFS)
    one.claim({NIC: {"SRIOV_NET_VF": 2}})
    one.set_by_hand("0000:01:00.0", "SRIOV_NET_VF", reserved=1)
    one.sync(FORCE, facts=host(*nic(vfs=1), *ill))
    assert (one.stock(NIC), one.stock("0000:01:00.0")) == ({"SRIOV_NET_VF": (2, 2)}, {"SRIOV_NET_VF": (4, 4)})

    assert one.hand_over().status is Status.CHANGED

    assert (one.stock(NIC), one.stock("0000:01:00.0")) == ({"SRIOV_NET_VF": (2, 0)}, {"SRIOV_NET_VF": (4, 1)})
    assert not any(seen.provider.traits & {MARKER} or one.marks(seen.name[5:]) for seen in one.tree())


def test_hand_over_leaves_what_the_configuration_reserves_of_a_flat_root_with_an_ill_device() -> None:
    stock = {"MEMORY_MB": Inventory(total=8192, reserved=512), "SRIOV_NET_VF": Inventory(total=8, reserved=2)}
    root = Provider(name="host", inventories=stock, traits=frozenset({MARKER, UNHEALTHY}))

    after = given_back(ObservedProvider(uuid="host", generation=1, provider=root))

    assert {name: one.reserved for name, one in after.items()} == {"MEMORY_MB": 512, "SRIOV_NET_VF": 0}


@pytest.mark.parametrize("at", range(5))
def test_a_hand_over_may_be_cut_off_at_any_request(start: Start, at: int) -> None:
    one = start(*nic(), *card("0000:01:00.0", 4), devices=VFS)
    one.set_by_hand("0000:01:00.0", "SRIOV_NET_VF", reserved=1)
    one.sync(facts=host(*nic(state="down"), *card("0000:01:00.0", 4, driver=None)))

    with suppress(Cut), one.ending_after(at):
        one.hand_over()
    one.hand_over()

    assert (one.stock(NIC), one.stock("0000:01:00.0")) == ({"SRIOV_NET_VF": (4, 0)}, {"SRIOV_NET_VF": (4, 1)})
    assert not any(seen.provider.traits & {MARKER} or one.marks(seen.name[5:]) for seen in one.tree())


@pytest.mark.parametrize("layout", get_args(Layout))
def test_more_memory_for_the_host_than_is_free_is_refused_in_every_layout(start: Start, layout: Layout) -> None:
    one = start(devices=VFS, layout=layout)
    ending = {"cells": "", "numa": "_PAGES_4"}.get(layout)
    pools = ("",) if ending is None else (f"NUMA0{ending}", f"NUMA1{ending}")
    one.claim({suffix: {"MEMORY_MB": 1400 // len(pools)} for suffix in pools})

    done = one.sync(policy=replace(one.policy, reserved_memory_mib=1900))

    assert (done.status, "would leave room for" in done.notes[0]) == (Status.UNSAFE, True)


def test_a_class_that_the_operators_file_still_names_goes_with_its_card_as_a_loss(start: Start) -> None:
    cards = [one for bus in range(5) for one in card(f"0000:0{bus}:00.0", 1)]
    one = start(*cards, devices=VFS)
    one.write_provider_config("0000:00:00.0", "CUSTOM_LICENSE", 8)
    one.sync()
    assert one.stock("0000:00:00.0")["CUSTOM_LICENSE"] == (8, 0)

    done = one.sync(facts=host(*cards[2:]))

    assert done.status is Status.UNSAFE
    assert done.notes[0] == "CUSTOM_LICENSE would shrink from 8 to 0, more than 30%"


def test_a_class_that_the_operators_file_no_longer_names_goes_at_once(start: Start) -> None:
    one = start(*nic(), devices=VFS)
    one.write_provider_config(NIC, "CUSTOM_LICENSE", 8)
    one.sync()
    one.write_provider_config("elsewhere", "CUSTOM_OTHER", 8)

    assert one.sync().status is Status.CHANGED
    assert "CUSTOM_LICENSE" not in one.stock(NIC)


TWO = ("0000:01:00.0", NIC)


def cards(*states: str) -> tuple[PciFunction, ...]:
    """Two cards with 4 VFs each, whose links are in these states."""
    found: list[PciFunction] = []
    for number, (address, state) in enumerate(zip(TWO, states, strict=True)):
        speed = 10_000 if state == "up" else None
        found += card(address, 4, net_devices=(NetDevice(f"ens{number}", state, speed),))
    return tuple(found)


@pytest.mark.parametrize("states", [("down", "down"), ("up", "down"), ("down", "up")])
def test_a_flat_host_with_links_down_is_written_and_as_before_when_they_are_up(
    start: Start, states: tuple[str, str]
) -> None:
    one = start(*cards("up", "up"), devices=LINKED, layout="flat")
    one.set_by_hand("", EGRESS, reserved=1_000_000)
    one.set_by_hand("", "SRIOV_NET_VF", reserved=1)
    one.claim({"": {"SRIOV_NET_VF": 5, EGRESS: 12_000_000, "VCPU": 1}})
    assert one.sync().status is Status.UNCHANGED
    before, down = one.stock(), states.count("down")

    done = one.sync(facts=host(*cards(*states)))

    assert (done.status, done.notes) == (Status.CHANGED, ())
    assert one.stock()["SRIOV_NET_VF"] == (8, min(8, 4 * down + 1))
    assert one.stock()[EGRESS] == (20_000_000, min(20_000_000, 10_000_000 * down + 1_000_000))
    assert one.sync().status is Status.UNCHANGED
    one.sync(facts=host(*cards("up", "up")))
    assert (one.stock(), one.marks()) == (before, frozenset())


@pytest.mark.parametrize("at", range(5))
def test_a_retirement_may_be_cut_off_at_any_request(start: Start, at: int) -> None:
    one = start(*nic(), *card("0000:01:00.0", 4, driver=None), devices=VFS)

    with suppress(Cut), one.ending_after(at):
        retire_node(one.node)
    retire_node(one.node)

    assert one.tree().providers == ()


def test_a_device_of_novas_that_is_not_here_is_told_with_what_to_do(start: Start) -> None:
    one = start(plain(), devices=NAMED)
    dead = f"{one.facts.hostname}_{NIC}"
    body = {"name": dead, "uuid": GUEST, "parent_provider_uuid": ROOT}
    one.send("POST", "/resource_providers", body)
    one.put_trait(NIC, MANAGED)
    one.add_by_hand(NIC, "CUSTOM_FAST", 4)

    done = one.sync()
    refused = retire_node(one.node, dry=True)
    found = witness(one.node, light=False).findings
    one.set_by_hand(NIC, "CUSTOM_FAST", reserved=4)

    assert one.stock(NIC) == {"CUSTOM_FAST": (4, 4)}
    (note,) = done.notes
    assert all(word in note for word in (dead, "CUSTOM_FAST:reserved=4", f"resource provider delete {GUEST}"))
    assert (refused.status, refused.notes) == (Status.UNSAFE, (note,))
    assert [(each.kind.value, each.provider, each.seen, each.safe) for each in found] == [
        ("ghost-provider", dead, note, False)
    ]
    assert (one.sync().notes, witness(one.node, light=False).findings) == ((), ())
    assert one.sync(facts=host(*nic(), plain())).status is Status.CHANGED
    assert (one.stock(NIC), MARKER in one.traits(NIC)) == ({"CUSTOM_FAST": (4, 4)}, True)


# What an operator reserves while one of our marks stands.


def two_kinds(mbps: int | None) -> HostFacts:
    """A host with a card of VFs whose link is up or down, and a plain device."""
    return host(*nic(mbps, state="up" if mbps else "down"), plain())


@pytest.mark.parametrize(("before", "after"), [(0, 3), (1, 4), (2, 1), (2, 0)])
def test_a_reservation_beside_bandwidth_that_is_held_is_an_operators(start: Start, before: int, after: int) -> None:
    one = start(*nic(), devices=LINKED)
    one.set_by_hand(NIC, "SRIOV_NET_VF", reserved=before)
    one.claim({NIC: {EGRESS: 5_000_000}})
    one.sync(FORCE, facts=host(*nic(1000)))

    one.set_by_hand(NIC, "SRIOV_NET_VF", reserved=after)
    one.sync(FORCE)
    assert one.stock(NIC)["SRIOV_NET_VF"] == (4, after)
    one.sync(facts=host(*nic()))

    assert (one.stock(NIC)["SRIOV_NET_VF"], one.marks(NIC)) == ((4, after), frozenset())


@pytest.mark.parametrize("before", [1, 4])
@pytest.mark.parametrize("after", [0, 1, 2, 3])
@pytest.mark.parametrize("well_at_once", [False, True])
def test_a_reservation_that_is_changed_on_an_ill_card_is_the_operators_once_it_is_well(
    start: Start, before: int, after: int, well_at_once: bool
) -> None:
    one = start(*nic(), devices=VFS)
    one.set_by_hand(NIC, "SRIOV_NET_VF", reserved=before)
    one.sync(facts=host(*nic(state="down")))

    one.set_by_hand(NIC, "SRIOV_NET_VF", reserved=after)
    if not well_at_once:
        assert one.sync().status is Status.CHANGED
        assert one.stock(NIC) == {"SRIOV_NET_VF": (4, 4)}
        assert one.sync().status is Status.UNCHANGED
    one.sync(facts=host(*nic()))

    assert (one.stock(NIC), one.marks(NIC)) == ({"SRIOV_NET_VF": (4, after)}, frozenset())


def test_all_of_a_card_is_reserved_by_an_operator_while_one_vf_is_ill(start: Start) -> None:
    pf, ill, *others = card(NIC, 4)
    one = start(pf, replace(ill, power_state="error"), *others, devices=VFS)
    assert one.stock(NIC) == {"SRIOV_NET_VF": (4, 1)}

    one.set_by_hand(NIC, "SRIOV_NET_VF", reserved=4)
    one.sync()
    assert one.stock(NIC) == {"SRIOV_NET_VF": (4, 4)}
    one.sync(facts=host(*card(NIC, 4)))

    assert (one.stock(NIC), one.marks(NIC)) == ({"SRIOV_NET_VF": (4, 4)}, frozenset())


def test_a_reservation_on_a_flat_root_is_an_operators_while_devices_of_another_class_are_ill(tmp_path: Path) -> None:
    one = OneHost(tmp_path, two_kinds(10_000), Policy(layout="flat", devices=NAMED))
    one.sync()
    one.sync(facts=two_kinds(None))

    one.set_by_hand("", "CUSTOM_CARD", reserved=1)
    one.sync()
    assert (one.stock()["CUSTOM_CARD"], one.stock()["CUSTOM_FAST"]) == ((1, 1), (4, 4))
    one.sync(facts=two_kinds(10_000))

    assert (one.stock()["CUSTOM_CARD"], one.stock()["CUSTOM_FAST"], one.marks()) == ((1, 1), (4, 0), frozenset())


def test_a_lost_card_whose_reservation_is_taken_off_goes(start: Start) -> None:
    one = start(*nic(), plain(), devices=VFS)
    one.set_by_hand(NIC, "SRIOV_NET_VF", reserved=2)
    one.sync(FORCE)
    for _ in range(4):
        one.sync(facts=host(plain()))
    assert one.stock(NIC) == {"SRIOV_NET_VF": (2, 2)}

    one.set_by_hand(NIC, "SRIOV_NET_VF", reserved=0)
    for _ in range(3):  # a loss is believed when it is seen three times
        one.sync()

    assert one.stock(NIC) == {}


@pytest.mark.parametrize("layout", ["devices", "cells", "numa"])
@pytest.mark.parametrize("wishes", [Wishes(), FORCE])
def test_a_card_that_shows_no_vfs_for_a_while_keeps_what_an_operator_reserved(
    start: Start, layout: Layout, wishes: Wishes
) -> None:
    """Its driver is loaded anew, or its VFs are made anew."""
    one = start(*nic(), devices=LINKED, layout=layout)
    one.set_by_hand(NIC, "SRIOV_NET_VF", reserved=2)
    one.sync()
    before = one.stock(NIC)

    done = one.sync(wishes, facts=host(*nic(vfs=0)))
    assert one.stock(NIC) == {"SRIOV_NET_VF": (2, 2)}
    assert f"host_{NIC} keeps 2 SRIOV_NET_VF, which an operator reserved" in done.notes[0]
    assert one.sync(wishes).status is Status.UNCHANGED
    one.sync(facts=host(*nic()))

    assert (one.stock(NIC), one.marks(NIC)) == (before, frozenset())


TYPED = DevicePolicy(mdevs=(MdevRule(type="a"),))
NO_TYPES: dict[str, tuple[MdevParent, ...]] = {
    "no parent": (),
    "no types": (parent(gpu()),),
    "another type": (parent(gpu(), b=2),),
    "no room": (parent(gpu(), a=0),),
}


@pytest.mark.parametrize("parents", NO_TYPES.values(), ids=NO_TYPES)
def test_a_gpu_that_shows_no_types_for_a_while_keeps_what_an_operator_reserved(
    start: Start, tmp_path: Path, parents: tuple[MdevParent, ...]
) -> None:
    well = host(gpu(), parents=(parent(gpu(), a=4),))
    one = OneHost(tmp_path, well, Policy(layout="devices", devices=TYPED))
    one.sync()
    one.set_by_hand(GPU, "VGPU", reserved=3)

    one.sync(facts=host(gpu(), parents=parents))
    assert one.stock(GPU) == {"VGPU": (3, 3)}
    one.sync(facts=well)

    assert (one.stock(GPU), one.marks(GPU)) == ({"VGPU": (4, 3)}, frozenset())


@pytest.mark.parametrize("kind", ["nic", "gpu", "plain"])
def test_a_rule_that_is_taken_away_from_a_card_that_shows_its_parts_takes_the_reservation_along(
    tmp_path: Path, kind: str
) -> None:
    facts = host(*nic(), plain(), gpu(), parents=(parent(gpu(), a=4),))
    one = OneHost(tmp_path, facts, Policy(layout="devices", devices=replace(NAMED, mdevs=TYPED.mdevs)))
    one.sync()
    place, name = {"nic": (NIC, "CUSTOM_FAST"), "gpu": (GPU, "VGPU"), "plain": ("0000:05:00.0", "CUSTOM_CARD")}[kind]
    one.set_by_hand(place, name, reserved=1)

    one.sync(FORCE, policy=replace(one.policy, devices=DevicePolicy(report=True)))

    assert one.stock(place) == {}


def test_force_that_is_said_for_something_else_leaves_what_is_reserved_of_a_lost_card(start: Start) -> None:
    one = start(*nic(), plain(), devices=VFS)
    one.set_by_hand(NIC, "SRIOV_NET_VF", reserved=2)

    done = one.sync(FORCE, facts=host(plain()))

    assert one.stock(NIC) == {"SRIOV_NET_VF": (2, 2)}
    assert "keeps 2 SRIOV_NET_VF" in done.notes[0]
    one.sync(FORCE, facts=host(*nic(), plain()))
    assert (one.stock(NIC), one.marks(NIC)) == ({"SRIOV_NET_VF": (4, 2)}, frozenset())


def test_a_lost_card_goes_as_its_note_says(start: Start) -> None:
    one = start(*nic(), plain(), devices=VFS)
    one.set_by_hand(NIC, "SRIOV_NET_VF", reserved=2)
    done = one.sync(FORCE, facts=host(plain()))

    uuid = one.tree().by_name[f"host_{NIC}"].uuid
    assert done.notes[0].endswith(f"(openstack resource provider delete {uuid})")
    one.send("DELETE", f"/resource_providers/{uuid}")

    assert (one.sync().status, one.sync().status, one.stock(NIC)) == (Status.UNCHANGED, Status.UNCHANGED, {})


def test_a_reservation_is_not_forgotten_by_passes_that_are_refused(start: Start) -> None:
    one = start(*nic(), devices=VFS)
    one.sync(facts=host(*nic(state="down")))
    one.set_by_hand(NIC, "SRIOV_NET_VF", reserved=2)

    well, policy = one.policy, replace(one.policy, reserved_memory_mib=2001)
    one.claim({"": {"MEMORY_MB": 64}})
    for _ in range(2):
        assert one.sync(policy=policy).status is Status.UNSAFE
    one.sync(policy=well)
    one.sync(facts=host(*nic()))

    assert (one.stock(NIC), one.marks(NIC)) == ({"SRIOV_NET_VF": (4, 2)}, frozenset())


def test_a_trait_that_is_taken_away_is_a_later_word_than_a_reservation(start: Start) -> None:
    one = start(*nic(), devices=VFS)
    one.set_by_hand(NIC, "SRIOV_NET_VF", reserved=2)
    one.sync(facts=host(*nic(state="down")))
    one.set_by_hand(NIC, "SRIOV_NET_VF", reserved=3)
    one.claim({"": {"MEMORY_MB": 64}})
    well = one.policy
    assert one.sync(policy=replace(one.policy, reserved_memory_mib=2001)).status is Status.UNSAFE

    one.remove_traits(NIC, f"{KEEP}3_SRIOV_NET_VF")
    one.sync(policy=well)
    one.sync(facts=host(*nic()))

    assert (one.stock(NIC), one.marks(NIC)) == ({"SRIOV_NET_VF": (4, 0)}, frozenset())


@pytest.mark.parametrize("before", [0, 1, 3])
@pytest.mark.parametrize("after", [0, 2])
@pytest.mark.parametrize("at", range(6))
def test_a_pass_that_learns_what_an_operator_reserved_may_be_cut_off_at_any_request(
    start: Start, before: int, after: int, at: int
) -> None:
    one = start(*nic(), devices=VFS)
    one.set_by_hand(NIC, "SRIOV_NET_VF", reserved=before)
    one.sync(facts=host(*nic(state="down")))
    one.set_by_hand(NIC, "SRIOV_NET_VF", reserved=after)

    with suppress(Cut), one.ending_after(at):
        one.sync()
    one.sync(facts=host(*nic()))

    assert (one.stock(NIC), one.marks(NIC)) == ({"SRIOV_NET_VF": (4, after)}, frozenset())


@pytest.mark.parametrize("at", [None, *range(4)])
def test_hand_over_keeps_what_an_operator_reserved_since_the_last_pass(start: Start, at: int | None) -> None:
    one = start(*nic(), devices=VFS)
    one.set_by_hand(NIC, "SRIOV_NET_VF", reserved=1)
    one.sync(facts=host(*nic(state="down")))
    one.set_by_hand(NIC, "SRIOV_NET_VF", reserved=3)

    with suppress(Cut), one.ending_after(at):
        one.hand_over()
    one.hand_over()

    assert (one.stock(NIC), one.marks(NIC)) == ({"SRIOV_NET_VF": (4, 3)}, frozenset())


@pytest.mark.parametrize("passes", [0, 1])
@pytest.mark.parametrize("traits", [frozenset(), frozenset({MARKER}), frozenset({"CUSTOM_X"})])
@pytest.mark.parametrize("reserved", [0, 1])
def test_what_we_reserved_is_ours_though_a_hand_took_our_marks(
    start: Start, reserved: int, traits: frozenset[str], passes: int
) -> None:
    one = start(*nic(), devices=VFS)
    one.set_by_hand(NIC, "SRIOV_NET_VF", reserved=reserved)
    one.sync(facts=host(*nic(state="down")))

    one.remove_traits(NIC, *(one.traits(NIC) - traits))
    for _ in range(passes):
        one.sync()
    one.sync(facts=host(*nic()))

    assert (one.stock(NIC), one.marks(NIC)) == ({"SRIOV_NET_VF": (4, reserved)}, frozenset())


@pytest.mark.parametrize("passes", [0, 1])
@pytest.mark.parametrize(("before", "after"), [(0, 0), (0, 1), (0, 3), (4, 0), (4, 3)])
def test_what_an_operator_reserves_under_our_mark_stays_though_the_memory_is_lost(
    start: Start, before: int, after: int, passes: int
) -> None:
    one = start(*nic(), devices=VFS)
    one.set_by_hand(NIC, "SRIOV_NET_VF", reserved=before)
    one.sync(facts=host(*nic(state="down")))
    one.set_by_hand(NIC, "SRIOV_NET_VF", reserved=after)

    one.forget()
    for _ in range(passes):
        one.sync()
    one.sync(facts=host(*nic()))

    assert (one.stock(NIC), one.marks(NIC)) == ({"SRIOV_NET_VF": (4, after)}, frozenset())


@pytest.mark.parametrize("lost", [False, True])
def test_hand_over_keeps_what_a_file_reserved_though_the_memory_is_lost(start: Start, lost: bool) -> None:
    one = start(*nic(), devices=VFS)
    one.write_provider_config(NIC, "CUSTOM_X", 5, reserved=3)
    one.sync(facts=host(*nic(state="down")))
    if lost:
        one.forget()

    one.hand_over()

    assert one.stock(NIC) == {"SRIOV_NET_VF": (4, 0), "CUSTOM_X": (5, 3)}


@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("lost", [False, True])
def test_a_pass_that_reserves_more_may_be_cut_off_and_forget(start: Start, at: int, lost: bool) -> None:
    pf, *vfs = card(NIC, 4)
    one = start(pf, *vfs, devices=VFS)
    one.set_by_hand(NIC, "SRIOV_NET_VF", reserved=1)
    ill = [replace(vf, power_state="error") for vf in vfs]
    one.sync(facts=host(pf, ill[0], *vfs[1:]))

    with suppress(Cut), one.ending_after(at):
        one.sync(facts=host(pf, *ill[:2], *vfs[2:]))
    if lost:
        one.forget()
    one.sync(facts=host(pf, *vfs))

    assert (one.stock(NIC), one.marks(NIC)) == ({"SRIOV_NET_VF": (4, 1)}, frozenset())


@dataclass
class Roleless:
    """Before a placement: the role does not allow reshapes."""

    placement: MemoryPlacement

    def request(self, url: str, method: str, **kwargs: Any) -> MemoryAnswer:
        return MemoryAnswer(403, {}, {}) if url == "/reshaper" else self.placement.request(url, method, **kwargs)


@pytest.mark.parametrize("at", range(12))
def test_without_the_reshapers_role_no_reservation_is_lost_between_two_writes(tmp_path: Path, at: int) -> None:
    one = OneHost(tmp_path, host(*nic()), Policy(layout="flat", devices=VFS))
    one.sync()
    one.set_by_hand("", "SRIOV_NET_VF", reserved=2)
    one.sync()
    one.sender.placement = Roleless(one.sender.placement)  # type: ignore[assignment]

    with suppress(Cut, Forbidden), one.ending_after(at):
        one.reshape("devices")
    with suppress(Forbidden):
        one.reshape("devices")

    stock = one.stock() | one.stock(NIC)
    assert stock["SRIOV_NET_VF"] == (4, 2)


def test_what_another_service_writes_gives_no_operators_reservation_back(start: Start) -> None:
    one = start(*nic(), devices=VFS)
    one.set_by_hand(NIC, "SRIOV_NET_VF", reserved=2)
    one.sync(facts=host(*nic(state="down")))

    one.set_by_hand(NIC, "SRIOV_NET_VF", reserved=0, total=8)
    one.sync()
    one.sync(facts=host(*nic()))

    assert one.stock(NIC) == {"SRIOV_NET_VF": (4, 2)}


def test_what_a_hand_reserved_beside_our_mark_stays_though_another_service_writes(start: Start) -> None:
    """Also where the memory is of before the mark."""
    one = start(*nic(), plain(), devices=NAMED, layout="flat")
    earlier = {path: path.read_bytes() for path in one.folder.rglob("*.json")}
    one.sync(facts=host(*nic(state="down"), plain()))
    one.set_by_hand("", "CUSTOM_CARD", reserved=1)
    one.set_by_hand("", "MEMORY_MB", total=1024)
    for path, saved in earlier.items():
        path.write_bytes(saved)

    outcome = one.sync()

    assert "second-writer" in {each.kind for each in outcome.conditions}
    assert (one.stock()["CUSTOM_CARD"], one.stock()["CUSTOM_FAST"]) == ((1, 1), (4, 4))
    one.sync(facts=host(*nic(), plain()))
    assert (one.stock()["CUSTOM_CARD"], one.stock()["CUSTOM_FAST"]) == ((1, 1), (4, 0))


def test_a_pass_that_an_event_asked_for_is_none_of_the_three_that_want_a_smaller_host(tmp_path: Path) -> None:
    one = OneHost(tmp_path, host(*card("0000:21:00.0", 4)), Policy(devices=VFS))
    one.sync()
    one.facts = host()

    seen = [one.sync(Wishes(counts=counts)).status for counts in (True, False, False, True, False, True)]

    assert seen == [Status.UNSAFE] * 5 + [Status.CHANGED]


def test_what_a_file_reserved_is_no_operators_word_once_it_was_withdrawn_while_its_card_was_held(
    tmp_path: Path,
) -> None:
    one = OneHost(tmp_path, host(*card(NIC, 4)), Policy(devices=VFS))
    one.sync()
    one.claim({NIC: {"SRIOV_NET_VF": 2}})
    one.write_provider_config(NIC, "CUSTOM_X", 5, reserved=3)
    one.sync()
    one.sync(FORCE, facts=host(*card(NIC, 1)))
    (one.settings.operator_files.folder / "own.yaml").write_text("meta: {schema_version: '1.0'}\n")
    one.sync(facts=host())
    one.claim({})

    for _ in range(2):
        one.sync(FORCE, facts=host())

    assert one.stock(NIC) == {}


def test_cpus_of_a_guest_that_migrates_do_not_come_on_offer(tmp_path: Path) -> None:
    """Its migration has its allocations here; the guest has its new ones elsewhere."""
    pinned = Guest(
        uuid=GUEST, state="running", migrating=True, vcpus=(frozenset({1}), frozenset({2})), memory=(GuestMemory(64),)
    )
    one = OneHost(tmp_path, replace(host(plain()), guests=(pinned,)), Policy())
    one.sync()
    one.claim({"": {"VCPU": 2, "MEMORY_MB": 64}}, MIGRATION)
    one.claim_abroad(GUEST, {"VCPU": 2, "MEMORY_MB": 64})

    outcome = one.sync(policy=Policy(cpus=CpuPolicy(shared=frozenset({0}), dedicated=frozenset({1, 2, 3}))))

    assert outcome.status is Status.RESHAPE_NEEDED
    assert "PCPU" not in one.stock()


@pytest.mark.parametrize(
    ("mark", "kept"), [(UNHEALTHY, {f"{KEEP}2_NIC"}), (HELD, {f"{KEEP}2_NIC"}), ("CUSTOM_X", set())]
)
def test_what_is_used_up_is_reserved_for_good_also_once_our_own_reason_is_gone(mark: str, kept: set[str]) -> None:
    before = Provider(name="nic", inventories={"NIC": Inventory(total=2)}, traits=frozenset({mark}))

    after = used_up(before)

    assert after.inventories["NIC"].reserved == 2
    assert after.traits == {mark, *kept}


KEPT = frozenset({UNHEALTHY, "CUSTOM_T", f"{KEEP}1_VF", f"{KEEP}2_VF"})  # the second before the first was removed
OTHERS = frozenset({UNHEALTHY, "CUSTOM_T", f"{LEFT}2_VF"})


@pytest.mark.parametrize(
    ("traits", "besides", "after"),
    [
        pytest.param(KEPT | OTHERS, {}, OTHERS | {f"{KEEP}3_VF"}, id="another amount than we left"),
        pytest.param(KEPT | {f"{LEFT}3_VF"}, {}, None, id="what we left"),
        pytest.param(KEPT | OTHERS | {f"{KEEP}3_VF"}, {}, None, id="what an operator had reserved"),
        pytest.param(KEPT, {}, None, id="no trait says what we left"),
        pytest.param((KEPT | OTHERS) - {UNHEALTHY}, {}, None, id="no mark of ours"),
        pytest.param(KEPT | OTHERS, {"nic": {"VF"}}, None, id="a class of the operator's files"),
        pytest.param(OTHERS | {f"{KEEP}4_GPU"}, {"nic": {"VF"}}, OTHERS, id="nothing any more"),
    ],
)
def test_under_our_mark_an_operator_reserved_what_we_did_not_leave(
    traits: frozenset[str], besides: dict[str, set[str]], after: frozenset[str] | None
) -> None:
    stock = {name: Inventory(total=8, reserved=amount) for name, amount in (("VF", 3), ("VCPU", 3), ("GPU", 0))}
    nic = Provider(name="nic", inventories=stock, traits=traits)

    (found,) = with_reservations(observed_as(nic), besides)

    assert found.provider.traits == (traits if after is None else after)


def observed_as(provider: Provider, generation: int = 1) -> ObservedTree:
    return ObservedTree((ObservedProvider(uuid="uuid", generation=generation, provider=provider),))


@pytest.mark.parametrize(
    ("generation", "stands", "left", "marks"),
    [
        pytest.param(2, {"CUSTOM_T"}, KEPT, KEPT, id="a hand set the traits"),
        pytest.param(3, {"CUSTOM_T"}, KEPT, {"CUSTOM_T"}, id="and wrote something else"),
        pytest.param(2, {HELD}, KEPT, {HELD}, id="a mark of ours is left"),
        pytest.param(2, {"CUSTOM_T"}, KEPT - {UNHEALTHY}, {"CUSTOM_T"}, id="we had reserved nothing"),
    ],
)
def test_marks_that_a_hand_took_count_until_something_else_is_written(
    generation: int, stands: set[str], left: frozenset[str], marks: set[str]
) -> None:
    seen = observed_as(Provider(name="nic", traits=frozenset(stands)), generation)

    (found,) = with_marks_of(seen, observed_as(Provider(name="nic", traits=left | {"CUSTOM_GONE"})))

    assert found.provider.traits == marks
