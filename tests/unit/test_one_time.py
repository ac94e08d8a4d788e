"""A one-time device that was used is on offer to nobody before a person says so, whatever happened meanwhile."""

import copy
from dataclasses import replace
from pathlib import Path

import pytest

from agent.state.memory import NodeState
from agent.sync.decide.features.one_time import find_uses
from agent.sync.decide.view import Wishes
from agent.sync.outcome import Status
from beds.one_host import FORCE, RESHAPE, OneHost, Sender, begun
from drivers.policy import DevicePolicy, DeviceRule
from hardware import card, host, plain
from reportclient.tree import Provider, ProviderTree

NIC, OTHER = "0000:05:00.0", "0000:81:00.0"
WHOLE = host(plain(), *card(OTHER, 4))
CLASS = "CUSTOM_NIC"
OFFERED, USED = {CLASS: (1, 0)}, {CLASS: (1, 1)}


def devices(resource_class: str = CLASS, *, once: bool = True) -> DevicePolicy:
    rule = DeviceRule(number=1, product_id="1533", resource_class=resource_class, one_time_use=once)
    return DevicePolicy(report=True, discover_all=True, rules=(rule,))


@pytest.fixture
def one(tmp_path: Path) -> OneHost:
    """A host with a one-time device and a card with VFs, after its first pass."""
    return begun(tmp_path, WHOLE, devices())


def claim(one: OneHost) -> None:
    one.claim({NIC: {CLASS: 1}})


def lose_card(one: OneHost) -> None:
    """All VFs of the other card: more than one pass may take."""
    one.facts = host(plain())


def find_card(one: OneHost) -> None:
    one.facts = WHOLE


def test_a_use_that_only_a_refused_pass_saw_is_written_later(one: OneHost) -> None:
    lose_card(one)
    claim(one)

    assert one.sync().status is Status.UNSAFE
    one.claim({})
    assert one.sync().status is Status.UNSAFE
    find_card(one)
    outcome = one.sync()

    assert one.stock(NIC) == USED
    assert "offer it again after this pass" in outcome.notes[0]
    one.set_by_hand(NIC, CLASS, reserved=0)
    one.sync()
    assert one.stock(NIC) == OFFERED  # what was written is an operator's to give back


def test_a_use_that_only_a_refused_pass_saw_is_known_when_the_device_went_meanwhile(one: OneHost) -> None:
    lose_card(one)
    claim(one)
    assert one.sync().status is Status.UNSAFE
    one.claim({})

    one.sync(FORCE, facts=host(*card(OTHER, 4)))
    assert one.stock(NIC) == USED
    one.sync(facts=WHOLE)

    assert one.stock(NIC) == USED


def test_a_use_that_only_a_pass_saw_that_may_not_convert_is_written_by_the_conversion(one: OneHost) -> None:
    one.claim({"": {"VCPU": 1}, NIC: {CLASS: 1}})
    one.policy = replace(one.policy, layout="numa")
    one.sync(Wishes(force=True))
    one.claim({})
    one.sync(RESHAPE)

    assert one.stock(NIC) == USED


def test_a_claim_that_came_and_went_between_two_passes_is_a_use(one: OneHost) -> None:
    claim(one)
    one.claim({})

    outcome = one.sync()

    assert one.stock(NIC) == USED
    assert f"host_{NIC} is a one-time device. Since the last pass it was claimed" in outcome.notes[0]
    assert one.sync().status is Status.UNCHANGED


def test_a_claim_that_came_and_went_is_a_use_though_the_device_went_too(one: OneHost) -> None:
    claim(one)
    one.claim({})

    one.sync(FORCE, facts=host(*card(OTHER, 4)))

    assert one.stock(NIC) == USED


def test_what_an_operator_writes_is_no_use(one: OneHost) -> None:
    """Reserved and given back, each seen by a pass, and an aggregate."""
    for reserved in (1, 0):
        one.set_by_hand(NIC, CLASS, reserved=reserved)
        one.sync()
    seen = one.tree().by_name[f"host_{NIC}"]
    body = {"aggregates": [seen.uuid], "resource_provider_generation": seen.generation}
    one.send("PUT", f"/resource_providers/{seen.uuid}/aggregates", body)
    one.sync()

    assert one.stock(NIC) == OFFERED


def test_a_trait_that_somebody_puts_on_a_device_is_no_use(one: OneHost) -> None:
    for away in (False, True):
        one.put_trait(NIC, "CUSTOM_RACK_7", away=away)
        one.sync()

    assert one.stock(NIC) == OFFERED


@pytest.mark.parametrize("ratio", [2.0, 0.5])
def test_a_ratio_that_somebody_sets_on_a_device_is_no_use(one: OneHost, ratio: float) -> None:
    one.set_by_hand(NIC, CLASS, allocation_ratio=ratio)

    outcome = one.sync()

    assert one.stock(NIC) == OFFERED
    assert not any("one-time" in note for note in outcome.notes)


@pytest.mark.parametrize("layout", ["numa", "cells", "devices"])
def test_our_own_writes_are_no_use(one: OneHost, layout: str) -> None:
    one.reshape("numa")
    one.reshape(layout)
    one.sync()

    assert one.sync().status is Status.UNCHANGED
    assert one.stock(NIC) == OFFERED


def test_a_write_that_could_not_be_read_back_is_no_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("agent.sync.run._read_back", lambda _node, _draft, left: left)
        one = begun(tmp_path, WHOLE, devices())
    one.sync()

    assert one.stock(NIC) == OFFERED


def test_claims_before_a_device_was_for_one_time_use_are_none_after_they_ended(tmp_path: Path) -> None:
    one = begun(tmp_path, WHOLE, devices(once=False))
    claim(one)
    one.claim({})

    one.sync(policy=replace(one.policy, devices=devices()))

    assert one.stock(NIC) == OFFERED


def test_a_used_device_is_used_under_another_class(one: OneHost) -> None:
    claim(one)
    one.sync()
    one.claim({})

    one.sync(FORCE, policy=replace(one.policy, devices=devices("CUSTOM_OTHER")))

    assert one.stock(NIC) == {"CUSTOM_OTHER": (1, 1)}


def test_a_used_device_is_used_in_a_placement_that_was_restored_from_before_its_use(one: OneHost) -> None:
    one.sync()
    backup = copy.deepcopy(one.sender.placement)
    claim(one)
    one.sync()
    one.claim({})
    one.sync()
    assert one.stock(NIC) == USED

    one.sender.placement = backup
    one.sync()

    assert one.stock(NIC) == USED


@pytest.mark.parametrize("where", ["placement", "https://other.example/placement"])
def test_a_used_device_is_reserved_where_a_lost_tree_is_made_anew(one: OneHost, where: str) -> None:
    claim(one)
    one.sync()
    one.claim({})
    one.sync()
    one.sender, one.where = Sender(), where

    assert [one.sync().status for _ in range(3)] == [Status.UNSAFE, Status.UNSAFE, Status.CHANGED]
    assert one.stock(NIC) == USED
    assert one.sync().status is Status.UNCHANGED
    one.set_by_hand(NIC, CLASS, reserved=0)
    one.sync()
    assert one.stock(NIC) == OFFERED


def test_a_used_device_whose_inventory_somebody_deleted_is_still_told(one: OneHost) -> None:
    seen = one.tree().by_name[f"host_{NIC}"]
    bare = replace(seen, provider=replace(seen.provider, inventories={}))

    found = find_uses([bare], (), ProviderTree((Provider(name="host"),)), NodeState(bodies={"used": [seen.uuid]}))

    assert "--resource CLASS:reserved=0" in found.unheld[0].text
