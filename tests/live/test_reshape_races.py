"""
Conversions that are killed, raced and disturbed, on a placement with several workers and PostgreSQL.

By hand: ``RESHAPE_KILLS=all`` kills at every request, ``RESHAPE_TURNS=200`` turns the raced host 200 times (make soak).
"""

import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import requests

from beds import databases
from beds.agents import COMMAND, run_agent
from beds.by_hand import ByHand, claim_body
from beds.faults import Killer, Storm
from beds.gpu_host import GpuHost, make_host, write_archive, write_config_of
from beds.ledger import Ledger, Moment
from beds.placement import NOAUTH_HEADERS, PlacementServer, serving_on
from beds.proxy import Hook, Proxy, pass_on
from beds.trees import add_consumer, lay_down

pytestmark = pytest.mark.live

KILLS = os.environ.get("RESHAPE_KILLS", "some")  # "all": at every request
TURNS = int(os.environ.get("RESHAPE_TURNS", "1"))
SEED = int(os.environ.get("SOAK_SEED", "20261121"))
TRIES = 30  # of a claimer at letting go of something
ABROAD = 5  # GB that each guest has on storage that is not the host's
SOME = 2  # kill points of "some", spread over all requests
PACE = 3.5  # the longest pause of a claimer, in attempts of a conversion: a slow machine slows both


@dataclass(frozen=True, slots=True)
class SharedPlacement:
    """A placement on PostgreSQL, and its database."""

    server: PlacementServer
    database: str


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedPlacement]:
    directory = tmp_path_factory.mktemp("races")
    with (
        databases.postgresql(directory / "database") as url,
        serving_on(databases.with_driver(url), directory / "placement") as server,
    ):
        yield SharedPlacement(server, url)


@pytest.fixture
def ledger(cloud: SharedPlacement) -> Iterator[Ledger]:
    found = Ledger(cloud.database)
    yield found
    found.close()


def lay_flat(cloud: SharedPlacement, host: GpuHost, folder: Path, archive: Path) -> None:
    """The host as one provider, with its guests."""
    config = write_config_of(host, folder, cloud.server.url, "flat")
    done = run_agent("sync", "--host", archive, "--config-file", config)
    assert done.code == 0, done.out + done.err
    placement = ByHand(cloud.server.url)
    storage = f"storage of {host.name}"
    lay_down(placement, {storage: {"parent": None, "inventories": {"DISK_GB": {"total": 1000}}}})
    for guest in host.guests:
        add_consumer(placement, guest.uuid, {"allocations": host.flat(guest) | {storage: {"DISK_GB": ABROAD}}})


def sums(host: GpuHost) -> dict[str, dict[str, int]]:
    """What each guest has of each class, wherever."""
    flat = {guest.uuid: host.flat(guest)[host.name] for guest in host.guests}
    return {guest: held | {"DISK_GB": held["DISK_GB"] + ABROAD} for guest, held in flat.items()}


def everything(placement: ByHand) -> Any:
    """All that placement holds but generations, by uuid."""
    found = {}
    for name, row in placement.providers().items():
        base = f"/resource_providers/{row['uuid']}"
        found[row["uuid"]] = {
            "name": name,
            "parent": row["parent_provider_uuid"],
            "inventories": placement.stock(row["uuid"]),
            "traits": sorted(placement.traits(row["uuid"])),
            "aggregates": sorted(placement.send("GET", f"{base}/aggregates")["aggregates"]),
            "allocations": {
                consumer: record["resources"]
                for consumer, record in placement.send("GET", f"{base}/allocations")["allocations"].items()
            },
        }
    consumers = {consumer for one in found.values() for consumer in one["allocations"]}
    told = {consumer: placement.send("GET", f"/allocations/{consumer}") for consumer in consumers}
    keys = ("project_id", "user_id", "consumer_type")
    return found, {consumer: [one[key] for key in keys] for consumer, one in told.items()}


class Reader:
    """Looks at the database all the while, all of it at one moment, and remembers what breaks conservation."""

    def __init__(self, cloud: SharedPlacement, right: Callable[[Moment], list[str]]) -> None:
        self.looks = 0
        self.wrong: list[str] = []
        self._url = cloud.database
        self._right = right
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        ledger = Ledger(self._url)
        try:
            while not self._end.wait(0.05):
                self.wrong += self._right(ledger.look())
                self.looks += 1
        except Exception as error:  # told by the test, whose looks would end in silence
            self.wrong.append(repr(error))
        ledger.close()

    def __enter__(self) -> "Reader":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


def wrongs(host: GpuHost, moment: Moment) -> list[str]:
    """What is wrong with a moment of a host on which nobody claims: lost, invented, over capacity, stock twice."""
    wanted, held = sums(host), moment.held()
    found = [f"{consumer} holds {held[consumer]}" for consumer in held if held[consumer] != wanted.get(consumer)]
    if len(held) != len(wanted):
        found.append(f"{len(held)} consumers")
    if moment.totals().get("VGPU") != sum(card.parts for card in host.cards):
        found.append(f"VGPU {moment.totals().get('VGPU')}")
    return found + [f"{slot} {amount}" for slot, amount in moment.overbooked().items()]


def kill_points(requests_of_one: int) -> list[tuple[int, bool]]:
    points = [(number, after) for number in range(1, requests_of_one + 1) for after in (False, True)]
    if KILLS == "all":
        return points
    late = points[-24:]  # where most is written
    return sorted({*points[:: max(1, len(points) // SOME)], *late[:: max(1, len(late) // SOME)]})


@pytest.mark.parametrize("disturbed", [False, True], ids=["calm", "with faults"])
def test_a_conversion_killed_at_any_request_ends_as_an_undisturbed_one(
    disturbed: bool, cloud: SharedPlacement, ledger: Ledger, tmp_path: Path
) -> None:
    host = make_host("farm")
    archive = write_archive(tmp_path / "host", host).root
    placement = ByHand(cloud.server.url)
    with Proxy(cloud.server.url) as proxy:
        lay_flat(cloud, host, tmp_path, archive)
        ledger.keep()
        config = write_config_of(host, tmp_path, proxy.url, "devices", placement=reached_at(proxy.url))
        command = ("reshape", "--apply", "--host", archive, "--config-file", config)
        try:
            assert run_agent(*command).code == 0
            expected, count = everything(placement), len(proxy.seen)
            points = kill_points(count)[slice(1, None, 2) if disturbed and KILLS != "all" else slice(None)]
            differing: list[tuple[int, bool]] = []
            storm = Storm(0.02, seed=SEED) if disturbed else None
            with Reader(cloud, lambda moment: wrongs(host, moment)) as reader:
                for number, after in points:
                    ledger.restore()
                    kill(command, proxy, Killer(number, after=after, otherwise=storm or pass_on))
                    proxy.hook = storm or pass_on
                    done = run_agent(*command, timeout=330)  # longer than the agent's own patience
                    assert done.code == 0, done.out + done.err
                    if everything(placement) != expected:
                        differing.append((number, after))
            print(
                f"{count} requests, {len(points)} kill points, {len(differing)} final states differ; "
                f"{reader.looks} looks, {len(reader.wrong)} wrong; faults {storm.done if storm else 'none'}"
            )
        finally:
            ledger.clear()
    assert differing == []
    assert reader.wrong == []
    assert reader.looks > len(points)


def reached_at(url: str) -> dict[str, Any]:
    return {"auth_type": "none", "endpoint": url, "timeout": 2, "connect_retries": 1}


def kill(command: tuple[object, ...], proxy: Proxy, killer: Killer) -> None:
    """Run the command until it is killed, or done."""
    with subprocess.Popen(
        [str(COMMAND), *map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        killer.victim = process.pid
        proxy.hook = killer
        process.wait(timeout=330)


@dataclass
class Claimers:
    """Four schedulers at work: they claim what allocation candidates offer, and let go of it again."""

    placement: str
    root: str
    seed: int
    pace_s: float  # the longest pause between two acts of one of them
    held: dict[str, dict[str, int]] = field(default_factory=dict)  # what each of their consumers must have
    counts: dict[str, int] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)  # the providers of their claims since somebody emptied it

    def __post_init__(self) -> None:
        self._end = threading.Event()
        self._turn = threading.Lock()  # of the books
        self._quiet = threading.Condition()
        self._busy = 0
        self._paused = False

    @contextmanager
    def working(self, number: int = 4) -> Iterator[None]:
        with ThreadPoolExecutor(number) as pool:
            workers = [pool.submit(self._work, random.Random(f"{self.seed}-{index}")) for index in range(number)]
            try:
                yield
            finally:
                self._end.set()
                with self._quiet:
                    self._paused = False
                    self._quiet.notify_all()
                for worker in workers:
                    worker.result()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside, nobody is in the middle of a claim, so that the books and placement can be compared."""
        with self._quiet:
            self._paused = True
            self._quiet.wait_for(lambda: self._busy == 0)
        yield
        with self._quiet:
            self._paused = False
            self._quiet.notify_all()

    def _work(self, chance: random.Random) -> None:
        with requests.Session() as http:
            http.headers.update({**NOAUTH_HEADERS, "OpenStack-API-Version": "placement 1.39"})
            mine: list[str] = []
            while not self._end.is_set():
                with self._quiet:
                    self._quiet.wait_for(lambda: not self._paused)
                    self._busy += 1
                try:
                    time.sleep(chance.uniform(0, self.pace_s))
                    if mine and (len(mine) > 4 or chance.random() < 0.4):
                        self._release(http, mine, chance)
                    else:
                        self._claim(http, mine, chance)
                finally:
                    with self._quiet:
                        self._busy -= 1
                        self._quiet.notify_all()

    def _claim(self, http: requests.Session, mine: list[str], chance: random.Random) -> None:
        wanted = {"VCPU": chance.randint(1, 4), "MEMORY_MB": 128 * chance.randint(1, 8), "VGPU": chance.randint(1, 2)}
        query = ",".join(f"{name}:{amount}" for name, amount in wanted.items())
        found = http.get(f"{self.placement}/allocation_candidates?resources={query}&in_tree={self.root}&limit=10")
        offers = found.json().get("allocation_requests") if found.status_code == 200 else None
        if not offers:
            return self._count("no candidate")
        consumer = str(UUID(int=chance.getrandbits(128)))
        body = claim_body({}) | {"allocations": chance.choice(offers)["allocations"]}
        answer = http.put(f"{self.placement}/allocations/{consumer}", json=body)
        if answer.status_code == 204:
            with self._turn:
                self.held[consumer] = wanted
                self.touched.update(body["allocations"])
            mine.append(consumer)
            return self._count("claimed")
        return self._count(f"claim refused with {answer.status_code}")

    def _release(self, http: requests.Session, mine: list[str], chance: random.Random) -> None:
        """As nova does: a DELETE that meets a reshape answers 204 and deletes nothing."""
        consumer = mine.pop(chance.randrange(len(mine)))
        for _ in range(TRIES):
            body = http.get(f"{self.placement}/allocations/{consumer}").json()
            answer = http.put(f"{self.placement}/allocations/{consumer}", json=body | {"allocations": {}})
            if answer.status_code == 204:
                break
            self._count(f"release refused with {answer.status_code}")
        else:
            raise AssertionError(f"{consumer} cannot be released: {answer.text}; it has {body}")
        with self._turn:
            del self.held[consumer]
        self._count("released")

    def _count(self, what: str) -> None:
        with self._turn:
            self.counts[what] = self.counts.get(what, 0) + 1


@pytest.mark.parametrize("disturbed", [False, True], ids=["calm", "with faults"])
def test_a_host_that_is_turned_back_and_forth_under_schedulers_never_has_a_wrong_sum(
    disturbed: bool, cloud: SharedPlacement, ledger: Ledger, tmp_path: Path
) -> None:
    """
    A provider of which more is used than there is counts unless a claim landed on it in the same turn: at its last
    units placement on PostgreSQL books twice by itself when claims meet, without any reshape.
    """
    host = make_host("raced", gpus=4, guests=8)
    archive = write_archive(tmp_path / "host", host).root
    lay_flat(cloud, host, tmp_path, archive)
    storm: Hook = Storm(0.02, seed=SEED) if disturbed else pass_on
    pace = 2 * PACE if disturbed else PACE
    again = twice = 0
    try:
        with Proxy(cloud.server.url, hook=storm) as proxy:
            url = proxy.url if disturbed else cloud.server.url

            def convert(layout: str, url: str) -> float:
                """Convert the host; return the seconds that each of its attempts took."""
                nonlocal again
                config = write_config_of(host, tmp_path, url, layout, placement=reached_at(url))
                options = ("--apply", "--host", archive, "--config-file", config, "-v")
                began = time.monotonic()
                done = run_agent("reshape", *options, timeout=330)
                assert done.code == 0, f"to {layout}: {done.out}{done.err}"
                begun_again = done.err.count("planning again")
                again += begun_again
                return (time.monotonic() - began) / (1 + begun_again)

            quiet_s = convert("numa", cloud.server.url)
            claimers = Claimers(cloud.server.url, host.identity, SEED, pace * quiet_s)
            totals = ledger.look().totals()
            started = time.monotonic()
            with claimers.working():
                for turn in range(TURNS if not disturbed else max(1, TURNS // 5)):
                    layout = ("devices", "cells", "numa", "flat")[turn % 4]
                    claimers.pace_s = pace * max(quiet_s, convert(layout, url))  # the machine may be slower by now
                    seconds = time.monotonic() - started
                    print(
                        f"turn {turn} to {layout}: {seconds:.1f} s, begun again {again} times, "
                        f"claimers pause up to {claimers.pace_s:.2f} s",
                        flush=True,
                    )
                    with claimers.paused():
                        moment = ledger.look()
                        assert moment.held() == claimers.held | sums(host), f"turn {turn}"
                        rows = ByHand(cloud.server.url).providers()
                        over = {slot for slot in moment.overbooked() if rows[slot[0]]["uuid"] not in claimers.touched}
                        assert over == set(), f"turn {turn} to {layout}"
                        twice += len(moment.overbooked())
                        claimers.touched.clear()
                        assert moment.totals() == totals, f"turn {turn} to {layout}"
    finally:
        ledger.clear()
    print(
        f"{turn + 1} turns in {seconds:.0f} s, begun again {again} times; claimers {claimers.counts}; "
        f"booked twice by placement itself {twice}; "
        f"faults {getattr(storm, 'done', 'none')}"
    )
    assert claimers.counts["claimed"] > turn
    assert claimers.counts["released"] > 0
