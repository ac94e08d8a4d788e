"""
What the service and systemd tell each other: signals, and the service's state by the protocol of sd_notify(3).

The helper of oslo.service can send READY only. Without systemd nothing is sent, and anybody may send the signals.
"""

import faulthandler
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from reportclient.errors import printable

STOPPING_S = 15  # for the pass that is under way at a signal; systemd and Kubernetes wait for 30
OFTEN_S = 1.0  # shortest time between two messages to the watchdog
_PATIENCE_S = 1.0  # for systemd to take a message


class Notifier:
    """Sends to ``$NOTIFY_SOCKET``; call ``alive`` at least every ``watchdog_s`` seconds (None: no watchdog is set)."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        usec = environment.get("WATCHDOG_USEC", "")
        self._alive_s = 0.0
        mine = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.watchdog_s = int(usec) / 1e6 if usec.isdecimal() and mine else None

    def tell(self, **variables: str | int) -> None:
        """Send variables of sd_notify(3), such as READY, and STATUS with a line that ``systemctl status`` shows."""
        self._send("\n".join(f"{name}={printable(str(value))}" for name, value in variables.items()))

    def alive(self) -> None:
        """Send to the watchdog that the service makes progress; at most once in ``OFTEN_S``, however often called."""
        if time.monotonic() - self._alive_s > OFTEN_S:
            self._alive_s = time.monotonic()
            self._send("WATCHDOG=1")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        # The service works also while systemd does not take messages.
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to_systemd:
            to_systemd.settimeout(_PATIENCE_S)
            to_systemd.sendto(text.encode(errors="replace"), self._address)


@contextmanager
def handled(stop: Callable[[], object], reload: Callable[[], object]) -> Iterator[None]:
    """
    Inside the context, a thread calls ``stop`` at SIGTERM and SIGINT, and ``reload`` at SIGHUP.

    SIGUSR2 prints where each thread is on standard error, also while all of them hang.

    Python runs its own signal handlers in the main thread only, which may hang in a call of a library. So all threads
    block these signals but the one that waits for them; call it before others are started. A process that has not
    stopped ``STOPPING_S`` after the signal prints where its threads are, and ends with 1: a pass may end anywhere
    without harm, as each write to placement is complete in itself.
    """

    def end() -> None:
        stop()
        if sys.stderr:
            faulthandler.dump_traceback_later(STOPPING_S, exit=True)

    doing = {signal.SIGTERM: end, signal.SIGINT: end, signal.SIGHUP: reload}

    def receive() -> None:
        while True:
            doing[signal.Signals(signal.sigwait(doing))]()

    if sys.stderr:  # None where the descriptor is closed
        faulthandler.register(signal.SIGUSR2)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, doing)
    threading.Thread(target=receive, name="signals", daemon=True).start()
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
