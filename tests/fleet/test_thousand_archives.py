"""A thousand made-up hosts that differ, planned at one desk: how long, how much memory, and the page of it."""

import resource
import shutil
import sys
import time
from pathlib import Path

import pytest

from beds.inventory import Fleet
from beds.placement import PlacementServer
from beds.upgrades import write_config
from drivers.fake.fleet import generate_fleet
from drivers.fake.shapes import SHAPES, options_of

pytestmark = pytest.mark.live

HOSTS = 1000
SHAPE = "mixed"
KEPT = Path(__file__).parents[2] / "build/fleet"


def test_a_thousand_archives_at_one_desk(placement_server: PlacementServer, tmp_path: Path) -> None:
    archives = {one.root.name: str(one.root) for one in generate_fleet(tmp_path / "hosts", HOSTS, seed=20, shape=SHAPE)}
    config = write_config(
        {
            "placement": {"auth_type": "none", "endpoint": placement_server.url},
            "agent": {"state_directory": str(tmp_path / "state")},
            **options_of(SHAPES[SHAPE]),
        },
        tmp_path / "agent.conf",
    )
    fleet = Fleet([], tmp_path)

    began = time.monotonic()
    done = fleet.play(
        "rehearse",
        fleet_archives=archives,
        fleet_arguments=["--config-file", str(config)],
        fleet_layout="numa",
        fleet_command=[str(fleet.command)],
    )
    took = time.monotonic() - began

    assert done.code == 0, done.out[-3000:]
    assert len(fleet.read("summary.json")["outcomes"]["convert"]) == HOSTS
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    page = fleet.change / "index.html"
    KEPT.mkdir(parents=True, exist_ok=True)
    shutil.copy(page, KEPT / "index.html")
    size = page.stat().st_size / 1000
    print(f"{HOSTS} hosts: {took:.0f} s, {memory:.0f} MiB at most in one process, page {size:.0f} kB", file=sys.stderr)
