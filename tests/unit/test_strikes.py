"""How long a sign of a second writer counts, and what must not hide it."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.sync.outcome import Status
from beds.one_host import RESHAPE, ROOT, Cut, OneHost, Sender, begun
from drivers.facts import DiskSpace, NetDevice
from drivers.policy import DevicePolicy, DeviceRule, Layout, Policy
from hardware import card, host, plain

ALL, SMALL = DevicePolicy(discover_all=True), DiskSpace(total_bytes=10 << 30, free_bytes=0)


@pytest.mark.parametrize(
    ("interval_s", "ending"),
    [
        pytest.param(60, Status.CONTESTED, id="many passes of events within a minute forgive nothing"),
        pytest.param(0, Status.CHANGED, id="after ten periods a person who tried something is forgiven"),
    ],
)
def test_a_service_that_writes_once_a_minute_is_noticed(tmp_path: Path, interval_s: int, ending: Status) -> None:
    one = OneHost(tmp_path, host(), Policy(), interval_s=interval_s)
    one.sync()

    one.set_by_hand("", "VCPU", total=3)
    assert one.sync().status is Status.CHANGED
    for _ in range(12):
        assert one.sync().status is Status.UNCHANGED
    one.set_by_hand("", "VCPU", total=3)

    assert one.sync().status is ending


def test_a_second_writer_is_noticed_beside_a_number_that_placement_alone_finds_small(tmp_path: Path) -> None:
    one = OneHost(tmp_path, host(), Policy())
    one.sync()
    one.set_by_hand("", "VCPU", allocation_ratio=1e30)
    one.sync()

    for ending in (Status.CHANGED, Status.CONTESTED):
        one.set_by_hand("", "MEMORY_MB", total=1500)
        assert one.sync().status is ending


def test_a_second_writer_is_noticed_after_a_conversion_with_a_lost_card(tmp_path: Path) -> None:
    nic = "0000:81:00.0"
    one = OneHost(tmp_path, host(*card(nic, 4)), Policy(layout="devices", devices=ALL))
    one.sync()
    one.claim({nic: {"SRIOV_NET_VF": 2}})
    one.sync(facts=host(plain()))
    converted = one.sync(RESHAPE, policy=Policy(layout="flat", devices=ALL))

    one.set_by_hand("", "VCPU", total=1)
    noticed = one.sync()

    assert converted.status is Status.CHANGED
    assert "second-writer" in {each.kind for each in noticed.conditions}


@pytest.mark.parametrize("layout", ["flat", "devices", "cells", "numa"])
def test_a_second_writer_is_noticed_right_after_each_write_of_ours(tmp_path: Path, layout: Layout) -> None:
    """Also where several providers were made, or written in one request, which tells no generation."""
    first, second = "0000:81:00.0", "0000:91:00.0"
    one = OneHost(tmp_path, host(*card(first, 4), *card(second, 4)), Policy(layout=layout, devices=ALL))
    one.sync()

    endings, told = [], list[bool]()
    for _ in range(2):
        for suffix in {""} if layout == "flat" else {first, second}:
            one.set_by_hand(suffix, "SRIOV_NET_VF", total=1, max_unit=1)
        done = one.sync()
        endings.append(done.status)
        told.append("SRIOV_NET_VF" in " ".join(done.notes))

    assert (endings, told) == ([Status.CHANGED, Status.CONTESTED], [True, True])


def test_a_placement_that_is_restored_from_before_a_conversion_is_no_second_writer(tmp_path: Path) -> None:
    one = OneHost(tmp_path, host(*card("0000:81:00.0", 4)), Policy(layout="flat", devices=ALL))
    one.sync()

    for layout in ("devices", "flat", "devices"):
        backup = copy.deepcopy(one.sender.placement)
        assert one.reshape(layout).status is Status.CHANGED
        one.sender.placement = backup
        restored = one.sync(RESHAPE)

        assert restored.status is Status.CHANGED
        assert "second-writer" not in {each.kind for each in restored.conditions}


class Cached(Sender):
    """Answers the first listing of a tree after a reshape with the one before."""

    listing: Any = None
    is_stale = False

    def request(self, url: str, method: str, **kwargs: Any) -> Any:
        self.is_stale |= "reshaper" in url
        if "in_tree=" not in url:
            return super().request(url, method, **kwargs)
        if self.is_stale and self.listing:
            self.is_stale = False
            return self.listing
        self.listing = super().request(url, method, **kwargs)
        return self.listing


def test_a_stale_look_at_what_was_written_is_no_second_writer(tmp_path: Path) -> None:
    once = DeviceRule(number=1, product_id="1533", resource_class="CUSTOM_NIC", one_time_use=True)
    policy = Policy(layout="devices", devices=DevicePolicy(report=True, rules=(once,)))
    one = OneHost(tmp_path, replace(host(), disk=SMALL), policy, sender=Cached())
    one.sync()

    for several in (1, 2):
        cards = [plain(f"0000:0{number}:00.0") for number in range(5, 5 + several)]
        for more in (0, 1):
            disk = DiskSpace(total_bytes=(10 * several + 3 + more) << 30, free_bytes=0)
            done = one.sync(facts=replace(host(*cards), disk=disk))
            assert (done.status, done.notes) == (Status.CHANGED, ())


@pytest.mark.parametrize("first", ["reserved in one request", "cut off"])
def test_a_ratio_that_another_writer_raised_does_not_count_after_a_reservation(tmp_path: Path, first: str) -> None:
    one = begun(tmp_path, host(*card(vfs=4)), ALL)
    one.sync()
    whole, (pf, *vfs) = one.facts, card(vfs=4)
    down = host(replace(pf, net_devices=(NetDevice("ens1", "down"),)), *vfs)
    small = replace(down, disk=SMALL)
    if first == "reserved in one request":
        assert one.sync(facts=small).status is Status.UNSAFE
    if first == "cut off":
        with pytest.raises(Cut), one.ending_after(0):
            one.sync(facts=small)
    one.by_hand.change_stock(ROOT, VCPU={"reserved": 1, "allocation_ratio": 16.0})

    done = one.sync(facts=whole)

    assert "second-writer" in {each.kind for each in done.conditions}
    assert (done.status, one.ratios("VCPU"), one.stock()["VCPU"]) == (Status.CHANGED, {"host": 4.0}, (4, 0))


@pytest.mark.parametrize(
    ("sizes", "last"),
    [
        pytest.param((99, 98, 99), Status.CHANGED, id="within the limit"),
        pytest.param((71, 69, 71), Status.CHANGED, id="at the limit"),
        pytest.param((60, 59, 58), Status.CHANGED, id="far below it"),
        pytest.param((5, 60, 5), Status.UNSAFE, id="by more than the limit"),
    ],
)
def test_patience_ends_though_the_size_of_a_file_system_drifts(
    tmp_path: Path, sizes: tuple[int, ...], last: Status
) -> None:
    rules = (("1515", "CUSTOM_VF"), ("1533", "CUSTOM_NEW"))
    ruled = (DeviceRule(number=1, product_id=product, resource_class=name) for product, name in rules)
    one = begun(tmp_path, host(*card(vfs=4)), DevicePolicy(report=True, rules=tuple(ruled)))
    exchanged = (replace(host(plain()), disk=DiskSpace(total_bytes=size << 30, free_bytes=0)) for size in sizes)

    assert [one.sync(facts=each).status for each in exchanged] == [Status.UNSAFE, Status.UNSAFE, last]
