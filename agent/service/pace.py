"""
When the next pass of the service is due: its period, events, retries after failures, and quick looks after a loss.

Many events of the host within a short time are one batch, and lead to one look.
"""

import math
import queue
import random
import time
from collections.abc import Callable, Container, Iterable
from contextlib import suppress

from agent.service.timetable import Rhythm
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


def announce_loss(events: Iterable[Event], reported: Container[str]) -> bool:
    """
    Whether an event tells that reported hardware is gone, so that looks in quick succession may confirm it.

    ``reported``: PCI addresses of the devices that count in reported inventory. All CPUs and memory count. The loss
    of other devices, which come and go with guests, does not matter.
    """
    return any(one.gone in reported or one.gone.startswith(("cpu", "memory")) for one in events if one.gone)


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

    def __init__(self, settings: Settings, take_pass: Callable[[], object]) -> None:
        self._settings = settings
        self._take_pass = take_pass
        self.deep = True  # whether the next audits read everything
        self.failures = 0  # failed passes since the last good one
        self._late = 0  # the last ones of these that got no answer in time
        self._retry = 0.0  # when a failed pass is tried again; no pass begins before
        self._hardware: frozenset[str] = frozenset()  # reported hardware; an event about its loss starts a look at once
        self._looks = PATIENCE  # looks at the host since it announced a loss
        self._soon = math.inf  # when the next of these looks is due
        self.rhythm = self._new_rhythm()  # its first pass is due a part of ``[agent] start_spread`` from now

    def _new_rhythm(self) -> Rhythm:
        return Rhythm(self._settings, take_pass=self._take_pass, read_everything=self._read_everything)

    def _read_everything(self) -> None:
        self.deep = True

    def wait_s(self, watchdog_s: float | None) -> float:
        """Return how many seconds the loop may wait for events; systemd's watchdog (None: no watchdog) limits it."""
        longest = watchdog_s / 3 if watchdog_s else float(self._settings.service.interval_s)
        due = self._retry if self.failures else min(self.rhythm.due, self._soon)
        return float(max(0.0, min(due - time.monotonic(), longest)))

    def notice(self, events: Iterable[Event]) -> None:
        """Ask for looks in quick succession if the events announce the loss of reported hardware."""
        if announce_loss(events, self._hardware):
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
        due = min(self.rhythm.due, self._retry if self.failures else math.inf)
        self.failures, self._late, self._retry, self.deep = 0, 0, 0.0, True
        self.rhythm = self._new_rhythm()
        self.rhythm.hurry(due)  # repeated reloads do not put off a pass


def _doubled_s(failures: int) -> float:
    """Return the wait after so many failures: twice as long after each."""
    return FIRST_RETRY_S * 2.0 ** min(failures - 1, _DOUBLINGS)
