"""An agent as its service behaves: when its passes are due, what they ask, and what it does about failures."""

import hashlib
import random
from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field

import simpy

from simulator.costs import TOKEN, VALIDATION, Activity, Cost
from simulator.stations import Service, Steps, Thread

FIRST_RETRY_S, LONGEST_RETRY_S, DOUBLINGS = 1.0, 256.0, 16  # agent/service/pace.py
OFTENEST = 0.6  # agent/service/pace.py
JITTER = 0.05  # oslo_service.periodic_task


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """How agents and those whom they ask are configured, with the defaults of each."""

    interval_s: float = 60
    start_spread_s: float = 60
    full_audit_interval_s: float = 3600
    timeout_s: float = 60
    late_retry_s: float = 900  # the longest wait after requests without an answer in time
    token_s: float | None = 3600  # how long a token is good; None: placement asks for none
    renewed_s: float = 120  # a token is not used for so long before its end
    renewed: tuple[float, float] | None = (0.4, 0.9)  # parts of its life between which it is renewed; None: at its end
    keeps_token: bool = True  # over a restart of the service
    token_cache_s: float = 300  # [keystone_authtoken] token_cache_time, in memcached

    def wait_s(self, failures: int, late: int) -> float:
        """Return the longest wait after so many failures, the last ``late`` of which got no answer in time."""
        usual_s = min(_doubled_s(failures), LONGEST_RETRY_S, self.interval_s)
        return max(usual_s, min(_doubled_s(late), self.late_retry_s) if late else 0.0)


BEFORE = Ways(start_spread_s=30, late_retry_s=60, renewed=None, keeps_token=False)
"""The agent before this simulation."""


@dataclass
class Record:
    """What is seen of a run."""

    failures: Counter[int] = field(default_factory=Counter)  # failed ones by second
    took: list[tuple[float, float]] = field(default_factory=list)  # (when, seconds) of each good pass


@dataclass
class Cloud:
    """The services that agents meet."""

    env: simpy.Environment
    placement: Service
    keystone: Service | None
    kinds: Mapping[str, Cost]
    ways: Ways
    dice: random.Random
    record: Record = field(default_factory=Record)

    def ask(self, agent: "Agent", kind: str) -> Steps:
        """
        Send a request of an agent.

        Raises:
            Refused: no answer in time, or none at all.
        """
        if self.ways.token_s is not None:
            yield from self._log_in(agent)
        placement = self.placement
        if not placement.is_up:
            raise Refused
        validation = self._validation(agent)
        yield from self._answered(placement, placement.serve(self.kinds[kind], validation))

    def _log_in(self, agent: "Agent") -> Steps:
        assert self.keystone
        assert self.ways.token_s is not None
        if self.env.now < agent.renew_at:
            return
        try:
            if not self.keystone.is_up:
                raise Refused
            yield from self._answered(self.keystone, self.keystone.serve(self.kinds[TOKEN]))
        except Refused:
            if self.env.now >= agent.token_until:
                raise
            agent.renew_at = self.env.now + (agent.token_until - self.env.now) * self._part()
            return
        agent.token_until = self.env.now + self.ways.token_s - self.ways.renewed_s
        agent.renew_at = min(agent.token_until, self.env.now + self.ways.token_s * self._part())
        agent.validated_until = 0.0

    def _part(self) -> float:
        """Return the part of a token's life after which it is renewed."""
        return self.dice.uniform(*self.ways.renewed) if self.ways.renewed else 1.0

    def _validation(self, agent: "Agent") -> Steps | None:
        """Return what placement does about the agent's token; None: nothing."""
        if self.ways.token_s is None or self.env.now < agent.validated_until:
            return None
        return self._validate(agent)

    def _validate(self, agent: "Agent") -> Steps:
        assert self.keystone
        yield from self.keystone.serve(self.kinds[VALIDATION])
        agent.validated_until = self.env.now + self.ways.token_cache_s

    def _answered(self, service: Service, serving: Steps) -> Steps:
        """Wait for an answer, but no longer than the client waits; the server goes on all the same."""
        starts, began = service.starts, self.env.now
        if service.waiting >= service.backlog:
            serving.close()
            yield self.env.timeout(self.ways.timeout_s)
            raise Refused(timed_out=True)
        if service.waiting < service.processes:  # nobody gives up in so short a queue
            yield from serving
        else:
            done = self.env.process(serving)
            yield done | self.env.timeout(self.ways.timeout_s)
            if not done.triggered:
                raise Refused(timed_out=True)
        if service.starts != starts or self.env.now - began > self.ways.timeout_s:
            raise Refused(timed_out=service.starts == starts)


class Refused(Exception):
    """There was no answer; ``timed_out``: the server may still be at work for it."""

    def __init__(self, *, timed_out: bool = False) -> None:
        super().__init__()
        self.timed_out = timed_out


@dataclass
class Agent:
    """One service on one host."""

    cloud: Cloud
    place: float  # its moment in every period, from 0 to 1
    activities: Mapping[str, Activity]
    thread: Thread | None = None  # in a process that it shares with others; None: it has a host of its own
    renew_at: float = 0.0  # when it asks for another token
    token_until: float = 0.0  # its token is used until then
    validated_until: float = 0.0  # placement knows its token until then
    failures: int = 0
    late: int = 0  # the last ones of these that got no answer in time
    ready_at: float | None = None  # its first good pass since the start
    whole_at: float = 0.0  # when it reads everything next

    def run(self, first: str, *, due: float | None = None) -> Steps:
        """
        Take passes for ever, the first with the activity ``first``.

        ``due``: when the first pass of a service that was there before is due; None: it starts now.
        """
        env, ways = self.cloud.env, self.cloud.ways
        began = env.now
        part = OFTENEST + (1 - OFTENEST) * self.place
        if due is None:
            due = began + self.place * ways.start_spread_s
            self.whole_at = due + part * ways.full_audit_interval_s
            yield env.timeout(due - env.now)
            yield from self.work(first)
            due = began + self.place * ways.interval_s
            while due < env.now + ways.interval_s / 2:
                due += ways.interval_s
        while True:
            yield env.timeout(max(0.0, due - env.now))
            whole = env.now >= self.whole_at
            if whole:
                self.whole_at = env.now + part * ways.full_audit_interval_s
            at = env.now
            yield from self.work("whole" if whole else "quiet")
            due += ways.interval_s * int(1 + (env.now - due) // ways.interval_s)
            due += int(ways.interval_s * self.cloud.dice.random() * JITTER)
            due = max(due, at + ways.interval_s / 2)

    def work(self, activity: str) -> Steps:
        """Take a pass until it is good, with waits after failures."""
        env, ways = self.cloud.env, self.cloud.ways
        while True:
            try:
                began = yield from self._pass(self.activities[activity])
            except Refused as error:
                self.failures += 1
                self.cloud.record.failures[int(env.now)] += 1
                self.late = self.late + 1 if error.timed_out else 0
                yield env.timeout(ways.wait_s(self.failures, self.late) * self.cloud.dice.uniform(0.5, 1.0))
                continue
            self.failures = self.late = 0
            self.ready_at = env.now if self.ready_at is None else self.ready_at
            self.cloud.record.took.append((env.now, env.now - began))
            return

    def _pass(self, activity: Activity) -> Generator[simpy.Event, object, float]:
        """Take a pass; return when it began, which an agent that has no core yet does not know."""
        began: float | None = None
        *before, after = activity.parts_s
        kinds = [kind for kind, times in activity.requests for _ in range(times)]
        for seconds, kind in zip(before, kinds, strict=True):
            computed = yield from self.compute(seconds)
            began = computed if began is None else began
            yield from self.cloud.ask(self, kind)
        computed = yield from self.compute(after)
        return computed if began is None else began

    def compute(self, seconds: float) -> Generator[simpy.Event, object, float]:
        """Take so much CPU; return when it began, which is later than now where there is no core yet."""
        if self.thread:
            return (yield from self.thread.compute(seconds))
        began = self.cloud.env.now
        yield self.cloud.env.timeout(seconds)
        return began


def _doubled_s(failures: int) -> float:
    return FIRST_RETRY_S * 2.0 ** min(failures - 1, DOUBLINGS)


def place_of(nodename: str, state_directory: str) -> float:
    """Return a host's moment in every period, as agent/service/pace.py has it."""
    digest = hashlib.sha256(nodename.encode() + state_directory.encode()).digest()
    return int.from_bytes(digest[:4]) / 2**32
