"""Hosts whose service runs while they are converted: it reads the new layout, and its next pass is awaited."""

import os
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from beds.agents import COMMAND
from beds.by_hand import ByHand
from beds.inventory import PLUGINS, Fleet, FleetHost, make_hosts, trees
from beds.placement import PlacementServer

pytestmark = pytest.mark.live


@pytest.fixture
def fleet(placement_server: PlacementServer, tmp_path: Path) -> Iterator[Fleet]:
    """Two hosts, one without guests, each with a service that runs."""
    hosts = make_hosts(tmp_path / "hosts", placement_server.url, 2, empty=[1])
    fleet = Fleet(hosts, tmp_path, {"fleet_status_tries": 6})
    pids = []
    for host in hosts:
        unit = fleet.units / host.name
        unit.mkdir(parents=True)
        words = " ".join([str(COMMAND), "run", *host.arguments])
        (unit / "command").write_text(f"#!/bin/sh\nexec {words}\n", encoding="utf-8")
        (unit / "command").chmod(stat.S_IRWXU)
        fleet.own[host.name] = {"fleet_service": host.name}
        pids.append(unit / "pid")
    try:
        yield fleet
    finally:
        for pid in pids:
            if pid.exists():
                os.kill(int(pid.read_text()), signal.SIGTERM)


def is_well(host: FleetHost) -> bool:
    """Return whether the service is well within its time."""
    ends = time.monotonic() + 120  # the first pass comes within [agent] start_spread, a minute
    while host.run("status").code and time.monotonic() < ends:
        time.sleep(0.3)
    return host.run("status").code == 0


@pytest.mark.parametrize("stopped", [False, True])
def test_the_service_follows_a_conversion_and_the_way_back(
    stopped: bool, fleet: Fleet, placement_server: PlacementServer
) -> None:
    placement = ByHand(placement_server.url)
    before = dict(trees(placement))
    for host in fleet.hosts:
        environment = os.environ | {"FLEET_UNITS": str(fleet.units)}
        subprocess.run([PLUGINS / "systemctl", "start", host.name], env=environment, check=True)
    assert all(is_well(host) for host in fleet.hosts)
    assert fleet.play("plan").code == 0
    assert fleet.play("approve", fleet_approve="all").code == 0

    converted = fleet.play("convert", fleet_stop_service=stopped)

    assert converted.code == 0, converted.out
    assert set(fleet.states().values()) == {"converted"}
    for host in fleet.hosts:
        status = host.run("status").json
        assert list(status["outcomes"].values()) == ["unchanged"]
        asked = (fleet.units / host.name / "asked").read_text().split()
        assert ("stop" in asked, "reload" in asked) == (stopped, not stopped)
    reverted = fleet.play("revert", fleet_stop_service=stopped)
    assert reverted.code == 0, reverted.out
    assert all(host.run("status").code == 0 for host in fleet.hosts)
    assert dict(trees(placement)) == before
