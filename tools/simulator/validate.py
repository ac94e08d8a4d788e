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
from pathlib import Path

import simpy

from beds.fleet import AGENTS, SPREADS_S
from beds.services import TOGETHER
from simulator.agents import Agent, Cloud, Record, Ways, place_of
from simulator.costs import COSTS, FIRST_SPREAD_S, Costs, read_costs, restart
from simulator.stations import Cores, Interpreter, Queue, Service, Steps, Thread

KEPT = Path(__file__).with_name("soak.json")
TABLES = Path(__file__).parents[2] / "docs/_static/scale.md"
CORES, PROCESSES, THREADS = 2, 2, 4  # tests/beds/placement.py
RESTARTS = 5  # tests/soak/test_fleet.py
REST_S = 300
SHORT_TURN_S = 0.0002  # so soon placement and its database go before services; shorter changes nothing
SLICE_S = 0.004  # a thread computes so long before another may: one tick of a kernel with CONFIG_HZ=250
PATTERNS = {
    "populated": r"populated an empty placement in (?P<ready_s>[\d.]+) s",
    "restarted, spread {}": r"start_spread {} s: all ready after (?P<ready_s>[\d.]+) s, (?P<requests>\d+) requests, .*"
    r"most in a second (?P<most>\d+), worst pass (?P<worst_s>[\d.]+) s",
    "at rest": r"at rest for .*, (?P<requests>[\d.]+) a second, most in a second (?P<most>\d+); .* (?P<each>[\d.]+) "
    r"requests a pass; passes took (?P<median_s>[\d.]+) s \(median\), (?P<worst_s>[\d.]+) s",
}


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
        workers = [Service(self.env, 1, THREADS, database, pause=costs.pause, cores=machine) for _ in range(PROCESSES)]
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
                costs.hosts["soak"],
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


def simulate(costs: Costs) -> dict[str, dict[str, float]]:
    """Return the figures of the soak test, by run; those of several runs are their medians, as in the test."""
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


def _restart(costs: Costs, spread_s: int, seed: int) -> dict[str, float]:
    soak = Soak(costs, spread_s, restart(spread_s), restart(spread_s), seed)
    ready_s, answered = soak.start(), soak.answered()
    worst_s = max(took_s for _, took_s in soak.record.took)
    return {"ready_s": ready_s, "requests": answered.total(), "most": max(answered.values()), "worst_s": worst_s}


def read_soak(text: str) -> dict[str, dict[str, float]]:
    """
    Return the figures that the soak test printed, by run.

    Raises:
        ValueError: a run is missing, as the test was ended before it.
    """
    found = {}
    for name, pattern in PATTERNS.items():
        for spread_s in SPREADS_S if "{}" in name else (0,):
            seen = re.search(pattern.format(spread_s) if "{}" in name else pattern, text)
            if seen is None:
                raise ValueError(
                    f"the log has no figures of the run {name.format(spread_s)!r}: run the test to its end"
                )
            found[name.format(spread_s)] = {key: float(value) for key, value in seen.groupdict().items()}
    return found


def read_kept() -> dict[str, dict[str, float]]:
    """Return the figures of the soak test that were kept."""
    found: dict[str, dict[str, float]] = json.loads(KEPT.read_text(encoding="utf-8"))
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
    for run, figures in simulate(read_costs()).items():
        for name, value in figures.items():
            print(f"{run:24} {name:10} {value:9.3f} {real[run][name]:9.3f} {value / real[run][name] - 1:+7.0%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
