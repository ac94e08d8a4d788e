"""How long a sign of a second writer counts."""

from pathlib import Path

import pytest

from agent.sync.outcome import Status
from beds.one_host import OneHost
from drivers.policy import Policy
from hardware import host


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
