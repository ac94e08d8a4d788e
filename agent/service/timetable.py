"""
When a service's passes are due: the first one soon after it starts, then one in each period.

Each host has a place of its own in every period, so that a fleet that starts at once asks one by one. oslo.service's
periodic tasks keep the time: they need none of its launchers, which would bring eventlet, or fork.
"""

import hashlib
import os
import time
from collections.abc import Callable

from oslo_service import periodic_task

from agent.settings.read import Settings


class Rhythm:
    """The periods of one configuration, from now on; ``due`` (of the monotonic clock) is when to ``tick`` next."""

    def __init__(
        self, settings: Settings, *, take_pass: Callable[[], object], read_everything: Callable[[], object]
    ) -> None:
        self._settings = settings
        self._take_pass, self._read_everything = take_pass, read_everything
        self._place = _place(settings)
        self._is_first = True
        self._schedule: periodic_task.PeriodicTasks | None = None
        self._began = time.monotonic()
        self.due = self._began + self._place * settings.start_spread_s

    def hurry(self, due: float) -> None:
        """Let the next tick be due no later than then, or now where that is past."""
        self.due = min(self.due, max(due, time.monotonic()))

    def tick(self) -> None:
        """The first pass; after half to one and a half periods the next, at this host's own moment; then one each."""
        if self._is_first:
            self._is_first = False
            self._take_pass()
            now, period_s = time.monotonic(), self._settings.interval_s
            self.due = self._began + self._place * period_s
            while self.due < now + period_s / 2:
                self.due += period_s
            return
        self._schedule = self._schedule or self._new_schedule()
        self.due = time.monotonic() + self._schedule.run_periodic_tasks(None, raise_on_error=True)

    def _new_schedule(self) -> periodic_task.PeriodicTasks:
        """The pass, and the audit that reads everything, each with its own period; the pass is due at once."""

        def take_pass(_tasks: object, _context: object) -> None:
            self._take_pass()

        def read_everything(_tasks: object, _context: object) -> None:
            self._read_everything()

        often = periodic_task.periodic_task(spacing=self._settings.interval_s, run_immediately=True)
        seldom = periodic_task.periodic_task(spacing=self._settings.full_audit_interval_s)
        tasks = {"take_pass": often(take_pass), "read_everything": seldom(read_everything)}
        made: periodic_task.PeriodicTasks = type("Schedule", (periodic_task.PeriodicTasks,), tasks)(
            self._settings.source
        )
        return made


def _place(settings: Settings) -> float:
    """This host's own place in every period, from 0 to 1: the same after each start, another for each host."""
    digest = hashlib.sha256(os.uname().nodename.encode() + str(settings.state_directory).encode()).digest()
    return int.from_bytes(digest[:4]) / 2**32
