"""
Measure what the requests of agents, schedulers and Keystone cost, one at a time, and write ``costs.json``.

Real services of this machine: placement with one worker and one thread on PostgreSQL, and Keystone. CPU is the
kernel's count of each process (/proc/PID/task/TID/schedstat, proc(5)), so that other work on this machine matters
little; only the waits are by the wall clock.
"""

import os
import re
import statistics
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import groupby
from pathlib import Path

import bcrypt
import requests

from agent.connect.choice import Choice, settings_for
from agent.service.rounds import Rounds
from agent.service.status import WELL
from beds import databases, keystone
from beds.by_hand import ByHand
from beds.fleet import AGENTS, SPREADS_S, Fleet, requests_a_second
from beds.gpu_host import GpuHost, make_host, options_of, write_archive
from beds.keystone import AGENT, PLACEMENT, Login
from beds.placement import PlacementServer, serving_on
from beds.spent import Spent, spent
from beds.trees import add_consumer
from beds.upgrades import write_config
from beds.wsgi import PAUSE
from simulator.costs import (
    CLAIM,
    FIRST_SPREAD_S,
    QUIET,
    SOAK,
    TOKEN,
    VALIDATION,
    Activity,
    Cost,
    Costs,
    Pause,
    restart,
    write_costs,
)

HOSTS = 12  # that are measured of each shape
QUIET_PASSES = 5  # of each
STARTS_S, STARTED_S = 60, 0.05  # all services start within this; they did when they take no more CPU in a second
RESTARTS = 3  # with each spread
QUIET_S, QUIETS = 30, 6  # seconds of a period, and periods in which quiet passes are measured
RESTING = AGENTS * QUIET_S // 60  # services with that period, which take as many passes a second as all do at rest
CLAIMS = 5  # of each, beside those of its guests
TOKENS = 30
HASH_ROUNDS = 12  # [identity] password_hash_rounds of Keystone, bcrypt
KEYSTONES = (TOKEN, VALIDATION)  # its requests; what pauses it makes is in their costs
LAYOUTS = {"small": ("flat",), "network": ("flat", "devices", "numa")}
CARDS_GUESTS = {"small": (0, 0), "network": (2, 12)}  # of a host: cards, and guests with a device of one
SEARCHES_S = {  # docs/sizing.md, PostgreSQL, nova's limit of 1,000 candidates: requests without groups
    "flat": {"100": 0.03, "1000": 0.13, "5000": 0.69},
    "devices": {"100": 0.04, "1000": 0.23, "5000": 1.14},
    "numa": {"100": 0.05, "1000": 0.37, "5000": 1.96},
}


UUID = re.compile(r"(?<=/)[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?=/|$)")
NAME = re.compile(r"^/(traits|resource_classes)/[A-Z0-9_]+$")


def operation(method: str, path: str) -> str:
    """Return the kind of a request, for instance ``GET /resource_providers/{uuid}/inventories``."""
    route = UUID.sub("{uuid}", path.partition("?")[0])
    return f"{method} " + NAME.sub(r"/\1/{name}", route)


@dataclass
class Meter:
    """Notes each request with what it cost."""

    seen: dict[str, list[tuple[float, float, float]]] = field(default_factory=lambda: defaultdict(list))
    order: list[str] = field(default_factory=list)
    parts_s: list[float] = field(default_factory=list)  # CPU of this process before each of them, without metering
    _since_s: float = 0.0
    _before: Spent = field(default_factory=Spent)

    def begin(self) -> None:
        """Forget the order of requests; what follows is another activity."""
        self.order, self.parts_s = [], []
        self._before, self._since_s = spent(), time.process_time()

    def note(self, kind: str, wall_s: float, more_s: float = 0.0) -> None:
        """Note that a request was answered just now; ``more_s`` is CPU that it would have cost besides."""
        self.parts_s.append(time.process_time() - self._since_s)
        now = spent()
        service_s, database_s = now.others_s - self._before.others_s, now.database_s - self._before.database_s
        self.seen[kind].append((service_s + more_s, database_s, max(0.0, wall_s - service_s - database_s)))
        self.order.append(kind)
        self._before, self._since_s = spent(), time.process_time()

    def activity(self) -> Activity:
        """Return what was noted since ``begin``."""
        parts_s = (*self.parts_s, time.process_time() - self._since_s)
        return Activity(parts_s, tuple((kind, len(list(same))) for kind, same in groupby(self.order)))

    def costs(self, pause: Pause) -> dict[str, Cost]:
        """Return the mean CPU of each kind, without its part of the pauses, and the median wait."""
        return {
            kind: Cost(
                round(statistics.fmean(one[0] for one in all_) - (0 if kind in KEYSTONES else pause.share_s), 6),
                round(statistics.fmean(one[1] for one in all_), 6),
                round(statistics.median(one[2] for one in all_), 6),
                len(all_),
            )
            for kind, all_ in sorted(self.seen.items())
        }


def measure(scratch: Path) -> Costs:
    """Measure everything; takes some ten minutes."""
    meter, hosts = Meter(), {}
    with (
        databases.postgresql(scratch / "database") as url,
        serving_on(databases.with_driver(url), scratch / "placement", workers=1, threads=1) as server,
    ):
        for shape, layouts in LAYOUTS.items():
            for name, activities in _measure_shape(scratch / shape, server.url, shape, layouts, meter):
                hosts[name] = activities
    with (
        databases.postgresql(scratch / "soak-database") as url,
        serving_on(databases.with_driver(url), scratch / "soak-placement", pauses=True) as server,
    ):
        used, start, pause = _measure_soak(scratch / "soak", server)
    _measure_keystone(scratch / "keystone", meter)
    costs = Costs(
        measured={
            "date": datetime.now(UTC).date().isoformat(),
            "placement": version("openstack-placement"),
            "keystone": version("keystone"),
            "database": "PostgreSQL",
            "cores": str(os.cpu_count()),
        },
        kinds=meter.costs(pause),
        hosts={**hosts, SOAK: {"start": Activity((start.services_s,), ())}},
        loads={},
        pause=pause,
        searches_s=SEARCHES_S,
    )
    return costs.together(used)


def _measure_shape(
    folder: Path, url: str, shape: str, layouts: tuple[str, ...], meter: Meter
) -> Iterator[tuple[str, Mapping[str, Activity]]]:
    """Yield each layout of a shape, with its activities."""
    found: dict[str, dict[str, list[Activity]]] = {layout: defaultdict(list) for layout in layouts}
    by_hand = ByHand(url)
    for number in range(HOSTS):
        host = make_host(f"{shape}-{number}", *CARDS_GUESTS[shape])
        write_archive(folder / f"{number:02}/host", host)
        before = ""
        for layout in layouts:
            config = _config(folder / f"{number:02}", url, host, layout)
            with _opened(config, meter) as rounds:
                found[layout]["conversion" if before else "first"].append(_take(rounds, meter, deep=True))
                if not before:
                    _claim(by_hand, host, meter)
                    _take(rounds, meter, deep=False)
                for _ in range(QUIET_PASSES):
                    found[layout]["quiet"].append(_take(rounds, meter, deep=False))
                found[layout]["whole"].append(_take(rounds, meter, deep=True))
            with _opened(config, meter) as rounds:
                found[layout]["restart"].append(_take(rounds, meter, deep=True))
            before = layout
    for layout in layouts:
        yield f"{shape} {layout}", {name: _mean(seen) for name, seen in found[layout].items()}


def _mean(seen: Sequence[Activity]) -> Activity:
    """Return the last one, with the mean CPU of those with the same requests; the first one of all loads modules."""
    same = [one.parts_s for one in seen[1:] if one.requests == seen[-1].requests]
    return Activity(tuple(round(statistics.fmean(part), 6) for part in zip(*same, strict=True)), seen[-1].requests)


def _config(folder: Path, url: str, host: GpuHost, layout: str) -> Path:
    """Write the configuration of one made-up host in one layout; its archive is the host's own."""
    folder.mkdir(parents=True, exist_ok=True)
    return write_config(
        {
            "DEFAULT": {"host": host.name},
            "placement": {"auth_type": "none", "endpoint": url},
            "agent": {"state_directory": folder / "state", "node_workers": 1, "allow_reshape": True},
            **options_of(host.shape),
            "compute": {"layout": layout},
        },
        folder / f"{layout}.conf",
    )


@contextmanager
def _opened(config: Path, meter: Meter) -> Iterator[Rounds]:
    choice = Choice(config_files=(config,), host=config.parent / "host", service=True)

    def told(method: str, path: str, _status: int, seconds: float) -> None:
        meter.note(operation(method, path), seconds)

    rounds = Rounds(
        choice,
        settings_for(choice),
        wake=lambda _event: None,
        requested=told,
        told=lambda *_: None,
    )
    try:
        yield rounds
    finally:
        rounds.close_host()


def _take(rounds: Rounds, meter: Meter, *, deep: bool) -> Activity:
    meter.begin()
    taken = rounds.take(deep=deep, counts=True)
    activity = meter.activity()
    if not set(taken.outcomes.values()) <= WELL:
        raise SystemExit(f"a pass went wrong: {taken}")
    return activity


def _claim(by_hand: ByHand, host: GpuHost, meter: Meter) -> None:
    """Claim for each guest of a host, and for others that go again, as nova's scheduler does."""
    for guest in host.guests:
        add_consumer(by_hand, guest.uuid, {"allocations": host.flat(guest)})
    for _ in range(CLAIMS):
        consumer = str(uuid.uuid4())
        body = {
            "allocations": {host.identity: {"resources": {"VCPU": 1, "MEMORY_MB": 64}}},
            "project_id": "p",
            "user_id": "u",
            "consumer_generation": None,
            "consumer_type": "INSTANCE",
        }
        meter.begin()
        began = time.perf_counter()
        by_hand.send("PUT", f"/allocations/{consumer}", body)
        meter.note(CLAIM, time.perf_counter() - began)
        by_hand.send("DELETE", f"/allocations/{consumer}")


def _measure_soak(folder: Path, server: PlacementServer) -> tuple[dict[str, Spent], Spent, Pause]:
    """
    Measure what services of which some share a process take, as make soak has them, and placement while many ask.

    Return what one service took for each activity, from its start where it starts; for its start alone; and the pauses
    of placement's workers at rest.
    """
    url = server.url
    start = _start_used(folder, url)
    used = {"first": _fleet_used(folder, url, FIRST_SPREAD_S)}
    for spread_s in SPREADS_S:
        seen = [_fleet_used(folder, url, spread_s) for _ in range(RESTARTS)]
        used[restart(spread_s)] = sum(seen, Spent()) / RESTARTS
    used[QUIET], pause = _measure_rest(folder, server)
    return used, start, pause


def _fleet_used(folder: Path, url: str, spread_s: int) -> Spent:
    """Return what a service took from its start until all had done a pass."""
    with Fleet(folder, url, AGENTS, start_spread_s=spread_s) as fleet:
        return _used(fleet)


def _measure_rest(folder: Path, server: PlacementServer) -> tuple[Spent, Pause]:
    """Return what a pass took while all rest, and the pauses of placement then."""
    with Fleet(folder, server.url, RESTING, interval_s=QUIET_S, start_spread_s=QUIET_S // 2) as fleet:
        _used(fleet)
        time.sleep(2 * QUIET_S)
        before, passes, skip = spent(), fleet.passes(), server.log.stat().st_size
        time.sleep(QUIETS * QUIET_S)
        used, requests = spent() - before, sum(requests_a_second(server.log, skip))
        found = PAUSE.findall(server.log.read_bytes()[skip:].decode(errors="replace"))
        count = fleet.passes() - passes
    if not found:
        raise SystemExit(f"placement's log has no pause in {requests} requests: let the services rest for longer")
    return used / count, Pause(round(requests / len(found)), tuple(map(float, found)))


def _start_used(folder: Path, url: str) -> Spent:
    """Return what one service that is made already takes from its start until it waits for its first pass."""
    with Fleet(folder / "starts", url, AGENTS, start_spread_s=10_000) as fleet:
        fleet.prepare()
        before = now = spent()
        fleet.start()
        for _ in range(STARTS_S):
            time.sleep(1)
            last, now = now, spent()
            if now.services_s - last.services_s < STARTED_S:
                return (now - before) / AGENTS
    raise SystemExit(f"{AGENTS} services still started after {STARTS_S} s")


def _used(fleet: Fleet) -> Spent:
    fleet.prepare()
    before = spent()
    fleet.start()
    fleet.wait_until_ready(120)
    return (spent() - before) / fleet.count


def _measure_keystone(folder: Path, meter: Meter) -> None:
    """Log in again and again, and let a service validate each token, as keystonemiddleware does."""
    template = keystone.keystone_template(folder / "template")
    hash_s = _hash_s()
    with (
        keystone.serving(
            folder / "keystone", template, placement_url="http://placement.invalid", caches=True
        ) as server,
        requests.Session() as http,
    ):
        http.trust_env = False
        url = f"{server.url}/auth/tokens"
        own = http.post(url, json=_login(PLACEMENT), timeout=30).headers["X-Subject-Token"]
        for number in range(TOKENS + 1):
            if number == 1:  # the first one fills the cache
                meter.seen.pop(TOKEN), meter.seen.pop(VALIDATION)
            meter.begin()
            began = time.perf_counter()
            token = http.post(url, json=_login(AGENT), timeout=30).headers["X-Subject-Token"]
            meter.note(TOKEN, time.perf_counter() - began, more_s=hash_s)
            began = time.perf_counter()
            http.get(url, headers={"X-Auth-Token": own, "X-Subject-Token": token}, timeout=30).raise_for_status()
            meter.note(VALIDATION, time.perf_counter() - began)


def _hash_s() -> float:
    """Return what Keystone takes to compare a password as it is kept by default; the bed keeps it in a quicker way."""
    kept = bcrypt.hashpw(b"password", bcrypt.gensalt(HASH_ROUNDS))
    began = time.process_time()
    for _ in range(TOKENS):
        bcrypt.checkpw(b"password", kept)
    return (time.process_time() - began) / TOKENS


def _login(login: Login) -> dict[str, object]:
    domain = {"id": "default"}
    user = {"name": login.username, "password": login.password, "domain": domain}
    return {
        "auth": {
            "identity": {"methods": ["password"], "password": {"user": user}},
            "scope": {"project": {"name": login.project, "domain": domain}},
        }
    }


def main() -> int:
    """Measure, and write the file beside this one."""
    with tempfile.TemporaryDirectory(prefix="compute-node-agent-simulator-") as scratch:
        costs = measure(Path(scratch))
    write_costs(costs)
    for kind, cost in costs.kinds.items():
        times = (f"{1e3 * one:8.2f}" for one in (cost.service_s, cost.database_s, cost.wait_s))
        print(*times, f"ms  {cost.counted:5}  {kind}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
