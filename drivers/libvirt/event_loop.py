"""Runs libvirt's event loop: one for the process, needed by each connection with events or keep-alive."""

import logging
import threading
import time
from functools import cache

from drivers.libvirt.library import libvirt

LOG = logging.getLogger(__name__)
AGAIN_S = 1.0  # between two turns of a loop that fails
SETTLING_S = 2.0  # how long to wait for running callbacks


class EventLoop:
    """Thread that runs libvirt's event loop from ``start`` on; it waits for nothing else."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._started = False

    def start(self) -> None:
        """Start the thread; later calls do nothing. A connection that was opened before gets no events."""
        with self._starting:
            if not self._started:
                libvirt.virEventRegisterDefaultImpl()
                threading.Thread(target=self._turn, name="libvirt", daemon=True).start()
                self._started = True

    def settle(self) -> None:
        """Wait until the callbacks that run now have ended, SETTLING_S at most; a callback must not call this."""
        turned = threading.Event()
        timer = libvirt.virEventAddTimeout(0, lambda *_: turned.set(), None)
        turned.wait(SETTLING_S)
        libvirt.virEventRemoveTimeout(timer)

    def _turn(self) -> None:
        failing = False
        while True:
            try:
                libvirt.virEventRunDefaultImpl()
            except libvirt.libvirtError as error:
                if not failing:
                    LOG.warning(
                        "libvirt's event loop fails: no events and no keep-alive until it runs again reason=%s", error
                    )
                failing = True
                time.sleep(AGAIN_S)
                continue
            if failing:
                LOG.info("libvirt's event loop runs again")
            failing = False


@cache
def event_loop() -> EventLoop:
    """Return the event loop of this process; libvirt has only one."""
    return EventLoop()
