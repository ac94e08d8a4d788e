"""The gate to udev: hot-plug events as systemd-udevd sends them on."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pyudev

from drivers.errors import DiscoveryError
from drivers.events import Event, Wake

SUBSYSTEMS = ("pci", "mdev", "net", "cpu", "memory", "node")
BUFFER_BYTES = 16 * 1024 * 1024  # a card with its VFs is hundreds of events at once


@contextmanager
def watching(wake: Wake) -> Iterator[None]:
    """
    Inside, every event of a device that we report wakes.

    Raises:
        DiscoveryError: the kernel gives this process no such events.
    """
    try:
        monitor = pyudev.Monitor.from_netlink(pyudev.Context())
        for subsystem in SUBSYSTEMS:
            monitor.filter_by(subsystem)
        with suppress(OSError):  # without the right to a larger one the ordinary buffer must do
            monitor.set_receive_buffer_size(BUFFER_BYTES)
        monitor.start()
    except (OSError, ImportError) as error:
        raise DiscoveryError(f"udev's events cannot be heard: {error}: are libudev and netlink there?") from error
    stopped = threading.Event()
    threading.Thread(target=_listen, args=(monitor, wake, stopped), name="udev", daemon=True).start()
    try:
        yield
    finally:
        stopped.set()


def _listen(monitor: pyudev.Monitor, wake: Wake, stopped: threading.Event) -> None:
    """Until stopped. When the kernel had more events than room for them, that is an event too."""
    while not stopped.is_set():
        try:
            device = monitor.poll(timeout=1)
        except OSError:
            wake(Event("udev", "events lost"))
            continue
        if device is not None:
            wake(Event("udev", f"{device.action} {device.subsystem} {device.sys_name}"))
