"""Two hosts by the collection's playbooks, there and back; what can go wrong on the way is in ``tests/fleet``."""

from pathlib import Path

import pytest

from beds.by_hand import ByHand
from beds.inventory import Fleet, make_hosts, trees, units
from beds.placement import PlacementServer

pytestmark = pytest.mark.live


def test_a_host_is_converted_as_approved_and_taken_back(placement_server: PlacementServer, tmp_path: Path) -> None:
    fleet = Fleet(make_hosts(tmp_path / "hosts", placement_server.url, 2, empty=[1]), tmp_path)
    placement = ByHand(placement_server.url)
    before, held = dict(trees(placement)), units(placement, fleet.hosts)
    first, second = (host.name for host in fleet.hosts)

    for played in (fleet.play("plan"), fleet.play("approve", fleet_approve=[first]), fleet.play("convert")):
        assert played.code == 0, played.out + played.err
    assert fleet.states() == {first: "converted", second: "not approved"}
    assert dict(trees(placement)) != before
    assert units(placement, fleet.hosts) == held

    reverted = fleet.play("revert")
    assert reverted.code == 0, reverted.out + reverted.err
    assert fleet.states("revert.json") == {first: "reverted", second: "not converted"}
    assert dict(trees(placement)) == before
