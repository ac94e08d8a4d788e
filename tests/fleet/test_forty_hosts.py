"""Forty hosts on one placement on PostgreSQL, with claimers beside them: there, audited, and back."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg2
import pytest
import requests

from beds import databases, placement
from beds.by_hand import ByHand, claim_body
from beds.inventory import Fleet, make_hosts, trees
from beds.placement import PlacementServer
from beds.trees import identity

pytestmark = pytest.mark.live

Sums = dict[tuple[str, str], int]  # of each guest, by class
HOSTS = 40
BATCHES = [1, 5, "25%", "100%"]
CLAIMERS = 2
HEADERS = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"}
SUMS = """
SELECT consumers.uuid, resource_classes.name, sum(used) FROM allocations
JOIN consumers ON consumers.uuid = consumer_id JOIN resource_classes ON resource_classes.id = resource_class_id
WHERE consumers.uuid IN %s GROUP BY 1, 2
"""


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[tuple[PlacementServer, str]]:
    with (
        databases.postgresql(tmp_path / "database") as url,
        placement.serving_on(databases.with_driver(url), tmp_path / "placement") as server,
    ):
        yield server, url


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


def test_forty_hosts_there_and_back_beside_claimers(cloud: tuple[PlacementServer, str], tmp_path: Path) -> None:
    server, url = cloud
    hand = ByHand(server.url)
    hosts = make_hosts(tmp_path / "hosts", server.url, HOSTS)
    fleet = Fleet(hosts, tmp_path, {"fleet_probe": "resources=VCPU:1,MEMORY_MB:16"})
    guests = [identity(name) for host in hosts for name in host.guests]
    before = dict(trees(hand))
    connection = psycopg2.connect(url)
    connection.autocommit = True
    held = sums(connection, guests)
    assert len(held) == 2 * 3 * HOSTS

    with claiming(server.url) as counts, watched(url, guests, held) as wrong:
        timed(fleet, "plan")
        assert fleet.read("summary.json")["outcomes"] == {"convert": [host.name for host in hosts]}
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
    assert sums(connection, guests) == held
    print(f"claims meanwhile: {counts}", file=sys.stderr)
    assert min(counts) > 10


def timed(fleet: Fleet, name: str) -> None:
    began = time.monotonic()
    done = fleet.play(name, fleet_batches=BATCHES)
    assert done.code == 0, done.out[-6000:] + done.err
    print(f"{name} of {len(fleet.hosts)} hosts: {time.monotonic() - began:.0f} s", file=sys.stderr)
