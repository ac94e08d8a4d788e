"""Gate to udev: reports hot-plug events that systemd-udevd sends."""

import os
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO

from drivers.base import Event, Wake
from drivers.errors import DiscoveryError

try:
    import pyudev
except ImportError:  # as on a desk that reads recorded hosts alone
    pyudev = None

SUBSYSTEMS = ("pci", "mdev", "net", "cpu", "memory", "node")
HARDWARE = ("pci", "cpu", "memory")  # subsystems whose device names identify the hardware
BUFFER_BYTES = 16 * 1024 * 1024  # a card with its VFs is hundreds of events at once


@contextmanager
def watching(wake: Wake) -> Iterator[None]:
    """
    Call ``wake`` inside the block for every udev event of SUBSYSTEMS.

    Raises:
        DiscoveryError: this process cannot receive such events.
    """
    if pyudev is None:
        raise DiscoveryError("the Python package pyudev is not installed: pip install 'compute-node-agent[libvirt]'")
    try:
        monitor = pyudev.Monitor.from_netlink(pyudev.Context())
        for subsystem in SUBSYSTEMS:
            monitor.filter_by(subsystem)
        with suppress(OSError):  # without the right to enlarge it, the default buffer must do
            monitor.set_receive_buffer_size(BUFFER_BYTES)
        monitor.start()
    except (OSError, ImportError) as error:
        raise DiscoveryError(
            f"cannot receive udev's events: {error}: check that libudev is installed and netlink is usable"
        ) from error
    with os.fdopen(os.eventfd(0), "r+b", buffering=0) as end:
        thread = threading.Thread(target=_listen, args=(monitor, wake, end), name="udev", daemon=True)
        thread.start()
        try:
            yield
        finally:
            os.eventfd_write(end.fileno(), 1)
            thread.join()


def _listen(monitor: "pyudev.Monitor", wake: Wake, end: FileIO) -> None:
    """Call ``wake`` for each event until ``end`` is readable; when events were lost for want of room, once for that."""
    while end not in select.select([monitor, end], [], [])[0]:
        try:
            device = monitor.poll(timeout=0)
        except OSError:
            wake(Event("udev", "events lost"))
            continue
        if device is not None:
            # the action of a CPU that is switched off is "offline", not "remove" (sysfs-devices-system-cpu)
            gone = device.sys_name if device.action == "remove" and device.subsystem in HARDWARE else ""
            wake(Event("udev", f"{device.action} {device.subsystem} {device.sys_name}", gone))
