"""
What systemd is told of a service, by the protocol of sd_notify(3).

oslo.service's helper sends READY alone, so the other words are said here; without systemd nothing is sent.
"""

import os
import socket
import threading
import time
from collections.abc import Mapping

OFTEN_S, PATIENCE_S = 1.0, 1.0


class Notifier:
    """Sends to ``$NOTIFY_SOCKET``; ``alive`` must be called each ``watchdog_s`` seconds, None: nobody waits for it."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        usec = environment.get("WATCHDOG_USEC", "")
        self._alive_s = 0.0
        self._socket: socket.socket | None = None
        self._sending = threading.Lock()
        mine = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.watchdog_s = int(usec) / 1e6 if usec.isdecimal() and mine else None

    def ready(self, status: str) -> None:
        self._send(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        """Configuration is read anew; ``ready`` ends it."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self._send("STOPPING=1\nSTATUS=stopping")
        with self._sending:
            self._hang_up()

    def status(self, text: str) -> None:
        """One line for people."""
        self._send(f"STATUS={text}")

    def alive(self) -> None:
        """The work goes on; said once in a while, however often it is called."""
        if time.monotonic() - self._alive_s > OFTEN_S:
            self._alive_s = time.monotonic()
            self._send("WATCHDOG=1")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        with self._sending:  # several nodes of Ironic are written at a time
            try:
                if self._socket is None:
                    self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
                    self._socket.settimeout(PATIENCE_S)
                self._socket.sendto(text.encode(errors="replace"), self._address)
            except OSError:
                self._hang_up()  # a service manager that does not listen is none of our business

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
