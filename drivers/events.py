"""What happens on a host while nobody looks: events that ask for another look."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Event:
    """Something changed; ``what`` is for people, for instance ``add pci 0000:81:10.0``."""

    source: Literal["udev", "libvirt"]
    what: str
    gone: str = ""  # the hardware that went away: a PCI address, cpu3, memory40; empty: none, or not known


OnOperation = Callable[[str, float, bool], None]  # of an operation: its name, its seconds, and whether it served
Wake = Callable[[Event], None]  # called from any thread, and returns at once


def untold(_operation: str, _seconds: float, _served: bool) -> None:
    """Of whom nobody wants to know how long operations take."""
