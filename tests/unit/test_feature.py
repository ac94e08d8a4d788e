"""What a feature that takes units off offer gets without any other file: marks, a refused plan, words, the way back."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from agent.sync.decide.feature import Feature, Reservation
from agent.sync.decide.features import FEATURES
from agent.sync.decide.features.second_writer import strikes_of
from agent.sync.node import conditions_left
from agent.sync.outcome import Status
from agent.sync.run import run_pass
from beds.one_host import RESHAPE, ROOT, Cut, OneHost, Sender, begun
from drivers.facts import ServiceSigns
from drivers.policy import DevicePolicy, Layout, MdevRule, Policy
from hardware import card, gpu, host, parent
from reportclient.reserve import is_mark
from reportclient.tree import ProviderTree

NIC, GPU, VF = "0000:81:00.0", "pci_0000_84_00_0", "SRIOV_NET_VF"
DISABLED = "COMPUTE_STATUS_DISABLED"
WHY = "RMA 4711: no new guests"
FACTS = host(*card(NIC, 4), gpu(), parents=(parent(gpu(), a=8),))
ALL = DevicePolicy(discover_all=True, mdevs=(MdevRule(type="a"),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained(Feature):
    """Whatever is free is taken off offer."""

    spares: ClassVar[bool] = False

    def reserve(self, tree: ProviderTree) -> Iterator[Reservation]:
        for one in tree:
            for name, stock in one.inventories.items():
                yield Reservation(
                    provider=one.name,
                    resource_class=name,
                    least=stock.total,
                    spares_use=self.spares,
                    kind="drained",
                    why=WHY,
                )

    def root_traits(self) -> frozenset[str]:
        return frozenset({DISABLED})


def free(one: OneHost) -> dict[str, float]:
    """Class -> what placement can still give, over all providers; without classes that have nothing."""
    found: dict[str, float] = {}
    for seen in one.tree():
        for name, stock in seen.provider.inventories.items():
            found[name] = found.get(name, 0) + stock.capacity
    return {name: amount for name, amount in found.items() if amount}


@pytest.fixture(params=["flat", "devices", "cells", "numa"])
def one(request: pytest.FixtureRequest, tmp_path: Path) -> OneHost:
    layout: Layout = request.param
    found = OneHost(tmp_path, FACTS, Policy(layout=layout, devices=ALL))
    assert found.sync().status is Status.CHANGED
    return found


def test_what_is_free_goes_off_offer_in_one_pass_and_comes_back_in_one(one: OneHost) -> None:
    before = {seen.name: seen.provider for seen in one.tree()}

    done = one.sync(features=(*FEATURES, Drained))
    assert (done.status, free(one), done.notes) == (Status.CHANGED, {}, (WHY,))
    assert one.sync().status is Status.UNCHANGED
    back = one.sync(features=FEATURES)

    assert (back.status, {seen.name: seen.provider for seen in one.tree()}) == (Status.CHANGED, before)


def test_what_an_operator_reserved_before_and_meanwhile_stays_as_it_is(one: OneHost) -> None:
    suffix = "" if one.policy.layout == "flat" else NIC
    one.set_by_hand(suffix, VF, reserved=1)
    one.sync(features=(*FEATURES, Drained))
    assert one.stock(suffix)[VF] == (4, 4)

    one.sync(features=FEATURES)
    assert one.stock(suffix)[VF] == (4, 1)
    one.sync(features=(*FEATURES, Drained))
    one.set_by_hand(suffix, VF, reserved=3)
    one.sync(features=FEATURES)

    assert one.stock(suffix)[VF] == (4, 3)


def test_the_state_may_be_lost_meanwhile(one: OneHost) -> None:
    before = {seen.name: seen.provider for seen in one.tree()}
    one.sync(features=(*FEATURES, Drained))
    one.forget()
    assert one.sync().status is Status.UNCHANGED
    one.forget()

    one.sync(features=FEATURES)

    assert {seen.name: seen.provider for seen in one.tree()} == before


def test_a_trait_that_another_service_set_stays_its_own(one: OneHost) -> None:
    one.add_traits("", DISABLED)
    one.sync(features=(*FEATURES, Drained))
    one.forget()

    one.sync(features=FEATURES)

    assert {name for name in one.traits() if DISABLED in name} == {DISABLED}


def test_a_trait_of_an_operator_with_a_name_like_our_marks_frees_nothing(tmp_path: Path) -> None:
    one = OneHost(tmp_path, FACTS, Policy(layout="devices", devices=ALL))
    one.sync()
    one.set_by_hand(NIC, VF, reserved=2)
    one.put_trait(NIC, "CUSTOM_DEVICE_RESERVED")

    one.sync()

    assert one.stock(NIC)[VF] == (4, 2)
    assert "CUSTOM_DEVICE_RESERVED" in one.traits(NIC)


def test_a_host_that_is_handed_over_carries_no_trait_of_a_feature(tmp_path: Path) -> None:
    one = OneHost(tmp_path, FACTS, Policy(layout="devices", devices=ALL))
    one.sync(features=(*FEATURES, Drained))

    one.hand_over()

    assert not {name for name in one.traits() if DISABLED in name}
    assert not {name for seen in one.tree() for name in seen.provider.traits if is_mark(name)}


class Ended(Sender):
    """Ends the process once placement has carried out a reshape."""

    def request(self, url: str, method: str, **kwargs: Any) -> Any:
        answer = super().request(url, method, **kwargs)
        if url == "/reshaper":
            raise Cut(url)
        return answer


def test_what_a_refused_pass_reserved_before_it_was_cut_off_is_no_second_writers(tmp_path: Path) -> None:
    one = begun(tmp_path, FACTS, ALL)
    one.claim({"": {"MEMORY_MB": 64}})
    before, policy, alive = one.stock(), one.policy, one.sender
    one.sender = Ended(alive.placement)
    with pytest.raises(Cut):
        one.sync(features=(*FEATURES, Drained), policy=replace(policy, reserved_memory_mib=2001))
    one.sender = alive
    assert one.stock() != before

    one.sync(features=FEATURES, policy=policy)

    assert (one.stock(), strikes_of(one.node.state_file(ROOT).read("placement")).strikes) == (before, 0)


class Spared(Drained):
    """The same, and nova can move what guests have of devices, too."""

    __slots__ = ()
    spares: ClassVar[bool] = True


def test_what_guests_have_of_devices_may_stay_unreserved(one: OneHost) -> None:
    suffix = "" if one.policy.layout == "flat" else NIC
    one.claim({suffix: {VF: 1}})

    one.sync(features=(*FEATURES, Spared))

    assert (free(one), one.stock(suffix)[VF]) == ({VF: 1}, (4, 3))


def test_what_guests_have_stays_theirs(one: OneHost) -> None:
    name = next(seen.name for seen in one.tree() if "MEMORY_MB" in seen.provider.inventories)
    suffix = name.removeprefix("host").removeprefix("_")
    one.claim({suffix: {"MEMORY_MB": 512}})

    assert one.sync(features=(*FEATURES, Drained)).status is Status.CHANGED

    assert free(one) == {"MEMORY_MB": 512}


def test_units_go_off_offer_although_the_rest_of_the_plan_is_refused(tmp_path: Path) -> None:
    one = OneHost(tmp_path, FACTS, Policy(layout="devices", devices=ALL))
    one.sync()
    one.claim({"": {"VCPU": 1, "MEMORY_MB": 512}, NIC: {VF: 1}})

    one.add_by_hand("", "CUSTOM_OF_OTHERS", 3)

    done = one.sync(features=(*FEATURES, Drained), policy=Policy(layout="numa", devices=ALL))

    assert done.status is Status.RESHAPE_NEEDED
    assert WHY in done.notes
    assert DISABLED in one.traits()
    assert free(one).keys() <= {"VCPU", "MEMORY_MB", "CUSTOM_OF_OTHERS"}
    assert one.stock()["CUSTOM_OF_OTHERS"] == (3, 0)
    assert one.stock(NIC)[VF] == (4, 4)
    assert one.sync(RESHAPE).status is Status.CHANGED
    assert one.stock(NIC)[VF] == (4, 4)
    one.sync(features=FEATURES)
    assert one.stock(NIC)[VF] == (4, 0)


def test_units_come_back_although_the_rest_of_the_plan_is_refused(tmp_path: Path) -> None:
    one = OneHost(tmp_path, FACTS, Policy(layout="devices", devices=ALL), signs=ServiceSigns())
    one.write_provider_config("", "CUSTOM_OF_FILES", 5, 1)
    one.sync()
    one.claim({"": {"VCPU": 1, "MEMORY_MB": 512}, NIC: {VF: 1}})
    before = {seen.name: seen.provider for seen in one.tree()}
    one.sync(features=(*FEATURES, Drained))
    assert one.stock()["CUSTOM_OF_FILES"] == (5, 5)

    done = one.sync(features=FEATURES, policy=Policy(layout="numa", devices=ALL))

    assert done.status is Status.RESHAPE_NEEDED
    assert {seen.name: seen.provider for seen in one.tree()} == before


def test_the_last_pass_says_why_wherever_a_person_looks(one: OneHost) -> None:
    one.signs = ServiceSigns()  # a live host

    one.sync(features=(*FEATURES, Drained))
    told = conditions_left(one.settings, ROOT, one.where)

    assert {(each.kind, each.text, each.provider) for each in told} == {
        ("drained", WHY, seen.name) for seen in one.tree() if seen.provider.inventories
    }
    one.sync(features=FEATURES)
    assert conditions_left(one.settings, ROOT, one.where) == ()


def test_a_plan_that_is_not_the_agreed_one_leaves_what_the_last_pass_said(tmp_path: Path) -> None:
    one = OneHost(tmp_path, FACTS, Policy(layout="devices", devices=ALL), signs=ServiceSigns())
    one.sync(features=(*FEATURES, Drained))
    said = conditions_left(one.settings, ROOT, one.where)

    done = run_pass(one.node, RESHAPE, lambda _node, _draft: ("it is another plan",))

    assert (done.status, done.notes) == (Status.OTHER_PLAN, ("it is another plan",))
    assert conditions_left(one.settings, ROOT, one.where) == said
