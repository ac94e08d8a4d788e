"""A batch on trial: what passes the bake is confirmed, and what does not is left for its host to take back."""

from pathlib import Path
from typing import Any

import pytest

from beds.inventory import Fleet, FleetHost, make_hosts
from beds.placement import PlacementServer

pytestmark = pytest.mark.live

TRIAL: dict[str, Any] = {"fleet_confirm": "2h", "fleet_bake_seconds": 1, "fleet_batches": [1, 2, "100%"]}


@pytest.fixture
def fleet(placement_server: PlacementServer, tmp_path: Path) -> Fleet:
    """Four hosts with approved plans; the second has no guests."""
    found = Fleet(make_hosts(tmp_path / "hosts", placement_server.url, 4, empty=[1]), tmp_path)
    assert found.play("plan", fleet_layout="numa").code == 0
    assert found.play("approve", fleet_approve="all").code == 0
    return found


def trial_of(host: FleetHost) -> tuple[bool, str | None] | None:
    """Whether the last conversion is, or was, on trial, and how that ended; None: there is none."""
    found = host.run("undo", "--list").json["conversions"]
    return (found[0]["confirm_by_s"] is not None, found[0]["trial_ended"]) if found else None


def test_what_fails_the_gate_is_not_confirmed_and_ends_the_change(fleet: Fleet) -> None:
    first, empty, third, last = fleet.hosts

    done = fleet.play("convert", **TRIAL, fleet_gate=["sh", "-c", f"test $0 != {third.name}"])

    assert done.code != 0
    assert fleet.states() == {
        first.name: "converted",
        empty.name: "converted",
        third.name: "failed",
        last.name: "not begun",
    }
    assert fleet.read("convert.json")[third.name]["why"].startswith("converted, but")
    assert trial_of(first) == (True, "confirmed")
    assert trial_of(empty) == (False, None)
    assert trial_of(third) == (True, None)
    assert trial_of(last) is None

    again = fleet.play("convert", **TRIAL)

    assert again.code == 0, again.out
    assert set(fleet.states().values()) == {"converted", "done before"}
    assert trial_of(third) == trial_of(last) == (True, "confirmed")


def test_outside_of_its_window_no_batch_begins(fleet: Fleet) -> None:
    now = fleet.play("convert", **TRIAL, fleet_window="00:00-00:00")

    assert now.code != 0
    assert "the next batch is not begun" in now.out
    assert all(trial_of(host) is None for host in fleet.hosts)
