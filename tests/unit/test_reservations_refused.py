"""What a reservation beside a refused plan must leave as it is: layout, memory, operators' amounts, other providers."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent.sync.decide.view import Wishes
from agent.sync.outcome import Status
from agent.sync.run import run_pass
from beds.one_host import FORCE, GUEST, RESHAPE, ROOT, Cut, OneHost, begun
from drivers.facts import CpuMap, DiskSpace, HostFacts
from drivers.policy import CpuPolicy, DevicePolicy, DeviceRule, Layout, MdevRule, Policy
from drivers.rules import parse_rule
from hardware import at, card, gpu, guest_with, host, parent, plain
from reportclient.ownership import MARKER, OWNER_NOVA

NIC, GPU, ONCE = "0000:81:00.0", "pci_0000_84_00_0", "0000:05:00.0"
VF, OWN = "SRIOV_NET_VF", "0badcafe-0000-4000-8000-000000000001"
ALL = DevicePolicy(discover_all=True, mdevs=(MdevRule(type="a"),))
RULED = DevicePolicy(report=True, rules=(DeviceRule(number=1, product_id="1515", resource_class="CUSTOM_VF"),))
WHOLE = host(*card(NIC, 4), gpu(), parents=(parent(gpu(), a=8),))
TWO_VFS = host(*card(NIC, 2), gpu(), parents=(parent(gpu(), a=8),))
NO_CARD = host(plain(), gpu(), parents=(parent(gpu(), a=8),))
ALONE, NONE = host(*card(NIC, 4)), host(plain())
REFUSED = (Status.UNSAFE, Status.RESHAPE_NEEDED)
Start = Callable[..., OneHost]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts a host, and makes its first pass."""
    return lambda layout="devices", facts=WHOLE, devices=ALL: begun(tmp_path, facts, devices, layout)


def unsafe(one: OneHost) -> Policy:
    """A policy whose plan is refused: less memory than is used."""
    one.claim({"": {"MEMORY_MB": one.stock()["MEMORY_MB"][0] - 512}})
    return replace(one.policy, reserved_memory_mib=2001)


def cut_off(one: OneHost, left: int, facts: HostFacts, policy: Policy | None = None) -> None:
    """A pass that ends after so many writes, and the next one, which does not."""
    with pytest.raises(Cut), one.ending_after(left):
        one.sync(facts=facts, policy=policy or one.policy)
    assert one.sync().status in REFUSED


def made_by_nova(one: OneHost) -> None:
    """The card's provider as nova made it: under a random uuid, with its mark."""
    one.send("DELETE", f"/resource_providers/{one.tree().by_name[f'host_{NIC}'].uuid}")
    one.send("POST", "/resource_providers", {"name": f"host_{NIC}", "uuid": OWN, "parent_provider_uuid": ROOT})
    body = {"inventories": {VF: {"total": 4, "max_unit": 4}}, "resource_provider_generation": 0}
    one.send("PUT", f"/resource_providers/{OWN}/inventories", body)
    one.put_trait(NIC, OWNER_NOVA)


# the memory that a reservation leaves


@pytest.mark.parametrize("layout", ["flat", "devices"])
@pytest.mark.parametrize("amount", [0, 3])
def test_what_an_operator_reserves_after_a_give_back_that_was_cut_off_stays(
    start: Start, layout: Layout, amount: int
) -> None:
    one = start(layout)
    suffix = "" if layout == "flat" else NIC
    one.set_by_hand(suffix, VF, reserved=1)
    one.sync()
    one.sync(facts=NO_CARD, policy=unsafe(one))
    cut_off(one, 1, WHOLE)
    assert one.stock(suffix)[VF] == (4, 1)

    one.set_by_hand(suffix, VF, reserved=amount)
    one.sync()

    assert one.stock(suffix)[VF] == (4, amount)


def test_what_an_operator_reserves_after_a_reservation_that_was_cut_off_stays(start: Start) -> None:
    one = start()
    cut_off(one, 1, TWO_VFS, unsafe(one))
    one.sync()
    assert one.stock(NIC) == {VF: (4, 2)}

    one.set_by_hand(NIC, VF, reserved=3)
    one.sync()
    one.sync(facts=WHOLE)

    assert one.stock(NIC) == {VF: (4, 3)}


@pytest.mark.parametrize("layout", ["flat", "devices"])
def test_what_devices_gave_is_known_after_a_reservation_that_was_cut_off(start: Start, layout: Layout) -> None:
    one = start(layout, ALONE, RULED)
    before = one.node.state_file(ROOT).read("placement").reported
    cut_off(one, 1, host(*card(NIC, 3)), unsafe(one))

    assert one.node.state_file(ROOT).read("placement").reported == before != {}


def test_a_conversion_is_possible_after_a_reservation_beside_it_was_cut_off(start: Start) -> None:
    one = start("flat", ALONE, RULED)
    one.claim({"": {"CUSTOM_VF": 1}})
    policy = replace(one.policy, layout="devices")
    assert one.sync(policy=policy).status in REFUSED
    cut_off(one, 1, host(*card(NIC, 3)))
    one.claim({})

    done = one.sync(RESHAPE, facts=ALONE)

    assert (done.status, one.stock(NIC)) == (Status.CHANGED, {"CUSTOM_VF": (4, 0)}), done.notes


# the layout that a reservation leaves


def test_a_trait_of_a_hand_stays_though_the_only_card_was_lost_and_came_back(start: Start) -> None:
    one = start("devices", ALONE)
    one.put_trait(NIC, "CUSTOM_BY_HAND")
    assert one.sync(policy=replace(one.policy, layout="flat")).status is Status.UNSAFE
    assert one.sync(facts=NONE).status is Status.UNSAFE

    assert (one.sync(facts=ALONE).status, "CUSTOM_BY_HAND" in one.traits(NIC)) == (Status.UNSAFE, True)


def test_the_only_card_is_followed_while_a_conversion_waits(start: Start) -> None:
    one = start("devices", ALONE)
    one.claim({NIC: {VF: 1}})
    policy = replace(one.policy, layout="flat")

    reserved = []
    for facts in (ALONE, NONE, ALONE, ALONE):
        assert one.sync(facts=facts, policy=policy).status in REFUSED
        reserved.append(one.stock(NIC)[VF][1])

    assert reserved == [0, 4, 0, 0]


def test_a_conversion_waits_for_a_boot_in_the_second_pass_too(start: Start) -> None:
    one = start("devices", replace(ALONE, boot="first"))
    later, policy = replace(NONE, boot="second"), replace(one.policy, layout="flat")

    assert [one.sync(facts=later, policy=policy).status for _ in range(2)] == [Status.UNSAFE] * 2


# providers that are not this agent's yet, or have other names


def test_hand_over_gives_back_what_a_refused_pass_reserved_on_novas_provider(start: Start) -> None:
    one = start()
    one.give_to_nova()
    made_by_nova(one)
    assert one.sync(facts=TWO_VFS, policy=unsafe(one)).status is Status.UNSAFE

    one.hand_over()

    assert (one.stock(NIC), one.marks(NIC)) == ({VF: (4, 0)}, frozenset())


def test_a_provider_of_novas_is_not_made_anew_while_a_renaming_is_taken_back(start: Start) -> None:
    one = start("devices", ALONE)
    made_by_nova(one)
    one.sync(FORCE)
    assert one.tree().by_name[f"host_{NIC}"].uuid == OWN
    one.send("PUT", f"/resource_providers/{OWN}", {"name": f"other_{NIC}"})  # a renaming that was cut off

    assert one.sync(policy=unsafe(one)).status is Status.UNSAFE

    assert OWN in one.tree().by_uuid


def test_a_refused_pass_renames_nothing(start: Start) -> None:
    one = start("devices", host(*card("0000:af:00.0", 4)))
    uuid = next(seen.uuid for seen in one.tree() if seen.provider.parent)
    one.send("PUT", f"/resource_providers/{uuid}", {"name": "host_0000:af:00.0"})  # as version 0.1.0 wrote it
    policy, one.sender.writes = unsafe(one), 0

    assert (one.sync(policy=policy).status, one.sender.writes) == (Status.UNSAFE, 0)


def test_a_provider_that_stands_below_anothers_is_no_crash(start: Start) -> None:
    one = start()
    one.send("POST", "/resource_providers", {"name": "theirs", "uuid": OWN, "parent_provider_uuid": ROOT})
    uuid = one.tree().by_name[f"host_{NIC}"].uuid
    one.send("PUT", f"/resource_providers/{uuid}", {"name": f"host_{NIC}", "parent_provider_uuid": OWN})

    assert one.sync(facts=NO_CARD, policy=unsafe(one)).status is Status.UNSAFE


# amounts that no device lacks


def test_a_refused_change_to_one_time_use_reserves_nothing_for_good(start: Start) -> None:
    def ruled(*, once: bool) -> DevicePolicy:
        rule = DeviceRule(number=1, product_id="1533", resource_class="CUSTOM_NIC", one_time_use=once)
        return DevicePolicy(report=True, discover_all=True, rules=(rule,))

    alone = host(plain(), *card(NIC, 4))
    one = start("devices", alone, ruled(once=False))
    well, wrong = one.policy, replace(unsafe(one), devices=ruled(once=True))
    one.claim({ONCE: {"CUSTOM_NIC": 1}, "": {"MEMORY_MB": one.stock()["MEMORY_MB"][0] - 512}})
    guest = guest_with(GUEST, pci=frozenset({at(ONCE)}))
    assert one.sync(facts=replace(alone, guests=(guest,)), policy=wrong).status is Status.UNSAFE

    one.sync(policy=well)
    one.claim({})
    one.sync(facts=alone)

    assert one.stock(ONCE) == {"CUSTOM_NIC": (1, 0)}


def ruled_apart(vfs: str) -> DevicePolicy:
    """Two cards of VFs, each of a class of its own; of the second one these."""
    found = [("0000:81:10.*", "CUSTOM_A"), (f"0000:91:10.{vfs}", "CUSTOM_B")]
    records = [{"address": address, "product_id": "1515", "resource_class": name} for address, name in found]
    return DevicePolicy(report=True, rules=tuple(parse_rule(one, n) for n, one in enumerate(records, 1)))


def test_what_is_back_is_on_offer_though_a_part_of_another_class_was_withdrawn(start: Start) -> None:
    both, second = host(*card(NIC, 4), *card("0000:91:00.0", 4)), host(*card("0000:91:00.0", 4))
    one = start("flat", both, ruled_apart("*"))
    policy = replace(unsafe(one), devices=ruled_apart("0"))

    one.sync(facts=second, policy=policy)
    withdrawn = one.stock()["CUSTOM_B"]
    one.sync(facts=both)

    assert (withdrawn, one.stock()["CUSTOM_A"]) == ((4, 0), (4, 0))


def test_what_is_lost_is_reserved_though_a_person_forces_a_plan_that_is_refused(start: Start) -> None:
    one = start("numa")
    one.claim({"NUMA0_PAGES_4": {"MEMORY_MB": 745}})  # as cells, the host has no room for it

    done = one.sync(FORCE, facts=TWO_VFS, policy=replace(one.policy, layout="cells"))

    assert (done.status in REFUSED, one.stock(NIC)) == (True, {VF: (4, 2)})


def test_more_than_stands_that_an_operator_reserved_stays_when_another_class_is_given_back(start: Start) -> None:
    one = start("flat")
    well = one.policy
    one.set_by_hand("", VF, reserved=4)
    assert one.sync(facts=host(*card(NIC, 3), gpu(), parents=(parent(gpu(), a=8),))).status is Status.CHANGED
    assert one.stock()[VF] == (3, 3)
    one.sync(facts=host(*card(NIC, 3)), policy=unsafe(one))
    one.sync(facts=WHOLE)

    one.sync(policy=well)

    assert one.stock() == {**one.stock(), VF: (4, 4), "VGPU": (8, 0)}


def test_marks_that_a_cut_off_give_back_left_go_while_the_refusal_lasts(start: Start) -> None:
    one = start()
    one.sync(facts=NO_CARD, policy=unsafe(one))
    cut_off(one, 1, WHOLE)

    assert (one.stock(NIC), one.marks(NIC)) == ({VF: (4, 0)}, frozenset())


def test_a_wrong_digest_forgets_no_marks_that_a_hand_took_off(start: Start) -> None:
    one = start("devices")
    one.sync(facts=NO_CARD)
    one.remove_traits(NIC, *one.marks(NIC))

    done = run_pass(one.node, Wishes(reshape=True, agreed="another"), lambda _node, _draft: ("another plan",))
    one.sync()
    one.sync(facts=WHOLE)

    assert (done.status, one.stock(NIC)) == (Status.OTHER_PLAN, {VF: (4, 0)})


def test_our_mark_comes_back_beside_a_refused_plan_so_that_a_lost_memory_offers_nothing_twice(start: Start) -> None:
    one = start("flat", ALONE, RULED)
    one.claim({"": {"CUSTOM_VF": 1}})
    one.remove_traits("", MARKER)
    rules = (replace(RULED.rules[0], resource_class="CUSTOM_NEW"),)

    refused = one.sync(policy=replace(one.policy, devices=replace(RULED, rules=rules)))
    one.forget()
    again = one.sync()

    assert (refused.status in REFUSED, again.status) == (True, Status.UNSAFE)
    assert "which this agent does not know" in again.notes[0]
    assert "CUSTOM_NEW" not in one.stock()


# what the host itself has less of


def of_cpus(each: int) -> HostFacts:
    """A host with so many CPUs that are on in each of its two cells."""
    online = frozenset(range(2 * each))
    cells = (replace(cell, cpus=frozenset(range(at, 2 * each, 2))) for at, cell in enumerate(ALONE.cells))
    return replace(ALONE, cells=tuple(cells), cpu_map=CpuMap(16, online))


@pytest.mark.parametrize(("layout", "suffix", "total"), [("devices", "", 16), ("cells", "NUMA0", 8)])
def test_cpus_that_went_off_are_reserved_as_far_as_guests_leave_them_free(
    start: Start, layout: Layout, suffix: str, total: int
) -> None:
    one = start(layout, of_cpus(8))
    one.set_by_hand(suffix, "VCPU", allocation_ratio=1.0)
    found = []
    for used, each in ((total - 1, 4), (total - 3, 4), (total - 3, 8)):
        one.claim({suffix: {"VCPU": used}})
        found.append((one.sync(facts=of_cpus(each)).status, one.stock(suffix)["VCPU"]))

    assert found == [
        (Status.UNSAFE, (total, 1)),
        (Status.UNSAFE, (total, 3)),
        (Status.CHANGED, (total, 0)),
    ]


@pytest.mark.parametrize(("layout", "suffix", "total"), [("flat", "", 16), ("devices", "", 16), ("numa", "NUMA0", 8)])
def test_cpus_that_are_back_are_on_offer_while_a_conversion_waits(
    start: Start, layout: Layout, suffix: str, total: int
) -> None:
    one = start(layout, of_cpus(8))
    one.claim({suffix: {"VCPU": 1}})
    policy = replace(one.policy, layout="devices" if layout == "numa" else "numa")
    found = []
    for each in (4, 4, 8, 8):
        found.append((one.sync(facts=of_cpus(each), policy=policy).status, one.stock(suffix)["VCPU"]))

    half, whole = (Status.RESHAPE_NEEDED, (total, total // 2)), (Status.RESHAPE_NEEDED, (total, 0))
    assert (found, one.marks(suffix)) == ([half, half, whole, whole], frozenset())


def test_a_cell_whose_cpus_are_all_off_has_none_on_offer(start: Start) -> None:
    one = start("cells", of_cpus(8))
    one.claim({"NUMA1": {"VCPU": 1}})
    facts = of_cpus(8)
    off = facts.cells[1].cpus
    gone = replace(
        facts,
        cells=(facts.cells[0], replace(facts.cells[1], cpus=frozenset())),
        cpu_map=CpuMap(16, facts.cpu_map.online - off),
        offline_cpus=tuple((cpu, facts.cells[1].id) for cpu in sorted(off)),
    )

    done = one.sync(facts=gone)

    assert (done.status, one.stock("NUMA1")["VCPU"], one.stock("NUMA0")["VCPU"]) == (Status.UNSAFE, (8, 7), (8, 0))
    assert (one.sync(facts=facts).status, one.stock("NUMA1")["VCPU"]) == (Status.CHANGED, (8, 0))


def test_what_a_root_has_stays_on_offer_though_a_lost_memory_takes_its_tree_for_another_layout(start: Start) -> None:
    one = start("flat", of_cpus(8), RULED)
    one.add_by_hand("", "CUSTOM_LICENSE", 3)
    one.forget()
    before = one.stock()

    done = one.sync(policy=replace(one.policy, layout="cells"))

    assert (done.status in REFUSED, one.stock()) == (True, before)


@pytest.mark.parametrize(
    ("layout", "suffix", "facts"),
    [("flat", "", NO_CARD), ("devices", NIC, NO_CARD), ("devices", GPU, ALONE), ("numa", GPU, ALONE)],
)
@pytest.mark.parametrize("passes", [1, 3])
def test_what_is_back_is_on_offer_though_a_hand_set_the_traits_meanwhile(
    start: Start, layout: Layout, suffix: str, facts: HostFacts, passes: int
) -> None:
    """The first pass without a device reserves it alone; a hand sets a whole list of traits, without our marks."""
    one = start(layout)
    before = one.stock(suffix)
    assert one.sync(facts=facts).status is Status.UNSAFE
    one.remove_traits(suffix, MARKER, *one.marks(suffix))
    for _ in range(passes):
        one.sync()

    one.sync(facts=WHOLE)

    assert one.stock(suffix) == before


def test_a_root_that_a_hand_took_from_us_after_a_conversion_is_ours_in_a_refused_pass_too(start: Start) -> None:
    """What a conversion left is not remembered, as placement does not answer with generations."""
    one = start("devices")
    one.claim({NIC: {VF: 1}})
    one.reshape("flat")
    flat = one.policy
    one.remove_traits("", MARKER, *one.marks())

    done = one.sync(facts=NO_CARD, policy=replace(one.policy, layout="devices"))

    assert (done.status in REFUSED, one.stock()[VF], MARKER in one.traits()) == (True, (4, 4), True)
    assert one.sync(facts=WHOLE, policy=flat).status is Status.CHANGED
    assert one.stock()[VF] == (4, 0)


def test_a_refused_pass_writes_nothing_on_a_root_that_does_not_show_that_it_is_ours(start: Start) -> None:
    one = start("devices", of_cpus(8))
    one.remove_traits("", MARKER)
    one.forget()
    one.claim({"": {"VCPU": 15}})
    one.set_by_hand("", "VCPU", allocation_ratio=1.0)

    done = one.sync(facts=of_cpus(4))

    assert (done.status, one.stock()["VCPU"]) == (Status.UNSAFE, (16, 0))


def test_cpus_that_become_dedicated_stay_on_offer_while_that_is_refused(start: Start) -> None:
    one = start("devices", of_cpus(8))
    one.set_by_hand("", "VCPU", allocation_ratio=1.0)
    one.claim({"": {"VCPU": 12}})

    done = one.sync(
        policy=replace(one.policy, cpus=CpuPolicy(dedicated=frozenset(range(8, 16)), shared=frozenset(range(8))))
    )

    assert (done.status, one.stock()["VCPU"]) == (Status.UNSAFE, (16, 0))


def test_a_ratio_of_nothing_is_no_crash_when_cpus_went_off(start: Start) -> None:
    one = start("devices", of_cpus(8))
    one.claim({"": {"VCPU": 4, "MEMORY_MB": 10}})
    one.set_by_hand("", "VCPU", allocation_ratio=0.0)

    done = one.sync(facts=of_cpus(4), policy=unsafe(one))

    assert (done.status, one.stock()["VCPU"]) == (Status.UNSAFE, (16, 8))


# the state file


def test_an_older_release_reads_the_file_of_a_first_pass_that_was_refused(tmp_path: Path) -> None:
    one = OneHost(tmp_path, ALONE, Policy(layout="devices", devices=ALL))
    one.sync()
    one.forget()
    one.role = "audit"

    assert one.sync(policy=replace(one.policy, devices=RULED)).status is Status.AUDIT_ONLY

    body = json.loads((tmp_path / f"{ROOT}.json").read_text())["body"]
    assert {"strikes", "quiet", "contested"} <= body.keys()  # it takes the file for damaged without these


# what one consumer may have


@pytest.mark.parametrize(("suffix", "name"), [(NIC, VF), ("nova", "CUSTOM_OTHER")], ids=["ours", "another's"])
def test_a_conversion_is_refused_of_a_guest_that_has_more_of_something_than_one_consumer_may(
    start: Start, suffix: str, name: str
) -> None:
    """Though it stays where it is: placement judges each allocation of a guest anew of which another one moves."""
    one = start()
    if suffix != NIC:
        one.make_as_nova(suffix, name, 8)
    one.claim({"": {"VCPU": 1}, suffix: {name: 2}})
    one.set_by_hand(suffix, name, max_unit=1)

    done = one.reshape("cells")

    assert (done.status, "which gives 1 to 1 in steps of 1" in done.notes[0]) == (Status.UNSAFE, True)


def test_a_conversion_keeps_what_a_guest_has_of_a_card_that_has_less_now(start: Start) -> None:
    one = start()
    one.claim({"": {"VCPU": 1}, NIC: {VF: 3}})
    one.facts = TWO_VFS

    assert one.reshape("cells").status is Status.CHANGED

    assert one.held() == {"host_NUMA0": {"VCPU": 1}, f"host_{NIC}": {VF: 3}}


def test_a_reservation_that_was_cut_off_twice_is_not_taken_for_another_writers_work(start: Start) -> None:
    one = start()
    smaller = replace(WHOLE, disk=DiskSpace(total_bytes=10 << 30, free_bytes=0))
    for writes in (0, 1):
        with pytest.raises(Cut), one.ending_after(writes):
            one.sync(facts=smaller)
    assert one.sync(facts=smaller).status is Status.CHANGED  # the third pass in a row that sees it
