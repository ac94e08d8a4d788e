"""Events of a host that ask for another look."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Event:
    """A change on the host; ``what`` describes it for people, for instance ``add pci 0000:81:10.0``."""

    source: Literal["udev", "libvirt"]
    what: str
    gone: str = ""  # the hardware that went away: a PCI address, cpu3, memory40; empty: none, or unknown


OnOperation = Callable[[str, float, bool], None]  # gets an operation's name, its seconds, and whether it succeeded
Wake = Callable[[Event], None]  # may be called from any thread; returns at once


def untold(_operation: str, _seconds: float, _served: bool) -> None:
    """Discard the timings of operations: the default callback."""
