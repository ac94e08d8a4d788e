"""Turns SIGTERM, SIGINT, SIGHUP and SIGUSR2 into calls of the service."""

import logging
import os
import signal
import socket
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

    Python runs its own signal handlers in the main thread only, which may hang in a call of a library. A process that
    has not stopped ``bound_s()`` seconds after the signal ends at once: a pass may end anywhere without harm.
    """
    receiving, sending = socket.socketpair()
    sending.setblocking(False)

    def end() -> None:
        stop()
        bound = threading.Timer(bound_s(), _abandon)
        bound.daemon = True
        bound.start()

    doing = {signal.SIGTERM: end, signal.SIGINT: end, signal.SIGHUP: reload, signal.SIGUSR2: report}

    def receive() -> None:
        with receiving:
            while numbers := receiving.recv(64):  # written by Python, see signal.set_wakeup_fd
                for number in numbers:
                    doing.get(signal.Signals(number), _nothing)()

    threading.Thread(target=receive, name="signals", daemon=True).start()
    descriptor = signal.set_wakeup_fd(sending.fileno(), warn_on_full_buffer=False)
    handlers = {signal.SIGTERM: _then(stop), signal.SIGINT: _then(stop)}
    before = {number: signal.signal(number, handlers.get(number, _nothing)) for number in doing}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(descriptor)
        sending.close()


def _abandon() -> None:
    # A pass may hang in a request. Ending it there is safe: each write to placement is complete in itself.
    told = threading.Thread(target=LOG.warning, args=(ABANDONED,), daemon=True)
    told.start()
    told.join(1.0)  # writing to the log may hang too
    os._exit(0)


def _then(stop: Callable[[], object]) -> Callable[..., None]:
    """Return a handler that also calls ``stop`` in the main thread, in case the socket is full and drops a signal."""

    def handle(*_arguments: object) -> None:
        stop()

    return handle


def _nothing(*_arguments: object) -> None:
    """Handle a signal that the thread handles: do nothing here."""
