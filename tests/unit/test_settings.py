"""What operators set in placement by hand outlives a change of layout, or the change is refused and says so."""

import os
import re
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from agent.sync.decide.view import Wishes
from agent.sync.outcome import Outcome, Status
from beds.one_host import FORCE, RESHAPE, OneHost, begun, refused
from drivers.facts import CpuMap, HostFacts, NetDevice, NumaCell, PciFunction
from drivers.policy import OF_CELLS, DevicePolicy, Layout, MdevRule, Policy, Ratio, Ratios
from drivers.rules import parse_rule
from fakes import PC, offering
from hardware import card, gpu, host, parent, plain
from reportclient.names import NO_DEVICES
from reportclient.reserve import KEEP, reserved_by_operator
from reportclient.settings import lost_settings
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree

EXAMPLES = int(os.environ.get("SETTINGS_EXAMPLES", "10"))
VF, EGRESS = "SRIOV_NET_VF", "NET_BW_EGR_KILOBIT_PER_SEC"
ONE, OTHER = "0000:01:00.0", "0000:81:00.0"
VFS = DevicePolicy(discover_all=True)
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
Start = Callable[..., OneHost]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts a host with these functions, and makes its first pass."""
    return lambda *functions, layout: begun(tmp_path, host(*functions), VFS, layout)


@pytest.mark.parametrize(("first", "second", "third"), list(permutations(LAYOUTS, 3)))
@pytest.mark.parametrize("reserved", [0, 1, 4])
def test_what_is_reserved_of_the_only_card_comes_along_there_and_back(
    start: Start, first: Layout, second: Layout, third: Layout, reserved: int
) -> None:
    one = start(*card(ONE, 4), layout=first)
    place = "" if first == "flat" else ONE
    one.set_by_hand(place, VF, reserved=reserved)
    one.sync()
    before = one.tree()

    for layout in (second, third, second, first):
        assert one.reshape(layout).status is Status.CHANGED
        assert one.stock("" if layout == "flat" else ONE)[VF] == (4, reserved)

    assert [seen.provider for seen in one.tree()] == [seen.provider for seen in before]


@pytest.mark.parametrize("left", [(), card(ONE, 0)], ids=["lost", "without VFs"])
@pytest.mark.parametrize("reserved", [1, 4])
def test_a_total_of_which_the_only_card_is_lost_keeps_what_is_reserved_of_it(
    start: Start, left: tuple[PciFunction, ...], reserved: int
) -> None:
    one = start(*card(ONE, 4), layout="flat")
    one.set_by_hand("", VF, reserved=reserved)
    before = one.stock()

    for _ in range(4):  # a loss is believed when it is seen three times
        outcome = one.sync(facts=host(*left))
    assert (outcome.status, one.stock()[VF]) == (Status.UNCHANGED, (reserved, reserved))
    for layout in ("devices", "numa"):
        refused(one.reshape(layout), f"{reserved} SRIOV_NET_VF on host are reserved by hand", "reserved=0")
    one.sync(facts=host(*card(ONE, 4)), policy=replace(one.policy, layout="flat"))

    assert (one.stock(), one.marks()) == (before, frozenset())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_reserved_of_a_total_without_devices_goes_when_a_person_takes_it_off(
    start: Start, layout: Layout
) -> None:
    one = start(*card(ONE, 4), layout="flat")
    one.set_by_hand("", VF, reserved=2)
    for _ in range(4):
        one.sync(facts=host())

    one.set_by_hand("", VF, reserved=0)
    one.sync(RESHAPE, policy=replace(one.policy, layout=layout))

    assert (VF in one.stock(), one.marks()) == (False, frozenset())


def test_what_is_reserved_of_a_total_goes_with_the_rule_for_it(start: Start) -> None:
    one = start(*card(ONE, 4), layout="flat")
    one.set_by_hand("", VF, reserved=2)

    one.sync(FORCE, policy=replace(one.policy, devices=DevicePolicy(report=True)))

    assert (VF in one.stock(), one.marks()) == (False, frozenset())


def test_an_operators_part_beside_ill_devices_is_the_same_in_every_layout(start: Start) -> None:
    pf, *vfs = card(ONE, 5)
    ill = host(pf, *(replace(one, power_state="error") for one in vfs[:2]), *vfs[2:])
    one = start(pf, *vfs, layout="devices")
    one.set_by_hand(ONE, VF, reserved=2)
    one.sync(facts=ill)
    assert one.stock(ONE)[VF] == (5, 4)

    for layout in (*LAYOUTS, *reversed(LAYOUTS)):
        one.reshape(layout)
        assert one.stock("" if layout == "flat" else ONE)[VF] == (5, 4)
        assert one.sync().status is Status.UNCHANGED

    one.sync(facts=host(pf, *vfs))
    assert (one.stock()[VF], one.marks()) == ((5, 2), frozenset())


def test_a_reservation_on_a_flat_root_is_no_second_writers(start: Start) -> None:
    one = start(*card(ONE, 4), layout="flat")
    one.set_by_hand("", VF, reserved=1)

    outcome = one.sync(policy=replace(one.policy, reserved_memory_mib=600))

    assert (outcome.status, outcome.notes) == (Status.CHANGED, ())
    assert one.stock()[VF] == (4, 1)


@pytest.mark.parametrize("layout", [one for one in get_args(Layout) if one != "flat"])
def test_all_that_is_reserved_of_several_cards_is_reserved_on_each(start: Start, layout: Layout) -> None:
    one = start(*card(ONE, 4), *card(OTHER, 4), layout="flat")
    one.set_by_hand("", VF, reserved=8)
    one.sync()

    one.reshape(layout)
    assert (one.stock(ONE)[VF], one.stock(OTHER)[VF]) == ((4, 4), (4, 4))
    one.reshape("flat")

    assert one.stock()[VF] == (8, 8)


@pytest.mark.parametrize("layout", [one for one in get_args(Layout) if one != "flat"])
def test_part_of_a_total_that_nobody_can_tell_the_cards_of_is_refused(start: Start, layout: Layout) -> None:
    one = start(*card(ONE, 4), *card(OTHER, 4), layout="flat")
    one.set_by_hand("", VF, reserved=3)
    one.sync()

    refused(one.reshape(layout), "3 SRIOV_NET_VF", "openstack resource provider inventory set")

    assert one.stock()[VF] == (8, 3)
    one.set_by_hand("", VF, reserved=0)
    assert one.sync(RESHAPE).status is Status.CHANGED


@pytest.mark.parametrize("layout", [one for one in get_args(Layout) if one != "flat"])
@pytest.mark.parametrize(("reserved", "passes"), [(3, 0), (8, 0), (8, 4)])
def test_what_may_be_reserved_of_a_lost_card_is_not_given_to_the_other_one(
    start: Start, layout: Layout, reserved: int, passes: int
) -> None:
    one = start(*card(ONE, 4), *card(OTHER, 4), layout="flat")
    one.set_by_hand("", VF, reserved=reserved)
    one.sync()
    before = one.stock()[VF]
    for _ in range(passes):
        one.sync(facts=host(*card(OTHER, 4)))

    refused(one.sync(RESHAPE, facts=host(*card(OTHER, 4)), policy=replace(one.policy, layout=layout)), "reserved=0")

    one.sync(facts=host(*card(ONE, 4), *card(OTHER, 4)), policy=replace(one.policy, layout="flat"))
    assert one.stock()[VF] == before


@pytest.mark.parametrize(("first", "second"), [("numa", "devices"), ("devices", "numa")])
@pytest.mark.parametrize("passes", [0, 4])
def test_a_lost_card_takes_its_reservation_along_to_another_layout(
    start: Start, first: Layout, second: Layout, passes: int
) -> None:
    """Below the cell that goes it would go too."""
    one = start(*card(ONE, 4), *card(OTHER, 4), layout=first)
    one.set_by_hand(ONE, VF, reserved=2)
    one.sync()
    before = one.tree()
    for _ in range(passes):
        one.sync(facts=host(*card(OTHER, 4)))

    outcome = one.sync(RESHAPE, facts=host(*card(OTHER, 4)), policy=replace(one.policy, layout=second))
    assert (outcome.status, one.stock(ONE)[VF]) == (Status.CHANGED, (2, 2))
    one.sync(facts=host(*card(ONE, 4), *card(OTHER, 4)))
    assert (one.stock(ONE)[VF], one.marks(ONE)) == ((4, 2), frozenset())

    one.reshape(first)
    assert [seen.provider for seen in one.tree()] == [seen.provider for seen in before]


@pytest.mark.parametrize("layout", [one for one in get_args(Layout) if one != "flat"])
def test_a_part_of_one_card_that_a_total_could_not_give_back_is_refused(start: Start, layout: Layout) -> None:
    one = start(*card(ONE, 4), *card(OTHER, 4), layout=layout)
    one.set_by_hand(ONE, VF, reserved=3)
    one.sync()

    refused(one.reshape("flat"), "3 SRIOV_NET_VF", f"host_{ONE}", "openstack resource provider inventory set")

    assert one.stock(ONE)[VF] == (4, 3)


@pytest.mark.parametrize("layout", OF_CELLS)
@pytest.mark.parametrize("through", ["flat", "devices"])
def test_a_ratio_that_all_cells_have_comes_along_there_and_back(start: Start, layout: Layout, through: Layout) -> None:
    one = start(layout=layout)
    for cell in ("NUMA0", "NUMA1"):
        one.set_by_hand(cell, "VCPU", allocation_ratio=7.0)
    one.sync()
    before = one.ratios("VCPU")

    assert one.reshape(through).status is Status.CHANGED
    assert one.ratios("VCPU") == {"host": 7.0}
    one.reshape(layout)

    assert one.ratios("VCPU") == before


@pytest.mark.parametrize("through", ["flat", "devices"])
@pytest.mark.parametrize(
    ("layout", "name", "place"),
    [
        ("numa", "VCPU", "NUMA0"),
        ("numa", "MEMORY_MB", "NUMA0_PAGES_4"),
        ("cells", "VCPU", "NUMA0"),
        ("cells", "MEMORY_MB", "NUMA0"),
    ],
)
def test_ratios_that_differ_between_cells_are_refused_unless_one_is_configured(
    start: Start, through: Layout, layout: Layout, name: str, place: str
) -> None:
    one = start(layout=layout)
    one.set_by_hand(place, name, allocation_ratio=7.0)
    one.sync()
    before = one.ratios(name)

    option = {"VCPU": "cpu_allocation_ratio", "MEMORY_MB": "ram_allocation_ratio"}[name]
    refused(one.reshape(through), f"host_{place} 7", option)

    assert one.ratios(name) == before
    configured = {"VCPU": "cpu", "MEMORY_MB": "ram"}[name]
    policy = replace(one.policy, ratios=Ratios(**{configured: Ratio(1.0, 5.0)}))
    assert one.sync(RESHAPE, policy=policy).status is Status.CHANGED
    assert one.ratios(name) == {"host": 5.0}


def test_a_cell_that_comes_has_the_ratio_of_all_others_or_the_initial_one(start: Start) -> None:
    one = start(layout="numa")
    for cell in ("NUMA0", "NUMA1"):
        one.set_by_hand(cell, "VCPU", allocation_ratio=7.0)
    facts = one.facts
    more = replace(
        facts, cpu_map=CpuMap(5, frozenset(range(5))), cells=(*facts.cells, NumaCell(2, 1024 * 1000, frozenset({4})))
    )

    one.sync(facts=more)
    assert one.ratios("VCPU")["host_NUMA2"] == 7.0

    one.set_by_hand("NUMA0", "VCPU", allocation_ratio=3.0)
    one.sync(FORCE, facts=facts)
    one.sync(facts=more)
    assert one.ratios("VCPU") == {"host_NUMA0": 3.0, "host_NUMA1": 7.0, "host_NUMA2": 4.0}


def nic(address: str, vfs: int, mbps: int | None, driver: str | None) -> tuple[PciFunction, ...]:
    link = NetDevice("ens", "up" if mbps else "down", mbps)
    return card(address, vfs, net_devices=(link,), driver=driver)


cards = st.builds(
    nic, st.just(ONE), st.integers(1, 4), st.sampled_from((None, 1000, 10_000)), st.sampled_from(("ixgbe", None))
)
changes = st.tuples(cards, cards, st.sampled_from(LAYOUTS), st.sampled_from((RESHAPE, Wishes(reshape=True))))


@given(
    st.sampled_from(LAYOUTS),
    st.dictionaries(st.tuples(st.sampled_from((ONE, OTHER)), st.sampled_from((VF, EGRESS))), st.integers(0, 4)),
    st.sampled_from((1, 2)),
    st.lists(changes, max_size=5),
)
@settings(max_examples=EXAMPLES, phases=(Phase.explicit, Phase.generate))  # a story tells enough, and shrinks slowly
def test_whatever_befell_the_cards_and_the_layout_what_was_reserved_by_hand_is_so_in_the_end(
    first: Layout, words: dict[tuple[str, str], int], number: int, story: list[tuple[object, ...]]
) -> None:
    def host_of(*several: tuple[PciFunction, ...]) -> HostFacts:
        return host(*(each for one in several[:number] for each in one))

    well = nic(ONE, 4, 10_000, "ixgbe"), nic(OTHER, 4, 10_000, "ixgbe")
    devices = DevicePolicy(discover_all=True, link_bandwidth=True)
    with tempfile.TemporaryDirectory() as folder:
        one = OneHost(Path(folder), host_of(*well), Policy(layout=first, devices=devices))
        one.sync()
        for (address, name), quarters in words.items():
            place = "" if first == "flat" else address
            if name in one.stock(place):
                one.set_by_hand(place, name, reserved=one.stock(place)[name][0] * quarters // 4)
        one.sync()
        before = [seen.provider for seen in one.tree()]

        for left, right, layout, wishes in story:
            moved = replace_address(right, OTHER)  # type: ignore[arg-type]
            one.sync(wishes, facts=host_of(left, moved), policy=replace(one.policy, layout=layout))  # type: ignore[arg-type]
        one.sync(RESHAPE, facts=host_of(*well))
        ending = one.sync(RESHAPE, policy=replace(one.policy, layout=first))

        if ending.status is Status.UNSAFE:  # it cannot be told apart any more: refused, and nothing of it is lost
            assert all("reserved by hand" in note for note in ending.notes)
            assert said_in(seen.provider for seen in one.tree()) == said_in(before)
            follow_advice(one, ending)
        else:
            assert [seen.provider for seen in one.tree()] == before


Card = tuple[PciFunction, ...]
Step = tuple[str, str, int]  # address, class, quarters of the total
steps = st.none() | st.tuples(st.sampled_from((ONE, OTHER)), st.sampled_from((VF, EGRESS)), st.integers(0, 4))
turns = st.tuples(cards, cards, steps, st.booleans())


ILL = nic(ONE, 3, 1_000, None), nic(ONE, 3, None, None), (ONE, VF, 2), True
SLOWER = nic(ONE, 4, 1_000, "ixgbe"), nic(ONE, 3, 1_000, "ixgbe"), None, True  # so much less bandwidth is refused


@given(st.sampled_from(LAYOUTS), st.sampled_from((1, 2)), st.lists(turns, max_size=5))
@example("flat", 2, [ILL, SLOWER])
@settings(max_examples=EXAMPLES, phases=(Phase.explicit, Phase.generate))
def test_what_an_operator_reserves_at_any_time_is_so_once_all_cards_are_well(
    layout: Layout, number: int, story: list[tuple[Card, Card, Step | None, bool]]
) -> None:
    """Whatever marks stand meanwhile, and whether a pass comes between the operator's step and the next change."""

    def host_of(*several: tuple[PciFunction, ...]) -> HostFacts:
        return host(*(each for one in several[:number] for each in one))

    well = nic(ONE, 4, 10_000, "ixgbe"), nic(OTHER, 4, 10_000, "ixgbe")
    devices = DevicePolicy(discover_all=True, link_bandwidth=True)
    last: dict[tuple[str, str], int] = {}
    with tempfile.TemporaryDirectory() as folder:
        one = OneHost(Path(folder), host_of(*well), Policy(layout=layout, devices=devices))
        one.sync()
        for left, right, step, at_once in story:
            facts = host_of(left, replace_address(right, OTHER))
            for _ in range(4):  # a loss is believed when it is seen three times; the last one knows what stands
                one.sync(facts=facts)
            address, name, quarters = step or ("", "", 0)
            place = "" if layout == "flat" else address
            if step and name in one.stock(place):
                total, before = one.stock(place)[name]
                amount = total * quarters // 4
                if amount != before:
                    last[place, name] = amount
                one.set_by_hand(place, name, reserved=amount)
            if not at_once:
                one.sync()
        for _ in range(4):
            one.sync(facts=host_of(*well))

        for (place, name), amount in last.items():
            assert one.stock(place)[name][1] == amount
        assert not any(one.marks(seen.name.partition("_")[2]) for seen in one.tree())


def said_in(providers: Iterable[Provider]) -> dict[str, int]:
    """What is reserved by an operator's word of each class of devices, on all providers."""
    found: dict[str, int] = {}
    for provider in providers:
        for name, amount in reserved_by_operator(provider).items():
            if name not in NO_DEVICES:
                found[name] = found.get(name, 0) + amount
    return found


def replace_address(functions: tuple[PciFunction, ...], address: str) -> tuple[PciFunction, ...]:
    """The same card at another address."""
    pf = functions[0]
    return card(address, len(pf.vfs), net_devices=pf.net_devices, driver=pf.driver)


# Names, forms and files.

FAST = DevicePolicy(report=True, rules=(parse_rule({"product_id": "1515", "resource_class": "FAST"}, 1),))
CARD = DevicePolicy(report=True, rules=(parse_rule({"product_id": "1533", "resource_class": "CARD"}, 1),))
COMMAND = re.compile(r"inventory set (\S+) --amend --resource (\w+):reserved=0")
TRAIT = re.compile(r"take the trait (\w+) off (\S+) \(")


def test_what_was_reserved_on_a_provider_that_another_service_took_over_stops_nothing(tmp_path: Path) -> None:
    pf, vf, *vfs = card(ONE, 4)
    one = begun(tmp_path, host(pf, vf, *vfs), replace(CARD, discover_all=True))
    one.set_by_hand(ONE, VF, reserved=2)
    one.sync()
    one.sync(facts=host(pf, replace(vf, power_state="error"), *vfs))
    assert f"{KEEP}2_{VF}" in one.marks(ONE)
    one.add_traits(ONE, "CUSTOM_OWNER_ANOTHER")
    one.add_by_hand(ONE, "CUSTOM_THEIRS", 4)
    seen = one.tree().by_name[f"host_{ONE}"]
    body = {"resource_provider_generation": seen.generation, "inventories": {"CUSTOM_THEIRS": {"total": 4}}}
    one.by_hand.send("PUT", f"/resource_providers/{seen.uuid}/inventories", body)

    one.sync(facts=host())
    one.reshape("flat")

    assert one.sync(facts=host(plain("0000:05:00.0"))).status is Status.CHANGED
    assert one.stock()["CUSTOM_CARD"] == (1, 0)


def follow_advice(one: OneHost, outcome: Outcome) -> None:
    """Do what each refusal of a pass says, until none is left: what is told first is done first."""
    for _ in range(8):
        if outcome.status is not Status.UNSAFE:
            break
        names = {seen.uuid: seen.name for seen in one.tree()}
        told = "; ".join(outcome.notes)
        steps = [(names[uuid].partition("_")[2], name) for uuid, name in COMMAND.findall(told)]
        traits = [(name.partition("_")[2], trait) for trait, name in TRAIT.findall(told)]
        assert steps or traits, f"no next step: {told}"
        for suffix, name in steps:
            one.set_by_hand(suffix, name, reserved=0)
        for suffix, trait in traits:
            one.remove_traits(suffix, trait)
        outcome = one.sync(RESHAPE)
    assert outcome.status in (Status.CHANGED, Status.UNCHANGED), outcome.notes


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("state_lost", [False, True])
def test_a_class_of_an_ill_card_of_which_some_is_reserved_gets_no_other_name(
    start: Start, layout: Layout, state_lost: bool
) -> None:
    one = start(*nic(ONE, 4, 10_000, "ixgbe"), layout=layout)
    place = "" if layout == "flat" else ONE
    one.set_by_hand(place, VF, reserved=2)
    one.sync(facts=host(*nic(ONE, 4, None, "ixgbe")))

    for facts in (one.facts, host(*nic(ONE, 4, 10_000, "ixgbe"))):
        outcome = one.sync(RESHAPE, facts=facts, policy=replace(one.policy, devices=FAST))
        refused(outcome, "2 SRIOV_NET_VF", "CUSTOM_FAST")
        if state_lost:
            one.forget()

    follow_advice(one, outcome)
    assert (one.stock(place)["CUSTOM_FAST"], one.marks(place)) == ((4, 0), frozenset())


@pytest.mark.parametrize(("first", "second"), list(permutations(LAYOUTS, 2)))
def test_a_class_of_which_some_is_reserved_gets_no_other_name_with_another_layout(
    start: Start, first: Layout, second: Layout
) -> None:
    one = start(*card(ONE, 4), layout=first)
    one.set_by_hand("" if first == "flat" else ONE, VF, reserved=1)

    outcome = one.sync(RESHAPE, policy=replace(one.policy, layout=second, devices=FAST))

    refused(outcome, "1 SRIOV_NET_VF", "CUSTOM_FAST", "--amend")
    follow_advice(one, outcome)


def test_a_lost_card_that_comes_back_with_another_class_is_refused_until_the_reservation_is_off(start: Start) -> None:
    one = start(*card(ONE, 4), *card(OTHER, 4), layout="devices")
    one.set_by_hand(ONE, VF, reserved=2)
    one.sync()
    for _ in range(4):
        one.sync(facts=host(*card(OTHER, 4)))
    one.sync(Wishes(reshape=True), policy=replace(one.policy, devices=FAST))

    outcome = one.sync(Wishes(reshape=True), facts=host(*card(ONE, 4), *card(OTHER, 4)))

    refused(outcome, "2 SRIOV_NET_VF", "--amend")
    follow_advice(one, outcome)
    assert one.stock(ONE) == {"CUSTOM_FAST": (4, 0)}


def test_a_part_of_an_ill_card_that_another_layout_would_lose_is_taken_off_as_advised(start: Start) -> None:
    one = start(*card(ONE, 4), *card(OTHER, 4), layout="devices")
    one.set_by_hand(ONE, VF, reserved=2)
    one.sync(facts=host(*nic(ONE, 4, None, "ixgbe"), *card(OTHER, 4)))

    outcome = one.reshape("flat")

    refused(outcome, "2 SRIOV_NET_VF", "--amend")
    follow_advice(one, outcome)
    assert one.stock()[VF] == (8, 4)


@pytest.mark.parametrize("reserved", [0, 1, 4])
@pytest.mark.parametrize("layout", [one for one in get_args(Layout) if one != "flat"])
def test_a_gpu_whose_vgpus_an_operator_reserved_is_not_on_offer_whole(
    start: Start, layout: Layout, reserved: int
) -> None:
    one = start(gpu(), layout=layout)
    divided = replace(one.policy, devices=DevicePolicy(report=True, mdevs=(MdevRule(type="a"),)))
    one.sync(RESHAPE, facts=host(gpu(), parents=(parent(gpu(), a=4),)), policy=divided)
    one.set_by_hand("pci_0000_84_00_0", "VGPU", reserved=reserved)
    whole = DevicePolicy(report=True, rules=(parse_rule({"product_id": "1eb8", "resource_class": "GPU"}, 1),))

    outcome = one.sync(RESHAPE, facts=host(gpu(driver="vfio-pci")), policy=replace(one.policy, devices=whole))

    if reserved:
        refused(outcome, f"{reserved} VGPU on host_pci_0000_84_00_0", "another form", "--amend")
    follow_advice(one, outcome)
    assert one.stock("0000:84:00.0") == {"CUSTOM_GPU": (1, 0)}


@pytest.mark.parametrize("suffix", ["", ONE])
def test_a_class_of_the_operators_files_gets_another_name_by_the_files(start: Start, suffix: str) -> None:
    one = start(*card(ONE, 4), layout="devices")
    one.write_provider_config(suffix, "CUSTOM_LICENSE", 8, reserved=2)
    one.sync()
    one.write_provider_config(suffix, "CUSTOM_LICENCE_2026", 8, reserved=2)

    outcome = one.sync()

    assert (outcome.status, outcome.notes) == (Status.CHANGED, ())
    assert "CUSTOM_LICENSE" not in one.stock(suffix)
    assert one.stock(suffix)["CUSTOM_LICENCE_2026"] == (8, 2)


def test_what_the_operators_files_reserve_of_a_lost_card_goes_with_it(start: Start) -> None:
    one = start(*card(ONE, 4), *card(OTHER, 4), layout="devices")
    one.write_provider_config(ONE, "CUSTOM_LICENSE", 8, reserved=2)
    one.sync()

    for _ in range(4):
        one.sync(facts=host(*card(OTHER, 4)))
    assert one.stock(ONE) == {}
    one.sync(facts=host(*card(ONE, 4), *card(OTHER, 4)))

    assert one.stock(ONE) == {VF: (4, 0), "CUSTOM_LICENSE": (8, 2)}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_the_operators_files_reserve_outlives_ill_health_as_the_files_say(start: Start, layout: Layout) -> None:
    one = start(*card(ONE, 4), layout=layout)
    place = "" if layout == "flat" else ONE
    one.write_provider_config(place, "CUSTOM_LICENSE", 8, reserved=2)
    one.sync()

    one.sync(facts=host(*nic(ONE, 4, None, "ixgbe")))
    assert one.stock(place)["CUSTOM_LICENSE"] == (8, 2)
    assert one.marks(place) == {"CUSTOM_DEVICE_UNHEALTHY", f"CUSTOM_DEVICE_UNHEALTHY_LEFT_4_{VF}"}
    if layout == "devices":
        one.hand_over()
        assert one.stock(place) == {VF: (4, 0), "CUSTOM_LICENSE": (8, 2)}


def test_a_reservation_of_another_services_class_on_the_root_is_its_own(start: Start) -> None:
    one = start(*card(ONE, 4), layout="flat")
    one.add_by_hand("", "CUSTOM_FOREIGN", 4)
    one.set_by_hand("", "CUSTOM_FOREIGN", reserved=1)
    one.sync()

    outcome = one.sync(RESHAPE, policy=replace(one.policy, devices=FAST))

    assert outcome.status is Status.CHANGED
    assert outcome.notes == ("the root keeps CUSTOM_FOREIGN, which another service may have added",)
    assert one.stock()["CUSTOM_FOREIGN"] == (4, 1)


def test_what_is_reserved_of_a_lost_card_adds_to_what_a_flat_root_has_reserved_since(start: Start) -> None:
    one = start(*card(ONE, 4), *card(OTHER, 4), layout="devices")
    one.set_by_hand(ONE, VF, reserved=2)
    one.sync()
    one.sync(FORCE, facts=host(*card(OTHER, 4)))
    one.reshape("flat")
    one.set_by_hand("", VF, reserved=1)
    one.sync()

    one.sync(RESHAPE, facts=host(*card(ONE, 4), *card(OTHER, 4)))
    one.sync(RESHAPE)

    assert one.stock()[VF] == (8, 3)
    assert one.sync().status is Status.UNCHANGED


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        pytest.param({ONE: 4, OTHER: 4}, {"": 8}, False, id="all of it, on one provider"),
        pytest.param({"": 8}, {ONE: 4, OTHER: 4}, False, id="all of it, on several"),
        pytest.param({ONE: 4, OTHER: 0}, {"": 8}, True, id="one of two before"),
        pytest.param({ONE: 0, OTHER: 4}, {"": 8}, True, id="the other of two before"),
        pytest.param({"": 8}, {ONE: 4, OTHER: 0}, True, id="one of two after"),
        pytest.param({"": 8}, {ONE: 4, OTHER: 3}, True, id="less than all after"),
        pytest.param({"": 7}, {ONE: 4, OTHER: 4}, True, id="more than before"),
        pytest.param({ONE: 0, OTHER: 0}, {"": 8}, False, id="nothing before"),
    ],
)
def test_a_reservation_of_several_cards_is_kept_only_where_all_is_reserved_before_and_after(
    before: dict[str, int], after: dict[str, int], lost: bool
) -> None:
    def providers(reserved: dict[str, int]) -> list[Provider]:
        stock = {
            place: {VF: Inventory(total=8 if place == "" else 4, reserved=amount)} for place, amount in reserved.items()
        }
        root = Provider(name="host", inventories=stock.pop("", {}))
        return [root, *(Provider(name=f"host_{one}", parent="host", inventories=stock[one]) for one in stock)]

    seen = tuple(ObservedProvider(uuid=one.name, generation=1, provider=one) for one in providers(before))

    found = lost_settings(ObservedTree(seen), ProviderTree(tuple(providers(after))), ())

    assert bool(found) == lost


def limits(one: OneHost, suffix: str, name: str) -> tuple[int, float]:
    """The most that a consumer may have of a class, and the ratio."""
    stock = one.tree().by_name[f"host_{suffix}" if suffix else "host"].provider.inventories[name]
    return stock.max_unit, stock.allocation_ratio


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("largest", "ratio"), [(1, 1.0), (8, 0.5), (2, 0.25)])
def test_limits_of_devices_that_a_hand_set_stay(start: Start, layout: Layout, largest: int, ratio: float) -> None:
    one = start(*card(ONE, 8), layout=layout)
    place = "" if layout == "flat" else ONE
    one.set_by_hand(place, VF, max_unit=largest, allocation_ratio=ratio)

    assert one.sync().status is Status.UNCHANGED
    one.sync(facts=host(*card(ONE, 8, driver=None)))
    one.sync(facts=host(*card(ONE, 8)))

    assert limits(one, place, VF) == (largest, ratio)
    one.sync(FORCE, facts=host(*card(ONE, 4)))
    assert limits(one, place, VF) == (min(largest, 4), ratio)


def test_a_ratio_that_gives_devices_to_several_guests_is_set_back_with_a_word(start: Start) -> None:
    one = start(*card(ONE, 8), layout="devices")
    one.set_by_hand(ONE, VF, allocation_ratio=2.0)

    done = one.sync()

    assert (done.status, limits(one, ONE, VF)) == (Status.CHANGED, (8, 1.0))
    assert done.notes == (
        f"SRIOV_NET_VF on host_{ONE} has allocation_ratio 2, set by hand: it is set back to 1, as a device serves one "
        f"guest",
    )
    assert one.sync().notes == ()


def test_a_ratio_of_bandwidth_is_the_operators(start: Start) -> None:
    one = start(*card(ONE, 8), layout="devices")
    one.sync(policy=replace(one.policy, devices=replace(VFS, link_bandwidth=True)))
    one.set_by_hand(ONE, EGRESS, allocation_ratio=3.0)

    assert one.sync().status is Status.UNCHANGED


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        pytest.param({"max_unit": 1}, "has max_unit 1, set by hand", id="the most for one"),
        pytest.param({"allocation_ratio": 0.5}, "has allocation_ratio 0.5, set by hand", id="ratio"),
        pytest.param({"max_unit": 2, "allocation_ratio": 0.5}, "max_unit 2 and allocation_ratio 0.5", id="both"),
    ],
)
@pytest.mark.parametrize(("first", "second"), [("flat", "devices"), ("numa", "flat"), ("cells", "flat")])
def test_a_conversion_that_would_lose_limits_of_devices_is_refused(
    start: Start, first: Layout, second: Layout, changes: dict[str, object], told: str
) -> None:
    one = start(*card(ONE, 4), layout=first)
    one.set_by_hand("" if first == "flat" else ONE, VF, **changes)

    refused(one.reshape(second), told, "openstack resource provider inventory set")

    one.set_by_hand("" if first == "flat" else ONE, VF, max_unit=4, allocation_ratio=1.0)
    assert one.reshape(second).status is Status.CHANGED


def test_a_new_class_for_the_same_devices_loses_no_limit_in_silence(start: Start) -> None:
    one = start(*card(ONE, 4), layout="devices")
    one.set_by_hand(ONE, VF, max_unit=1)
    ruled = DevicePolicy(report=True, rules=(parse_rule({"product_id": "1515"}, 1),))

    refused(one.sync(FORCE, policy=replace(one.policy, devices=ruled)), "has max_unit 1, set by hand")


@pytest.mark.parametrize("second", ["flat", "numa"])
def test_a_limit_of_the_device_itself_is_nobodys_setting(tmp_path: Path, second: Layout) -> None:
    sev = offering(replace(PC, encryption=replace(PC.encryption, sev_guests=15)))
    facts = replace(host(*card(ONE, 4)), hypervisor=sev)
    one = OneHost(tmp_path, facts, Policy(layout="devices", devices=VFS))
    one.sync()
    assert limits(one, "amd_sev", "MEM_ENCRYPTION_CONTEXT") == (1, 1.0)

    for layout in (second, "devices"):
        assert one.reshape(layout).status is Status.CHANGED
