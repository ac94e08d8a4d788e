"""
Conversions on PostgreSQL, with one worker of placement and with four: nova's client, ours one by one, ours as it is.

Counts and times are those of placement's own log, so that nothing stands between client and server.
"""

import re
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median

from beds import databases
from beds.gpu_host import make_host, write_archive
from beds.placement import PlacementServer, serving_on
from beds.proxy import Proxy
from bench.goals import Goal, print_table
from bench.lab import AGENT, BenchError, Host, run
from bench.reshape import Bed, allocate, check, convert_as_nova

SIZES = ((8, 100), (64, 500))  # GPUs, guests
SERVERS = (1, 4)  # workers of placement
CLAIMERS = 4
PAUSE_S = 0.5  # between a claim and its release, and before the next claim
RACES = 20  # conversions beside claimers, on each server
ALONE, BESIDE = 1, 8  # node_workers before, and the default
LINE = re.compile(r'^(\S+ \S+) .*placement\.requestlog .*"(\w+) (\S+)" status: (\d+)')
AGAIN = ("planning again", "begins again")  # in the command's log


@dataclass(frozen=True, slots=True)
class Sent:
    """What placement's log says of one conversion."""

    requests: int
    wall_s: float  # from the first answer to the last one


def compare_conversions(scratch: Path, _template: Path) -> tuple[Goal, ...]:
    """Each size on each server, then conversions beside claimers."""
    rows: list[tuple[object, ...]] = []
    raced: list[tuple[object, ...]] = []
    goals: list[Goal] = []
    for workers in SERVERS:
        folder = scratch / f"conversions-{workers}"
        folder.mkdir()
        with databases.postgresql(folder / "database") as url:
            database = databases.with_driver(url)
            with serving_on(database, folder / "placement", workers=workers, threads=1) as server:
                for gpus, guests in SIZES:
                    found = _compare(folder, server, gpus, guests)
                    nova = found["nova"]
                    rows += [
                        (
                            workers,
                            gpus,
                            guests,
                            who,
                            one.requests,
                            f"{one.wall_s:.2f}",
                            f"{one.wall_s / nova.wall_s:.2f}",
                        )
                        for who, one in found.items()
                    ]
                    goals.append(_goal(workers, gpus, guests, nova, found["agent"]))
                raced.append(_race(folder, server, workers))
    head = ("workers", "GPUs", "guests", "who", "requests", "wall s", "to nova's")
    print_table(head, rows)
    print(f"\nbeside {CLAIMERS} claimers, {RACES} conversions of {SIZES[0][0]} GPUs with {SIZES[0][1]} guests each:")
    print_table(("workers", "attempts", "begun again", "share", "median wall s", "longest", "claims meanwhile"), raced)
    return tuple(goals)


_OURS = {"agent, one by one": ALONE, "agent": BESIDE}


def _goal(workers: int, gpus: int, guests: int, nova: Sent, ours: Sent) -> Goal:
    what = f"conversion of {gpus} GPUs with {guests} guests, {workers} workers, wall s"
    return Goal(what, f"{ours.wall_s:.2f}", f"less than nova's {nova.wall_s:.2f}", ours.wall_s < nova.wall_s)


def _compare(parent: Path, server: PlacementServer, gpus: int, guests: int) -> dict[str, Sent]:
    found = {}
    with Proxy(server.url) as proxy:
        bed = _lay_down(parent, server, proxy, f"nova-{gpus}", gpus, guests)
        theirs = make_host(f"nova-{gpus}-{guests}-{uuid.uuid4().hex[:6]}", gpus, guests)
        found["nova"] = _sent(convert_as_nova(bed, theirs, server.url, _logged(server)))
        for who, count in _OURS.items():
            bed = _lay_down(parent, server, proxy, f"agent-{count}-{gpus}", gpus, guests)
            with _logged(server) as lines:
                _convert(bed, server.url, count)
            found[who] = _sent(lines)
            check(bed.lab, bed.host)
    return found


def _lay_down(parent: Path, server: PlacementServer, proxy: Proxy, name: str, gpus: int, guests: int) -> Bed:
    """A host whose vGPUs are a total on its root, as the agent reported it, with its guests."""
    folder = parent / f"{name}-{guests}-{uuid.uuid4().hex[:6]}"
    folder.mkdir()
    host = make_host(folder.name, gpus, guests)
    archive = write_archive(folder / "host", host).root
    bed = Bed(Host(folder, folder / "flat.conf", server.url, proxy), host, archive)
    bed.agent("flat", "sync")
    allocate(bed.lab, host)
    return bed


def _convert(bed: Bed, url: str, workers: int) -> str:
    """Convert the host by the installed command; what the command logged."""
    config = bed.configure("devices", url, node_workers=workers)
    options = ("--host", bed.archive, "--config-file", config, "--format", "json", "-v")
    done = run([AGENT, "reshape", "--apply", *options])
    if done.json["outcome"] != "changed":
        raise BenchError(f"the agent did not convert {bed.host.name}: {done.json['outcome']} {done.json['notes']}")
    return done.err


@contextmanager
def _logged(server: PlacementServer) -> Iterator[list[str]]:
    """The lines that placement logs inside; they are there at the end."""
    lines: list[str] = []
    skip = server.log.stat().st_size
    yield lines
    lines += server.log.read_bytes()[skip:].decode(errors="replace").splitlines()


def _sent(lines: list[str]) -> Sent:
    times = [datetime.fromisoformat(found[1]) for line in lines if (found := LINE.match(line))]
    if not times:
        raise BenchError("placement logged no request")
    return Sent(len(times), (max(times) - min(times)).total_seconds())


def _race(parent: Path, server: PlacementServer, workers: int) -> tuple[object, ...]:
    attempts = again = claims = 0
    walls = []
    with Proxy(server.url) as proxy:
        for number in range(RACES):
            bed = _lay_down(parent, server, proxy, f"race-{number}", *SIZES[0])
            with _claiming(bed.lab, bed.host.identity) as counts:
                began = time.monotonic()
                told = _convert(bed, server.url, BESIDE)
                walls.append(time.monotonic() - began)
            check(bed.lab, bed.host)
            begun_again = sum(told.count(words) for words in AGAIN)
            attempts, again, claims = attempts + 1 + begun_again, again + begun_again, claims + sum(counts)
    share = f"{again / attempts:.2f}"
    return workers, attempts, again, share, f"{median(walls):.2f}", f"{max(walls):.2f}", claims


@contextmanager
def _claiming(lab: Host, root_uuid: str) -> Iterator[list[int]]:
    """Claim and release disk on the host's root all the time; what moves is claimed by nobody else."""
    ended, counts = threading.Event(), [0] * CLAIMERS
    wanted = {"allocations": {root_uuid: {"resources": {"DISK_GB": 1}}}, "project_id": "p", "user_id": "u"}

    def claim(number: int) -> None:
        while not ended.wait(PAUSE_S):
            consumer = str(uuid.uuid4())
            try:
                lab.ask("PUT", f"/allocations/{consumer}", {**wanted, "consumer_generation": None})
            except BenchError:
                continue  # another writer was first
            counts[number] += 1
            ended.wait(PAUSE_S)
            lab.ask("DELETE", f"/allocations/{consumer}")

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(CLAIMERS)]
    for thread in threads:
        thread.start()
    try:
        yield counts
    finally:
        ended.set()
        for thread in threads:
            thread.join()
