"""No unit of hardware is on offer in two forms: whole and divided, on its card and in a total, under two names."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import get_args

import pytest

from agent.sync.outcome import Status
from beds.one_host import FORCE, OneHost, begun, refused
from drivers.by_suffix import BySuffix
from drivers.devices import device_stock
from drivers.errors import PolicyError
from drivers.facts import HostFacts, Mdev, PciFunction, PciIds
from drivers.policy import DevicePolicy, DeviceRule, Layout, MdevRule, Policy, RulePlace
from hardware import card, gpu, guest_with, host, parent

GPU, WHOLE = "pci_0000_84_00_0", "0000:84:00.0"
MDEVS = DevicePolicy(report=True, mdevs=(MdevRule(type="a"),))
PCI = DevicePolicy(report=True, rules=(DeviceRule(number=1, product_id="1eb8", resource_class="CUSTOM_GPU"),))
Start = Callable[..., OneHost]


def divided() -> HostFacts:
    return host(gpu(), parents=(parent(gpu(), a=4),))


def whole() -> HostFacts:
    return host(gpu(driver="vfio-pci"))


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts a host of these facts, and makes its first pass."""
    return partial(begun, tmp_path)


@pytest.mark.parametrize("layout", [one for one in get_args(Layout) if one != "flat"])
def test_a_gpu_that_goes_from_vgpus_to_whole_under_a_guest_is_not_offered_whole(start: Start, layout: Layout) -> None:
    one = start(divided(), MDEVS, layout)
    one.claim({GPU: {"VGPU": 1}})

    refused(one.sync(FORCE, facts=whole(), policy=replace(one.policy, devices=PCI)), f"1 VGPU on host_{GPU}")

    assert (one.stock(GPU), one.stock(WHOLE)) == ({"VGPU": (4, 0)}, {})
    one.claim({})
    assert one.sync(FORCE).status is Status.CHANGED
    assert (one.stock(GPU), one.stock(WHOLE)) == ({}, {"CUSTOM_GPU": (1, 0)})


@pytest.mark.parametrize("layout", [one for one in get_args(Layout) if one != "flat"])
def test_a_gpu_that_goes_from_whole_to_vgpus_under_a_guest_is_not_offered_divided(start: Start, layout: Layout) -> None:
    one = start(whole(), PCI, layout)
    one.claim({WHOLE: {"CUSTOM_GPU": 1}})

    refused(one.sync(FORCE, facts=divided(), policy=replace(one.policy, devices=MDEVS)), "1 CUSTOM_GPU on host_")

    assert (one.stock(GPU), one.stock(WHOLE)) == ({}, {"CUSTOM_GPU": (1, 0)})


def test_vgpus_on_vfs_are_not_offered_while_a_guest_has_the_card_whole(start: Start) -> None:
    pf, first, second = card(WHOLE, 2, vendor="10de", net_devices=())
    rule = DeviceRule(number=1, vendor_id="10de", product_id="1528", resource_class="CUSTOM_GPU")
    one = start(host(replace(pf, vfs=())), DevicePolicy(report=True, rules=(rule,)))
    one.claim({WHOLE: {"CUSTOM_GPU": 1}})
    parted = host(pf, first, second, parents=(parent(first, a=1), parent(second, a=1)))

    refused(one.sync(FORCE, facts=parted, policy=replace(one.policy, devices=MDEVS)), "1 CUSTOM_GPU on host_")


def test_a_held_row_of_one_vf_stays_while_another_vf_of_the_card_is_offered(start: Start) -> None:
    pf, first, second = card(WHOLE, 2, vendor="10de", net_devices=())
    one = start(host(pf, first, second, parents=(parent(first, a=1), parent(second, a=1))), MDEVS)
    name = parent(first).name
    one.claim({name: {"VGPU": 1}})

    done = one.sync(FORCE, facts=host(pf, first, second, parents=(parent(second, a=1),)))

    assert (done.status, one.stock(name)) == (Status.CHANGED, {"VGPU": (1, 1)})


@pytest.mark.parametrize("layout", [one for one in get_args(Layout) if one != "flat"])
def test_a_total_under_a_new_name_is_not_offered_beside_what_guests_hold_of_the_cards(
    start: Start, layout: Layout
) -> None:
    one = start(divided(), MDEVS, layout)
    one.claim({GPU: {"VGPU": 1}})
    renamed = DevicePolicy(report=True, mdevs=(MdevRule(type="a", resource_class="CUSTOM_VGPU"),))

    done = one.sync(FORCE, policy=replace(one.policy, devices=renamed, layout="flat"))

    assert done.status in (Status.UNSAFE, Status.RESHAPE_NEEDED)
    assert (one.stock(GPU), one.stock().get("CUSTOM_VGPU")) == ({"VGPU": (4, 0)}, None)


def pf_of_vgpus() -> tuple[PciFunction, ...]:
    return card(WHOLE, 1, vendor="10de", net_devices=())


@pytest.mark.parametrize(
    ("facts", "rule"),
    [
        pytest.param(divided(), DeviceRule(number=7, product_id="1eb8"), id="the same function"),
        pytest.param(
            host(*pf_of_vgpus(), parents=(parent(pf_of_vgpus()[1], a=1),)),
            DeviceRule(number=7, product_id="1528"),
            id="the PF of VFs that make vGPUs",
        ),
        pytest.param(
            host(*pf_of_vgpus(), parents=(parent(pf_of_vgpus()[1], a=1),)),
            DeviceRule(number=7, product_id="1515"),
            id="a VF that makes vGPUs",
        ),
    ],
)
def test_a_device_that_is_configured_whole_and_divided_is_refused(facts: HostFacts, rule: DeviceRule) -> None:
    both = DevicePolicy(report=True, rules=(rule,), mdevs=(MdevRule(type="a"),))

    with pytest.raises(PolicyError, match=r"device_spec, rule 7.*enabled_mdev_types has a.*Only one of the two"):
        device_stock(facts, both, BySuffix(None))


def test_a_rule_for_a_vf_that_makes_no_vgpus_goes_with_vgpus_on_another(start: Start) -> None:
    pf, first, second = card(WHOLE, 2, vendor="10de", net_devices=())
    rule = DeviceRule(number=1, place=RulePlace(exact=first.address))
    policy = DevicePolicy(report=True, rules=(rule,), mdevs=MDEVS.mdevs)
    facts = host(pf, replace(first, ids=replace(first.ids, vendor="10df")), second, parents=(parent(second, a=1),))
    narrow = replace(policy, rules=(replace(policy.rules[0], vendor_id="10df"),))

    assert [one.suffix for one in device_stock(facts, narrow, BySuffix(None))] == [WHOLE, parent(second).name]


def test_a_gpu_without_driver_that_a_rule_offers_whole_is_not_kept_as_vgpus(start: Start) -> None:
    one = start(divided(), MDEVS)

    one.sync(FORCE, facts=host(gpu(driver=None)), policy=replace(one.policy, devices=replace(PCI, mdevs=MDEVS.mdevs)))

    assert (one.stock(GPU), one.stock(WHOLE)) == ({}, {"CUSTOM_GPU": (1, 0)})


@pytest.mark.parametrize("layout", get_args(Layout))
def test_a_gpu_with_vgpus_on_it_is_not_given_whole_whatever_the_total_says(start: Start, layout: Layout) -> None:
    """In a total nobody sees that what a guest holds is of the very card that a rule offers whole now."""
    gpus = replace(gpu(), ids=PciIds("10de", "26b9")), gpu("0000:85:00.0")
    parents = parent(gpus[0], a=3), parent(gpus[1], a=4)
    facts = host(*gpus, parents=parents, mdevs=(Mdev("b6a39d0c-0000-4000-8000-000000000001", "a", GPU),))
    rule = DeviceRule(number=1, product_id="26b9", resource_class="CUSTOM_GPU")
    other = MdevRule(type="a", addresses=frozenset({"0000:85:00.0"}))
    devices = DevicePolicy(report=True, rules=(rule,), mdevs=(other,))

    one = start(facts, devices, layout)

    place = "" if layout == "flat" else WHOLE
    assert one.stock(place)["CUSTOM_GPU"] == (1, 1)
    one.sync(facts=host(*gpus, parents=parents))
    assert (one.stock(place)["CUSTOM_GPU"], one.marks(place)) == ((1, 0), frozenset())


@pytest.mark.parametrize("layout", get_args(Layout))
def test_a_card_of_which_a_guest_has_a_vf_is_not_given_whole(start: Start, layout: Layout) -> None:
    pf, vf = card(WHOLE, 1)
    rule = DeviceRule(number=1, product_id="1528", resource_class="CUSTOM_NIC")
    guest = guest_with("6f1f6a0c-4d3c-4b7e-8b9a-2f6b7a1c0d42", pci=frozenset({vf.address}))

    one = start(replace(host(pf, vf), guests=(guest,)), DevicePolicy(report=True, rules=(rule,)), layout)

    assert one.stock("" if layout == "flat" else WHOLE)["CUSTOM_NIC"] == (1, 1)


@pytest.mark.parametrize("after", ["flat", "devices"])
def test_a_total_that_nobody_remembers_gets_no_second_name(start: Start, after: Layout) -> None:
    """With its memory lost the agent cannot tell its own old name from another service's class."""
    called = [
        DevicePolicy(report=True, rules=(DeviceRule(number=1, product_id="1515", resource_class=name),))
        for name in ("CUSTOM_A", "CUSTOM_B")
    ]
    one = start(host(*card()), called[0], "flat")
    for file in one.folder.glob("*.json"):
        file.unlink()

    for _ in range(2):
        refused(one.sync(FORCE, policy=Policy(layout=after, devices=called[1])), "CUSTOM_A", "CUSTOM_B", "for one pass")
    assert one.stock() == {**one.stock(), "CUSTOM_A": (2, 0)}
    assert "CUSTOM_B" not in one.stock()

    assert one.sync(policy=Policy(layout="flat", devices=called[0])).status is Status.UNCHANGED
    assert one.sync(FORCE, policy=Policy(layout=after, devices=called[1])).status is Status.CHANGED
    assert "CUSTOM_A" not in one.stock()
