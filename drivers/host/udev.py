"""The gate to udev: hot-plug events as systemd-udevd sends them on."""

from collections.abc import Iterator
from contextlib import contextmanager

import pyudev

from drivers.errors import DiscoveryError
from drivers.events import Event, Wake

SUBSYSTEMS = ("pci", "mdev", "net", "cpu", "memory", "node")


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
        observer = pyudev.MonitorObserver(monitor, callback=lambda device: wake(_event(device)), name="udev")
        observer.start()
    except (OSError, ImportError) as error:
        raise DiscoveryError(
            f"udev's events cannot be heard: {error}: is libudev there and netlink allowed?"
        ) from error
    try:
        yield
    finally:
        observer.stop()


def _event(device: pyudev.Device) -> Event:
    return Event("udev", f"{device.action} {device.subsystem} {device.sys_name}")
