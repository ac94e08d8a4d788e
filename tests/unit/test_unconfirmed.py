"""A conversion that waits to be confirmed: taken back in time, or it stands, and never half."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.service.rounds import _waiting
from agent.state.locks import locked
from agent.sync.convert import take_back_unconfirmed
from agent.sync.outcome import Outcome, Status
from agent.sync.unconfirmed import confirm, find_unconfirmed
from beds.one_host import GUEST, RESHAPE, Cut, OneHost
from drivers.policy import DevicePolicy, Policy
from hardware import card, guest_with, host

NIC, VF = "0000:81:00.0", "SRIOV_NET_VF"
FACTS = replace(host(*card(NIC, 4)), guests=(guest_with(GUEST, pci=frozenset({"0000:81:10.0"})),))
BY_S = 4_000_000_000.0


def stands(one: OneHost) -> tuple[dict[str, Any], Any]:
    """The providers and what the guest has on each, by name."""
    tree = one.tree()
    held = one.node.client.consumer(GUEST)
    names = {seen.uuid: seen.name for seen in tree}
    rows = {names[uuid]: dict(amounts) for uuid, amounts in held.slots.items()} if held else {}
    return {seen.name: seen.provider for seen in tree}, rows


def convert(one: OneHost) -> Outcome:
    wishes = replace(RESHAPE, force=False, confirm_by_s=BY_S)
    return one.sync(wishes, policy=replace(one.policy, layout="devices"))


def wait(one: OneHost) -> Outcome | None:
    with locked(one.settings.folders.state):
        return take_back_unconfirmed(one.node)


@pytest.fixture
def one(tmp_path: Path) -> OneHost:
    """A host in the layout flat with a guest that has a VF."""
    found = OneHost(tmp_path, FACTS, Policy(layout="flat", devices=DevicePolicy(discover_all=True)))
    assert found.sync().status is Status.CHANGED
    found.claim({"": {VF: 1}})
    return found


def test_a_conversion_is_taken_back_once_its_time_is_over(one: OneHost, monkeypatch: pytest.MonkeyPatch) -> None:
    before = stands(one)
    assert convert(one).status is Status.CHANGED
    assert stands(one)[1] == {f"host_{NIC}": {VF: 1}}
    assert wait(one) is None

    monkeypatch.setattr("time.time", lambda: BY_S + 1)
    done = wait(one)

    assert done
    assert (done.status, stands(one), find_unconfirmed(one.node)) == (Status.CHANGED, before, None)
    assert wait(one) is None


def test_a_confirmed_conversion_stands(one: OneHost, monkeypatch: pytest.MonkeyPatch) -> None:
    convert(one)
    after = stands(one)
    waiting = find_unconfirmed(one.node)
    assert waiting
    confirm(one.node, waiting)

    monkeypatch.setattr("time.time", lambda: BY_S + 1)

    assert (wait(one), stands(one)) == (None, after)


@pytest.mark.parametrize("writes", range(3))
def test_a_conversion_that_was_cut_off_at_any_write_is_taken_back_whole(
    one: OneHost, writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stands(one)
    one.sender.left = writes
    with pytest.raises(Cut):
        convert(one)
    one.sender.left = None

    monkeypatch.setattr("time.time", lambda: BY_S + 1)
    wait(one)
    one.sync(policy=replace(one.policy, layout="flat"))

    assert (stands(one), find_unconfirmed(one.node)) == (before, None)


def test_taking_it_back_may_be_cut_off_too(one: OneHost, monkeypatch: pytest.MonkeyPatch) -> None:
    before = stands(one)
    convert(one)
    monkeypatch.setattr("time.time", lambda: BY_S + 1)
    one.sender.left = cuts = 0
    while True:
        try:
            wait(one)
            break
        except Cut:
            cuts += 1
            one.sender.left = cuts

    assert cuts
    assert (stands(one), find_unconfirmed(one.node)) == (before, None)


def test_what_was_converted_again_since_is_not_taken_back(one: OneHost, monkeypatch: pytest.MonkeyPatch) -> None:
    convert(one)
    assert one.sync(RESHAPE, policy=replace(one.policy, layout="numa")).status is Status.CHANGED
    after = stands(one)

    monkeypatch.setattr("time.time", lambda: BY_S + 1)

    assert (wait(one), stands(one), find_unconfirmed(one.node)) == (None, after, None)


def test_what_cannot_be_taken_back_exactly_stays_until_it_can(one: OneHost, monkeypatch: pytest.MonkeyPatch) -> None:
    before = stands(one)
    convert(one)
    one.set_by_hand(NIC, VF, max_unit=1)
    monkeypatch.setattr("time.time", lambda: BY_S + 1)

    refused = wait(one)
    assert refused
    assert refused.status is Status.UNSAFE
    assert find_unconfirmed(one.node)
    one.set_by_hand(NIC, VF, max_unit=4)

    assert wait(one)
    assert stands(one) == before


def test_a_damaged_journal_stops_no_pass_and_is_told(one: OneHost, monkeypatch: pytest.MonkeyPatch) -> None:
    convert(one)
    (entry,) = (one.settings.folders.state / "journal").iterdir()
    entry.write_text("{}")
    monkeypatch.setattr("time.time", lambda: BY_S + 1)

    with locked(one.settings.folders.state):
        (told,) = _waiting(one.node)

    assert told.kind == "unconfirmed"
    assert "and that is refused" in told.text
    assert "is damaged" in told.text
