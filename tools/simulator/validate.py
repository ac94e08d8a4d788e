"""
Compare the simulation with a thousand real services: ``make soak``'s fleet, whose figures it prints.

Usage: validate.py [LOG]: keeps the figures of a file with what tests/soak/test_fleet.py printed, in ``soak.json``.
"""

import hashlib
import json
import random
import re
import statistics
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import simpy

from beds.fleet import AGENTS, REST_S, SPREADS_S
from beds.services import TOGETHER
from beds.spent import Spent
from simulator.agents import Agent, Cloud, Record, Ways, place_of
from simulator.costs import COSTS, FIRST_SPREAD_S, QUIET, SOAK, Costs, read_costs, restart
from simulator.stations import Cores, Interpreter, Queue, Service, Steps, Thread

Kept = dict[str, dict[str, float]]  # by run, then by figure
KEPT = Path(__file__).with_name("soak.json")
TABLES = Path(__file__).parents[2] / "docs/_static/scale.md"
CORES, PROCESSES, THREADS = 2, 2, 4  # tests/beds/placement.py
RESTARTS = 15  # with each spread: more than the test has, as the slowest pass is one of a thousand
SHORT_TURN_S = 0.0002  # so soon placement and its database go before services; shorter changes nothing
SLICE_S = 0.004  # a thread computes so long before another may: one tick of a kernel with CONFIG_HZ=250
CPU = r".*CPU s: services (?P<services>[\d.]+), placement (?P<others>[\d.]+), database (?P<database>[\d.]+)"
PATTERNS = {
    "populated": r"(?P<count>\d+) services populated an empty placement in (?P<ready_s>[\d.]+) s" + CPU,
    "restarted, spread {}": r"restarted at once (?P<count>\d+) times, start_spread {} s: all ready after "
    r"(?P<ready_s>[\d.]+) s, (?P<requests>\d+) requests, .*most in a second (?P<most>\d+), worst pass "
    r"(?P<worst_s>[\d.]+) s" + CPU,
    "at rest": rf"at rest for {REST_S} s: .*, "
    r"(?P<requests>[\d.]+) a second, most in a second (?P<most>\d+); (?P<count>\d+) passes, "
    r"(?P<each>[\d.]+) requests a pass; passes took (?P<median_s>[\d.]+) s \(median\), (?P<worst_s>[\d.]+) s" + CPU,
}
ACTIVITIES = {  # what services do in each run
    "populated": "first",
    **{f"restarted, spread {spread_s}": restart(spread_s) for spread_s in SPREADS_S},
    "at rest": QUIET,
}
USED = ("services", "others", "database")  # CPU of one service that starts, or of one pass at rest


def origin() -> str:
    """Return a remark that says which measurements the tables are made from."""
    kept = " ".join(hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in (COSTS, KEPT))
    return f"<!-- made from {kept} -->"


class Soak:
    """The machine of the soak test with its fleet."""

    def __init__(self, costs: Costs, start_spread_s: float, first: str, load: str, seed: int = 0) -> None:
        """``first`` is what each service does first, and ``load`` what decides the costs of requests."""
        self.env = simpy.Environment()
        machine = Cores(self.env, CORES, turn_s=SHORT_TURN_S)
        database, dice = Cores(self.env, CORES, machine), random.Random(seed)
        workers = [
            Service(self.env, 1, THREADS, database, pause=costs.pause, cores=machine, dice=dice)
            for _ in range(PROCESSES)
        ]
        self.first = first
        ways, kinds, self.record = Ways(token_s=None, start_spread_s=start_spread_s), costs.loaded(load), Record()
        clouds = [Cloud(self.env, worker, None, kinds, ways, dice, self.record) for worker in workers]
        queue = Queue(self.env, machine, SLICE_S)
        locks = [Interpreter(self.env) for _ in range(AGENTS // TOGETHER)]
        self.workers = workers
        self.agents = [
            Agent(
                dice.choice(clouds),  # the worker that took its connection, which stays
                place_of("soak", f"/{seed}/{number:04}/state"),
                costs.hosts[SOAK],
                Thread(queue, lock),
            )
            for number, lock in enumerate(locks * TOGETHER)
        ]

    def answered(self) -> Counter[int]:
        """Return the requests that were answered, by second."""
        return sum((worker.answered for worker in self.workers), Counter[int]())

    def start(self) -> float:
        """Start all; return the seconds until each had done a pass."""
        for agent in self.agents:
            self.env.process(self._run(agent))
        while any(agent.ready_at is None for agent in self.agents):
            self.env.run(self.env.now + 0.5)
        return max(agent.ready_at or 0.0 for agent in self.agents)

    def rest(self, seconds: float) -> dict[str, float]:
        """Let nothing happen for so long; return what is seen then."""
        before, count = self.answered(), len(self.record.took)
        self.env.run(self.env.now + seconds)
        now = self.answered() - before
        passes = [took_s for _, took_s in self.record.took[count:]]
        return {
            "requests": now.total() / seconds,
            "most": max(now.values()),
            "each": now.total() / len(passes),
            "median_s": statistics.median(passes),
            "worst_s": max(passes),
        }

    def _run(self, agent: Agent) -> Steps:
        yield from agent.compute(agent.activities["start"].agent_s)
        yield from agent.run(self.first)


def simulate(costs: Costs, kept: Kept) -> Kept:
    """
    Return the figures of the soak test, by run; those of several restarts are their medians, as in the test.

    The CPU is that of the same test: the same machine may compute at another speed a quarter of an hour later.
    """
    costs = costs.together({ACTIVITIES[run]: _used(figures) for run, figures in kept.items()})
    found = {"populated": {"ready_s": Soak(costs, FIRST_SPREAD_S, "first", "first").start()}}
    for spread_s in SPREADS_S:
        runs = [_restart(costs, spread_s, seed) for seed in range(RESTARTS)]
        found[f"restarted, spread {spread_s}"] = {
            name: statistics.median(run[name] for run in runs) for name in runs[0]
        }
    soak = Soak(costs, SPREADS_S[-1], restart(SPREADS_S[-1]), "quiet")
    soak.start()
    soak.rest(120)
    found["at rest"] = soak.rest(REST_S)
    return found


def _used(figures: Mapping[str, float]) -> Spent:
    return Spent(**{f"{name}_s": figures[name] for name in USED})


def _restart(costs: Costs, spread_s: int, seed: int) -> dict[str, float]:
    soak = Soak(costs, spread_s, restart(spread_s), restart(spread_s), seed)
    ready_s, answered = soak.start(), soak.answered()
    worst_s = max(took_s for _, took_s in soak.record.took)
    return {"ready_s": ready_s, "requests": answered.total(), "most": max(answered.values()), "worst_s": worst_s}


def read_soak(text: str) -> Kept:
    """
    Return the figures that the soak test printed, by run, and the CPU of one service in each.

    Raises:
        ValueError: a run is missing, as the test was ended before it, or had another size than the simulated one.
    """
    found: Kept = {}
    for name in ACTIVITIES:
        seen = re.search(_pattern(name), text)
        if seen is None:
            raise ValueError(f"the log has no figures of the run {name!r}: run the test to its end, without FLEET_S")
        figures = {key: float(value) for key, value in seen.groupdict().items()}
        count = figures.pop("count")
        if name == "populated" and count != AGENTS:
            raise ValueError(
                f"the log is of {count:.0f} services, and {AGENTS} are simulated: run the test without AGENTS"
            )
        count *= AGENTS if name.startswith("restarted") else 1
        found[name] = figures | {used: figures[used] / count for used in USED}
    return found


def _pattern(run: str) -> str:
    name, _, spread_s = run.partition(", spread ")
    return PATTERNS[f"{name}, spread {{}}"].format(spread_s) if spread_s else PATTERNS[name]


def read_kept() -> Kept:
    """Return the figures of the soak test that were kept."""
    found: Kept = json.loads(KEPT.read_text(encoding="utf-8"))
    return found


def main() -> int:
    """Print both beside each other, and how far they are apart."""
    if sys.argv[1:]:
        try:
            seen = read_soak(Path(sys.argv[1]).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            sys.exit(f"{sys.argv[1]}: {error}")
        KEPT.write_text(json.dumps(seen, indent=1) + "\n", encoding="utf-8")
    real = read_kept()
    for run, figures in simulate(read_costs(), real).items():
        for name, value in figures.items():
            print(f"{run:24} {name:10} {value:9.3f} {real[run][name]:9.3f} {value / real[run][name] - 1:+7.0%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
