"""A placement without the root that stood at an earlier pass: a wiped database, or another placement's URL."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from agent.state.memory import NodeState
from agent.sync.decide.view import Wishes
from agent.sync.outcome import Outcome, Status
from beds.memory import MemoryPlacement
from beds.one_host import FORCE, ROOT, Cut, OneHost, Sender
from drivers.policy import DevicePolicy, DeviceRule, Layout, Policy
from hardware import card, host, plain

NIC = "0000:81:00.0"
LOST = "placement does not have the provider host, and at an earlier pass "


@pytest.fixture
def new(tmp_path: Path) -> OneHost:
    """A host before its first pass."""
    return OneHost(tmp_path, host(plain()), Policy())


@pytest.fixture
def one(new: OneHost) -> OneHost:
    """A host after its first pass."""
    new.sync()
    return new


def lose(one: OneHost, where: str = "placement") -> MemoryPlacement:
    """Put an empty placement in the place of the one that stands; returns that one."""
    before = one.sender.placement
    one.sender, one.where = Sender(), where
    return before


def memory(one: OneHost) -> NodeState:
    return one.node.state_file(ROOT).read(one.where)


def timeless(state: NodeState) -> NodeState:
    """A memory without the moments at which placement was read."""
    assert state.observed is not None
    return replace(state, whole_s=0.0, observed=replace(state.observed, last_modified=""))


def statuses(*outcomes: Outcome) -> list[Status]:
    return [one.status for one in outcomes]


def test_a_first_start_makes_its_tree_at_once(new: OneHost) -> None:
    assert new.sync().status is Status.CHANGED


@pytest.mark.parametrize("where", ["placement", "https://other.example/placement"])
def test_a_known_root_that_placement_lacks_is_made_at_the_third_pass(
    one: OneHost, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    lose(one, where)

    outcomes = one.sync(), one.sync(), one.sync(), one.sync()

    assert statuses(*outcomes) == [Status.UNSAFE, Status.UNSAFE, Status.CHANGED, Status.UNCHANGED]
    assert [any(note.startswith(LOST) for note in each.notes) for each in outcomes] == [True, True, True, False]
    had = "this placement had it" if where == "placement" else "the placement placement had it"
    assert f"{LOST}{had}" in outcomes[0].notes[0]
    assert outcomes[0].notes[1].startswith("seen 1 of 3 times in a row")
    made = f"the tree is made anew node=host where={where} why={outcomes[0].notes[0]}"
    assert [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING] == [made]


def test_a_known_root_that_placement_lacks_is_made_at_once_on_a_persons_word(one: OneHost) -> None:
    lose(one)

    assert one.sync(FORCE).status is Status.CHANGED


def test_looks_that_do_not_count_do_not_bring_the_third_pass(one: OneHost) -> None:
    lose(one)

    outcomes = [one.sync(Wishes(counts=False)) for _ in range(4)]

    assert statuses(*outcomes) == [Status.UNSAFE] * 4


@pytest.mark.parametrize("where", ["placement", "https://other.example/placement"])
def test_a_root_that_comes_back_is_known_as_it_was(one: OneHost, where: str) -> None:
    stood, before = lose(one, where), replace(memory(one).elsewhere or memory(one), smaller="", smaller_seen=0)
    one.sync()

    one.sender, one.where = Sender(stood), "placement"

    assert one.sync().status is Status.UNCHANGED
    assert timeless(memory(one)) == timeless(before)


def test_a_placement_with_another_name_that_has_the_root_is_no_doubt(one: OneHost) -> None:
    one.where = "https://other.example/placement"

    assert one.sync().status is Status.UNCHANGED
    assert memory(one).elsewhere is None


def test_a_first_start_that_was_cut_off_knew_no_root(new: OneHost) -> None:
    with pytest.raises(Cut), new.ending_after(0):
        new.sync()

    assert new.sync().status is Status.CHANGED


def test_a_root_that_went_while_a_pass_was_cut_off_was_known(one: OneHost) -> None:
    one.sync()
    with pytest.raises(Cut), one.ending_after(0):
        one.sync(FORCE, policy=Policy(layout="numa"))
    lose(one)

    assert one.sync().status is Status.UNSAFE


def test_a_host_that_retired_starts_anew(one: OneHost) -> None:
    assert one.retire().status is Status.CHANGED

    assert one.sync().status is Status.CHANGED


def test_a_host_whose_memory_is_lost_retires_with_what_files_and_rules_put_on_its_root(tmp_path: Path) -> None:
    rule = DeviceRule(number=1, product_id="1533", resource_class="CUSTOM_PLAIN")
    policy = Policy(layout="flat", devices=DevicePolicy(report=True, rules=(rule,)), reserved_memory_mib=0)
    one = OneHost(tmp_path, host(plain()), policy)
    one.write_provider_config("", "CUSTOM_LICENSE", 3)
    one.sync()
    one.forget()

    done = one.retire()

    assert (done.status, one.tree().root) == (Status.CHANGED, None), done.notes


def test_a_retirement_that_was_cut_off_before_it_forgot_is_ended_by_the_next_one(one: OneHost) -> None:
    lose(one)

    assert one.retire().status is Status.UNCHANGED
    assert one.sync().status is Status.CHANGED


@pytest.mark.parametrize("where", ["placement", "https://other.example/placement"])
@pytest.mark.parametrize(("layout", "suffix"), [("devices", NIC), ("flat", ""), ("numa", NIC)])
@pytest.mark.parametrize("amount", [1, 4])
def test_what_an_operator_reserved_of_devices_is_reserved_in_a_tree_that_is_made_anew(
    tmp_path: Path, where: str, layout: Layout, suffix: str, amount: int
) -> None:
    policy = Policy(layout=layout, devices=DevicePolicy(report=True, discover_all=True))
    one = OneHost(tmp_path, host(*card(NIC, 4)), policy)
    one.sync()
    one.set_by_hand(suffix, "SRIOV_NET_VF", reserved=amount)
    one.sync()
    lose(one, where)

    outcomes = one.sync(), one.sync(), one.sync()
    assert statuses(*outcomes) == [Status.UNSAFE, Status.UNSAFE, Status.CHANGED]
    assert (one.stock(suffix)["SRIOV_NET_VF"], one.marks(suffix)) == ((4, amount), frozenset())
    one.set_by_hand(suffix, "SRIOV_NET_VF", reserved=0)

    assert one.sync().status is Status.UNCHANGED
    assert one.stock(suffix)["SRIOV_NET_VF"] == (4, 0)
