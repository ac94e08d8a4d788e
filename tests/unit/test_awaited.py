"""Devices that a boot of the host took away: their stock stays, reserved, until they are back or the wait is over."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent.audit.audit import witness
from agent.state.clock import StoppedClock
from agent.state.memory import decode_state, encode_state
from agent.sync.decide.features.boot import awaited
from agent.sync.decide.view import Wishes
from agent.sync.leave import hand_over_node
from agent.sync.outcome import Status
from beds.one_host import FORCE, ROOT, OneHost, begun
from drivers.facts import HostFacts, NetDevice
from drivers.policy import DevicePolicy, DeviceRule, Layout, MdevRule, Policy
from drivers.rules import parse_rule
from hardware import NVIDIA, card, gpu, host, parent, plain
from reportclient.names import BANDWIDTH
from reportclient.reserve import HELD

NIC, GPU = "0000:81:00.0", "pci_0000_84_00_0"
VF = "SRIOV_NET_VF"
ALL = DevicePolicy(discover_all=True, mdevs=(MdevRule(type="a"),))
Start = Callable[..., OneHost]


def booted(boot: str, vfs: int = 4, types: int = 8) -> HostFacts:
    """A host with a card and a GPU, as a boot of this id shows it."""
    found = host(*card(NIC, vfs), gpu(), parents=(parent(gpu(), a=types),) if types else ())
    return replace(found, boot=boot)


FIRST = booted("first")


def vf_rule(number: int) -> DeviceRule:
    """A rule for one VF of the card."""
    return parse_rule({"address": f"0000:81:10.{number}", "resource_class": VF}, number + 1)


def totals(one: OneHost) -> dict[str, int]:
    """Class -> total, over all providers."""
    found: dict[str, int] = {}
    for seen in one.tree():
        for name, stock in seen.provider.inventories.items():
            found[name] = found.get(name, 0) + stock.total
    return found


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts a host, and makes its first pass."""
    return lambda layout="devices", facts=FIRST, devices=ALL, **more: begun(tmp_path, facts, devices, layout, **more)


@pytest.mark.parametrize("layout", ["devices", "cells", "numa"])
def test_what_a_boot_took_away_stays_reserved_and_is_given_back_one_by_one(start: Start, layout: Layout) -> None:
    one = start(layout)
    before = one.stock(NIC), one.stock(GPU)
    one.claim({NIC: {VF: 2}})

    done = one.sync(facts=booted("second", vfs=0, types=0))
    assert (done.status, one.stock(NIC), one.stock(GPU)) == (Status.CHANGED, {VF: (4, 4)}, {"VGPU": (8, 8)})
    assert HELD in one.marks(NIC)
    assert f"_{NIC} had 4 {VF} before this host was booted, and shows 0 now" in " ".join(done.notes)
    assert one.sync().status is Status.UNCHANGED
    one.sync(facts=booted("second", vfs=1, types=0))
    assert one.stock(NIC) == {VF: (4, 3)}
    one.sync(facts=booted("second", vfs=3, types=8))
    assert (one.stock(NIC), one.stock(GPU)) == ({VF: (4, 1)}, before[1])
    done = one.sync(facts=booted("second"))

    assert (one.stock(NIC), one.stock(GPU)) == before
    assert (one.marks(NIC), one.marks(GPU), done.notes) == (frozenset(), frozenset(), ())


@pytest.mark.parametrize("reserved", [1, 3])
def test_what_an_operator_reserved_stays_reserved_all_the_time(start: Start, reserved: int) -> None:
    one = start()
    one.set_by_hand(NIC, VF, reserved=reserved)
    one.sync()

    one.sync(facts=booted("second", vfs=0))
    assert one.stock(NIC) == {VF: (4, 4)}
    one.sync(facts=booted("second", vfs=2))
    assert one.stock(NIC) == {VF: (4, min(4, 2 + reserved))}
    one.sync(facts=booted("second"))

    assert one.stock(NIC) == {VF: (4, reserved)}


@pytest.mark.parametrize("boot", ["second", None], ids=["known", "unknown"])
@pytest.mark.parametrize(("uptime_s", "left"), [(50.0, {VF: (4, 4)}), (3600.0, {})])
def test_a_memory_that_goes_with_a_boot_awaits_what_it_took_away_within_the_hour(
    start: Start, boot: str | None, uptime_s: float, left: dict[str, tuple[int, int]]
) -> None:
    one = start(uptime_s=5000.0)
    one.forget()

    for _ in range(2):
        one.sync(facts=replace(booted("second", vfs=0), boot=boot), uptime_s=uptime_s)

    assert one.stock(NIC) == left


def test_without_a_boot_the_loss_is_any_loss(start: Start) -> None:
    one = start(uptime_s=5000.0)

    one.sync(FORCE, facts=booted("first", vfs=0, types=0))

    assert one.stock(NIC) == {}


def test_once_the_wait_is_over_what_is_still_away_goes_as_any_loss(start: Start) -> None:
    one = start(uptime_s=5000.0, expect_s=600)
    one.sync(facts=booted("second", vfs=2), uptime_s=60.0)

    one.sync(uptime_s=659.0)
    assert one.stock(NIC) == {VF: (4, 2)}
    one.sync(uptime_s=660.0)

    assert one.stock(NIC) == {VF: (2, 0)}
    assert one.marks(NIC) == frozenset()


def test_a_second_boot_begins_the_wait_anew(start: Start) -> None:
    one = start(uptime_s=5000.0, expect_s=600)
    one.sync(facts=booted("second", vfs=0), uptime_s=60.0)

    one.sync(facts=booted("third", vfs=0), uptime_s=50.0)
    one.sync(uptime_s=640.0)

    assert one.stock(NIC) == {VF: (4, 4)}


@pytest.mark.parametrize("layout", ["flat", "devices", "numa"])
def test_a_host_that_is_renamed_goes_on_waiting(start: Start, layout: Layout) -> None:
    one = start(layout)
    before = one.stock(), one.stock(NIC), one.stock(GPU)
    one.sync(facts=booted("second", vfs=0, types=0))
    waiting = one.stock(), one.stock(NIC), one.stock(GPU)

    one.sync(Wishes(rename_from="host"), facts=replace(booted("second", vfs=0, types=0), hostname="other"))
    one.sync()
    assert (one.stock(), one.stock(NIC), one.stock(GPU)) == waiting
    one.sync(facts=replace(booted("second"), hostname="other"))

    assert (one.stock(), one.stock(NIC), one.stock(GPU)) == before


def test_a_boot_id_that_cannot_be_read_for_once_ends_no_wait(start: Start) -> None:
    one = start()
    one.sync(facts=booted("second", vfs=0))

    one.sync(facts=replace(booted("second", vfs=0), boot=None))
    assert one.stock(NIC) == {VF: (4, 4)}
    one.sync(facts=booted("second"))

    assert one.stock(NIC) == {VF: (4, 0)}


@pytest.mark.parametrize("layout", ["devices", "numa"])
def test_what_the_operators_files_add_stays_with_what_is_awaited(start: Start, layout: Layout) -> None:
    one = start(layout)
    one.write_provider_config(NIC, "CUSTOM_LICENCE", 5, 1, traits=["CUSTOM_RACK"])
    one.sync()
    before = one.stock(NIC), one.traits(NIC)
    one.claim({NIC: {VF: 1, "CUSTOM_LICENCE": 1}})

    one.sync(facts=booted("second", vfs=0))
    assert one.stock(NIC) == {VF: (4, 4), "CUSTOM_LICENCE": (5, 1)}
    assert "CUSTOM_RACK" in one.traits(NIC)
    assert one.sync().status is Status.UNCHANGED
    one.sync(facts=booted("second"))

    assert (one.stock(NIC), one.traits(NIC)) == before


def test_a_card_that_a_person_withdrew_is_not_awaited(start: Start) -> None:
    one = start()
    bare = replace(one.policy, devices=DevicePolicy(discover_all=True))

    one.sync(FORCE, facts=booted("second"), policy=bare)

    assert one.stock(GPU) == {}


def test_of_a_flat_host_a_type_that_a_person_withdrew_is_not_awaited_while_its_card_is_there(start: Start) -> None:
    one = start("flat")
    bare = replace(one.policy, devices=DevicePolicy(discover_all=True))

    one.sync(FORCE, facts=booted("second"), policy=bare)

    assert "VGPU" not in one.stock()


@pytest.mark.parametrize("layout", ["flat", "devices", "numa"])
def test_vfs_that_a_person_withdrew_in_part_are_not_awaited_while_their_card_shows_all(
    start: Start, layout: Layout
) -> None:
    one = start(layout)
    place = "" if layout == "flat" else NIC
    two = tuple(vf_rule(n) for n in (0, 1))

    one.sync(FORCE, facts=booted("second"), policy=replace(one.policy, devices=DevicePolicy(report=True, rules=two)))

    assert one.stock(place)[VF] == (2, 0)


def test_a_number_of_vfs_that_a_person_lowered_goes_by_force(start: Start) -> None:
    one = start()

    done = one.sync(facts=booted("second", vfs=2))
    assert one.stock(NIC) == {VF: (4, 2)}
    assert "or take the rest away by sync --force" in " ".join(done.notes)
    one.sync(FORCE)

    assert (one.stock(NIC), one.sync().status) == ({VF: (2, 0)}, Status.UNCHANGED)


@pytest.mark.parametrize("layout", ["flat", "devices", "numa"])
def test_the_bandwidth_of_a_link_stays_with_its_vfs(start: Start, layout: Layout) -> None:
    link = (NetDevice("ens1", "up", 10_000),)
    first = replace(host(*card(NIC, 4, net_devices=link)), boot="first")
    one = start(layout, first, DevicePolicy(discover_all=True, link_bandwidth=True))
    suffix = "" if layout == "flat" else NIC
    before = one.stock(suffix)
    assert before.keys() >= BANDWIDTH

    done = one.sync(facts=replace(host(*card(NIC, 0, net_devices=link)), boot="second"))
    assert {name: one.stock(suffix)[name] for name in BANDWIDTH} == dict.fromkeys(BANDWIDTH, (10000000,) * 2)
    assert len(done.notes) == 1
    one.sync(facts=replace(first, boot="second"))

    assert one.stock(suffix) == before


@pytest.mark.parametrize("layout", ["flat", "devices", "cells", "numa"])
def test_cpus_and_memory_that_a_boot_took_away_are_not_awaited(start: Start, layout: Layout) -> None:
    one = start(layout)
    cpus = replace(FIRST.cpu_map, online=FIRST.cpu_map.online - {max(FIRST.cpu_map.online)})
    cells = tuple(replace(cell, memory_kib=cell.memory_kib - 1024) for cell in FIRST.cells)
    before = totals(one)

    done = one.sync(facts=replace(booted("second"), cpu_map=cpus, cells=cells))

    assert totals(one) == {**before, "VCPU": before["VCPU"] - 1, "MEMORY_MB": before["MEMORY_MB"] - len(cells)}
    assert done.notes == ()


SECOND = "0000:83:00.0"
amounts = st.none() | st.integers(0, 4)  # VFs that a card shows; None: it is out of sight itself


def two_cards(boot: str, first: int | None, second: int | None, types: int) -> HostFacts:
    functions = [
        *(card(NIC, first) if first is not None else ()),
        *(card(SECOND, second) if second is not None else ()),
        gpu(),
    ]
    return replace(host(*functions, parents=(parent(gpu(), a=types),) if types else ()), boot=boot)


@example("flat", [(None, None, 0), (None, None, 8), (None, None, 0)])
@given(
    st.sampled_from(get_args(Layout)),
    st.lists(st.tuples(amounts, amounts, st.sampled_from((0, 8))), min_size=1, max_size=3),
)
@settings(max_examples=30)
def test_whatever_is_gone_after_a_boot_stays_reserved_and_no_more_is_on_offer_than_is_there(
    layout: Layout, looks: list[tuple[int | None, int | None, int]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        one = OneHost(Path(folder), two_cards("first", 4, 4, 8), Policy(layout=layout, devices=ALL))
        one.sync()
        before, whole = [seen.provider for seen in one.tree()], totals(one)

        for first, second, types in looks:
            one.sync(facts=two_cards("second", first, second, types))
            assert totals(one) == whole
            assert (on_offer(one, VF), on_offer(one, "VGPU")) == ((first or 0) + (second or 0), types)
        one.sync(facts=two_cards("second", 4, 4, 8))

        assert [seen.provider for seen in one.tree()] == before


def on_offer(one: OneHost, name: str) -> int:
    """What is not reserved of a class, over all providers."""
    stocks = (seen.provider.inventories.get(name) for seen in one.tree())
    return sum(stock.total - stock.reserved for stock in stocks if stock)


def test_of_two_cards_of_one_class_in_a_total_the_one_that_a_boot_took_away_is_awaited(start: Start) -> None:
    """A person withdrew the other one meanwhile, so that nothing of the class is left."""
    one = start("flat", facts=replace(host(*card(NIC, 4), *card(SECOND, 4)), boot="first"))
    rule = parse_rule({"address": "0000:81:10.*", "resource_class": VF}, 1)

    later = replace(host(*card(NIC, 0), *card(SECOND, 4)), boot="second")
    one.sync(FORCE, facts=later, policy=replace(one.policy, devices=DevicePolicy(report=True, rules=(rule,))))

    assert one.stock()[VF] == (8, 8)


@pytest.mark.parametrize("remembers", [True, False])
def test_the_bandwidth_of_a_total_that_a_boot_took_away_stays_with_and_without_a_memory(
    start: Start, remembers: bool
) -> None:
    """Without a memory its class may be another service's, and stays; the bandwidth is the agent's own."""
    rule = parse_rule({"address": "0000:81:10.*", "resource_class": "CUSTOM_B"}, 1)
    devices = DevicePolicy(report=True, rules=(rule,), link_bandwidth=True)
    one = start("flat", facts=replace(host(*card(NIC, 4)), boot="first"), devices=devices)
    before = one.stock()
    if not remembers:
        one.forget()

    last = one.sync(facts=replace(host(*card(NIC, 0)), boot="second"), uptime_s=50.0)

    assert before.keys() >= BANDWIDTH
    assert {name: one.stock()[name] for name in BANDWIDTH} == {name: (before[name][0],) * 2 for name in BANDWIDTH}
    assert last.status is (Status.CHANGED if remembers else Status.UNSAFE)
    assert remembers or "may be of devices that the root had before this host was booted" in str(last.notes)


@pytest.mark.parametrize(("is_older", "is_quiet"), [(True, True), (True, False), (False, False)])
def test_a_class_waits_beside_another_one_that_an_older_memory_does_not_know(
    start: Start, is_older: bool, is_quiet: bool
) -> None:
    def naming(resource_class: str, vfs: str = "*") -> DevicePolicy:
        rules = ({"address": "0000:81:10.*"}, {"address": f"0000:83:10.{vfs}", "resource_class": resource_class})
        return DevicePolicy(report=True, rules=tuple(parse_rule(rule, 1) for rule in rules))

    facts = replace(host(*card(NIC, 4), *card(SECOND, 4)), boot="first")
    one = start("flat", facts=facts, devices=naming("CUSTOM_A"))
    older = {path: path.read_text() for path in one.settings.folders.state.glob("*.json")}
    away = replace(host(*card(NIC, 0), *card(SECOND, 4)), boot="second")
    one.sync(facts=away, policy=replace(one.policy, devices=naming("CUSTOM_B")), uptime_s=50.0)
    for path, text in older.items() if is_older else ():
        path.write_text(text)

    if is_quiet:  # nothing new comes at first
        devices = DevicePolicy(report=True, rules=naming("CUSTOM_B").rules[:1])
        assert (
            one.sync(facts=away, policy=replace(one.policy, devices=devices), uptime_s=55.0).status is Status.UNCHANGED
        )
    for uptime_s in (60.0, 120.0):  # an earlier pass saw it, which explains nothing
        last = one.sync(facts=away, policy=replace(one.policy, devices=naming("CUSTOM_C", "0")), uptime_s=uptime_s)

    assert "CUSTOM_C" not in one.stock()
    unknown = "CUSTOM_B" if is_older else "CUSTOM_A"
    waits = f"CUSTOM_C may be the devices that were {unknown} before this host"
    may_be = f"has {unknown}, which this agent does not know"  # no pass with this memory saw it
    assert (may_be if is_older and not is_quiet else waits) in str(last.notes)


@pytest.mark.parametrize("remembers", [True, False])
@pytest.mark.parametrize(("first", "left"), [({"address": "0000:81:10.*"}, 4), ({"address": "0000:99:10.*"}, 0)])
def test_what_goes_of_a_total_soon_after_a_boot_stays_reserved_with_and_without_a_memory(
    start: Start, first: dict[str, str], left: int, remembers: bool
) -> None:
    """Only a memory can tell whose VFs the total was of: without one a new class may be the same cards."""
    facts = replace(host(*card(NIC, 4), *card(SECOND, 4)), boot="first")
    one = start("flat", facts=facts)
    rules = [first | {"resource_class": VF}, {"address": "0000:83:10.*", "resource_class": "CUSTOM_OTHER"}]
    changed = DevicePolicy(report=True, rules=tuple(parse_rule(rule, 1) for rule in rules))
    if not remembers:
        one.forget()

    for _ in range(2):
        now = replace(facts, boot="second")
        last = one.sync(facts=now, policy=replace(one.policy, devices=changed), uptime_s=50.0)

    assert one.stock()[VF] == (8, 8 - left)
    assert one.stock().get("CUSTOM_OTHER") == ((4, 0) if remembers else None)
    assert remembers or "CUSTOM_OTHER may be the devices that were SRIOV_NET_VF before this host" in str(last.notes)


def test_no_wait_is_configured(start: Start) -> None:
    one = start(expect_s=0)

    one.sync(FORCE, facts=booted("second", vfs=0))

    assert one.stock(NIC) == {}


def test_a_host_is_not_converted_while_devices_are_awaited(start: Start) -> None:
    one = start("devices")
    one.sync(facts=booted("second", vfs=0, types=0))

    done = one.reshape("numa", force=False)

    assert done.status is Status.UNSAFE
    assert "a conversion to numa would forget them: start what sets them up" in " ".join(done.notes)
    one.sync(facts=booted("second"), policy=replace(one.policy, layout="devices"))
    assert one.reshape("numa", force=False).status is Status.CHANGED


@pytest.mark.parametrize("remembers", [True, False])
def test_a_class_that_is_kept_on_a_flat_host_holds_a_conversion_back_by_its_mark_alone(
    start: Start, remembers: bool
) -> None:
    facts = replace(host(*card(NIC, 4), *card(SECOND, 4)), boot="first")
    rule = parse_rule({"address": "0000:83:10.*", "resource_class": "CUSTOM_B"}, 1)
    one = start("flat", facts=facts, devices=DevicePolicy(report=True, rules=(rule,)))
    bare = replace(one.policy, devices=DevicePolicy(report=True))
    one.sync(facts=replace(facts, boot="second"), policy=bare, uptime_s=50.0)
    if not remembers:
        one.forget()

    assert one.stock()["CUSTOM_B"] == (4, 4)
    assert one.reshape("numa", force=False).status is Status.UNSAFE


def test_a_host_is_not_handed_over_while_devices_are_awaited(start: Start) -> None:
    one = start("devices")
    one.sync(facts=booted("second", vfs=0, types=0))

    done = hand_over_node(one.node)

    assert (done.status, one.stock(NIC)) == (Status.UNSAFE, {VF: (4, 4)})
    assert "nova would offer them at once" in " ".join(done.notes)


def test_a_host_that_is_converted_in_spite_of_that_does_not_offer_what_it_awaits_twice(start: Start) -> None:
    one = start("devices")
    one.sync(facts=booted("second", vfs=0, types=0))

    one.reshape("flat")
    one.sync(facts=booted("second"))
    stock = one.stock()

    assert (stock[VF], stock["VGPU"]) == ((4, 0), (8, 0))
    assert (one.stock(NIC), one.stock(GPU)) == ({}, {})


def test_what_is_awaited_is_no_ghost_of_an_audit(start: Start) -> None:
    one = start()
    one.sync(facts=replace(host(*card(NIC, 1), plain()), boot="second"))

    assert witness(one.node).findings == ()


def test_what_is_awaited_is_remembered_in_the_state_file(start: Start) -> None:
    one = start(facts=booted("first"))
    one.sync(facts=booted("second", vfs=0, types=0), uptime_s=50.0)

    left = one.node.state_file(ROOT).read("placement")

    assert awaited(decode_state(encode_state(left))) == awaited(left)
    assert awaited(left).boot == "second"
    assert awaited(left).stock == ((f"host_{NIC}", VF, 4), (f"host_{GPU}", "VGPU", 8))


# -- units set devices up in any order --------------------------------------------------------------------------------

KIND = "nvidia/current_vgpu_type"
TYPED = DeviceRule(number=1, vendor_id="10de", product_id="1515", class_attribute=KIND)


def typed(boot: str, *types: str) -> HostFacts:
    """A host with a card whose VFs have these types (empty: no file tells it), as a boot of this id shows it."""
    pf, *vfs = card(NIC, len(types))
    given = (
        replace(vf, ids=NVIDIA, attributes=((KIND, kind),) if kind else ()) for vf, kind in zip(vfs, types, strict=True)
    )
    return replace(host(replace(pf, ids=NVIDIA), *given), boot=boot)


@pytest.mark.parametrize("layout", ["flat", "devices", "cells", "numa"])
def test_vfs_without_their_types_are_awaited_after_a_boot(start: Start, layout: Layout) -> None:
    place = "" if layout == "flat" else NIC
    one = start(layout, typed("first", "600", "600", "601"), DevicePolicy(report=True, rules=(TYPED,)))

    def stock() -> tuple[object, object]:
        found = one.stock(place)
        return found.get("CUSTOM_NVIDIA_600"), found.get("CUSTOM_NVIDIA_601")

    assert stock() == ((2, 0), (1, 0))
    one.sync(facts=typed("second"))
    assert stock() == ((2, 2), (1, 1))
    one.sync(facts=typed("second", "0", "0", "0"))
    assert stock() == ((2, 2), (1, 1))
    one.sync(facts=typed("second", "600", "0", "0"))
    assert stock() == ((2, 1), (1, 1))
    one.sync(facts=typed("second", "600", "600", "601"))
    assert stock() == ((2, 0), (1, 0))


def test_types_that_a_person_takes_away_without_a_boot_go_at_once(start: Start) -> None:
    one = start(facts=typed("first", "600", "600"), devices=DevicePolicy(report=True, rules=(TYPED,)), uptime_s=5000.0)

    assert one.sync(facts=typed("first", "0", "0")).status is Status.CHANGED

    assert one.stock(NIC) == {}


def test_a_vf_that_does_not_show_its_type_is_reserved_beside_what_a_person_reserved(start: Start) -> None:
    one = start("devices", typed("first", "600", "600", "600"), DevicePolicy(report=True, rules=(TYPED,)))
    one.set_by_hand(NIC, "CUSTOM_NVIDIA_600", reserved=1)
    one.sync()

    done = one.sync(facts=typed("first", "", "600", "600"))
    assert one.stock(NIC) == {"CUSTOM_NVIDIA_600": (3, 2)}
    assert "0000:81:10.0 is undecided, as its driver does not show its type" in " ".join(done.notes)
    one.sync(facts=typed("first", "600", "600", "600"))

    assert one.stock(NIC) == {"CUSTOM_NVIDIA_600": (3, 1)}


@pytest.mark.parametrize(
    "at_first",
    [
        pytest.param(replace(host(*card(NIC, 4), gpu(driver=None)), boot="second"), id="no driver yet"),
        pytest.param(booted("second"), id="all there"),
    ],
)
def test_what_goes_after_the_first_pass_of_a_boot_is_awaited_too(start: Start, at_first: HostFacts) -> None:
    one = start()
    before = one.stock(GPU)

    one.sync(facts=at_first)
    one.sync(facts=booted("second", types=0))
    assert one.stock(GPU) == {"VGPU": (8, 8)}
    one.sync(facts=booted("second"))

    assert one.stock(GPU) == before


def test_once_the_wait_after_a_boot_is_over_a_loss_is_any_loss(start: Start) -> None:
    one = start()
    one.sync(facts=booted("second"))
    one.sync(uptime_s=99_999.0)

    one.sync(FORCE, facts=booted("second", vfs=2), uptime_s=100_000.0)

    assert one.stock(NIC) == {VF: (2, 0)}


def test_vfs_of_a_smartnic_stay_reserved_while_its_serial_number_cannot_be_read(start: Start) -> None:
    remote = DeviceRule(number=1, product_id="1515", remote_managed=True, resource_class="CUSTOM_PORT")
    pf, *vfs = card(NIC, 3)
    known = replace(host(replace(pf, serial_number="MT2113X00000"), *vfs), boot="first")
    one = start(facts=known, devices=DevicePolicy(report=True, rules=(remote,)))
    one.claim({NIC: {"CUSTOM_PORT": 1}})

    done = one.sync(facts=replace(host(pf, *vfs), boot="first"))
    assert (one.stock(NIC), done.status) == ({"CUSTOM_PORT": (3, 3)}, Status.CHANGED)
    assert one.sync().status is Status.UNCHANGED
    one.sync(facts=known)

    assert one.stock(NIC) == {"CUSTOM_PORT": (3, 0)}


def test_vfs_of_a_smartnic_are_not_offered_otherwise_while_its_serial_number_cannot_be_read(start: Start) -> None:
    remote = DeviceRule(number=1, product_id="1515", remote_managed=True, resource_class="CUSTOM_PORT")
    pf, *vfs = card(NIC, 3)
    known = replace(host(replace(pf, serial_number="MT2113X00000"), *vfs), boot="first")
    one = start(facts=known, devices=DevicePolicy(report=True, rules=(remote,), discover_all=True))

    one.sync(facts=replace(host(pf, *vfs), boot="first"))

    assert one.stock(NIC) == {"CUSTOM_PORT": (3, 3)}


def test_a_card_whose_hidden_vfs_were_never_offered_is_not_ill(start: Start) -> None:
    plain = vf_rule(0)
    remote = replace(vf_rule(1), remote_managed=True)
    one = start(
        facts=replace(host(*card(NIC, 2)), boot="first"), devices=DevicePolicy(report=True, rules=(plain, remote))
    )

    assert one.sync().status is Status.UNCHANGED
    assert one.stock(NIC) == {VF: (1, 0)}
    assert one.marks(NIC) == frozenset()


def test_a_card_without_a_serial_number_that_was_never_offered_stays_out(start: Start) -> None:
    remote = DeviceRule(number=1, product_id="1515", remote_managed=True)

    one = start(facts=replace(host(*card(NIC, 3)), boot="first"), devices=DevicePolicy(report=True, rules=(remote,)))

    assert NIC not in " ".join(one.tree().by_name)


@pytest.mark.parametrize("recorded", [True, False])
def test_a_recorded_host_was_not_booted_when_the_machine_that_looks_was(tmp_path: Path, *, recorded: bool) -> None:
    """Else the same archive would give another tree within the hour after a boot of that machine."""
    one = OneHost(tmp_path, replace(FIRST, boot=None), Policy(layout="devices", devices=ALL))
    young = StoppedClock("", 1_000_000.0, 1_000_120.0)
    node = replace(one.node, settings=replace(one.settings, recorded=recorded), clock=lambda: young)

    assert (node.draft(Wishes()).view.terms.uptime_s > one.expect_s) == recorded
