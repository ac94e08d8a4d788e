"""What a cloud needs so that its agents harm nobody, and what happens to it then."""

import math
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

from simulator.agents import BEFORE, Ways
from simulator.costs import TOKEN, VALIDATION, Cost, Costs
from simulator.scenarios import (
    Converted,
    Seen,
    Setup,
    after_fleet_restart,
    after_placement_restart,
    an_hour_later,
    at_rest,
    converting,
)

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)
SHARE = 0.6  # of workers may be busy at rest
MORE_S = 2.0  # that a boot may take longer, 99 of 100, while all agents restart
SPARE = 1.25  # of workers, beside what is busy in the mean
STEP = 1.25  # more workers at each try
REST_S = 120.0
FORKS = (5, 50, 200)  # hosts that Ansible converts at a time; its default, and more
BEFORE_SIZE = 10_000  # with which the agent before is compared
COLD = (1, 2, 4)  # times the workers of Keystone


@dataclass(frozen=True, slots=True)
class Sized:
    """A size of cloud, with the least that it needs."""

    setup: Setup
    rest: Seen
    placement: Seen
    fleet: Seen


@dataclass(frozen=True, slots=True)
class Answer:
    """All that the page tells."""

    sizes: tuple[Sized, ...]
    numa: Sized  # a cloud of ``BEFORE_SIZE`` in the layout numa
    before: tuple[Seen, Seen]  # a restart of the fleet, and an hour later, with the agent before
    now: tuple[Seen, Seen]
    cold: tuple[Seen, ...]  # a restart of the fleet without a token, as after a power cut, by ``COLD``
    converted: tuple[Converted, ...]  # of a cloud of ``BEFORE_SIZE``, by forks


def answer(costs: Costs) -> Answer:
    """Simulate everything; takes some five minutes on two cores."""
    with ProcessPoolExecutor(2) as pool:
        sizes = [pool.submit(size_up, hosts, costs) for hosts in reversed(SIZES)]
        in_numa = pool.submit(size_up, BEFORE_SIZE, costs, "numa")
        found = tuple(one.result() for one in reversed(sizes))
        setup = next(one.setup for one in found if one.setup.hosts == BEFORE_SIZE)
        old = replace(setup, ways=BEFORE)
        lost = replace(setup, ways=replace(setup.ways, keeps_token=False))
        colds = [replace(lost, keystone_workers=times * setup.keystone_workers) for times in COLD]
        runs = [
            pool.submit(scenario, one, costs)
            for one in (old, setup)
            for scenario in (after_fleet_restart, an_hour_later)
        ]
        runs += [pool.submit(after_fleet_restart, cold, costs) for cold in colds]
        converted = [pool.submit(converting, setup, costs, forks) for forks in FORKS]
        before, before_later, now, now_later, *cold = (one.result() for one in runs)
        return Answer(
            sizes=found,
            numa=in_numa.result(),
            before=(before, before_later),
            now=(now, now_later),
            cold=tuple(cold),
            converted=tuple(one.result() for one in converted),
        )


def size_up(hosts: int, costs: Costs, layout: str = "devices") -> Sized:
    """Find the least that so many hosts need."""
    setup = _first_guess(hosts, costs, layout)
    while True:
        print(f"{hosts} hosts, {setup.workers} workers", file=sys.stderr, flush=True)
        rest, fleet = at_rest(setup, costs, REST_S), after_fleet_restart(setup, costs)
        slow = fleet.boot_s(0.99) - rest.boot_s(0.5) > MORE_S
        if rest.busy <= SHARE and not slow and not fleet.failures:
            return Sized(setup, rest, after_placement_restart(setup, costs), fleet)
        setup = replace(setup, workers=_more(setup.workers), database_cores=_more(setup.database_cores))


def _more(count: int) -> int:
    return max(count + 1, math.floor(count * STEP))


def _first_guess(hosts: int, costs: Costs, layout: str) -> Setup:
    """Return what is busy for ``SHARE`` of the time at rest and always while all restart, by the mean of the costs."""
    ways, kinds = Ways(), costs.loaded()
    logins_a_s = hosts / (ways.token_s or math.inf) / (sum(ways.renewed or (1, 1)) / 2)
    keystone = logins_a_s * kinds[TOKEN].service_s + hosts / ways.token_cache_s * kinds[VALIDATION].service_s
    quiet, pause_s = kinds["GET /resource_providers"], costs.pause.share_s
    restart = costs.hosts[f"network {layout}"]["restart"]
    starts_a_s = hosts / ways.start_spread_s
    busy = max(
        hosts / ways.interval_s * (_held_s(quiet) + pause_s) / SHARE,
        starts_a_s * sum(times * (_held_s(kinds[kind]) + pause_s) for kind, times in restart.requests),
    )
    database = starts_a_s * sum(times * kinds[kind].database_s for kind, times in restart.requests)
    return Setup(
        hosts=hosts,
        layout=layout,
        workers=max(2, math.ceil(SPARE * busy)),
        keystone_workers=max(2, math.ceil(keystone / SHARE)),
        database_cores=max(2, math.ceil(database / SHARE)),
    )


def _held_s(cost: Cost) -> float:
    """Return how long a request of a kind holds a worker where it waits for nobody."""
    return cost.service_s + cost.database_s + cost.wait_s
