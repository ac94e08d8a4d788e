"""
When the regular passes of a service are due: the first soon after the start, then one in each period.

Each host has its own moment in every period, so that the hosts of a fleet that start together do not ask placement
all at once. The periodic tasks of oslo.service keep the time; they do not need its launchers, which use eventlet or
fork.
"""

import hashlib
import math
import os
import time
from collections.abc import Callable

from oslo_service import periodic_task

from agent.settings.read import Settings

OFTENEST = 0.6  # of full_audit_interval; a pass reads everything again only after half of it


class Rhythm:
    """The periods of one configuration, from now on; call ``tick`` when ``due`` (monotonic seconds) has come."""

    def __init__(
        self, settings: Settings, *, take_pass: Callable[[], object], read_everything: Callable[[], object]
    ) -> None:
        self._settings = settings
        self._take_pass, self._read_everything = take_pass, read_everything
        self._place = _place(settings)
        self._is_first = True
        self._took_at = -math.inf  # when a pass of the schedule began
        self._schedule: periodic_task.PeriodicTasks | None = None
        self._began = time.monotonic()
        self.due = self._began + self._place * settings.service.start_spread_s

    def hurry(self, due: float) -> None:
        """Let the next tick be due at ``due`` at the latest, or now if that is past."""
        self.due = min(self.due, max(due, time.monotonic()))

    def tick(self) -> None:
        """
        Take the pass that is due, and the full audit if that is due too.

        The second pass follows the first after half to one and a half periods, at this host's own moment; the others
        follow one period apart. After a pass that came late, as one that was held back after failures, at least half a
        period is left for the host to become what it was.
        """
        if self._is_first:
            self._is_first = False
            self._take_pass()
            now, period_s = time.monotonic(), self._settings.service.interval_s
            self.due = self._began + self._place * period_s
            while self.due < now + period_s / 2:
                self.due += period_s
            return
        self._schedule = self._schedule or self._new_schedule()
        idle_s = self._schedule.run_periodic_tasks(None, raise_on_error=True)
        self.due = max(time.monotonic() + idle_s, self._took_at + self._settings.service.interval_s / 2)

    def _new_schedule(self) -> periodic_task.PeriodicTasks:
        """
        Make a schedule of the pass (due at once) and of the full audit, each with its own period.

        A full audit asks for every provider. Those of hosts that started together would meet once an hour, so that
        period differs from host to host: from ``OFTENEST`` of the configured one to all of it.
        """

        def take_pass(_tasks: object, _context: object) -> None:
            self._took_at = time.monotonic()
            self._take_pass()

        def read_everything(_tasks: object, _context: object) -> None:
            self._read_everything()

        often = periodic_task.periodic_task(spacing=self._settings.service.interval_s, run_immediately=True)
        part = OFTENEST + (1 - OFTENEST) * self._place
        seldom = periodic_task.periodic_task(spacing=round(part * self._settings.service.full_audit_interval_s))
        tasks = {"take_pass": often(take_pass), "read_everything": seldom(read_everything)}
        made: periodic_task.PeriodicTasks = type("Schedule", (periodic_task.PeriodicTasks,), tasks)(
            self._settings.apis.source
        )
        return made


def _place(settings: Settings) -> float:
    """Return this host's moment in every period, from 0 to 1: the same after each start, different for each host."""
    digest = hashlib.sha256(os.uname().nodename.encode() + str(settings.folders.state).encode()).digest()
    return int.from_bytes(digest[:4]) / 2**32
