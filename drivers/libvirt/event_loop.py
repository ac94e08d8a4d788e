"""Runs libvirt's event loop: one for the process, needed by each connection with events or keep-alive."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from drivers.libvirt.library import libvirt

LOG = logging.getLogger(__name__)
TURN_S = 1.0  # between two turns of the loop while it rests
SETTLING_S = 2.0  # how long to wait for running callbacks


class EventLoop:
    """
    Thread that runs libvirt's event loop from ``start`` on; it waits for nothing else.

    A waiting loop is woken at least four times by each call over any connection. ``resting`` saves that work.
    """

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._timer: int | None = None  # libvirt's number of a timer; None before ``start``
        self._may_wait = threading.Event()
        self._may_wait.set()

    def start(self) -> None:
        """Start the thread; later calls do nothing. A connection that was opened before gets no events."""
        with self._starting:
            if self._timer is None:
                libvirt.virEventRegisterDefaultImpl()
                timer = libvirt.virEventAddTimeout(-1, lambda *_: None, None)
                threading.Thread(target=self._turn, name="libvirt", daemon=True).start()
                self._timer = timer

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Run the loop only every TURN_S inside the block, for keep-alive; events arrive that much later."""
        if self._timer is None:
            yield
            return

        self._may_wait.clear()
        libvirt.virEventUpdateTimeout(self._timer, 0)  # a turn of the loop then returns at once
        try:
            yield
        finally:
            libvirt.virEventUpdateTimeout(self._timer, -1)
            self._may_wait.set()

    def settle(self) -> None:
        """Wait until the callbacks that run now have ended, SETTLING_S at most; a callback must not call this."""
        turned = threading.Event()
        timer = libvirt.virEventAddTimeout(0, lambda *_: turned.set(), None)
        turned.wait(SETTLING_S)
        libvirt.virEventRemoveTimeout(timer)

    def _turn(self) -> None:
        failing = False
        while True:
            self._may_wait.wait(TURN_S)
            try:
                libvirt.virEventRunDefaultImpl()
            except libvirt.libvirtError as error:
                if not failing:
                    LOG.warning(
                        "libvirt's event loop fails: no events and no keep-alive until it runs again reason=%s", error
                    )
                failing = True
                time.sleep(TURN_S)
                continue
            if failing:
                LOG.info("libvirt's event loop runs again")
            failing = False


@cache
def event_loop() -> EventLoop:
    """Return the event loop of this process; libvirt has only one."""
    return EventLoop()
