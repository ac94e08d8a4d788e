"""
A day of the service, a second for each of its minutes: everything fails once, and nothing is wrong in the end.

``HOURS=24`` takes some thirty minutes (make soak); incidents of hours that do not come are left out.
"""

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from beds import keystone
from beds.day import HOUR_S, Day, small_disk
from beds.synthetic import bed
from beds.synthetic.hosts import FOUR_CELLS

pytestmark = pytest.mark.live

HOURS = float(os.environ.get("HOURS", "24"))
SEED = int(os.environ.get("SOAK_SEED", "20261121"))
GROWTH_KIB = 1024  # in half a day, after what begins to be used with each new kind of change


def test_a_day(bed_cache: Path, placement_template: Path, tmp_path: Path) -> None:
    with ExitStack() as stack:
        state = stack.enter_context(small_disk(tmp_path / "small"))
        host = stack.enter_context(bed.serving(tmp_path / "host", FOUR_CELLS))
        day = Day(host, tmp_path, state, SEED, stack)
        day.open((keystone.keystone_template(bed_cache), placement_template))
        incidents = {
            2: day.restart_placement,
            4: day.revoke_token,
            6: day.set_clock_ahead,
            8: day.fill_disk,
            10: day.rotate_log,
            12: day.lose_placement,
            14: day.lose_keystone,
            16: day.kill_libvirtd,
            18: day.change_password,
            20: day.set_clock_back,
            22: day.restart_placement,
        }
        day.live(hour := 1.0)
        day.service.wait_for_passes(2)
        first = before = day.figures()
        for at, happen in incidents.items():
            if at < HOURS:
                day.live(at - hour)
                before = day.figures() if at <= HOURS / 2 else before
                happen()
                hour = at
        day.live(max(0.0, HOURS - hour - 1))
        day.service.wait(lambda: day.holders() == day.guests.keys(), 3 * HOUR_S, pause_s=2)
        day.service.wait(lambda: day.tree() == day.wanted(), 2 * HOUR_S, pause_s=2)
        day.service.wait_for_passes(3)
        after = day.figures()
        status = day.service.status()
        print(f"\n{HOURS:g} hours, seed {SEED}: {status['passes']} passes, {dict(sorted(day.done.items()))}")
        print("\n".join(day.told))
        print(f"after an hour {first}\nat half of it {before}\nin the end    {after}")

        assert day.tree() == day.wanted()
        assert day.holders() == set(day.guests)
        assert status["findings"] == {}
        assert (status["ready"], status["outcomes"]) == (True, {FOUR_CELLS.name: "unchanged"})
        assert after["unique"] - before["unique"] < GROWTH_KIB
        assert (after["threads"], after["files"]) == (first["threads"], first["files"])
        # Its connection to Keystone may wait for the next request at one of both moments, and be closed at the other.
        assert abs(after["sockets"] - first["sockets"]) <= 1
        for log in tmp_path.glob("agent.log*"):
            assert "Traceback" not in log.read_text(encoding="utf-8")
