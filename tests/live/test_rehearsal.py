"""Many recorded hosts are planned in one run, against a real placement."""

from pathlib import Path

import pytest

from beds.agents import run_agent
from beds.golden import HOSTS
from beds.placement import PlacementServer
from beds.upgrades import UPGRADES, Story, Upgrade, write_config

pytestmark = pytest.mark.live

SEVERAL = tuple(part for name in ("four-cells", "odd-cells") for part in ("--host", HOSTS / name / "archive"))


@pytest.fixture
def config(placement_server: PlacementServer, tmp_path: Path) -> Path:
    options = {
        "libvirt": {"virt_type": "qemu"},
        "placement": {"auth_type": "none", "endpoint": placement_server.url},
        "agent": {"state_directory": str(tmp_path / "state")},
    }
    return write_config(options, tmp_path / "agent.conf")


def test_each_host_has_its_plan_and_one_that_fails_stops_no_other(config: Path) -> None:
    done = run_agent("plan", "--host", "/nowhere", *SEVERAL, "--config-file", config, "--format", "json")

    assert done.code == 1, done.err
    told = {one["node"]: one for one in done.json["plans"]}
    assert told.keys() == {None, "four-cells", "odd-cells"}
    assert told[None]["archive"] == "/nowhere"
    assert "/nowhere" in told[None]["notes"][0]
    assert told["odd-cells"]["operations"]
    assert done.json["summary"] == {"failed": 1, "changed": 2}
    assert sorted(done.json["about"]["nodes"]) == ["four-cells", "odd-cells"]


def test_people_see_a_line_for_each_host_and_the_sums(config: Path) -> None:
    done = run_agent("plan", *SEVERAL, "--config-file", config)

    assert done.code == 3, done.err
    assert [line.split()[:2] for line in done.out.splitlines()[1:3]] == [
        ["four-cells", "changed"],
        ["odd-cells", "changed"],
    ]
    assert done.out.splitlines()[-1] == "2 hosts: 2 changed"


def test_a_plan_of_several_hosts_is_that_of_each(placement_server: PlacementServer, tmp_path: Path) -> None:
    lab = Upgrade(Story(UPGRADES / "05-devices-to-numa").data, placement_server.url, tmp_path)
    alone = lab.run("reshape").json

    together = lab.run("reshape", "--host", HOSTS / "odd-cells/archive").json["plans"][0]

    assert together["digest"] == alone["digest"]
    assert together["moves"] == alone["moves"]
    assert lab.run("reshape", "--host", HOSTS / "odd-cells/archive", "--apply").code == 2
