"""The gate to udev: hot-plug events as systemd-udevd sends them on."""

import os
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO

import pyudev

from drivers.errors import DiscoveryError
from drivers.events import Event, Wake

SUBSYSTEMS = ("pci", "mdev", "net", "cpu", "memory", "node")
HARDWARE = ("pci", "cpu", "memory")  # of which the kernel's names tell what it is
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
    with os.fdopen(os.eventfd(0), "r+b", buffering=0) as end:
        thread = threading.Thread(target=_listen, args=(monitor, wake, end), name="udev", daemon=True)
        thread.start()
        try:
            yield
        finally:
            os.eventfd_write(end.fileno(), 1)
            thread.join()


def _listen(monitor: pyudev.Monitor, wake: Wake, end: FileIO) -> None:
    """Until the end is told. When the kernel had more events than room for them, that is an event too."""
    while end not in select.select([monitor, end], [], [])[0]:
        try:
            device = monitor.poll(timeout=0)
        except OSError:
            wake(Event("udev", "events lost"))
            continue
        if device is not None:
            wake(_event(device.action, device.subsystem, device.sys_name))


def _event(action: str, subsystem: str, name: str) -> Event:
    """An event in words; a CPU that is switched off is "offline" and not removed (sysfs-devices-system-cpu)."""
    gone = name if action == "remove" and subsystem in HARDWARE else ""
    return Event("udev", f"{action} {subsystem} {name}", gone)
