"""Keeps the survey of a host between the calls of nova, as each claim makes one."""

import logging
import time
from collections.abc import Callable

from drivers.base import Survey
from drivers.errors import DiscoveryError
from drivers.looks import look

LOG = logging.getLogger(__name__)


class KeptSurvey:
    """The last survey of one host: of use until an event, and for ``lasting_s`` at most."""

    def __init__(
        self, survey: Callable[[], Survey], lasting_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._survey = survey
        self._lasting_s = lasting_s
        self._clock = clock
        self._events = 0  # counts events; another thread may count while this one looks
        self._last: tuple[Survey, float, int] | None = None  # with its time and the number of events before it
        self._failing = False

    def outdate(self) -> None:
        """Note an event: the next caller gets a new survey. May be called from any thread."""
        self._events += 1

    def get(self, *, fresh: bool) -> Survey:
        """
        Return the kept survey, or a new one if it is outdated or ``fresh`` is asked for.

        If the host cannot be read, the last survey stays of use, unless ``fresh`` is asked for.

        Raises:
            DiscoveryError: as ``Driver.survey``.
        """
        if self._last and not fresh and self._is_current(*self._last):
            return self._last[0]
        events, now_s = self._events, self._clock()
        try:
            found = look(self._survey)
        except DiscoveryError as error:
            if fresh or self._last is None:
                raise
            self._warn(error)
            return self._last[0]
        self._failing = False
        self._last = found, now_s, events
        return found

    def _is_current(self, _: Survey, then_s: float, events: int) -> bool:
        return events == self._events and self._clock() - then_s < self._lasting_s

    def _warn(self, error: DiscoveryError) -> None:
        """Log once that the host cannot be read, until it can be read again."""
        if not self._failing:
            LOG.warning("the host cannot be read: what was read last stays reported reason=%s", error)
        self._failing = True
