"""What may happen to a cloud of many hosts on a day; each scenario is a window of it, with schedulers who claim."""

import math
import random
import statistics
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import simpy

from simulator.agents import Agent, Cloud, Refused, Ways
from simulator.costs import CLAIM, Cost, Costs
from simulator.stations import Cores, Service, Steps

GUESTS, LIFE_S = 20, 10 * 86400  # guests of a host, and how long each is there: so often hosts are claimed on
SEARCHED = 5000  # hosts that a search sees at most: larger clouds narrow it by aggregates, and no more were measured
SEARCH_IN_DATABASE = 0.5  # of a search's time; the rest computes in placement
BEGIN_S = 120.0  # of each window before anything happens
DOWN_S = 60.0
HOST_S = 20.0  # of a conversion without placement: Ansible, some seven starts of the command, looks every ten seconds
PROBE_S = 0.5  # between two looks at how long a boot would take
PATIENCE_S, LOOK_S = 3600.0, 1.0
NOW = Ways()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A cloud: its hosts, and what serves them."""

    hosts: int
    workers: int  # of placement, with one thread each
    keystone_workers: int
    database_cores: int
    shape: str = "network"
    layout: str = "devices"
    ways: Ways = NOW
    seed: int = 1

    @property
    def claims_a_s(self) -> float:
        """Boots of guests a second."""
        return self.hosts * GUESTS / LIFE_S


@dataclass
class Seen:
    """What a window showed."""

    setup: Setup
    began_s: float  # when something happened
    ended_s: float
    requests: Mapping[int, int]  # by second
    logins: Mapping[int, int]
    busy: float  # of placement's workers, mean part
    database: float  # busy cores, mean
    keystone: float  # of its workers, mean part
    failures: int
    boots: list[tuple[float, float]] = field(default_factory=list)  # (when, seconds that one takes or would take)
    well_s: float | None = None  # from what happened until all is well; None: it was not within an hour
    worst_pass_s: float = 0.0

    @property
    def most(self) -> int:
        """The most requests to placement in a second."""
        return max(self.requests.values(), default=0)

    def boot_s(self, part: float) -> float:
        """Return the seconds that search and claim took at most for this part of the boots since something happened."""
        taken = sorted(seconds for when, seconds in self.boots if when >= self.began_s)
        return taken[min(len(taken) - 1, int(part * len(taken)))] if taken else math.nan


class World:
    """A cloud whose agents, schedulers and services run."""

    def __init__(self, setup: Setup, costs: Costs) -> None:
        self.setup, self.costs = setup, costs
        self.env = simpy.Environment()
        self.dice = random.Random(setup.seed)
        self.database = Cores(self.env, setup.database_cores)
        self.placement = Service(self.env, setup.workers, 1, self.database, pause=costs.pause)
        self.keystone = Service(self.env, setup.keystone_workers, 1, Cores(self.env, setup.database_cores))
        self.cloud = Cloud(self.env, self.placement, self.keystone, costs.loaded(), setup.ways, self.dice)
        activities = {**costs.hosts[f"{setup.shape} flat"], **costs.hosts[f"{setup.shape} {setup.layout}"]}
        self.agents = [Agent(self.cloud, self.dice.random(), activities) for _ in range(setup.hosts)]
        self.runs: list[simpy.Process] = []
        self.boots: list[tuple[float, float]] = []
        search_s = costs.search_s(setup.layout, min(setup.hosts, SEARCHED))
        self._search = Cost(search_s * (1 - SEARCH_IN_DATABASE), search_s * SEARCH_IN_DATABASE, 0.0, 0)

    def rest(self) -> None:
        """Let all agents be there for long, each at its own moment of everything."""
        ways, dice = self.setup.ways, self.dice
        for agent in self.agents:
            agent.ready_at = 0.0
            self._age_token(agent)
            agent.validated_until = dice.random() * ways.token_cache_s
            agent.whole_at = dice.random() * ways.full_audit_interval_s
            self.runs.append(self._process(agent.run("restart", due=agent.place * ways.interval_s)))
        self.env.process(self._boots())
        self.env.process(self._probes())

    def _age_token(self, agent: Agent) -> None:
        """Let an agent have a token of some age, as tokens are after hours of renewals."""
        life_s = self.setup.ways.token_s or 0
        first_s, last_s = (part * life_s for part in self.setup.ways.renewed or (1, 1))
        agent.renew_at = self.dice.random() * self.dice.uniform(first_s, last_s)
        agent.token_until = agent.renew_at + life_s - last_s

    def restart_agents(self) -> None:
        """Restart all services at once, as after an upgrade."""
        for run in self.runs:
            run.interrupt()
        for agent in self.agents:
            agent.ready_at, agent.failures, agent.late = None, 0, 0
            if not self.setup.ways.keeps_token:
                agent.renew_at = agent.token_until = 0.0
        self.runs = [self._process(agent.run("restart")) for agent in self.agents]

    def until_well(self) -> float | None:
        """Run until each agent had a good pass; return when that was, None after an hour."""
        latest = self.env.now + PATIENCE_S
        while self.env.now < latest:
            self.env.run(self.env.now + LOOK_S)
            if all(agent.ready_at is not None for agent in self.agents):
                return max(agent.ready_at or 0.0 for agent in self.agents)
        return None

    def _process(self, steps: Steps) -> simpy.Process:
        def living() -> Steps:
            with suppress(simpy.Interrupt):
                yield from steps

        return self.env.process(living())

    def seen(self, began_s: float) -> Seen:
        """Return what was seen from the first moment on."""
        now = self.env.now
        return Seen(
            setup=self.setup,
            began_s=began_s,
            ended_s=now,
            requests=dict(self.placement.arrived),
            logins=dict(self.keystone.arrived),
            busy=self.placement.busy_s / now / self.setup.workers,
            database=self.database.busy_s / now,
            keystone=self.keystone.busy_s / now / self.setup.keystone_workers,
            failures=self.cloud.record.failures.total(),
            boots=self.boots,
            worst_pass_s=max((seconds for when, seconds in self.cloud.record.took if when >= began_s), default=0.0),
        )

    def _boots(self) -> Steps:
        while True:
            yield self.env.timeout(self.dice.expovariate(self.setup.claims_a_s))
            self.env.process(self._boot())

    def _boot(self) -> Steps:
        """Search and claim, as nova's scheduler does; its token is in everybody's cache."""
        if not self.placement.is_up:
            return
        yield from self.placement.serve(self._search)
        yield from self.placement.serve(self.costs.kinds[CLAIM])

    def _probes(self) -> Steps:
        """Look again and again how long a boot would take; boots themselves are too few to tell it."""
        while True:
            yield self.env.timeout(PROBE_S)
            if self.placement.is_up:
                self.env.process(self._probe())

    def _probe(self) -> Steps:
        """Wait as the two requests of a boot do, and take no worker's time."""
        began = self.env.now
        for cost in (self._search, self.costs.kinds[CLAIM]):
            with self.placement.slots.request() as slot:
                yield slot
            yield self.env.timeout(cost.service_s + cost.database_s + cost.wait_s)
        self.boots.append((began, self.env.now - began))


def at_rest(setup: Setup, costs: Costs, seconds: float = 600) -> Seen:
    """Nothing happens."""
    world = World(setup, costs)
    world.rest()
    world.env.run(seconds)
    return world.seen(0.0)


def after_placement_restart(setup: Setup, costs: Costs) -> Seen:
    """Placement is away for a minute; then each agent has to have a good pass again."""
    world = World(setup, costs)
    world.rest()
    world.env.run(BEGIN_S)
    world.placement.stop()
    world.env.run(BEGIN_S + DOWN_S)
    began = world.env.now
    for agent in world.agents:
        agent.ready_at, agent.validated_until = None, 0.0
    world.placement.is_up = True
    return _well(world, began)


def after_fleet_restart(setup: Setup, costs: Costs) -> Seen:
    """All services are restarted at once."""
    world = World(setup, costs)
    world.rest()
    world.env.run(BEGIN_S)
    world.restart_agents()
    return _well(world, BEGIN_S)


def an_hour_later(setup: Setup, costs: Costs) -> Seen:
    """All agents logged in within their spread; their tokens are renewed, or end, from ``BEGIN_S`` on."""
    world = World(setup, costs)
    world.rest()
    ways, life_s = setup.ways, setup.ways.token_s or 0
    first_s, last_s = (part * life_s for part in ways.renewed or (1 - ways.renewed_s / life_s,) * 2)
    for agent in world.agents:
        began_s = BEGIN_S - first_s + agent.place * ways.start_spread_s
        agent.token_until = began_s + life_s - ways.renewed_s
        agent.renew_at = began_s + world.dice.uniform(first_s, last_s)
    world.env.run(BEGIN_S)
    for agent in world.agents:
        agent.ready_at = None
    return _well(world, BEGIN_S, last_s - first_s + ways.start_spread_s)


@dataclass(frozen=True, slots=True)
class Converted:
    """What conversions of so many hosts at a time did in a window."""

    forks: int
    seen: Seen
    each_s: float  # of one host, the mean
    attempts: int
    again: int  # attempts that began again: a claim on the host, or no answer in time

    @property
    def hosts_an_hour(self) -> float:
        """How many hosts are converted in an hour."""
        return 3600 * self.forks / self.each_s


def converting(setup: Setup, costs: Costs, forks: int, seconds: float = 240) -> Converted:
    """Convert so many hosts at a time, as the last batch of a fleet's conversion does."""
    world = World(setup, costs)
    world.rest()
    took: list[float] = []
    attempts = again = 0
    claimed_a_s = GUESTS / LIFE_S

    def convert(agent: Agent) -> Steps:
        nonlocal attempts, again
        while True:
            began = world.env.now
            yield world.env.timeout(HOST_S)
            while True:
                attempts += 1
                asked = world.env.now
                with suppress(Refused):
                    yield from agent._pass(agent.activities["conversion"])
                    if world.dice.random() < math.exp(-claimed_a_s * (world.env.now - asked)):
                        break
                again += 1
            took.append(world.env.now - began)

    for agent in world.agents[:forks]:
        other = Agent(world.cloud, agent.place, costs.hosts[f"{setup.shape} {setup.layout}"], renew_at=math.inf)
        world.env.process(convert(other))
    world.env.run(seconds)
    return Converted(forks, world.seen(0.0), statistics.fmean(took), attempts, again)


def _well(world: World, began: float, at_least_s: float = 0.0) -> Seen:
    """Look until all is well, and at least for so long, or for two periods."""
    well = world.until_well()
    world.env.run(max(world.env.now + LOOK_S, began + max(at_least_s, 2 * world.setup.ways.interval_s)))
    seen = world.seen(began)
    seen.well_s = None if well is None else well - began
    return seen
