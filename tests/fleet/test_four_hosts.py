"""Four hosts by the collection's playbooks: planned, approved, converted by canary, and taken back."""

from pathlib import Path

import pytest

from beds.by_hand import ByHand
from beds.inventory import Fleet, make_hosts, trees, units
from beds.placement import PlacementServer

pytestmark = pytest.mark.live


@pytest.fixture
def fleet(placement_server: PlacementServer, tmp_path: Path) -> Fleet:
    """Four hosts; the second has no guests."""
    return Fleet(make_hosts(tmp_path / "hosts", placement_server.url, 4, empty=[1]), tmp_path)


def test_a_fleet_is_converted_as_approved_and_taken_back(fleet: Fleet, placement_server: PlacementServer) -> None:
    placement = ByHand(placement_server.url)
    before, held = dict(trees(placement)), units(placement, fleet.hosts)
    names = [host.name for host in fleet.hosts]

    planned = fleet.play("plan", fleet_pictures=True)
    assert planned.code == 0, planned.out + planned.err
    summary = fleet.read("summary.json")
    assert summary["outcomes"] == {"convert": names}
    assert summary["guests"] == 3 * 3
    assert all(name in (fleet.change / "index.html").read_text() for name in names)
    assert dict(trees(placement)) == before

    nothing = fleet.play("convert", fleet_layout="numa")
    assert nothing.code != 0
    assert "approved.json" in nothing.out
    assert dict(trees(placement)) == before

    assert fleet.play("approve", fleet_approve=names[:3]).code == 0
    converted = fleet.play("convert", fleet_batches=[1, 3])
    assert converted.code == 0, converted.out + converted.err
    assert fleet.states() == {**dict.fromkeys(names[:3], "converted"), names[3]: "not approved"}
    assert units(placement, fleet.hosts) == held
    planned_anew = fleet.play("plan")
    assert planned_anew.code != 0
    assert "name another folder in fleet_folder" in planned_anew.out
    again = fleet.play("convert")
    assert again.code == 0, again.out
    assert fleet.states() == {**dict.fromkeys(names[:3], "done before"), names[3]: "not approved"}

    audited = fleet.play("audit")
    assert audited.code == 0, audited.out + audited.err
    assert [one["findings"] for one in fleet.read("audit.json").values()] == [[]] * 4

    shown = fleet.play("revert", check=True)
    assert shown.code == 0, shown.out + shown.err
    assert fleet.states("check-revert.json")[names[0]] == "would be reverted"
    assert not (fleet.change / "revert.json").exists()

    reverted = fleet.play("revert")
    assert reverted.code == 0, reverted.out + reverted.err
    assert fleet.states("revert.json") == {**dict.fromkeys(names[:3], "reverted"), names[3]: "not converted"}
    assert dict(trees(placement)) == before
