"""Forty hosts on one placement on PostgreSQL: there, audited and back beside claimers, and on trial with a gate."""

import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg2
import pytest
import requests

from beds import databases, placement
from beds.agents import COMMAND
from beds.by_hand import ByHand, claim_body
from beds.inventory import Fleet, FleetHost, make_hosts, trees
from beds.placement import PlacementServer
from beds.process import start, stop, wait_until
from beds.trees import identity

pytestmark = pytest.mark.live

Sums = dict[tuple[str, str], int]  # of each guest, by class
HOSTS = 40
BATCHES = [1, 5, "25%", "100%"]
TRIAL_MINUTES = 7  # more than a batch and its bake take
CLAIMERS = 2
HEADERS = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"}
SUMS = """
SELECT consumers.uuid, resource_classes.name, sum(used) FROM allocations
JOIN consumers ON consumers.uuid = consumer_id JOIN resource_classes ON resource_classes.id = resource_class_id
WHERE consumers.uuid IN %s GROUP BY 1, 2
"""


@dataclass(frozen=True)
class Cloud:
    """Forty hosts that report to one placement, which each test leaves as it found it."""

    server: PlacementServer
    hosts: list[FleetHost]
    guests: list[str]
    url: str  # of the database
    database: Any

    def held(self) -> Sums:
        return sums(self.database, self.guests)


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    folder = tmp_path_factory.mktemp("cloud")
    with (
        databases.postgresql(folder / "database") as url,
        placement.serving_on(databases.with_driver(url), folder / "placement") as server,
    ):
        hosts = make_hosts(folder / "hosts", server.url, HOSTS)
        database = psycopg2.connect(url)
        database.autocommit = True
        yield Cloud(server, hosts, [identity(name) for host in hosts for name in host.guests], url, database)
        database.close()


@contextmanager
def claiming(url: str) -> Iterator[list[int]]:
    """
    Claim and release disk on any host all the time.

    Disk stays on the root, so that the claims are no part of a plan; but each moves the root's generation.
    """
    ended, counts = threading.Event(), [0] * CLAIMERS

    def claim(number: int) -> None:
        hand = ByHand(url)
        while not ended.is_set():
            # Placement answers 500 where a provider goes while it searches.
            found = requests.get(f"{url}/allocation_candidates?resources=DISK_GB:1", headers=HEADERS, timeout=60)
            offers = found.json()["allocation_requests"] if found.ok else []
            for offer in offers[number :: CLAIMERS * 3]:
                body = claim_body({}) | {"allocations": offer["allocations"]}
                consumer = uuid4()
                answer = requests.put(f"{url}/allocations/{consumer}", json=body, headers=HEADERS, timeout=60)
                if answer.status_code == 204:
                    counts[number] += 1
                    hand.send("DELETE", f"/allocations/{consumer}")

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(CLAIMERS)]
    for thread in threads:
        thread.start()
    try:
        yield counts
    finally:
        ended.set()
        for thread in threads:
            thread.join()


@contextmanager
def watched(url: str, guests: list[str], expected: Sums) -> Iterator[list[Sums]]:
    """Read the sums of all guests from the database again and again; yields those that were not as expected."""
    ended, looks = threading.Event(), [0]
    wrong: list[Sums] = []

    def watch() -> None:
        connection = psycopg2.connect(url)
        connection.autocommit = True
        while not ended.is_set():
            found = sums(connection, guests)
            looks[0] += 1
            if found != expected:
                wrong.append(found)
            time.sleep(0.2)
        connection.close()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield wrong
    finally:
        ended.set()
        thread.join()
    print(f"\nlooks at the database: {looks[0]}", file=sys.stderr)
    assert looks[0] > 10


def sums(connection: Any, guests: list[str]) -> Sums:
    with connection.cursor() as cursor:
        cursor.execute(SUMS, (tuple(guests),))
        return {(uuid, name): int(used) for uuid, name, used in cursor.fetchall()}


def test_forty_hosts_there_and_back_beside_claimers(cloud: Cloud, tmp_path: Path) -> None:
    hand = ByHand(cloud.server.url)
    fleet = Fleet(cloud.hosts, tmp_path, {"fleet_probe": "resources=VCPU:1,MEMORY_MB:16"})
    before, held = dict(trees(hand)), cloud.held()
    assert len(held) == 2 * 3 * HOSTS

    with claiming(cloud.server.url) as counts, watched(cloud.url, cloud.guests, held) as wrong:
        timed(fleet, "plan")
        assert fleet.read("summary.json")["outcomes"] == {"convert": [host.name for host in cloud.hosts]}
        assert fleet.play("approve", fleet_approve="all").code == 0
        timed(fleet, "convert")
        assert set(fleet.states().values()) == {"converted"}
        converted = dict(trees(hand))
        timed(fleet, "audit")
        kinds = {one["kind"] for host in fleet.read("audit.json").values() for one in host["findings"]}
        assert kinds <= {"odd-device"}  # of recorded hosts that have one
        timed(fleet, "revert")
        assert set(fleet.states("revert.json").values()) == {"reverted"}

    assert wrong == []
    assert len(converted) > len(before)
    assert {**dict(trees(hand))} == before
    assert cloud.held() == held
    print(f"claims meanwhile: {counts}", file=sys.stderr)
    assert min(counts) > 10


def test_a_boot_that_fails_on_a_converted_host_stops_the_change_and_that_host_goes_back(
    cloud: Cloud, tmp_path: Path
) -> None:
    hand = ByHand(cloud.server.url)
    fleet = Fleet(cloud.hosts, tmp_path)
    before, held = dict(trees(hand)), cloud.held()
    first, last = cloud.hosts[:16], cloud.hosts[16:]  # three batches, and the last one
    failing = first[9]
    boot = ["sh", "-c", f"test $0 != {failing.name}"]
    timed(fleet, "plan")
    assert fleet.play("approve", fleet_approve="all").code == 0

    done = fleet.play(
        "convert", fleet_batches=BATCHES, fleet_confirm=f"{TRIAL_MINUTES}m", fleet_bake_seconds=5, fleet_gate=boot
    )

    assert done.code != 0
    assert fleet.states() == (
        dict.fromkeys((host.name for host in first), "converted")
        | {failing.name: "failed"}
        | dict.fromkeys((host.name for host in last), "not begun")
    )
    with running(failing, tmp_path / "service.log"):
        wait_until(lambda: trial_end(failing) == "taken back", 60 * (TRIAL_MINUTES + 2), done.out.strip, pause_s=2)
    assert {trial_end(host) for host in first if host != failing} == {"confirmed"}
    assert tree_of(failing, dict(trees(hand))) == tree_of(failing, before)
    assert fleet.play("revert", fleet_batches=BATCHES).code == 0
    assert dict(trees(hand)) == before
    assert cloud.held() == held


def trial_end(host: FleetHost) -> str | None:
    """How the trial of the host's last conversion on trial ended; None: it has not."""
    conversions = host.run("undo", "--list").json["conversions"]
    return next(str(one["trial_ended"]) for one in conversions if one["confirm_by_s"])


def tree_of(host: FleetHost, all_trees: Mapping[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in all_trees.items() if name.startswith(host.name)}


@contextmanager
def running(host: FleetHost, log: Path) -> Iterator[None]:
    """The service of one host."""
    child = start([str(COMMAND), "run", *host.arguments], directory=log.parent, log=log)
    try:
        yield
    finally:
        stop(child)


def timed(fleet: Fleet, name: str) -> None:
    began = time.monotonic()
    done = fleet.play(name, fleet_batches=BATCHES)
    assert done.code == 0, done.out[-6000:] + done.err
    print(f"{name} of {len(fleet.hosts)} hosts: {time.monotonic() - began:.0f} s", file=sys.stderr)
