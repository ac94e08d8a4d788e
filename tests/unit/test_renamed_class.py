"""A class of unknown origin on a flat root: it may be the old name of a class that comes, or another service's."""

from dataclasses import replace
from pathlib import Path

import pytest

from agent.sync.decide.view import Wishes
from agent.sync.outcome import Outcome, Status
from agent.sync.run import foresee, run_pass
from beds.one_host import FORCE, GUEST, Cut, OneHost, refused
from drivers.facts import HostFacts, Mdev
from drivers.policy import CpuPolicy, DevicePolicy, DeviceRule, Layout, MdevRule, Policy
from drivers.rules import parse_rule
from hardware import at, card, gpu, guest_with, host, parent, plain, rules

NIC, SECOND = "0000:81:00.0", "0000:85:00.0"
GPU, OTHER = "0000:84:00.0", "0000:86:00.0"
VFS = DeviceRule(number=1, product_id="1515", resource_class="CUSTOM_VF")
ONE_CARD, TWO_CARDS = host(*card(NIC, 8)), host(*card(NIC, 8), *card(SECOND, 8))
UNKNOWN = "host has CUSTOM_LICENSE, which this agent does not know"


def flat(folder: Path, facts: HostFacts = ONE_CARD, devices: DevicePolicy = rules(VFS)) -> OneHost:
    """A flat host after its first pass."""
    one = OneHost(folder, facts, Policy(layout="flat", devices=devices))
    one.sync()
    return one


def licensed(folder: Path) -> OneHost:
    """The same, with a class of another service on its root, which a pass saw."""
    one = flat(folder)
    one.add_by_hand("", "CUSTOM_LICENSE", 5)
    one.sync()
    return one


def agree(one: OneHost) -> Outcome:
    """What ``reshape --apply --digest D`` does with the digest that ``reshape`` shows."""
    digest = foresee(one.node, Wishes(reshape=True)).plan.digest
    return run_pass(one.node, Wishes(reshape=True, agreed=digest))


def test_a_cut_off_pass_does_not_forget_which_classes_are_anothers(tmp_path: Path) -> None:
    one = licensed(tmp_path)
    with pytest.raises(Cut), one.ending_after(0):
        one.sync(facts=TWO_CARDS)

    assert one.sync().status is Status.CHANGED
    assert (one.stock()["CUSTOM_VF"], one.stock()["CUSTOM_LICENSE"]) == ((16, 0), (5, 0))


def test_a_person_may_agree_that_an_unknown_class_is_anothers_once_the_state_was_lost(tmp_path: Path) -> None:
    one = licensed(tmp_path)
    one.forget()

    for _ in range(2):
        refused(one.sync(FORCE, facts=TWO_CARDS), UNKNOWN, "The plan puts more CUSTOM_VF on offer")
    agreed = agree(one)

    assert (agreed.status, one.stock()["CUSTOM_VF"], one.stock()["CUSTOM_LICENSE"]) == (Status.CHANGED, (16, 0), (5, 0))
    assert one.sync(facts=ONE_CARD).status is Status.UNSAFE  # of its loss
    assert (one.sync(facts=TWO_CARDS).status, one.stock()["CUSTOM_VF"]) == (Status.CHANGED, (16, 0))


def test_a_class_that_was_first_seen_without_a_memory_stays_unknown_however_many_passes_see_it(tmp_path: Path) -> None:
    """The card whose class it is may be away for as long as that."""
    one = flat(tmp_path, devices=rules(replace(VFS, resource_class="CUSTOM_A")))
    one.forget()
    away = replace(one.policy, devices=DevicePolicy())
    for _ in range(3):
        one.sync(policy=away)

    refused(
        one.sync(policy=replace(one.policy, devices=rules(VFS))), "host has CUSTOM_A, which this agent does not know"
    )
    assert (one.stock()["CUSTOM_A"], one.stock().get("CUSTOM_VF")) == ((8, 0), None)


def test_soon_after_a_boot_an_unknown_class_holds_up_a_conversion_to_cells(tmp_path: Path) -> None:
    """As with a memory, which knows what is away."""
    one = flat(tmp_path, devices=DevicePolicy())
    one.add_by_hand("", "CUSTOM_LICENSE", 5)
    one.forget()
    one.uptime_s = 100.0

    refused(one.sync(policy=replace(one.policy, layout="cells")), "a conversion to cells would forget them")
    one.uptime_s += 3600
    assert one.sync().status is Status.CHANGED


def test_what_a_file_adds_is_no_device_that_may_have_had_another_class(tmp_path: Path) -> None:
    one = licensed(tmp_path)
    one.write_provider_config("", "CUSTOM_FILE", 3)
    one.sync()
    one.forget()
    one.write_provider_config("", "CUSTOM_FILE", 4)

    assert one.sync().status is Status.CHANGED
    assert one.stock()["CUSTOM_FILE"] == (4, 0)


@pytest.mark.parametrize("layout", ["flat", "devices", "numa"])
def test_a_gpu_that_joins_vgpu_is_not_on_offer_twice_though_a_pass_converts_too(tmp_path: Path, layout: Layout) -> None:
    own, joined = (
        MdevRule(type="a", addresses=frozenset({OTHER}), resource_class=name) for name in ("CUSTOM_B", "VGPU")
    )
    first = MdevRule(type="a", addresses=frozenset({GPU}))
    gpus = host(gpu(), gpu(OTHER), parents=(parent(gpu(), a=4), parent(gpu(OTHER), a=4)))
    one = flat(tmp_path, gpus, DevicePolicy(mdevs=(first, own)))
    one.forget()

    for _ in range(2):
        done = one.sync(policy=replace(one.policy, layout=layout, devices=DevicePolicy(mdevs=(first, joined))))
        refused(done, "host has CUSTOM_B, which this agent does not know", "more VGPU")

    assert (one.stock()["VGPU"], one.stock()["CUSTOM_B"]) == ((4, 0), (4, 0))


def test_an_older_memory_of_cpus_that_became_dedicated_excuses_no_second_name(tmp_path: Path) -> None:
    first, second = (rules(replace(VFS, resource_class=f"CUSTOM_{name}")) for name in "AB")
    one = flat(tmp_path, devices=DevicePolicy())
    older = {path: path.read_bytes() for path in tmp_path.glob("*.json")}
    one.sync(FORCE, policy=replace(one.policy, devices=first, cpus=CpuPolicy(dedicated=frozenset(range(4)))))
    for path, content in older.items():
        path.write_bytes(content)

    refused(one.sync(policy=replace(one.policy, devices=second)), "host has CUSTOM_A, which this agent does not know")


def test_without_a_memory_a_refused_pass_gives_back_what_is_there_again(tmp_path: Path) -> None:
    one = OneHost(tmp_path, TWO_CARDS, Policy(layout="devices", devices=rules(VFS)))
    one.sync()
    one.claim({"": {"VCPU": 2, "MEMORY_MB": 512}})
    one.sync(policy=replace(one.policy, layout="numa"))
    one.forget()
    away = one.sync(facts=ONE_CARD)
    assert (away.status, one.stock(SECOND)["CUSTOM_VF"]) == (Status.RESHAPE_NEEDED, (8, 8))

    back = one.sync(facts=TWO_CARDS)

    assert (back.status, one.stock(SECOND)["CUSTOM_VF"]) == (Status.RESHAPE_NEEDED, (8, 0))


def test_a_child_whose_marks_a_hand_took_off_is_ours_again_and_goes_with_its_card(tmp_path: Path) -> None:
    one = OneHost(tmp_path, TWO_CARDS, Policy(layout="devices", devices=rules(VFS)))
    one.sync()
    one.sync(facts=ONE_CARD)
    one.remove_traits(SECOND, *one.traits(SECOND))

    for _ in range(4):
        last = one.sync()

    assert (last.status, [seen.name for seen in one.tree()]) == (Status.UNCHANGED, ["host", f"host_{NIC}"])


def of_class(name: str) -> DevicePolicy:
    return rules(replace(VFS, resource_class=f"CUSTOM_{name}"))


def at_card(bus: str, name: str) -> DeviceRule:
    """A rule for the VFs of one card."""
    text = {"address": f"0000:{bus}:10.*", "product_id": "1515", "resource_class": f"CUSTOM_{name}"}
    return parse_rule(text, int(bus))


def renamed_after_a_boot(folder: Path) -> OneHost:
    """A flat host whose card got class B soon after a boot; the guest's VF too, and A is awaited, reserved."""
    facts = replace(ONE_CARD, guests=(guest_with(GUEST, pci=frozenset({at("0000:81:10.0")})),))
    one = flat(folder, facts, of_class("A"))
    one.claim({"": {"VCPU": 1, "CUSTOM_A": 1}})
    one.uptime_s = 100.0
    one.sync(Wishes(reshape=True), policy=replace(one.policy, devices=of_class("B")))
    assert one.held() == {"host": {"VCPU": 1, "CUSTOM_B": 1}}
    return one


@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize("later", [True, False], ids=["after the service", "at once"])
def test_a_guest_of_a_class_that_is_missing_gets_the_one_that_is_back(tmp_path: Path, lost: bool, later: bool) -> None:
    """The service may not convert: what is back is not on offer then, as the guest has it by its former name."""
    one = renamed_after_a_boot(tmp_path)
    one.sync(policy=replace(one.policy, devices=DevicePolicy()))
    if lost:
        one.forget()
    one.policy = replace(one.policy, devices=of_class("A"))
    if later:
        assert one.sync().status is Status.RESHAPE_NEEDED
        one.uptime_s = 10_000.0
    assert (one.stock()["CUSTOM_A"], one.stock()["CUSTOM_B"]) == ((8, 8), (8, 8))

    assert one.sync(Wishes(reshape=True)).status is Status.CHANGED

    assert one.held() == {"host": {"VCPU": 1, "CUSTOM_A": 1}}
    assert (one.stock()["CUSTOM_A"], one.stock().get("CUSTOM_B")) == ((8, 0), None if later else (8, 8))


@pytest.mark.parametrize("lost", [True, False])
def test_what_is_back_waits_while_some_of_another_class_are_missing(tmp_path: Path, lost: bool) -> None:
    """Of a class that two cards have, one card's may be the former name of what is back."""
    one = flat(tmp_path, TWO_CARDS, of_class("A"))
    one.uptime_s, apart = 100.0, rules(at_card("81", "B"), at_card("85", "A"))
    one.sync(policy=replace(one.policy, devices=apart))
    one.sync(policy=replace(one.policy, devices=of_class("A")))
    one.sync(policy=replace(one.policy, layout="devices", devices=rules(at_card("85", "A"))))
    assert (one.stock()["CUSTOM_A"], one.stock()["CUSTOM_B"]) == ((16, 8), (8, 8))
    if lost:
        one.forget()

    assert one.sync(policy=replace(one.policy, devices=apart)).status is Status.UNSAFE

    assert (one.stock()["CUSTOM_A"], one.stock()["CUSTOM_B"]) == ((16, 8), (8, 8))


@pytest.mark.parametrize("lost", [True, False])
def test_what_is_back_stays_reserved_while_it_is_not_certain_what_a_guest_has(tmp_path: Path, lost: bool) -> None:
    one = renamed_after_a_boot(tmp_path)
    one.sync(Wishes(reshape=True), policy=replace(one.policy, devices=DevicePolicy()))
    also = guest_with(GUEST, pci=frozenset({at("0000:81:10.0"), at("0000:85:10.0")}))  # of the second no rule speaks
    one.facts = replace(TWO_CARDS, guests=(also,))
    if lost:
        one.forget()

    done = one.sync(Wishes(reshape=True), policy=replace(one.policy, devices=rules(at_card("81", "A"))))

    refused(done, "cannot tell which devices the allocation means")
    assert (one.stock()["CUSTOM_A"], one.stock()["CUSTOM_B"]) == ((8, 8), (8, 8))


@pytest.mark.parametrize("layout", ["flat", "devices"])
def test_a_give_back_leaves_the_marks_of_what_has_another_name_now(tmp_path: Path, layout: Layout) -> None:
    """Else that would count as an operator's, and stay reserved for ever."""
    well = Policy(layout=layout, devices=rules(at_card("81", "A"), at_card("85", "Y")))
    one = OneHost(tmp_path, TWO_CARDS, well)
    one.sync()
    one.claim({"": {"MEMORY_MB": one.stock()["MEMORY_MB"][0] - 512}})
    ill = replace(well, reserved_memory_mib=2001)
    one.sync(facts=host(plain()), policy=ill)
    one.sync(facts=TWO_CARDS, policy=replace(ill, devices=rules(at_card("81", "B"), at_card("85", "Y"))))

    one.claim({})
    for _ in range(2):
        one.sync(policy=well)

    stocks = [seen.provider.inventories for seen in one.tree()]
    left = {name: each[name].reserved for each in stocks for name in each if name.startswith("CUSTOM")}
    assert left == {"CUSTOM_A": 0, "CUSTOM_Y": 0}


def test_a_gpu_is_not_on_offer_whole_while_a_guest_that_is_off_has_a_part_of_it(tmp_path: Path) -> None:
    """Soon after a boot neither the types nor the guest's mediated devices are there."""
    mdevs = frozenset({"0badcafe-0000-4000-8000-000000000001"})
    made = parent(gpu(), a=2)
    seen = host(gpu(), parents=(made,), mdevs=tuple(Mdev(one, "a", made.name) for one in mdevs))
    guest = guest_with(GUEST, mdevs=mdevs)
    parts = DevicePolicy(report=True, mdevs=(MdevRule(type="a", resource_class="CUSTOM_PART"),))
    one = flat(tmp_path, replace(seen, guests=(guest,)), parts)
    one.claim({"": {"VCPU": 1, "CUSTOM_PART": 1}})
    one.uptime_s = 100.0
    whole = rules(DeviceRule(number=1, product_id=gpu().ids.product, resource_class="CUSTOM_WHOLE"))

    done = one.sync(facts=replace(host(gpu()), guests=(guest,)), policy=replace(one.policy, devices=whole))

    refused(done, "cannot tell which devices the allocation means")
    assert "CUSTOM_WHOLE" not in one.stock()
