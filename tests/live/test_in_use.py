"""``release`` and ``confirm`` while the guest runs on this host: nothing that it uses comes on offer unsaid."""

from pathlib import Path

import pytest

from beds.placement import PlacementServer
from beds.trees import add_consumer, identity
from beds.upgrades import UPGRADES, Story, Upgrade

pytestmark = pytest.mark.live

ROOT = "four-cells"
SMALL = {"VCPU": 1, "MEMORY_MB": 512}


@pytest.fixture
def lab(placement_server: PlacementServer, tmp_path: Path) -> Upgrade:
    """A host with a guest that runs and one that is shut off; a third one has its allocations, and is gone."""
    data = Story(UPGRADES / "04-flat-to-numa").data
    data["config"]["compute"]["layout"] = "flat"
    data["first"] = data["config"]
    data["guests"] = {"runs": {"memory_mib": 512}, "off": {"memory_mib": 512, "state": "shutoff"}}
    data["before"] = {"providers": {}, "consumers": {}}
    made = Upgrade(data, placement_server.url, tmp_path)
    for name in ("runs", "off", "gone"):
        add_consumer(made.placement, name, {"allocations": {ROOT: SMALL}})
        made.before["consumers"][name] = {}
    return made


def held(lab: Upgrade, name: str) -> object:
    return lab.stands()["consumers"][name]["allocations"]


def test_a_guest_that_runs_here_is_released_by_force_only(lab: Upgrade) -> None:
    refused = lab.run("release", identity("runs"))
    assert (refused.code, refused.json["outcome"], held(lab, "runs")) == (4, "refused", {ROOT: SMALL})
    assert f"release {identity('runs')} --force" in refused.json["note"]

    done = lab.run("release", identity("runs"), "--force")
    assert (done.code, done.json["outcome"], held(lab, "runs")) == (0, "done", {})
    for told in (refused.json["note"], done.json["note"], done.err):
        assert "512 MEMORY_MB on four-cells" in told
        assert "1 VCPU on four-cells" in told


@pytest.mark.parametrize("name", ["off", "gone"])
def test_a_guest_that_does_not_run_here_is_released(lab: Upgrade, name: str) -> None:
    done = lab.run("release", identity(name))

    assert (done.code, done.json["outcome"], done.json["note"], held(lab, name)) == (0, "done", "", {})


def test_a_move_is_not_confirmed_while_the_guest_runs_where_it_was(lab: Upgrade) -> None:
    lab.placement.send("DELETE", f"/allocations/{identity('runs')}")
    add_consumer(lab.placement, "migration", {"type": "MIGRATION", "allocations": {ROOT: SMALL}})
    lab.placement.send("POST", "/resource_providers", {"name": "away", "uuid": identity("away")})
    stock = {"inventories": {"VCPU": {"total": 8}}, "resource_provider_generation": 0}
    lab.placement.send("PUT", f"/resource_providers/{identity('away')}/inventories", stock)
    add_consumer(lab.placement, "runs", {"allocations": {"away": {"VCPU": 1}}})

    for verb in ("confirm", "release"):
        refused = lab.run(verb, identity("migration"))
        assert refused.code == 4
        assert identity("runs") in refused.json["note"]
    assert lab.run("release", identity("migration"), "--force").code == 0
