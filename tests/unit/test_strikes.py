"""How long a sign of a second writer counts, and what must not hide it."""

from pathlib import Path

import pytest

from agent.sync.outcome import Status
from beds.one_host import RESHAPE, OneHost
from drivers.policy import DevicePolicy, Policy
from hardware import card, host, plain


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
    one = OneHost(tmp_path, host(*card(nic, 4)), Policy(layout="devices", devices=DevicePolicy(discover_all=True)))
    one.sync()
    one.claim({nic: {"SRIOV_NET_VF": 2}})
    one.sync(facts=host(plain()))
    converted = one.sync(RESHAPE, policy=Policy(layout="flat", devices=one.policy.devices))

    one.set_by_hand("", "VCPU", total=1)
    noticed = one.sync()

    assert converted.status is Status.CHANGED
    assert "second-writer" in {each.kind for each in noticed.conditions}
