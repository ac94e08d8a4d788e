"""Passes that another writer cuts off: what the pass wrote before is its own, and no other writer's."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from agent.sync.decide.features.second_writer import strikes_of
from agent.sync.decide.view import Wishes
from agent.sync.node import ComputeNode
from agent.sync.outcome import Status
from beds.histories import ModelDriver
from beds.one_host import GUEST, ROOT, OneHost, Sender
from drivers.base import Survey
from drivers.facts import HostFacts
from drivers.policy import DevicePolicy, Policy
from hardware import card, host

A, B = "0000:81:00.0", "0000:82:00.0"
POLICY = Policy(layout="devices", devices=DevicePolicy(discover_all=True))


def vfs(first: int, second: int) -> HostFacts:
    """A host with two cards of so many VFs."""
    return host(*card(A, first), *card(B, second))


@dataclass
class Disturbed(Sender):
    """``before`` is called once, before the first write whose method and path contain its key."""

    before: dict[str, Callable[[], None]] = field(default_factory=dict)

    def request(self, url: str, method: str, **kwargs: Any) -> Any:
        for part in [part for part in self.before if method != "GET" and part in f"{method} {url}"]:
            self.before.pop(part)()
        return super().request(url, method, **kwargs)


class Changing(ModelDriver):
    """A driver whose looks show the host as it is at that moment."""

    def __init__(self, one: "Living") -> None:
        super().__init__(one.facts, ROOT)
        self._one = one

    def survey(self, node: str) -> Survey:
        self._one.looks += 1
        return ModelDriver(self._one.facts, ROOT).survey(node)


@dataclass
class Living(OneHost):
    """A host that may change while a pass runs, and a placement that another writer uses meanwhile."""

    sender: Disturbed = field(default_factory=Disturbed)
    looks: int = 0  # at the host

    @property
    def node(self) -> ComputeNode:
        return replace(super().node, driver=Changing(self))

    @property
    def strikes(self) -> int:
        return strikes_of(self.node.state_file(ROOT).read("placement")).strikes

    def uuid(self, device: str) -> str:
        return next(seen.uuid for seen in self.tree() if seen.name.endswith(device))

    def touch(self, device: str) -> None:
        """A write that only moves the generation, as a claim does."""
        seen = next(seen for seen in self.tree() if seen.name.endswith(device))
        self.send(
            "PUT",
            f"/resource_providers/{seen.uuid}/aggregates",
            {"aggregates": [], "resource_provider_generation": seen.generation},
        )


@pytest.fixture
def one(tmp_path: Path) -> Living:
    found = Living(tmp_path, vfs(4, 4), POLICY)
    found.sync()
    found.sync()  # now it knows the generations of what the first pass made
    return found


def test_what_a_cut_off_attempt_wrote_is_no_strike_though_the_host_changed_again(one: Living) -> None:
    def grow() -> None:
        one.touch(B)
        one.facts = vfs(4, 4)

    one.sender.before = {"/reshaper": grow}

    assert one.sync(facts=vfs(6, 6)).status is Status.UNCHANGED
    assert one.strikes == 0


def test_a_conversion_looks_at_the_host_once_and_goes_on_while_others_write(one: Living) -> None:
    one.claim({B: {"SRIOV_NET_VF": 1}})
    left = [A] * 7

    def disturb() -> None:
        one.touch(left.pop())
        one.sender.before = {"/reshaper": disturb} if left else {}

    one.sender.before = {"/reshaper": disturb}
    one.looks = 0

    assert one.reshape("flat").status is Status.CHANGED
    assert (left, one.looks) == ([], 1)


def test_a_strike_counts_though_a_cut_off_attempt_mended_what_the_other_writer_changed(one: Living) -> None:
    one.claim({B: {"SRIOV_NET_VF": 3}})
    one.sync(Wishes(force=True), facts=vfs(4, 1))  # two VFs that are gone are held, with marks
    one.sync()
    one.set_by_hand(A, "SRIOV_NET_VF", total=2)
    one.sender.before = {f"PUT /resource_providers/{one.uuid(B)}/traits": lambda: one.touch(B)}

    outcome = one.sync(facts=vfs(4, 4))  # the stock of both in one reshape, then the marks of B

    assert not one.sender.before
    assert (outcome.status, one.strikes) == (Status.CHANGED, 1)
    assert "total 4 reserved 0 ratio 1 became total 2" in outcome.notes[0]


def test_a_provider_that_a_cut_off_attempt_made_anew_is_no_restored_backup(one: Living) -> None:
    for number in range(4):
        one.sync(facts=vfs(4 + number % 2, 4))
    one.send("DELETE", f"/resource_providers/{one.uuid(A)}")
    one.sender.before = {"/reshaper": lambda: one.touch(B)}

    outcome = one.sync(facts=vfs(4, 6))

    assert (outcome.status, one.strikes) == (Status.CHANGED, 1)
    assert not [note for note in outcome.notes if "older data" in note]


@pytest.mark.parametrize(
    ("facts", "at"),
    [
        pytest.param(vfs(4, 6), "/inventories", id="before its stock is written"),
        pytest.param(vfs(6, 6), "/reshaper", id="before a reshape"),
    ],
)
def test_a_child_that_another_writer_deletes_meanwhile_is_made_anew_at_once(
    one: Living, facts: HostFacts, at: str
) -> None:
    uuid = one.uuid(B)
    one.sender.before = {at: lambda: one.send("DELETE", f"/resource_providers/{uuid}")}

    assert one.sync(facts=facts).status is Status.CHANGED
    assert one.sync().status is Status.UNCHANGED


def test_a_child_that_another_writer_makes_meanwhile_under_its_name_is_taken_into_the_plan(tmp_path: Path) -> None:
    one = Living(tmp_path, host(*card(A, 4)), POLICY)
    one.sync()
    body = {
        "name": f"host_{B}",
        "uuid": "11111111-1111-4111-8111-111111111111",
        "parent_provider_uuid": ROOT,
    }
    one.sender.before = {"POST /resource_providers": lambda: one.send("POST", "/resource_providers", body)}

    assert one.sync(facts=vfs(4, 4)).status is Status.CHANGED
    assert one.sync().status is Status.UNCHANGED
    assert one.stock(B) == {"SRIOV_NET_VF": (4, 0)}


def test_what_a_second_writer_reserves_of_devices_stays_so_at_a_later_attempt_too(one: Living) -> None:
    one.set_by_hand(A, "SRIOV_NET_VF", total=3, reserved=2)
    one.sender.before = {"/reshaper": lambda: one.touch(A)}

    outcome = one.sync(facts=vfs(4, 3))  # the loss of one VF is no reason to refuse

    assert not one.sender.before
    assert (outcome.status, one.stock(A), one.strikes) == (Status.CHANGED, {"SRIOV_NET_VF": (4, 2)}, 1)


def test_a_lost_card_that_a_person_deletes_while_it_is_reserved_is_no_error(one: Living) -> None:
    uuid = one.uuid(B)
    one.sender.before = {f"{uuid}/traits": lambda: one.send("DELETE", f"/resource_providers/{uuid}")}

    outcome = one.sync(facts=host(*card(A, 4)))

    assert not one.sender.before
    assert outcome.status in (Status.UNSAFE, Status.UNCHANGED, Status.CHANGED)


def test_a_conversion_goes_on_after_a_guest_that_it_moves_was_deleted(tmp_path: Path) -> None:
    one = Living(tmp_path, vfs(4, 4), POLICY)
    one.sync()
    one.claim({"": {"VCPU": 1, "MEMORY_MB": 512}, A: {"SRIOV_NET_VF": 1}})
    one.sender.before = {"POST /reshaper": lambda: one.claim({})}

    assert one.reshape("numa").status is Status.CHANGED

    assert not one.sender.before
    assert one.held(GUEST) == {}
