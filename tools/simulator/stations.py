"""Services under load: requests wait for a free thread, compute in turns, and use the database's cores."""

import random
from collections import Counter, deque
from collections.abc import Generator
from dataclasses import dataclass, field

import simpy

from simulator.costs import Cost, Pause

BEHIND = 1  # rank of what computes only while nothing of rank 0 does
Steps = Generator[simpy.Event, object, None]
TICK_S = 1e-9  # of a core's clock
LOOK_S = 0.0005  # so often a thread looks whether another one wants the interpreter
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

    def compute(self, seconds: float, rank: int = 0, longest_s: float | None = None) -> Steps:
        """
        Compute for ``seconds`` of CPU; it takes longer where others compute too, of the same rank or a lower one.

        ``longest_s`` is the longest turn; None: that of all.
        """
        self.busy_s += seconds
        while seconds > 0:
            turn_s = min(seconds, longest_s or self.turn_s)
            with self.places.request(rank) as place:
                yield place
                if self.beneath:
                    yield from self.beneath.compute(turn_s)
                else:
                    yield self.env.timeout(turn_s)
            seconds -= turn_s


@dataclass
class Queue:
    """
    Threads that share cores fairly, much as the kernel's EEVDF scheduler has it (sched-eevdf.rst).

    All have the same slices, so the next one is the one that has had least. A thread that comes back after a wait has
    had as much as the others on average, or as much as before if that is more: its wait gains it nothing.
    """

    env: simpy.Environment
    cores: Cores
    slice_s: float

    def __post_init__(self) -> None:
        self._places = simpy.PriorityResource(self.env, self.cores.count)
        self._had_s: dict[Thread, float] = {}  # by those that compute or would
        self._all_s = 0.0  # by these together
        self._average_s = 0.0  # of these; it never falls

    def join(self, thread: "Thread") -> None:
        """Let a thread have its part of the cores from now on."""
        if self._had_s:
            self._average_s = max(self._average_s, self._all_s / len(self._had_s))
        self._had_s[thread] = max(thread.had_s, self._average_s)
        self._all_s += self._had_s[thread]

    def leave(self, thread: "Thread") -> None:
        """Let a thread wait for something else."""
        thread.had_s = self._had_s.pop(thread)
        self._all_s -= thread.had_s

    def place(self, thread: "Thread") -> simpy.resources.resource.PriorityRequest:
        """Return the request of a thread for a core."""
        return self._places.request(round(self._had_s[thread] / TICK_S))

    def compute(self, thread: "Thread", seconds: float) -> Steps:
        """Let a thread that has a core compute while nothing else does."""
        yield from self.cores.compute(seconds, BEHIND)
        self._had_s[thread] += seconds
        self._all_s += seconds


@dataclass
class Interpreter:
    """The lock of a process of Python, as ``Python/ceval_gil.c`` of Python 3.11 has it."""

    env: simpy.Environment

    def __post_init__(self) -> None:
        self.holder: Thread | None = None
        self.wanted = False  # a thread has waited for a whole turn
        self.switches = 0  # how often another thread took the lock
        self._last: Thread | None = None
        self._waiters: deque[simpy.Event] = deque()
        self._switched: list[simpy.Event] = []

    def take(self, thread: "Thread") -> None:
        """Give the free lock to a thread."""
        self.holder, self.wanted = thread, False
        if self._last is not thread:
            self._last = thread
            self.switches += 1
            for event in self._switched:
                event.succeed()
            self._switched.clear()

    def free(self) -> Steps:
        """Take the lock from its holder and wake a waiter; where one wanted it, wait until another thread has it."""
        self.holder = None
        if self._waiters:
            self._waiters.popleft().succeed()
        if self.wanted:
            self._switched.append(switched := self.env.event())
            yield switched

    def wait(self) -> Generator[simpy.Event, object, int | None]:
        """Wait until the lock is free, for a turn at most; return the switches before a turn in which it was not."""
        switches = self.switches
        self._waiters.append(told := self.env.event())
        yield told | self.env.timeout(TURN_S)
        if told.triggered:
            return None
        self._waiters.remove(told)
        return switches


@dataclass(eq=False)
class Thread:
    """A service's thread in a process that it shares, which computes while placement and its database do not."""

    queue: Queue
    lock: Interpreter
    had_s: float = 0.0  # of its cores, when it waited last

    def compute(self, seconds: float) -> Generator[simpy.Event, object, float]:
        """Compute for ``seconds`` of CPU; return when this thread first had a core and the lock."""
        switches: int | None = None  # before a whole turn for which this thread waited
        began: float | None = None
        self.queue.join(self)
        while seconds > TICK_S:
            with self.queue.place(self) as place:
                yield place
                if self.lock.holder is None:
                    self.lock.take(self)
                elif self.lock.holder is not self and self.lock.switches == switches:
                    self.lock.wanted = True
                if began is None and self._may_go_on():
                    began = self.queue.env.now
                left_s = self.queue.slice_s
                while self._may_go_on() and left_s > TICK_S and seconds > TICK_S:
                    turn_s = min(seconds, left_s, LOOK_S)
                    yield from self.queue.compute(self, turn_s)
                    seconds -= turn_s
                    left_s -= turn_s
            if seconds > TICK_S and not self._may_go_on():
                self.queue.leave(self)
                if self.lock.holder is self:
                    yield from self.lock.free()
                switches = yield from self.lock.wait()
                self.queue.join(self)
        self.queue.leave(self)
        if self.lock.holder is self:
            yield from self.lock.free()
        return self.queue.env.now if began is None else began

    def _may_go_on(self) -> bool:
        return self.lock.holder is self and not self.lock.wanted


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
    pause: Pause | None = None  # of a process, after so many requests of all; None: it makes none
    cores: Cores | None = None  # of a machine that all share; None: each process has one of its own
    arrived: Counter[int] = field(default_factory=Counter)  # requests by second
    answered: Counter[int] = field(default_factory=Counter)  # the same by the second of their answers
    busy_s: float = 0.0  # CPU of the processes
    is_up: bool = True
    starts: int = 0  # how many times it was started again; requests of before are lost
    dice: random.Random = field(default_factory=lambda: random.Random(0))  # for the moments and lengths of pauses

    def __post_init__(self) -> None:
        self._served = self.dice.randrange(self.pause.every) if self.pause else 0
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
            if while_held:
                yield from while_held
            yield from self._compute(cost.service_s)
            self._served += 1
            if self.pause and self._served % self.pause.every == 0:
                pause_s = self.dice.choice(self.pause.service_s)
                yield from self._compute(pause_s, pause_s)
            yield from self.database.compute(cost.database_s)
            yield self.env.timeout(cost.wait_s)
            self.answered[int(self.env.now)] += 1

    def _compute(self, seconds: float, longest_s: float | None = None) -> Steps:
        self.busy_s += seconds
        if self._computing:
            yield from self._computing.compute(seconds, longest_s=longest_s)
        else:
            yield self.env.timeout(seconds)
