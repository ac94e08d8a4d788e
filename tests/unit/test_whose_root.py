"""Whose root it is, over several passes and roles: what this agent remembers that it wrote, and what nova did since."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent.audit.audit import witness
from agent.audit.decide.findings import Kind
from agent.settings.read import Role
from agent.sync.decide.view import Wishes
from agent.sync.leave import hand_over_node, retire_node
from agent.sync.outcome import Status
from beds.nova import FakeNova
from beds.one_host import FORCE, Cut, OneHost
from drivers.facts import PciIds, ServiceSigns
from drivers.policy import CpuPolicy, DevicePolicy, DeviceRule, MdevRule, Policy
from hardware import card, gpu, host, parent, plain, rules
from reportclient.ownership import OWNER_NOVA

NIC = "0000:81:00.0"
HOST = host(*card(NIC, 4), plain("0000:05:00.0"))
VFS = DevicePolicy(discover_all=True)
OURS = Policy(devices=VFS)
RUNS = ServiceSigns(processes=(4711,))
NOTHING = ServiceSigns()
Start = Callable[..., OneHost]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts a live host that nothing of nova is on, and makes its first pass."""

    def begin(policy: Policy = OURS) -> OneHost:
        one = OneHost(tmp_path, HOST, policy, signs=NOTHING)
        assert one.sync().status is Status.CHANGED
        return one

    return begin


@pytest.mark.parametrize("role", [None, "sole", "audit"])
def test_a_quiet_pass_does_not_make_the_root_of_our_driver_inside_nova_ours(start: Start, role: Role | None) -> None:
    one = start(Policy(layout="cells", devices=DevicePolicy()))
    one.mark_as_nova()
    one.forget()

    one.role = role
    assert one.sync().status is Status.UNCHANGED
    one.role = None

    assert one.sync(FORCE, policy=replace(one.policy, layout="devices")).status is Status.CONTESTED
    assert retire_node(one.node).status is Status.UNSAFE


@pytest.mark.parametrize("passes", [0, 1, 2])
def test_what_nova_did_while_this_agent_only_audited_is_not_taken_for_its_own(start: Start, passes: int) -> None:
    one = start()
    one.sync()
    one.role, one.signs = "audit", RUNS
    one.set_by_hand("", "VCPU", total=2, max_unit=2)
    one.mark_as_nova()

    assert [one.sync().status for _ in range(passes)] == [Status.AUDIT_ONLY] * passes
    one.role, one.signs = None, NOTHING

    assert one.sync(FORCE).status is Status.CONTESTED
    assert one.stock()["VCPU"] == (2, 0)


def test_a_pass_that_is_cut_off_does_not_make_a_host_with_nova_s_trait_a_stranger_s(start: Start) -> None:
    one = start(Policy(devices=VFS, root_traits=frozenset({OWNER_NOVA})))
    with pytest.raises(Cut), one.ending_after(0):
        one.sync(FORCE, facts=host(*card(NIC, 3)))

    assert one.sync(FORCE).status is Status.CHANGED


def test_what_a_person_overruled_stays_overruled_until_it_is_gone_and_nothing_else_does(start: Start) -> None:
    one = start()
    numbers = iter(range(5, 20))

    def written(signs: ServiceSigns, *, take_over: bool = False) -> bool:
        """Whether a pass over a card with one VF more is carried out."""
        one.signs = signs
        status = one.sync(Wishes(force=True, take_over=take_over), facts=host(*card(NIC, next(numbers)))).status
        assert status in (Status.CHANGED, Status.CONTESTED)
        return status is Status.CHANGED

    assert [written(RUNS), written(RUNS, take_over=True)] == [False, True]
    assert [written(RUNS), written(RUNS)] == [True, True]
    assert not written(replace(RUNS, units=("nova-compute.service",)))
    assert [written(NOTHING), written(RUNS)] == [True, False]


def test_a_role_that_is_refused_takes_no_memory_away(start: Start) -> None:
    one = start()
    one.sync()
    for number in range(3):
        one.set_by_hand("", "VCPU", total=2 + number, max_unit=1)
        found = one.sync()
    assert found.status is Status.CONTESTED

    one.role = "beside"
    assert one.sync().status is Status.CONTESTED
    one.role = "sole"

    assert one.sync(FORCE).status is Status.CONTESTED


def test_a_host_is_handed_over_in_the_role_beside_only_while_nova_compute_is_stopped(start: Start) -> None:
    one = start()
    one.mark_as_nova()
    one.forget()
    one.role, one.signs = "beside", RUNS

    refused = hand_over_node(one.node)

    assert refused.status is Status.UNSAFE
    assert "(pid 4711) runs on this host" in refused.notes[0]


def test_beside_nova_a_child_without_our_mark_stays_when_its_card_is_out_of_sight(tmp_path: Path) -> None:
    """nova before release 34 marks nothing, and a hand-over leaves uuids that are derived from ours."""
    rule = DeviceRule(number=1, product_id="1533")
    policy = Policy(devices=replace(rules(rule), mdevs=(MdevRule(type="a", resource_class="CUSTOM_GPU"),)))
    one = OneHost(tmp_path, host(plain(), gpu(), parents=(parent(gpu(), a=16),)), policy, signs=NOTHING)
    one.sync()
    one.role = "beside"
    assert hand_over_node(one.node).status is Status.CHANGED
    one.signs = RUNS
    one.sync()

    for _ in range(4):
        one.sync(facts=host(plain()))

    assert "host_pci_0000_84_00_0" in one.tree().by_name


def test_an_audit_beside_nova_deletes_no_child_of_nova_s_that_carries_our_mark_too(start: Start) -> None:
    one = start(Policy(devices=rules(DeviceRule(number=1, product_id="1515"))))
    one.mark_as_nova()
    one.role, one.signs = "beside", RUNS

    found = witness(replace(one, facts=host(plain())).node).findings

    assert [each.kind for each in found if each.safe] == []


def test_a_root_that_nova_does_not_show_and_that_is_not_ours_is_left_to_a_person(tmp_path: Path) -> None:
    one = OneHost(tmp_path, HOST, OURS, signs=NOTHING)
    one.sync()
    one.give_to_nova(marked=False)

    assert one.sync(FORCE, nova=FakeNova()).status is Status.CONTESTED
    assert one.sync(FORCE, nova=None).status is Status.CHANGED


@pytest.mark.parametrize("remembered", [True, False])
def test_free_switches_of_gpus_that_nova_reported_stay_at_a_take_over(tmp_path: Path, remembered: bool) -> None:
    """They have the base class of bridges, and the header of a device."""
    switches = ("0000:05:00.0", "0000:06:00.0")
    ids = PciIds("10de", "22a3", 0x068000)
    rule = DeviceRule(number=1, product_id="22a3", resource_class="CUSTOM_NVSWITCH")
    facts = host(*(plain(address, ids=ids) for address in switches))
    one = OneHost(tmp_path, facts, Policy(devices=rules(rule)))
    one.sync()
    uuids = {one.make_as_nova(address, "CUSTOM_NVSWITCH", 1) for address in switches}
    if not remembered:
        one.forget()

    assert one.sync(Wishes(take_over=True)).status is Status.CHANGED
    assert [one.stock(address) for address in switches] == [{"CUSTOM_NVSWITCH": (1, 0)}] * 2
    assert uuids < one.tree().by_uuid.keys()


@pytest.mark.parametrize("role", ["audit", "beside"])
def test_with_other_options_than_nova_s_no_amount_is_repaired(tmp_path: Path, role: Role) -> None:
    sets = CpuPolicy(shared=frozenset({0}), dedicated=frozenset({1}))
    one = OneHost(tmp_path, HOST, Policy(devices=DevicePolicy(), cpus=sets), signs=NOTHING)
    one.sync()
    one.give_to_nova()
    one.role, one.signs = role, RUNS
    one.sync()
    assert witness(one.node).findings == ()

    one.policy = Policy(devices=DevicePolicy())
    found = witness(one.node).findings

    assert [each.kind for each in found] == [Kind.OTHER_OPTIONS]
    assert "give this agent nova's own options" in found[0].seen
