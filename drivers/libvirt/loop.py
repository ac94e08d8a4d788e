"""libvirt's event loop: one for the whole process, which each connection with events or keep-alive needs turned."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

LOG = logging.getLogger(__name__)
TURN_S = 1.0  # between two turns of a loop that rests
SETTLING_S = 2.0


class EventLoop:
    """
    A thread that turns it from ``start`` on, and never waits for anything else.

    While the loop waits, each call over any connection wakes it four times and more: so it can rest.
    """

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._timer: int | None = None  # None: it was not started
        self._may_wait = threading.Event()
        self._may_wait.set()

    def start(self) -> None:
        """Have it turned, at the first call; connections that were opened before have no events."""
        import libvirt

        with self._starting:
            if self._timer is None:
                libvirt.virEventRegisterDefaultImpl()
                timer = libvirt.virEventAddTimeout(-1, lambda *_: None, None)
                threading.Thread(target=self._turn, name="libvirt", daemon=True).start()
                self._timer = timer

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Inside, it turns once in a while only, for keep-alive; what comes is heard that much later."""
        if self._timer is None:
            yield
            return
        import libvirt

        self._may_wait.clear()
        libvirt.virEventUpdateTimeout(self._timer, 0)  # it returns at once, now and at each turn
        try:
            yield
        finally:
            libvirt.virEventUpdateTimeout(self._timer, -1)
            self._may_wait.set()

    def settle(self) -> None:
        """Wait until callbacks that go on now are over, for a while; never called by one."""
        import libvirt

        turned = threading.Event()
        timer = libvirt.virEventAddTimeout(0, lambda *_: turned.set(), None)
        turned.wait(SETTLING_S)
        libvirt.virEventRemoveTimeout(timer)

    def _turn(self) -> None:
        import libvirt

        failing = False
        while True:
            self._may_wait.wait(TURN_S)
            try:
                libvirt.virEventRunDefaultImpl()
            except libvirt.libvirtError as error:
                if not failing:
                    LOG.warning("libvirt's event loop does not turn: no events, no keep-alive reason=%s", error)
                failing = True
                time.sleep(TURN_S)
                continue
            if failing:
                LOG.info("libvirt's event loop turns again")
            failing = False


@cache
def event_loop() -> EventLoop:
    """That of this process: libvirt has no other."""
    return EventLoop()
