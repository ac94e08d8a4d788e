"""A card that is lost is reserved in the pass that finds it lost, also while the rest of the plan is refused."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent.sync.decide.view import Wishes
from agent.sync.outcome import Status
from beds.one_host import Cut, OneHost, begun
from drivers.policy import CpuPolicy, DevicePolicy, DeviceRule, Layout, MdevRule
from hardware import card, gpu, host, parent, plain
from reportclient.ownership import OWNER_NOVA
from reportclient.reserve import UNHEALTHY

NIC, GPU = "0000:81:00.0", "pci_0000_84_00_0"
VF = "SRIOV_NET_VF"
ALL = DevicePolicy(discover_all=True, mdevs=(MdevRule(type="a"),))
WHOLE = host(*card(NIC, 4), gpu(), parents=(parent(gpu(), a=8),))
NO_CARD = host(plain(), gpu(), parents=(parent(gpu(), a=8),))
Start = Callable[..., OneHost]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts a host, and makes its first pass."""
    return lambda layout="devices", facts=WHOLE: begun(tmp_path, facts, ALL, layout)


@pytest.mark.parametrize("layout", ["devices", "cells", "numa"])
def test_a_lost_card_is_reserved_in_the_first_pass_and_goes_in_the_third(start: Start, layout: Layout) -> None:
    one = start(layout)

    first = one.sync(facts=NO_CARD)
    assert (first.status, one.stock(NIC), UNHEALTHY in one.marks(NIC)) == (Status.UNSAFE, {VF: (4, 4)}, True)
    assert f"_{NIC}: 4 more {VF} are reserved" in " ".join(first.notes)
    assert one.stock(GPU) == {"VGPU": (8, 0)}
    assert (one.sync().status, one.stock(NIC)) == (Status.UNSAFE, {VF: (4, 4)})

    assert (one.sync().status, one.stock(NIC)) == (Status.CHANGED, {})


def test_a_lost_one_time_device_is_reserved_in_the_first_pass_too(tmp_path: Path) -> None:
    once = DeviceRule(number=1, product_id="1533", resource_class="CUSTOM_NIC", one_time_use=True)
    one = begun(tmp_path, NO_CARD, DevicePolicy(report=True, rules=(once,)), "devices")

    assert one.sync(facts=host()).status is Status.UNSAFE
    assert one.stock("0000:05:00.0") == {"CUSTOM_NIC": (1, 1)}


@pytest.mark.parametrize("layout", ["flat", "devices"])
def test_a_card_that_comes_back_is_on_offer_again_with_what_an_operator_reserved(start: Start, layout: Layout) -> None:
    one = start(layout)
    suffix = "" if layout == "flat" else NIC
    one.set_by_hand(suffix, VF, reserved=1)
    one.sync()

    one.sync(facts=NO_CARD)
    assert one.stock(suffix)[VF] == (4, 4)
    one.sync(facts=WHOLE)

    assert (one.stock(suffix)[VF], one.marks(suffix)) == ((4, 1), frozenset())


def test_a_lost_card_is_reserved_beside_capacity_that_falls_below_its_use(start: Start) -> None:
    one = start()
    one.claim({"": {"VCPU": one.stock()["VCPU"][0]}})
    before = one.stock()

    done = one.sync(facts=NO_CARD, policy=replace(one.policy, cpus=CpuPolicy(reserved=2)))

    assert done.status is Status.UNSAFE
    assert (one.stock(), one.stock(NIC)) == (before | {"VCPU": (4, 2)}, {VF: (4, 4)})


def test_what_a_boot_took_away_is_reserved_beside_a_conversion_that_waits_for_it(start: Start) -> None:
    one = start(facts=replace(WHOLE, boot="first"))

    done = one.sync(facts=replace(NO_CARD, boot="second"), policy=replace(one.policy, layout="numa"))

    assert (done.status, one.stock(NIC)) == (Status.UNSAFE, {VF: (4, 4)})


@pytest.mark.parametrize(("layout", "target"), [("devices", "flat"), ("flat", "devices"), ("numa", "flat")])
def test_what_is_lost_and_comes_back_is_followed_while_a_conversion_waits(
    start: Start, layout: Layout, target: Layout
) -> None:
    one = start(layout)
    suffix = "" if layout == "flat" else NIC
    one.claim({"" if layout == "flat" else GPU: {"VGPU": 1}})
    policy = replace(one.policy, layout=target)

    reserved = []
    for vfs in (3, 2, 2, 3, 0, 1, 4):
        facts = host(*card(NIC, vfs), gpu(), parents=(parent(gpu(), a=8),)) if vfs else NO_CARD
        assert one.sync(facts=facts, policy=policy).status in (Status.UNSAFE, Status.RESHAPE_NEEDED)
        reserved.append(one.stock(suffix)[VF][1])

    assert reserved[:2] == [1, 2]
    assert reserved[4] == 4
    assert (reserved[-1], one.marks(suffix)) == (0, frozenset())


def test_nothing_is_reserved_beside_a_plan_that_a_person_agreed_to_alone(start: Start) -> None:
    one = start()
    one.claim({GPU: {"VGPU": 1}})

    done = one.sync(Wishes(agreed="a plan"), facts=NO_CARD, policy=replace(one.policy, layout="flat"))

    assert (done.status, one.stock(NIC)) == (Status.RESHAPE_NEEDED, {VF: (4, 0)})


def test_a_card_is_not_reserved_while_a_second_writer_is_at_work(start: Start) -> None:
    one = start()
    one.sync()
    one.set_by_hand(GPU, "VGPU", total=3)
    one.sync()
    one.set_by_hand(GPU, "VGPU", total=3)

    done = one.sync(facts=NO_CARD)

    assert (done.status, one.stock(NIC)) == (Status.CONTESTED, {VF: (4, 0)})


@pytest.mark.parametrize("left", [1, 2])
@pytest.mark.parametrize("layout", ["flat", "devices"])
def test_what_an_operator_reserved_stays_when_a_reservation_is_cut_off(start: Start, layout: Layout, left: int) -> None:
    one = start(layout)
    suffix = "" if layout == "flat" else NIC
    one.set_by_hand(suffix, VF, reserved=1)
    one.sync()

    with pytest.raises(Cut), one.ending_after(left):
        one.sync(facts=NO_CARD)
    one.sync()
    assert one.stock(suffix)[VF] == (4, 4)
    one.sync(facts=WHOLE)

    assert (one.stock(suffix)[VF], one.marks(suffix)) == ((4, 1), frozenset())


@pytest.mark.parametrize("layout", ["flat", "devices", "cells", "numa"])
def test_a_gpu_of_cyborg_without_a_mark_is_left_as_it_is(start: Start, layout: Layout) -> None:
    """Cyborg names a card by its address, nova names it as libvirt does."""
    one = start(layout)
    one.make_as_nova("0000:84:00.0", "VGPU")
    one.remove_traits("0000:84:00.0", OWNER_NOVA)
    for _ in range(3):
        assert one.sync().status is Status.UNCHANGED
    one.sync(facts=host(plain()), wishes=Wishes(force=True))

    assert one.stock("0000:84:00.0") == {"VGPU": (4, 0)}


@pytest.mark.parametrize("layout", ["flat", "devices", "cells", "numa"])
def test_beside_a_gpu_of_cyborg_without_a_mark_another_one_comes_on_offer(start: Start, layout: Layout) -> None:
    one = start(layout, host(plain()))
    one.make_as_nova("0000:85:00.0", "VGPU")
    one.remove_traits("0000:85:00.0", OWNER_NOVA)

    outcome = one.sync(facts=WHOLE)

    assert outcome.status is Status.CHANGED, outcome.notes
    assert one.stock("" if layout == "flat" else GPU)["VGPU"] == (8, 0)


@pytest.mark.parametrize("layout", ["flat", "devices", "cells", "numa"])
@pytest.mark.parametrize("mark", [True, False], ids=["marked", "of an older nova"])
def test_beside_what_nova_left_of_a_card_that_is_gone_another_one_comes_on_offer(
    start: Start, layout: Layout, *, mark: bool
) -> None:
    one = start(layout, host(plain()))
    one.make_as_nova("pci_0000_95_00_0", "VGPU")
    if not mark:
        one.remove_traits("pci_0000_95_00_0", OWNER_NOVA)

    outcome = one.sync(facts=WHOLE)

    assert (outcome.status, outcome.broken) == (Status.CHANGED, ()), outcome.notes
    assert "Bring the device back" in " ".join(outcome.notes)
    assert one.stock("" if layout == "flat" else GPU)["VGPU"] == (8, 0)
    assert one.stock("pci_0000_95_00_0") == {"VGPU": (4, 0)}


def test_a_provider_of_a_cards_address_without_a_mark_is_not_novas_whatever_its_class(start: Start) -> None:
    """Nova names its providers of MEM_ENCRYPTION_CONTEXT by their kind."""
    one = start("flat")
    one.make_as_nova(NIC, "MEM_ENCRYPTION_CONTEXT")
    one.remove_traits(NIC, OWNER_NOVA)

    outcome = one.sync()

    assert (outcome.status, one.stock(NIC)) == (Status.UNCHANGED, {"MEM_ENCRYPTION_CONTEXT": (4, 0)}), outcome.notes
