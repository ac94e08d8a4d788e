"""A device that is odd is undecided: what stands of it stays reserved, and the rest of the host is reported as ever."""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.audit.audit import witness
from agent.audit.decide.findings import Kind
from agent.state.audit_memory import write_memory
from agent.state.clock import StoppedClock
from agent.sync.decide.view import Wishes
from agent.sync.outcome import Status
from beds.one_host import FORCE, GUEST, OneHost
from drivers.devices.odd import odd_sentence, set_apart
from drivers.errors import PolicyError
from drivers.facts import GuestMemory, HostFacts, Mdev, OddDevice
from drivers.libvirt.shape import shape
from drivers.policy import DevicePolicy, DeviceRule, Layout, MdevRule, Policy
from drivers.rules import parse_rule
from hardware import at, card, gpu, guest_with, host, hosts, parent, plain, policies
from reportclient.reserve import HELD, LEFT
from reportclient.tree import ObservedTree

LAYOUTS: tuple[Layout, ...] = get_args(Layout)
NIC, GPU, PLAIN = "0000:81:00.0", "pci_0000_84_00_0", "0000:05:00.0"
FIRST_VF, VF = "0000:81:10.0", "SRIOV_NET_VF"
RULES = (DeviceRule(number=1, product_id="1533", resource_class="CUSTOM_PLAIN"),)
ALL = DevicePolicy(report=True, rules=RULES, discover_all=True, mdevs=(MdevRule(type="a"),))
WELL = host(*card(NIC, 4), plain(PLAIN), gpu(), parents=(parent(gpu(), a=8),))
Start = Callable[..., OneHost]


def odd(facts: HostFacts, *addresses: str, cards: Iterable[str] = ()) -> HostFacts:
    """The same host, of which these functions, and these makers of mediated devices, cannot be read."""
    several = [OddDevice(address, "cannot be read", address=at(address)) for address in addresses]
    several += [OddDevice(card, "cannot be read", card=card) for card in cards]
    return replace(facts, devices=set_apart(facts.devices, several))


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts a host that is well, and makes its first pass."""

    def begin(layout: Layout = "devices", facts: HostFacts = WELL, devices: DevicePolicy = ALL) -> OneHost:
        one = OneHost(tmp_path, facts, Policy(layout=layout, devices=devices, reserved_memory_mib=0))
        assert one.sync().status is Status.CHANGED
        return one

    return begin


@pytest.mark.parametrize("layout", ["devices", "cells", "numa"])
@pytest.mark.parametrize("remembers", [True, False])
@pytest.mark.parametrize(
    ("sick", "stock"),
    [
        pytest.param(odd(WELL, FIRST_VF), ((4, 1), (8, 0), (1, 0)), id="a VF"),
        pytest.param(odd(WELL, NIC), ((4, 4), (8, 0), (1, 0)), id="a PF"),
        pytest.param(odd(WELL, "0000:84:00.0"), ((4, 0), (8, 8), (1, 0)), id="a vGPU card"),
        pytest.param(odd(WELL, cards=[GPU]), ((4, 0), (8, 8), (1, 0)), id="its mediated devices"),
        pytest.param(odd(WELL, PLAIN), ((4, 0), (8, 0), (1, 1)), id="a plain device"),
    ],
)
def test_what_stands_of_an_odd_device_stays_reserved_until_it_is_well(
    start: Start, layout: Layout, remembers: bool, sick: HostFacts, stock: tuple[tuple[int, int], ...]
) -> None:
    one = start(layout)
    before = {suffix: (one.stock(suffix), one.traits(suffix)) for suffix in ("", NIC, GPU, PLAIN)}
    if not remembers:
        one.forget()

    done = one.sync(facts=sick)
    assert (one.stock(NIC), one.stock(GPU), one.stock(PLAIN)) == tuple(
        {name: amounts} for name, amounts in zip((VF, "VGPU", "CUSTOM_PLAIN"), stock, strict=True)
    )
    assert one.stock() == before[""][0]
    assert sum(HELD in one.marks(suffix) for suffix in before) == 1
    assert len(done.notes) == 1
    assert (one.sync().status, one.sync().notes) == (Status.UNCHANGED, done.notes)
    (found,) = witness(replace(one.node, settings=replace(one.settings, audit_grace_s=0))).findings
    assert (found.kind, found.seen) == (Kind.ODD_DEVICE, done.notes[0])
    done = one.sync(facts=WELL)

    assert {suffix: (one.stock(suffix), one.traits(suffix)) for suffix in before} == before
    assert (done.notes, witness(one.node).findings) == ((), ())


WHOLE = parse_rule({"address": NIC, "resource_class": "CUSTOM_WHOLE"}, 1)
OTHERS_VFS = DeviceRule(number=2, product_id="1515", resource_class="CUSTOM_VF")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rules", [(WHOLE,), (replace(WHOLE, product_id="1528"), OTHERS_VFS)], ids=["one", "two"])
@pytest.mark.parametrize("used", [False, True])
def test_a_card_that_is_offered_whole_is_reserved_while_somebody_made_vfs_on_it(
    start: Start, layout: Layout, rules: tuple[DeviceRule, ...], used: bool
) -> None:
    well, made = (host(*card(NIC, vfs), plain(PLAIN)) for vfs in (0, 2))
    well = replace(well, guests=(guest_with(GUEST, pci=frozenset({at(NIC)})),) if used else ())
    policy = DevicePolicy(report=True, rules=(*rules, replace(RULES[0], number=3)))
    place, other = ("", "") if layout == "flat" else (NIC, PLAIN)
    one = start(layout, well, policy)
    before = one.tree()
    if used:
        one.claim({place: {"CUSTOM_WHOLE": 1}})

    done = one.sync(facts=replace(made, guests=well.guests))

    assert done.status is Status.CHANGED
    assert (one.stock(place)["CUSTOM_WHOLE"], one.stock(other)["CUSTOM_PLAIN"]) == ((1, 1), (1, 0))
    assert f"offers both it and its VF {FIRST_VF} (take its VFs away by sriov_numvfs" in done.notes[0]
    assert (one.sync().status, one.sync().notes, len(done.notes)) == (Status.UNCHANGED, done.notes, 1)
    assert not any("CUSTOM_VF" in seen.provider.inventories for seen in one.tree())
    back = one.sync(facts=well)
    assert [seen.provider for seen in one.tree()] == [seen.provider for seen in before]
    assert back.notes == ()


def test_rules_that_offer_a_card_both_whole_and_as_its_vfs_are_refused_where_it_is_not_on_offer_whole(
    tmp_path: Path,
) -> None:
    policy = DevicePolicy(report=True, rules=(replace(WHOLE, product_id="1528"), OTHERS_VFS))
    one = OneHost(tmp_path, host(*card(NIC, 2)), Policy(devices=policy))

    with pytest.raises(PolicyError, match=f"rule 1, 2, offers both {NIC} and its VF {FIRST_VF}"):
        one.sync()
    assert one.sync(policy=Policy(devices=replace(policy, rules=policy.rules[1:]))).notes == ()
    with pytest.raises(PolicyError, match="offers both"):
        one.sync(policy=Policy(devices=policy))
    assert one.stock(NIC) == {"CUSTOM_VF": (2, 0)}


def test_an_undecided_device_is_explained_by_address_and_by_provider_and_a_sound_one_is_not() -> None:
    facts = odd(WELL, FIRST_VF)
    sentences = {odd_sentence(facts, name) for name in (FIRST_VF, f"host_{FIRST_VF}")}

    assert len(sentences) == 1
    assert "is undecided" in sentences.pop()
    assert odd_sentence(facts, PLAIN) == odd_sentence(WELL, FIRST_VF) == ""


def test_an_odd_device_is_a_finding_once_it_lasts(start: Start) -> None:
    one = start()
    begin, lasts, grace_s = time.time(), odd(WELL, FIRST_VF), one.settings.audit_grace_s
    seen = []

    for facts, after_s in (
        (lasts, 0),
        (lasts, grace_s - 1),
        (WELL, grace_s),
        (lasts, grace_s + 1),
        (lasts, 2 * grace_s),
        (lasts, 2 * grace_s + 1),
        (lasts, 3 * grace_s),
    ):
        one.sync(facts=facts)
        audited = witness(replace(one.node, clock=partial(StoppedClock, "", 0.0, begin + after_s)))
        write_memory(one.folder, audited.root_uuid, audited.memory)
        seen.append([audited.memory.sightings[finding.key].looks for finding in audited.findings])

    assert seen == [[], [], [], [], [], [1], [2]]


@pytest.mark.parametrize("remembers", [True, False])
def test_of_a_total_as_much_stays_reserved_as_the_odd_device_had_at_most(start: Start, remembers: bool) -> None:
    one = start("flat")
    before = one.stock()
    if not remembers:
        one.forget()

    one.sync(facts=odd(WELL, FIRST_VF))
    assert one.stock() == {**before, VF: (4, 1)}
    one.sync(facts=odd(WELL, "0000:84:00.0"))
    assert one.stock() == {**before, "VGPU": (8, 8)}
    one.sync(facts=WELL)

    assert one.stock() == before


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_new_and_odd_is_not_offered_and_told(start: Start, layout: Layout) -> None:
    one = start(layout, facts=odd(WELL, FIRST_VF, PLAIN))

    stock = one.stock("" if layout == "flat" else NIC)

    assert (stock[VF], one.stock(PLAIN), "CUSTOM_PLAIN" in one.stock()) == ((3, 0), {}, False)
    (told,) = one.sync().notes
    assert told.startswith(f"{PLAIN}, {FIRST_VF} are undecided, as cannot be read. What placement ")


def test_of_many_odd_devices_each_cause_is_told_and_not_without_end(start: Start) -> None:
    several = [OddDevice(f"0000:{n:02x}:00.0", f"cause {n}", address=at(f"0000:{n:02x}:00.0")) for n in range(20)]

    one = start(facts=replace(WELL, devices=set_apart(WELL.devices, several)))

    notes = one.sync().notes
    assert [note.partition(". What")[0] for note in notes[:2]] == [
        "0000:00:00.0 is undecided, as cause 0",
        "0000:01:00.0 is undecided, as cause 1",
    ]
    assert notes[10].startswith("0000:0a:00.0, 0000:0b:00.0, 0000:0c:00.0 and 7 more are undecided, as much the same")
    assert len(notes) == 11


def test_where_no_option_asks_for_devices_nothing_is_told_of_them(start: Start) -> None:
    one = start(facts=odd(WELL, NIC, PLAIN), devices=DevicePolicy())

    assert one.sync().notes == ()
    assert {"VCPU", "MEMORY_MB"} <= one.stock().keys()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_a_person_takes_away_goes_although_it_is_odd(start: Start, layout: Layout) -> None:
    one = start(layout)
    one.sync(facts=odd(WELL, FIRST_VF, PLAIN))

    one.sync(FORCE, policy=replace(one.policy, devices=replace(ALL, rules=())))
    assert (one.stock(PLAIN), "CUSTOM_PLAIN" in one.stock()) == ({}, False)
    one.sync(FORCE)

    assert one.stock("" if layout == "flat" else NIC)[VF] == (3, 0)


@pytest.mark.parametrize("reserved", [1, 4])
def test_what_an_operator_reserved_counts_beside_what_is_odd(start: Start, reserved: int) -> None:
    one = start()
    one.set_by_hand(NIC, VF, reserved=reserved)
    one.sync()

    one.sync(facts=odd(WELL, FIRST_VF))
    assert one.stock(NIC) == {VF: (4, min(4, 1 + reserved))}
    one.sync(facts=WELL)

    assert one.stock(NIC) == {VF: (4, reserved)}


@pytest.mark.parametrize("once", [True, False], ids=["one-time", "plain"])
def test_a_trait_that_a_hand_set_on_a_device_stays_after_it_was_odd(start: Start, once: bool) -> None:
    rule = DeviceRule(number=1, product_id="1533", one_time_use=once, traits=frozenset({"CUSTOM_BY_RULE"}))
    one = start(devices=DevicePolicy(report=True, rules=(rule,)))
    one.put_trait(PLAIN, "CUSTOM_BY_HAND")
    before = one.traits(PLAIN)

    one.sync(facts=odd(WELL, PLAIN))
    one.sync()
    one.sync(facts=WELL)

    assert one.traits(PLAIN) == before


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_guest_keeps_its_odd_device_and_no_audit_takes_it_away(start: Start, layout: Layout) -> None:
    guest = guest_with(GUEST, pci=frozenset({at(FIRST_VF)}))
    guest = replace(guest, vcpus=(frozenset(),), memory=(GuestMemory(64),))
    facts = replace(WELL, guests=(guest,))
    one = start(layout, facts=facts)
    place = "" if layout == "flat" else NIC
    one.claim({place: {VF: 1}})
    held = one.held()

    one.sync(facts=odd(facts, FIRST_VF))

    assert (one.held(), one.stock(place)[VF]) == (held, (4, 1))
    kinds = {one.kind for one in witness(one.node).findings if one.resource_class in (None, VF)}
    assert Kind.WRONG_AMOUNT not in kinds
    assert Kind.WRONG_PROVIDER not in kinds


def test_a_card_with_a_rule_for_its_odd_vf_is_left_to_that_rule(start: Start) -> None:
    own = parse_rule({"address": FIRST_VF, "product_id": "1515", "resource_class": "CUSTOM_VF"}, 1)

    one = start(devices=DevicePolicy(report=True, rules=(own,), discover_all=True))
    one.sync(facts=odd(WELL, FIRST_VF))

    assert one.stock(NIC) == {"CUSTOM_VF": (1, 1)}


@pytest.mark.parametrize("is_odd", [True, False], ids=["odd", "without driver"])
def test_the_limit_of_a_type_counts_what_cards_out_of_sight_had(is_odd: bool) -> None:
    first, second = gpu("0000:84:00.0"), gpu("0000:85:00.0")
    made = tuple(Mdev(f"00000000-0000-0000-0000-00000000000{n}", "a", GPU) for n in range(2))
    facts = host(first, second, parents=(parent(first, a=4), parent(second, a=4)), mdevs=made)
    policy = Policy(devices=DevicePolicy(mdevs=(MdevRule(type="a", max_instances=4),)))
    with TemporaryDirectory() as folder:
        one = OneHost(Path(folder), facts, policy)
        one.sync()
        before = one.stock(GPU), one.stock("pci_0000_85_00_0")

        mute = host(replace(first, driver=None), second, parents=(parent(second, a=4),))
        one.sync(facts=odd(facts, "0000:84:00.0") if is_odd else mute)

        assert before == ({"VGPU": (4, 0)}, {})
        assert (one.stock(GPU), one.stock("pci_0000_85_00_0")) == ({"VGPU": (4, 4)}, {})


def test_the_limit_of_a_type_does_not_count_odd_vfs_of_the_same_class(start: Start) -> None:
    one = gpu("0000:84:00.0")
    rule = DeviceRule(number=1, product_id="1515", resource_class="VGPU")
    policy = DevicePolicy(report=True, rules=(rule,), mdevs=(MdevRule(type="a", max_instances=4),))
    facts = host(*card(NIC, 4), one, parents=(parent(one, a=4),))
    found = start(devices=policy, facts=facts)
    before = found.stock(GPU)

    found.sync(facts=odd(facts, FIRST_VF))

    assert (before, found.stock(GPU), found.stock(NIC)) == ({"VGPU": (4, 0)}, {"VGPU": (4, 0)}, {"VGPU": (4, 1)})


@pytest.mark.parametrize("says", [None, FIRST_VF], ids=["no PF", "itself"])
def test_a_vf_that_names_no_pf_where_a_pf_has_it_is_odd_and_no_device_of_its_own(
    start: Start, says: str | None
) -> None:
    rule = DeviceRule(number=1, product_id="1515", resource_class="CUSTOM_VF")
    one = start(devices=DevicePolicy(report=True, rules=(rule,)))
    pf = at(says) if says else None

    functions = tuple(
        replace(each, pf=pf) if str(each.address) == FIRST_VF else each for each in WELL.devices.functions
    )
    outcome = one.sync(facts=replace(WELL, devices=set_apart(replace(WELL.devices, functions=functions), ())))

    assert outcome.status is Status.CHANGED
    assert (one.stock(NIC), one.stock(FIRST_VF)) == ({"CUSTOM_VF": (4, 1)}, {})


def test_vfs_that_are_odd_in_two_ways_at_once_are_both_set_apart() -> None:
    """One is not listed, another names no PF."""
    vfs = [one for one in WELL.devices.functions if one.pf]
    rest = [one for one in WELL.devices.functions if one.address not in (vfs[0].address, vfs[1].address)]

    found = set_apart(replace(WELL.devices, functions=(*rest, replace(vfs[1], pf=None))), ())

    assert {one.address for one in found.odd} >= {vfs[0].address, vfs[1].address}


@pytest.mark.parametrize("goes", ["odd", "without driver", "not enabled"])
def test_the_limit_of_a_type_does_not_count_cards_of_another_type_of_its_class(goes: str) -> None:
    first, second = gpu("0000:84:00.0"), gpu("0000:85:00.0")
    facts = host(first, second, parents=(parent(first, a=4), parent(second, b=4)))
    of_b = MdevRule(type="b", addresses=frozenset({"0000:85:00.0"}), max_instances=3)
    with TemporaryDirectory() as folder:
        one = OneHost(Path(folder), facts, Policy(devices=DevicePolicy(mdevs=(MdevRule(type="a"), of_b))))
        one.sync()
        before = one.stock(GPU), one.stock("pci_0000_85_00_0")

        if goes == "not enabled":
            one.sync(FORCE, policy=Policy(devices=DevicePolicy(mdevs=(of_b,))))
        else:
            mute = host(replace(first, driver=None), second, parents=(parent(second, b=4),))
            one.sync(facts=odd(facts, "0000:84:00.0") if goes == "odd" else mute)

        assert before == ({"VGPU": (4, 0)}, {"VGPU": (3, 0)})
        assert one.stock("pci_0000_85_00_0") == {"VGPU": (3, 0)}


def free(tree: ObservedTree) -> dict[tuple[str, str], int]:
    return {
        (seen.name, name): stock.total - stock.reserved
        for seen in tree
        for name, stock in seen.provider.inventories.items()
    }


@given(hosts(), policies, st.sampled_from(LAYOUTS), st.data())
def test_odd_devices_offer_nothing_more_anywhere_and_come_back_as_they_were(
    facts: HostFacts, devices: DevicePolicy, layout: Layout, data: st.DataObject
) -> None:
    names = [str(one.address) for one in facts.devices.functions]
    sick = odd(facts, *(data.draw(st.lists(st.sampled_from(names), unique=True)) if names else ()))
    with TemporaryDirectory() as folder:
        one = OneHost(Path(folder), facts, Policy(layout=layout, devices=devices, reserved_memory_mib=0))
        one.sync()
        before = one.tree()
        stocked = {seen.name for seen in before if seen.provider.inventories}  # an empty cell goes with its only device
        alone = stocked - {f"host_{name}" for name in sick_names(sick)}

        done = one.sync(facts=sick)
        meanwhile = one.tree()
        one.sync(facts=facts)

        assert done.status in (Status.CHANGED, Status.UNCHANGED), done.notes
        assert all(amount <= free(before).get(slot, 0) for slot, amount in free(meanwhile).items())
        totals = shape(sick, one.policy, None).tree
        assert all(
            free(meanwhile).get((provider.name, name), 0) <= stock.total  # an odd card may take up a limit
            for provider in totals
            for name, stock in provider.inventories.items()
        )
        assert {name: meanwhile.by_name[name].provider for name in alone if layout != "flat"} == {
            name: before.by_name[name].provider for name in alone if layout != "flat"
        }
        assert {seen.name: seen.provider for seen in one.tree()} == {seen.name: seen.provider for seen in before}


def sick_names(facts: HostFacts) -> set[str]:
    """The suffixes of providers of which odd devices may be a part."""
    found = set()
    for one in facts.devices.odd:
        for address in filter(None, (one.address, one.pf)):
            found |= {str(address).upper(), "pci_" + str(address).replace(":", "_").replace(".", "_")}
    return found


@pytest.mark.parametrize("layout", ["devices", "numa"])
@pytest.mark.parametrize("remembers", [True, False])
def test_an_odd_one_time_device_stays_reserved_and_is_not_taken_for_used(
    start: Start, layout: Layout, remembers: bool
) -> None:
    once = replace(RULES[0], one_time_use=True)
    one = start(layout, devices=replace(ALL, rules=(once,)))
    before = one.tree().by_name[f"host_{PLAIN}"]
    if not remembers:
        one.forget()

    one.sync(facts=odd(WELL, PLAIN))
    assert (one.stock(PLAIN), one.marks(PLAIN)) == (
        {"CUSTOM_PLAIN": (1, 1)},
        frozenset({HELD, f"{LEFT}1_CUSTOM_PLAIN"}),
    )
    assert one.sync().status is Status.UNCHANGED
    one.sync(facts=WELL)

    after = one.tree().by_name[f"host_{PLAIN}"]
    assert (after.uuid, after.provider) == (before.uuid, before.provider)


def test_a_flat_tree_is_not_converted_while_a_device_is_odd_but_by_force(start: Start) -> None:
    one = start("flat")
    one.sync(facts=odd(WELL, FIRST_VF))

    done = one.sync(Wishes(reshape=True), policy=replace(one.policy, layout="devices"))
    assert (done.status, one.stock()[VF]) == (Status.UNSAFE, (4, 1))
    assert done.notes[0].startswith("devices are undecided, and a conversion from flat to devices would forget them")
    one.reshape("devices")

    assert one.stock(NIC)[VF] == (3, 0)
