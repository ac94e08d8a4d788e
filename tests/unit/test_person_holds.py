"""What a person holds goes off offer, and comes back exactly once a person or a time gives it back."""

from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.command.hold_verbs import start_hold
from agent.errors import ConfigError
from agent.settings.read import Role
from agent.state.memory import NodeState
from agent.sync.decide.features.hold import BODY, ENDLESS, HOST, NOT_HELD, HoldWish, Note, held_in, stays_on_offer
from agent.sync.decide.features.second_writer import SECOND_WRITER
from agent.sync.decide.view import Wishes
from agent.sync.hold_unseen import hold_unseen
from agent.sync.leave import hand_over_node, retire_node
from agent.sync.outcome import Outcome, Status
from beds.one_host import GUEST, ROOT, Cut, OneHost, Sender, default_settings
from drivers.by_suffix import BySuffix
from drivers.facts import ServiceSigns
from drivers.libvirt.shape import EMITTED
from drivers.policy import DevicePolicy, DeviceRule, Layout, MdevRule, Policy, RulePlace
from drivers.rules import parse_rule
from hardware import at, card, gpu, guest_with, host, parent
from reportclient.client import PlacementClient
from reportclient.errors import Conflict
from reportclient.ownership import MARKER
from reportclient.reserve import HELD, HOLD, keeps
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider

NIC, GPU, VF = "0000:81:00.0", "pci_0000_84_00_0", "SRIOV_NET_VF"
OTHER, VFS, LEAVING = "0000:91:00.0", "CUSTOM_PCI_8086_1515", "0badcafe-0000-4000-8000-000000000002"
DISABLED = "COMPUTE_STATUS_DISABLED"
NOTE = Note(by="jo", since="2026-11-29T18:00+00:00", why="RMA 4711")
FACTS = host(*card(NIC, 4), gpu(), parents=(parent(gpu(), a=8),))
ALL = DevicePolicy(discover_all=True, mdevs=(MdevRule(type="a"),))


def by_rules(*records: dict[str, str]) -> DevicePolicy:
    rules = tuple(parse_rule(one, n) for n, one in enumerate(records, 1))
    return DevicePolicy(report=True, rules=rules, link_bandwidth=True)


def hold(one: OneHost, what: str, until_s: int = ENDLESS) -> Outcome:
    return one.sync(Wishes(asked={BODY: HoldWish(what=what, note=replace(NOTE, until_s=until_s))}))


def give_back(one: OneHost, what: str) -> Outcome:
    return one.sync(Wishes(asked={BODY: HoldWish(what=what)}))


def providers(one: OneHost) -> dict[str, Any]:
    return {seen.name: seen.provider for seen in one.tree()}


def free(one: OneHost) -> dict[str, float]:
    """Class -> what placement can still give, over all providers."""
    found: dict[str, float] = {}
    for seen in one.tree():
        for name, stock in seen.provider.inventories.items():
            found[name] = found.get(name, 0) + stock.capacity
    return found


@pytest.fixture(params=["flat", "devices", "cells", "numa"])
def one(request: pytest.FixtureRequest, tmp_path: Path) -> OneHost:
    layout: Layout = request.param
    found = OneHost(tmp_path, FACTS, Policy(layout=layout, devices=ALL))
    assert found.sync().status is Status.CHANGED
    return found


@pytest.mark.parametrize("what", [NIC, "pci_0000_81_00_0", "host_0000:81:00.0"])
def test_a_device_goes_off_offer_and_comes_back_as_it_was(one: OneHost, what: str) -> None:
    before = providers(one)

    done = hold(one, what)
    assert (done.status, free(one)[VF], free(one)["VGPU"]) == (Status.CHANGED, 0, 8)
    assert any(f"{NIC} is held since 2026-11-29T18:00+00:00 by jo: RMA 4711" in note for note in done.notes)
    assert one.sync().status is Status.UNCHANGED
    back = give_back(one, NIC)

    assert (back.status, back.notes, providers(one)) == (Status.CHANGED, (), before)


def test_a_host_that_is_held_gets_no_new_guests_and_comes_back_as_it_was(one: OneHost) -> None:
    before = providers(one)

    done = hold(one, HOST)
    assert set(free(one).values()) == {0}
    assert DISABLED in one.traits()
    assert any(note.startswith("this host is held") for note in done.notes)
    give_back(one, HOST)

    assert providers(one) == before


def test_a_hold_outlasts_a_lost_state_without_its_reason(one: OneHost) -> None:
    before = providers(one)
    hold(one, NIC)
    held = providers(one)
    one.forget()

    done = one.sync()

    assert providers(one) == held
    assert any(f"{NIC} is held, and what said why is lost" in note for note in done.notes)
    give_back(one, NIC)
    assert providers(one) == before


@pytest.mark.parametrize(
    ("layout", "other", "writes"),
    [
        *(("flat", "numa", writes) for writes in range(8, 16)),
        *((layout, "flat", writes) for layout in ("numa", "devices") for writes in range(5)),
    ],
)
def test_what_an_operator_reserved_of_a_held_host_outlasts_a_conversion_that_is_cut_off(
    tmp_path: Path, layout: Layout, other: Layout, writes: int
) -> None:
    one = OneHost(tmp_path, FACTS, Policy(layout=layout, devices=ALL))
    one.sync()
    one.set_by_hand("" if layout == "flat" else NIC, VF, reserved=1)
    one.sync()
    before = providers(one)
    hold(one, HOST)

    with suppress(Cut), one.ending_after(writes):
        one.reshape(other)
    one.reshape(other)
    one.reshape(layout)
    give_back(one, HOST)

    assert providers(one) == before


@pytest.mark.parametrize(("on_root", "counts"), [(0, {VF: 2}), (1, {VF: 2}), (2, {}), (3, {})])
def test_what_a_card_without_stock_remembers_counts_unless_the_root_tells_as_much(
    on_root: int, counts: dict[str, int]
) -> None:
    """The root may have the class for another reason, as by provider.yaml."""
    root = Provider(name="host", inventories={VF: Inventory(total=4, reserved=on_root)})
    gone = Provider(name=f"host_{NIC}", parent="host", traits=frozenset({MARKER, HELD}) | keeps({VF: 2}))
    seen = (ObservedProvider(uuid=one.name, generation=1, provider=one) for one in (root, gone))

    assert BySuffix(ObservedTree(tuple(seen))).reserved(NIC) == counts


def test_a_hold_outlasts_conversions_there_and_back(tmp_path: Path) -> None:
    one = OneHost(tmp_path, FACTS, Policy(layout="flat", devices=ALL))
    one.sync()
    before = providers(one)
    hold(one, NIC)
    hold(one, GPU)

    for layout in ("numa", "cells", "devices", "flat"):
        assert one.reshape(layout).status is Status.CHANGED
        assert (free(one)[VF], free(one)["VGPU"]) == (0, 0), layout
    give_back(one, NIC)
    give_back(one, GPU)

    assert providers(one) == before


def test_what_an_operator_reserved_before_and_meanwhile_stays(one: OneHost) -> None:
    suffix = "" if one.policy.layout == "flat" else NIC
    one.set_by_hand(suffix, VF, reserved=1)
    hold(one, NIC)
    assert one.stock(suffix)[VF] == (4, 4)
    give_back(one, NIC)
    assert one.stock(suffix)[VF] == (4, 1)

    hold(one, NIC)
    one.set_by_hand(suffix, VF, reserved=2)
    one.sync()
    give_back(one, NIC)

    assert one.stock(suffix)[VF] == (4, 2)


def test_what_a_guest_has_stays_its_own_and_goes_off_offer_once_it_left(one: OneHost) -> None:
    suffix = "" if one.policy.layout == "flat" else NIC
    one.claim({suffix: {VF: 1}})
    hold(one, NIC)
    assert one.stock(suffix)[VF] == (4, 3)
    one.claim({}, GUEST)

    one.sync()

    assert one.stock(suffix)[VF] == (4, 4)


def test_a_hold_ends_at_its_time_also_after_a_lost_state(one: OneHost, monkeypatch: pytest.MonkeyPatch) -> None:
    before = providers(one)
    hold(one, NIC, until_s=4_000_000_000)
    one.forget()
    assert (one.sync().status, free(one)[VF]) == (Status.UNCHANGED, 0)

    monkeypatch.setattr("time.time", lambda: 4_000_000_001.0)

    assert (one.sync().status, providers(one)) == (Status.CHANGED, before)


def test_a_hold_that_a_hand_took_the_marks_from_stays(one: OneHost) -> None:
    suffix = "" if one.policy.layout == "flat" else NIC
    hold(one, NIC)
    held = providers(one)
    one.remove_traits(suffix, *(name for name in one.traits(suffix) if name.startswith("CUSTOM_")))

    one.sync()

    assert (free(one)[VF], held_in(one.tree())) == (0, {"0000_81_00_0": ENDLESS})
    assert providers(one) == held


def test_a_card_that_is_exchanged_stays_held(tmp_path: Path) -> None:
    one = OneHost(tmp_path, FACTS, Policy(layout="devices", devices=ALL))
    one.sync()
    hold(one, NIC)
    one.sync(Wishes(force=True), facts=host(gpu(), parents=(parent(gpu(), a=8),)))
    assert NIC not in " ".join(providers(one))

    done = one.sync(facts=FACTS)

    assert (done.status, free(one)[VF]) == (Status.CHANGED, 0)
    assert any(f"{NIC} is held since" in note for note in done.notes)


def test_a_hold_is_carried_out_although_the_rest_is_refused(tmp_path: Path) -> None:
    one = OneHost(tmp_path, FACTS, Policy(layout="devices", devices=ALL))
    one.sync()
    one.claim({"": {"VCPU": 1, "MEMORY_MB": 512}})
    one.policy = replace(one.policy, layout="numa")

    done = hold(one, NIC)
    assert (done.status, free(one)[VF]) == (Status.RESHAPE_NEEDED, 0)
    assert one.sync().status is Status.RESHAPE_NEEDED
    assert free(one)[VF] == 0
    give_back(one, NIC)

    assert free(one)[VF] == 4


@pytest.fixture
def to_be_whole(tmp_path: Path) -> tuple[OneHost, Policy]:
    """A host with two cards of VFs, a guest with one of NIC, and the configuration that makes NIC whole."""
    vfs, whole = ({"address": NIC, "product_id": "1515"}, {"address": NIC, "product_id": "1528"})
    also = {"address": OTHER, "product_id": "1515"}
    guest = guest_with(GUEST, pci=frozenset({at("0000:81:10.0")}))
    facts = replace(host(*card(NIC, 4), *card(OTHER, 4)), guests=(guest,))
    one = OneHost(tmp_path, facts, Policy(layout="devices", devices=by_rules(vfs, also)))
    one.sync()
    one.claim({NIC: {VFS: 1}})
    return one, replace(one.policy, devices=by_rules(whole, also))


@pytest.mark.parametrize("order", ["refused first", "left before", "held after"])
def test_a_card_is_held_while_vfs_keep_another_one_from_becoming_whole(
    to_be_whole: tuple[OneHost, Policy], order: str
) -> None:
    """The host's plan is refused; the one card loses what is free of it, the other its bandwidth."""
    one, policy = to_be_whole
    one.claim({OTHER: {VFS: 1}}, LEAVING)
    if order != "held after":
        hold(one, OTHER)
    one.policy = policy
    if order == "refused first":
        assert one.sync().status is Status.UNSAFE
    one.claim({}, LEAVING)

    done = one.sync() if order != "held after" else hold(one, OTHER)

    assert (done.status, done.broken) == (Status.UNSAFE, ()), done.notes
    assert (one.stock(OTHER)[VFS], one.stock(NIC)[VFS]) == ((4, 4), (4, 0))


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("0000:81:10.2", "0000:81:10.2 is a part of 0000:81:00.0"),
        ("0000:99:00.0", "this host offers no device 0000:99:00.0: it offers 0000:81:00.0, pci_0000_84_00_0"),
        ("NUMA0", "this host offers no device NUMA0"),
    ],
)
def test_what_is_no_device_is_told_with_those_that_there_are(one: OneHost, what: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        hold(one, what)


@pytest.mark.parametrize(
    ("role", "what", "told"),
    [
        ("beside", HOST, "openstack compute service set --disable --disable-reason REASON host nova-compute"),
        ("beside", GPU, "nova-compute reports 0000:84:00.0: take it out of nova's"),
        ("audit", HOST, "openstack compute service set --disable"),
        ("audit", NIC, r"\[agent\] role = audit leaves 0000:81:00.0 to nova: take it out of nova's"),
    ],
)
def test_what_nova_reports_is_novas_to_hold(tmp_path: Path, role: Role, what: str, told: str) -> None:
    one = OneHost(tmp_path, FACTS, Policy(layout="devices", devices=ALL), signs=ServiceSigns())
    one.sync()
    one.give_to_nova()
    one.role = role

    with pytest.raises(ConfigError, match=told):
        hold(one, what)


def test_in_the_role_audit_a_hold_that_stands_is_given_back_in_another_role(one: OneHost) -> None:
    hold(one, NIC)
    one.role = "audit"

    told = [condition.text for condition in one.sync().conditions]
    assert any("leave the role audit, and run compute-node-agent release-hold" in text for text in told)


def test_who_retires_a_host_is_told_what_people_wanted_of_it(tmp_path: Path) -> None:
    one = OneHost(tmp_path, FACTS, Policy(layout="devices", devices=ALL))
    one.sync()
    one.set_by_hand(NIC, VF, reserved=1)
    hold(one, NIC)

    told = retire_node(one.node, dry=True).notes

    assert told == (
        "what a person holds is on offer if this host is reported again: 0000:81:00.0",
        "what is reserved by hand, or as a used one-time device, is lost: 1 SRIOV_NET_VF on host_0000:81:00.0",
    )


def test_beside_nova_a_device_of_this_agents_is_held(tmp_path: Path) -> None:
    one = OneHost(tmp_path, FACTS, Policy(layout="devices"), signs=ServiceSigns())
    one.sync()
    one.give_to_nova()
    one.role = "beside"
    one.sync(policy=Policy(layout="devices", devices=ALL))
    before = providers(one)

    hold(one, NIC)
    assert one.stock(NIC)[VF] == (4, 4)
    one.forget()
    one.sync()
    assert one.stock(NIC)[VF] == (4, 4)
    give_back(one, NIC)

    assert providers(one) == before


def test_a_hold_of_a_total_that_a_lost_memory_does_not_show_to_be_ours_says_what_stays_on_offer(tmp_path: Path) -> None:
    records = [{"address": NIC, "product_id": "1515", "resource_class": "CUSTOM_FAST"}]
    one = OneHost(tmp_path, host(*card(NIC, 4)), Policy(layout="flat", devices=by_rules(*records)))
    one.sync()
    one.forget()
    one.policy = replace(one.policy, layout="devices")

    done = hold(one, NIC)

    assert (done.status, one.stock()["CUSTOM_FAST"]) == (Status.UNSAFE, (4, 0)), done.notes
    (told,) = (each.text for each in done.conditions if each.kind == NOT_HELD)
    assert "CUSTOM_FAST of 0000:81:00.0 stays on offer on host" in told
    assert stays_on_offer("0000_81_00_0", "host", done.conditions)
    assert not stays_on_offer("0000_91_00_0", "host", done.conditions)


# -- what others do meanwhile ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("early", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("layout", ["devices", "cells", "numa"])
def test_a_flat_host_that_waits_for_its_conversion_holds_too(tmp_path: Path, layout: Layout, early: bool) -> None:
    one = OneHost(tmp_path, FACTS, Policy(layout="flat", devices=ALL))
    one.sync()
    one.claim({"": {VF: 1}})
    if early:
        hold(one, NIC)

    assert one.sync(policy=replace(one.policy, layout=layout)).status is Status.RESHAPE_NEEDED
    if not early:
        hold(one, NIC)

    assert one.stock()[VF] == (4, 3)


def test_a_flat_host_holds_a_card_beside_one_that_is_lost(tmp_path: Path) -> None:
    """By their number: each of both is off offer."""
    second = "0000:82:00.0"
    both = host(*card(NIC, 4), *card(second, 4))
    one = OneHost(tmp_path, both, Policy(layout="flat", devices=DevicePolicy(discover_all=True)))
    one.sync()
    hold(one, NIC)
    assert one.stock()[VF] == (8, 4)

    one.sync(facts=host(*card(NIC, 4)))
    assert one.stock()[VF] in {(8, 8), (4, 4)}
    one.sync(facts=both)
    assert one.stock()[VF] == (8, 4)
    give_back(one, NIC)

    assert one.stock()[VF] == (8, 0)


def test_each_refused_pass_of_a_flat_host_reserves_what_is_held_and_what_is_lost_once(tmp_path: Path) -> None:
    second, third = "0000:82:00.0", "0000:83:00.0"
    policy = Policy(layout="flat", devices=DevicePolicy(discover_all=True))
    one = OneHost(tmp_path, host(*card(NIC, 4), *card(second, 4), *card(third, 4)), policy)
    one.sync()
    one.claim({"": {VF: 1}})
    hold(one, NIC)
    one.policy = replace(policy, layout="numa")

    for _ in range(3):
        done = one.sync(facts=host(*card(NIC, 4), *card(second, 4)))
        assert (done.status, one.stock()[VF]) == (Status.RESHAPE_NEEDED, (12, 8))


def test_a_wish_in_a_pass_that_may_write_nothing_is_not_remembered(tmp_path: Path) -> None:
    one = live(tmp_path)
    hold(one, NIC)
    before = memory_of(one).bodies[BODY]
    one.signs = ServiceSigns(processes=(1,), units=("nova-compute.service",))
    one.put_trait("", "OWNER_NOVA")
    one.set_by_hand("", "VCPU", allocation_ratio=3.0)
    one.sync()

    assert give_back(one, NIC).status is Status.CONTESTED
    assert hold(one, GPU).status is Status.CONTESTED

    assert memory_of(one).bodies[BODY] == before


def memory_of(one: OneHost) -> NodeState:
    return one.node.state_file(ROOT).read(one.where)


def test_a_trait_that_a_hand_takes_off_comes_back_with_what_it_holds(one: OneHost) -> None:
    hold(one, NIC)
    held = providers(one)
    suffix = "" if one.policy.layout == "flat" else NIC
    one.remove_traits(suffix, *(name for name in one.traits(suffix) if name.startswith(HOLD)))

    one.sync()

    assert providers(one) == held


def test_a_provider_that_a_hand_deletes_is_made_anew_and_held(tmp_path: Path) -> None:
    one = OneHost(tmp_path, FACTS, Policy(layout="devices", devices=ALL))
    one.sync()
    hold(one, NIC)
    held = providers(one)
    one.send("DELETE", f"/resource_providers/{one.tree().by_name[f'host_{NIC}'].uuid}")

    one.sync()

    assert providers(one) == held


def test_a_later_wish_ends_no_earlier_one(one: OneHost) -> None:
    hold(one, NIC)

    done = hold(one, NIC, until_s=4_000_000_000)

    assert held_in(one.tree()) == {"0000_81_00_0": ENDLESS}
    assert not any("until" in note for note in done.notes)


def test_traits_that_contradict_each_other_or_have_no_time_hold_for_good(one: OneHost) -> None:
    hold(one, NIC)
    suffix = "" if one.policy.layout == "flat" else NIC
    for until in ("1000000000", "1799999999000000", "SOON"):
        one.put_trait(suffix, f"{HOLD}0000_81_00_0_UNTIL_{until}")

    one.sync()

    assert held_in(one.tree()) == {"0000_81_00_0": ENDLESS}


def test_a_card_whose_hardware_is_gone_can_be_held(tmp_path: Path) -> None:
    one = OneHost(tmp_path, FACTS, Policy(layout="devices", devices=ALL))
    one.sync()
    one.claim({NIC: {VF: 1}})
    one.sync(facts=host(gpu(), parents=(parent(gpu(), a=8),)))

    hold(one, NIC)

    assert "0000_81_00_0" in held_in(one.tree())


def test_a_host_that_is_held_is_not_handed_over_unasked(tmp_path: Path) -> None:
    one = OneHost(tmp_path, host(gpu(), parents=(parent(gpu(), a=8),)), Policy(devices=ALL))
    one.sync()
    hold(one, HOST)
    before = providers(one)

    done = hand_over_node(one.node)

    assert (done.status, providers(one)) == (Status.UNSAFE, before)
    assert "a person holds host" in done.notes[0]


# -- without a look at the host ----------------------------------------------------------------------------------------


def live(folder: Path, layout: Layout = "devices", **changes: Any) -> OneHost:
    one = OneHost(folder, FACTS, Policy(layout=layout, devices=ALL), signs=ServiceSigns())
    one.sync(**changes)
    return one


def unseen(one: OneHost, what: str, note: Note | None = NOTE) -> Outcome:
    return hold_unseen(one.node.client, one.settings, one.where, HoldWish(what=what, note=note), EMITTED)


@pytest.mark.parametrize("what", [HOST, NIC])
def test_a_host_that_cannot_be_read_is_held_as_one_that_can(tmp_path: Path, what: str) -> None:
    one = live(tmp_path)
    before = providers(one)
    hold(one, what)
    held = providers(one)
    give_back(one, what)

    assert unseen(one, what).status is Status.CHANGED
    assert providers(one) == held
    assert unseen(one, what).status is Status.UNCHANGED
    assert one.sync().status is Status.UNCHANGED
    give_back(one, what)

    assert providers(one) == before


def test_a_class_of_somebody_elses_on_the_root_stays_as_it_is(tmp_path: Path) -> None:
    one = live(tmp_path)
    one.add_by_hand("", "CUSTOM_LICENSE", 5)

    assert unseen(one, HOST).status is Status.CHANGED

    assert (one.stock()["CUSTOM_LICENSE"], one.stock()["VCPU"][1] > 0) == ((5, 0), True)


def used_once(folder: Path, sender: Sender | None = None) -> OneHost:
    """A host with a one-time card that a guest claimed and released since the last pass, and with a GPU."""
    rule = DeviceRule(number=1, one_time_use=True, resource_class="CUSTOM_ONCE", place=RulePlace(), vendor_id="8086")
    facts = host(*card(NIC, 0), gpu(), parents=(parent(gpu(), a=8),))
    policy = Policy(devices=DevicePolicy(report=True, rules=(rule,), mdevs=ALL.mdevs))
    one = OneHost(folder, facts, policy, signs=ServiceSigns(), sender=sender or Sender())
    one.sync()
    one.claim({NIC: {"CUSTOM_ONCE": 1}})
    one.claim({})
    return one


@pytest.mark.parametrize("what", [HOST, NIC, GPU])
def test_a_one_time_device_that_was_used_meanwhile_stays_used(tmp_path: Path, what: str) -> None:
    one = used_once(tmp_path)

    if what == NIC:
        with pytest.raises(ConfigError, match="may have been used"):
            unseen(one, what)
    else:
        unseen(one, what)
    one.sync()

    assert one.stock(NIC)["CUSTOM_ONCE"] == (1, 1)
    if what != NIC:
        give_back(one, what)
    assert one.stock(NIC)["CUSTOM_ONCE"] == (1, 1)


@pytest.mark.parametrize(("first", "then"), [(3, 2), (3, 0), (0, 2)])
def test_an_amount_that_an_operator_changed_outlasts_a_hold_without_a_look(
    tmp_path: Path, first: int, then: int
) -> None:
    second = "0000:82:00.0"
    policy = Policy(layout="flat", devices=DevicePolicy(discover_all=True))
    one = OneHost(tmp_path, host(*card(NIC, 4), *card(second, 8)), policy, signs=ServiceSigns())
    one.sync()
    one.set_by_hand("", VF, reserved=first)
    hold(one, NIC)
    one.set_by_hand("", VF, reserved=then)

    unseen(one, HOST)
    assert one.stock()[VF] == (12, 12)
    one.sync()
    give_back(one, HOST)
    give_back(one, NIC)
    one.sync()

    assert one.stock()[VF] == (12, then)


def test_a_root_that_nova_marked_since_the_last_pass_is_not_held_unseen(tmp_path: Path) -> None:
    one = live(tmp_path)
    one.sync()
    one.put_trait("", "OWNER_NOVA")
    before = providers(one)

    with pytest.raises(ConfigError, match="nova marked host since the last pass"):
        unseen(one, HOST)

    assert providers(one) == before


def test_a_second_writer_is_found_after_a_hold_without_a_look(tmp_path: Path) -> None:
    one = live(tmp_path)
    one.sync()
    one.set_by_hand("", "VCPU", max_unit=1)
    unseen(one, HOST)

    assert SECOND_WRITER in {each.kind for each in one.sync().conditions}


def test_a_hold_that_failed_is_not_carried_out_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = live(tmp_path)
    before = providers(one)

    def lose(*_: object) -> None:
        raise Conflict("another writer came first")

    with monkeypatch.context() as losing:
        losing.setattr(PlacementClient, "execute", lose)
        with pytest.raises(Conflict):
            unseen(one, NIC)

    assert one.sync().status is Status.UNCHANGED
    assert providers(one) == before


class Racing(Sender):
    """A placement in which somebody else comes first, before the next write."""

    def __init__(self) -> None:
        super().__init__()
        self.race: Callable[[], object] | None = None

    def request(self, url: str, method: str, **more: Any) -> Any:
        race, self.race = (None, self.race) if method == "GET" else (self.race, None)
        if race:
            race()
        return super().request(url, method, **more)


def test_a_claim_that_comes_first_makes_no_used_device_an_unused_one(tmp_path: Path) -> None:
    one = used_once(tmp_path, sender := Racing())
    sender.race = lambda: one.claim({GPU: {"VGPU": 1}})

    assert unseen(one, GPU).status is Status.CHANGED
    one.sync()

    assert one.stock(NIC)["CUSTOM_ONCE"] == (1, 1)


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_a_hold_that_is_cut_off_makes_no_used_device_an_unused_one(tmp_path: Path, writes: int) -> None:
    one = used_once(tmp_path)

    with suppress(Cut), one.ending_after(writes):
        unseen(one, GPU)
    one.sync()

    assert one.stock(NIC)["CUSTOM_ONCE"] == (1, 1)


@pytest.mark.parametrize("what", ["NUMA0", "host_NUMA0", "0000:99:00.0"])
def test_what_is_no_device_is_not_held_unseen(tmp_path: Path, what: str) -> None:
    one = live(tmp_path, "numa")

    with pytest.raises(ConfigError, match="placement has no provider of"):
        unseen(one, what)


def test_nothing_is_given_back_unseen_nor_held_on_a_recorded_host(tmp_path: Path) -> None:
    one = live(tmp_path)
    with pytest.raises(ConfigError, match="nothing is given back"):
        unseen(one, NIC, None)
    one.signs = None

    with pytest.raises(ConfigError, match="only a host that this agent reports"):
        unseen(one, NIC)


@pytest.mark.parametrize(
    ("role", "then"), [("sole", "the next pass puts it back"), ("audit", "nothing puts it back on offer, as [agent]")]
)
def test_a_hold_whose_time_is_over_is_listed_with_what_ends_it(
    role: Role, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds = {"0000_81_00_0": replace(NOTE, until_s=1), "0000_91_00_0": NOTE}
    monkeypatch.setattr("agent.command.hold_verbs._held", lambda _options: (holds, "host"))

    (told,) = start_hold(Namespace(what=None, settings=replace(default_settings(), role=role))).remarks

    assert told.startswith(f"the time of 0000:81:00.0 is over, and {then}")
