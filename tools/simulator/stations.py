"""Services under load: requests wait for a free thread, compute in turns, and use the database's cores."""

import random
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field

import simpy

from simulator.costs import Cost

BEHIND = 1  # rank of what computes only while nothing of rank 0 does
Steps = Generator[simpy.Event, object, None]
TURN_S = 0.005  # a thread of Python computes so long before it lets others go on (sys.getswitchinterval)


@dataclass
class Cores:
    """Cores that several pieces of work share, turn by turn; ``beneath`` are cores that each turn needs as well."""

    env: simpy.Environment
    count: int
    beneath: "Cores | None" = None
    turn_s: float = TURN_S
    busy_s: float = 0.0

    def __post_init__(self) -> None:
        self.places = simpy.PriorityResource(self.env, self.count)

    def compute(self, seconds: float, rank: int = 0) -> Steps:
        """Compute for ``seconds`` of CPU; it takes longer where others compute too, of the same rank or a lower one."""
        self.busy_s += seconds
        while seconds > 0:
            turn_s = min(seconds, self.turn_s)
            with self.places.request(rank) as place:
                yield place
                if self.beneath:
                    yield from self.beneath.compute(turn_s)
                else:
                    yield self.env.timeout(turn_s)
            seconds -= turn_s


@dataclass
class Process:
    """
    A process of Python with services of agents, which computes while placement and its database do not.

    The kernel gives a slice to one such process after the other. In it the threads compute in turns, in any order.
    """

    env: simpy.Environment
    slices: simpy.Resource  # a place for each core, which all processes share
    cores: Cores
    dice: random.Random
    slice_s: float
    turn_s: float  # of a thread

    def __post_init__(self) -> None:
        self._work: list[tuple[float, simpy.Event]] = []  # seconds that are left, and what tells that there are none
        self._runs = False

    def compute(self, seconds: float) -> Steps:
        """Let a thread compute for ``seconds`` of CPU."""
        done = self.env.event()
        self._work.append((seconds, done))
        if not self._runs:
            self._runs = True
            self.env.process(self._run())
        yield done

    def _run(self) -> Steps:
        while self._work:
            with self.slices.request() as place:
                yield place
                left_s = self.slice_s
                while self._work and left_s > 0:
                    seconds, done = self._work.pop(self.dice.randrange(len(self._work)))
                    turn_s = min(seconds, left_s, self.turn_s)
                    yield from self.cores.compute(turn_s, BEHIND)
                    left_s -= turn_s
                    if turn_s < seconds:
                        self._work.append((seconds - turn_s, done))
                    else:
                        done.succeed()
        self._runs = False


@dataclass
class Service:
    """
    Processes of ``threads`` threads each, and a database.

    A process computes on one core at a time, whatever its threads. A thread keeps its request while the database works.
    """

    env: simpy.Environment
    processes: int
    threads: int
    database: Cores
    backlog: int = 2048  # requests that may wait: those beyond are not accepted (gunicorn's default)
    cores: Cores | None = None  # of a machine that all share; None: each process has one of its own
    arrived: Counter[int] = field(default_factory=Counter)  # requests by second
    answered: Counter[int] = field(default_factory=Counter)  # the same by the second of their answers
    busy_s: float = 0.0  # CPU of the processes
    is_up: bool = True
    starts: int = 0  # how many times it was started again; requests of before are lost

    def __post_init__(self) -> None:
        self.slots = simpy.Resource(self.env, self.processes * self.threads)
        self._computing = Cores(self.env, self.processes, self.cores) if self.threads > 1 or self.cores else None

    def stop(self) -> None:
        """Refuse requests, and lose those that were sent already."""
        self.is_up = False
        self.starts += 1

    @property
    def waiting(self) -> int:
        """Requests that wait for a thread."""
        return len(self.slots.queue)

    def serve(self, cost: Cost, while_held: Steps | None = None) -> Steps:
        """Serve one request; ``while_held`` is what its thread waits for besides."""
        self.arrived[int(self.env.now)] += 1
        with self.slots.request() as slot:
            yield slot
            self.busy_s += cost.service_s
            if while_held:
                yield from while_held
            if self._computing:
                yield from self._computing.compute(cost.service_s)
            else:
                yield self.env.timeout(cost.service_s)
            yield from self.database.compute(cost.database_s)
            yield self.env.timeout(cost.wait_s)
            self.answered[int(self.env.now)] += 1
