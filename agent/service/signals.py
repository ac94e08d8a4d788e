"""Turns SIGTERM, SIGINT, SIGHUP and SIGUSR2 into calls of the service."""

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LOG = logging.getLogger(__name__)
ABANDONED = "stopped in a pass that did not end within [agent] stop_timeout: the next pass continues from there"


@contextmanager
def handled(
    stop: Callable[[], object],
    reload: Callable[[], object],
    report: Callable[[], object],
    bound_s: Callable[[], float],
) -> Iterator[None]:
    """
    Inside the context, a thread calls ``stop`` at SIGTERM and SIGINT, ``reload`` at SIGHUP, and ``report`` at SIGUSR2.

    Python runs its own signal handlers in the main thread only, which may hang in a call of a library. So all threads
    block these signals but the one that waits for them; call it before others are started. A process that has not
    stopped ``bound_s()`` seconds after the signal ends at once: a pass may end anywhere without harm.
    """

    def end() -> None:
        stop()
        bound = threading.Timer(bound_s(), _abandon)
        bound.daemon = True
        bound.start()

    doing = {signal.SIGTERM: end, signal.SIGINT: end, signal.SIGHUP: reload, signal.SIGUSR2: report}

    def receive() -> None:
        while True:
            doing[signal.Signals(signal.sigwait(doing))]()

    before = signal.pthread_sigmask(signal.SIG_BLOCK, doing)
    threading.Thread(target=receive, name="signals", daemon=True).start()
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _abandon() -> None:
    # A pass may hang in a request. Ending it there is safe: each write to placement is complete in itself.
    told = threading.Thread(target=LOG.warning, args=(ABANDONED,), daemon=True)
    told.start()
    told.join(1.0)  # writing to the log may hang too
    os._exit(0)
