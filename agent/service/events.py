"""Events of a host as they come, gathered into batches: many close to each other ask for one look."""

import queue
import time
from collections.abc import Container, Iterable

from drivers.events import Event

QUIET_S = 0.1  # after the last event of a batch
SOON_S = 0.15  # between the looks that a host which announced its loss must pass before it is believed to be smaller
LONGEST_S = 0.4  # from its first event: a flood does not keep us from looking


def announce_loss(events: Iterable[Event], reported: Container[str]) -> bool:
    """
    Whether hardware is gone that counts in what we report, so that three looks at once are as good as in a row.

    ``reported`` are the PCI addresses that do; of CPUs and memory all do. Other things come and go with guests.
    """
    return any(one.gone in reported or one.gone.startswith(("cpu", "memory")) for one in events if one.gone)


class WakeUps:
    """Told of events from any thread; one thread waits for them."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[tuple[Event | None, float]] = queue.SimpleQueue()

    def wake(self, event: Event) -> None:
        """Called by those who hear of a change."""
        self._events.put((event, time.monotonic()))

    def interrupt(self) -> None:
        """End the waiting without an event; may be called by a signal handler."""
        self._events.put((None, time.monotonic()))

    def wait(self, seconds: float) -> tuple[tuple[Event, ...], float]:
        """The next batch and when its first event came (monotonic); none when there was none by then."""
        first = self._next(seconds)
        if first is None or first[0] is None:
            return (), time.monotonic()
        batch, until = [first[0]], time.monotonic() + LONGEST_S
        while (left := min(QUIET_S, until - time.monotonic())) > 0 and (more := self._next(left)):
            if more[0] is None:
                self.interrupt()
                break
            batch.append(more[0])
        return tuple(batch), first[1]

    def _next(self, seconds: float) -> tuple[Event | None, float] | None:
        try:
            return self._events.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None
