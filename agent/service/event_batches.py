"""Gathers events of the host into batches: many events within a short time lead to one look."""

import queue
import time
from collections.abc import Container, Iterable

from drivers.events import Event

QUIET_S = 0.1  # a batch ends when no event came for this time
SOON_S = 0.15  # wait between the looks that confirm the loss of hardware after an event announced it
LONGEST_S = 0.4  # a batch ends this long after its first event, so that a flood of events does not delay the look


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
        self._events: queue.SimpleQueue[tuple[Event | None, float]] = queue.SimpleQueue()

    def wake(self, event: Event) -> None:
        """Add an event, with the time now; callable from any thread."""
        self._events.put((event, time.monotonic()))

    def interrupt(self) -> None:
        """End ``wait`` without an event; callable from any thread and from a signal handler."""
        self._events.put((None, time.monotonic()))

    def wait(self, seconds: float) -> tuple[tuple[Event, ...], float]:
        """Return the next batch and the monotonic time of its first event; an empty batch if none came in time."""
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
