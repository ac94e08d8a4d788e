"""A thousand recorded hosts planned at one desk: how long, how much memory, and the page of it."""

import resource
import shutil
import sys
import time
from pathlib import Path

import pytest

from beds.inventory import KINDS, Fleet, FleetHost, name_archive
from beds.placement import PlacementServer
from beds.upgrades import write_config

pytestmark = pytest.mark.live

HOSTS = 1000
KEPT = Path(__file__).parents[2] / "build/fleet"


def test_a_thousand_archives_at_one_desk(placement_server: PlacementServer, tmp_path: Path) -> None:
    kind = KINDS[0]
    hosts = [
        FleetHost(f"host-{number:04}", kind, tmp_path / "hosts" / str(number), placement_server.url)
        for number in range(HOSTS)
    ]
    for host in hosts:
        shutil.copytree(kind.archive, host.archive)
        name_archive(host.archive, host.name)
    config = write_config(
        {
            "placement": {"auth_type": "none", "endpoint": placement_server.url},
            "agent": {"state_directory": str(tmp_path / "state")},
        },
        tmp_path / "agent.conf",
    )
    fleet = Fleet([], tmp_path)
    archives = {host.name: str(host.archive) for host in hosts}

    began = time.monotonic()
    done = fleet.play(
        "rehearse",
        fleet_archives=archives,
        fleet_arguments=["--config-file", str(kind.config), "--config-file", str(config)],
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
