"""What a service does at signals of the system."""

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LOG = logging.getLogger(__name__)
ABANDONED = "stopped in the middle of a pass, which did not end in time: the next one goes on from there"


@contextmanager
def heard(stop: Callable[[], object], reload: Callable[[], object], bound_s: Callable[[], float]) -> Iterator[None]:
    """
    Inside, SIGTERM and SIGINT stop, and SIGHUP reloads; both are called by a thread.

    Python's own handlers wait for the main thread, which may hang in a library's call. What has not stopped after
    ``bound_s`` is abandoned, without harm.
    """
    hearing, telling = socket.socketpair()
    telling.setblocking(False)

    def end() -> None:
        stop()
        bound = threading.Timer(bound_s(), _abandon)
        bound.daemon = True
        bound.start()

    doing = {signal.SIGTERM: end, signal.SIGINT: end, signal.SIGHUP: reload}

    def hear() -> None:
        with hearing:
            while numbers := hearing.recv(64):  # by signal.set_wakeup_fd
                for number in numbers:
                    doing.get(signal.Signals(number), _nothing)()

    threading.Thread(target=hear, name="signals", daemon=True).start()
    descriptor = signal.set_wakeup_fd(telling.fileno(), warn_on_full_buffer=False)
    handlers = {signal.SIGTERM: _then(stop), signal.SIGINT: _then(stop), signal.SIGHUP: _nothing}
    before = {number: signal.signal(number, handlers[number]) for number in doing}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(descriptor)
        telling.close()


def _abandon() -> None:
    # A pass may hang in a request: all that it does stands without harm wherever it ends.
    told = threading.Thread(target=LOG.warning, args=(ABANDONED,), daemon=True)
    told.start()
    told.join(1.0)  # the log may hang too
    os._exit(0)


def _then(stop: Callable[[], object]) -> Callable[..., None]:
    """What is done besides where the thread may not hear: a storm of signals is more than its socket holds."""

    def handle(*_arguments: object) -> None:
        stop()

    return handle


def _nothing(*_arguments: object) -> None:
    """What is done at a signal that a thread hears."""
