"""
Notifies systemd of the service's state, by the protocol of sd_notify(3).

The helper of oslo.service can send READY only. Without systemd nothing is sent.
"""

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress

from reportclient.errors import printable

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

    def ready(self, status: str) -> None:
        """Send that the service has started or reloaded, with one line for people."""
        self._send(f"READY=1\nSTATUS={printable(status)}")

    def reloading(self) -> None:
        """Send that the service reads its configuration again; ``ready`` must follow."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Send that the service stops."""
        self._send("STOPPING=1\nSTATUS=stopping")

    def status(self, text: str) -> None:
        """Send one line for people, which ``systemctl status`` shows."""
        self._send(f"STATUS={printable(text)}")

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
