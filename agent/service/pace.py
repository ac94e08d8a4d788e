"""
When the next pass of the service is due: its period, events, retries after failures, and quick looks after a loss.

Many events of the host within a short time are one batch, and lead to one look. Each host has its own moment in every
period, so that the hosts of a fleet that start together do not ask placement all at once. The periodic tasks of
oslo.service keep the time; they do not need its launchers, which use eventlet or fork.
"""

import hashlib
import math
import os
import queue
import random
import time
from collections.abc import Iterable
from contextlib import suppress

from oslo_service import periodic_task

from agent.settings.read import Settings
from agent.sync.decide.checks import PATIENCE
from drivers.base import Event
from reportclient.errors import Unavailable

QUIET_S = 0.1  # a batch ends when no event came for this time
SOON_S = 0.15  # wait between the looks that confirm the loss of hardware after an event announced it
LONGEST_S = 0.4  # a batch ends this long after its first event, so that a flood of events does not delay the look
FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 256.0  # waits after the first failed pass, and after many
LATE_RETRY_S = 900.0  # after many in a row that got no answer in time
_DOUBLINGS = 16  # more than any of these needs
OFTENEST = 0.6  # of full_audit_interval; a pass reads everything again only after half of it


class WakeUps:
    """A queue of events: any thread adds to it, and one thread waits for batches."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()  # None: an interruption

    def wake(self, event: Event) -> None:
        """Add an event; callable from any thread."""
        self._events.put(event)

    def interrupt(self) -> None:
        """End ``wait`` without an event; callable from any thread and from a signal handler."""
        self._events.put(None)

    def wait(self, seconds: float) -> tuple[Event, ...]:
        """Return the next batch of events; empty if none came in time, or at an interruption."""
        batch: list[Event] = []
        left_s, end_s = seconds, math.inf
        with suppress(queue.Empty):
            while left_s >= 0 and (event := self._events.get(timeout=left_s)):
                batch.append(event)
                now_s = time.monotonic()
                end_s = min(end_s, now_s + LONGEST_S)
                left_s = min(QUIET_S, end_s - now_s)
        return tuple(batch)


class Pace:
    """Decides when the main thread takes a pass; all times are of the monotonic clock."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.deep = True  # whether the next audits read everything
        self.failures = 0  # failed passes since the last good one
        self._late = 0  # the last ones of these that got no answer in time
        self._retry = 0.0  # when a failed pass is tried again; no pass begins before
        self._hardware: frozenset[str] = frozenset()  # PCI addresses of the devices that count in reported inventory
        self._looks = PATIENCE  # looks at the host since it announced a loss
        self._soon = math.inf  # when the next of these looks is due
        self._begin()

    def _begin(self) -> None:
        """Begin new periods; the first regular pass is due a part of ``[agent] start_spread`` from now."""
        self._place = _place(self._settings)
        self._took_at = -math.inf  # when the schedule last took a pass
        self._takes = False  # whether the schedule just took one
        self._schedule: periodic_task.PeriodicTasks | None = None
        self._began = time.monotonic()
        self.due = self._began + self._place * self._settings.service.start_spread_s  # the next regular pass

    def tick(self) -> bool:
        """
        Return whether a regular pass is to be taken now that ``due`` has come; it may be due to read everything alone.

        The second pass follows the first after half to one and a half periods, at this host's own moment; the others
        follow one period apart. After a pass that came late, as one that was held back after failures, at least half a
        period is left for the host to become what it was. Call ``rest`` after the pass.
        """
        now, period_s = time.monotonic(), self._settings.service.interval_s
        if self._schedule is None:
            self._schedule = self._new_schedule()
            self.due = self._began + self._place * period_s
            while self.due < now + period_s / 2:
                self.due += period_s
            return True
        self._takes = False
        idle_s = self._schedule.run_periodic_tasks(None, raise_on_error=True)
        self.due = max(now + idle_s, self._took_at + period_s / 2)
        return self._takes

    def rest(self) -> None:
        """Leave half a period after a regular pass that took long: a slow server is not asked without a pause."""
        self.due = max(self.due, time.monotonic() + self._settings.service.interval_s / 2)

    def _new_schedule(self) -> periodic_task.PeriodicTasks:
        """
        Make a schedule of the pass (due at once) and of the full audit, each with its own period.

        A full audit asks for every provider. Those of hosts that started together would meet once an hour, so that
        period differs from host to host: from ``OFTENEST`` of the configured one to all of it.
        """

        def take_pass(_tasks: object, _context: object) -> None:
            self._takes, self._took_at = True, time.monotonic()

        def read_everything(_tasks: object, _context: object) -> None:
            self.deep = True

        often = periodic_task.periodic_task(spacing=self._settings.service.interval_s, run_immediately=True)
        part = OFTENEST + (1 - OFTENEST) * self._place
        seldom = periodic_task.periodic_task(spacing=round(part * self._settings.service.full_audit_interval_s))
        tasks = {"take_pass": often(take_pass), "read_everything": seldom(read_everything)}
        made: periodic_task.PeriodicTasks = type("Schedule", (periodic_task.PeriodicTasks,), tasks)(
            self._settings.apis.source
        )
        return made

    def wait_s(self, watchdog_s: float | None) -> float:
        """Return how many seconds the loop may wait for events; systemd's watchdog (None: no watchdog) limits it."""
        longest = watchdog_s / 3 if watchdog_s else float(self._settings.service.interval_s)
        due = self._retry if self.failures else min(self.due, self._soon)
        return float(max(0.0, min(due - time.monotonic(), longest)))

    def notice(self, events: Iterable[Event]) -> None:
        """
        Ask for looks in quick succession, which may confirm a loss, if an event tells that reported hardware is gone.

        All CPUs and memory count. The loss of other devices, which come and go with guests, does not matter.
        """
        if any(one.gone in self._hardware or one.gone.startswith(("cpu", "memory")) for one in events if one.gone):
            self._looks = 0  # for the next pass, whatever starts it

    @property
    def held_back_s(self) -> float:
        """Seconds left of the wait after a failed pass, in which nothing else starts one either; 0: none."""
        return max(0.0, self._retry - time.monotonic())

    def is_due(self, events: Iterable[Event]) -> bool:
        """Whether a pass is due apart from the period: after events, after a failure, or as a quick look at a loss."""
        return bool(events or self.failures or time.monotonic() >= self._soon)

    @property
    def looks_again(self) -> bool:
        """Whether the host announced a loss, and was not looked at ``PATIENCE`` times since."""
        return self._looks < PATIENCE

    def done(self, hardware: frozenset[str], *, refused: bool) -> bool:
        """Note a pass over all nodes, and the hardware it reported; return whether another look follows at once."""
        self.failures, self._late, self._retry, self.deep = 0, 0, 0.0, False
        self._hardware = self._hardware | hardware if refused else hardware
        self._looks += refused
        again = refused and self.looks_again  # an announced loss is looked at three times in quick succession
        self._soon = time.monotonic() + SOON_S if again else math.inf
        return again

    def failed(self, error: Exception) -> None:
        """
        Put off the next pass: twice as long after each failure, up to the interval, and Retry-After is added.

        A server that does not answer in time may be overloaded, and work for requests that nobody waits for any more.
        Then the waits grow up to ``LATE_RETRY_S``, so that a fleet asks less and less until the server can answer all.
        A single late answer, as of a proxy while placement starts, makes no wait longer than others.
        """
        self.failures += 1
        unavailable = error if isinstance(error, Unavailable) else None
        self._late = self._late + 1 if unavailable and unavailable.late else 0
        longest = max(
            min(_doubled_s(self.failures), LONGEST_RETRY_S, self._settings.service.interval_s),
            min(_doubled_s(self._late), LATE_RETRY_S) if self._late else 0.0,
        )
        asked_s = unavailable.retry_after_s if unavailable else 0.0
        self._retry = time.monotonic() + asked_s + longest * random.uniform(0.5, 1.0)

    def restart(self, settings: Settings) -> None:
        """Begin new periods under new settings; forget the failures, and let the next audits read everything."""
        self._settings = settings
        due = min(self.due, self._retry if self.failures else math.inf)
        self.failures, self._late, self._retry, self.deep = 0, 0, 0.0, True
        self._begin()
        self.due = min(self.due, max(due, time.monotonic()))  # repeated reloads do not put off a pass


def _doubled_s(failures: int) -> float:
    """Return the wait after so many failures: twice as long after each."""
    return FIRST_RETRY_S * 2.0 ** min(failures - 1, _DOUBLINGS)


def _place(settings: Settings) -> float:
    """Return this host's moment in every period, from 0 to 1: the same after each start, different for each host."""
    digest = hashlib.sha256(os.uname().nodename.encode() + str(settings.folders.state).encode()).digest()
    return int.from_bytes(digest[:4]) / 2**32
