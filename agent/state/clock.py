"""
Moments for waits that outlast a process: in wall-clock time, corrected when the wall clock was set in between.

CLOCK_BOOTTIME cannot be set, and counts suspended time too (clock_gettime(2)). It starts again at each boot of the
host (/proc/sys/kernel/random/boot_id); after a reboot the length of a wait is not known.
"""

import time
from dataclasses import dataclass
from pathlib import Path

SLEWED_S = 5.0  # a smaller difference comes from NTP's corrections, not from setting the clock


@dataclass(frozen=True, slots=True)
class Clock:
    """The difference between the wall clock and CLOCK_BOOTTIME, in one boot of the host."""

    boot: str  # the kernel's boot_id
    offset_s: float  # the wall clock minus CLOCK_BOOTTIME

    def now_s(self) -> float:
        """Return the time now (seconds since the epoch), as if the wall clock was not set since ``probe_clock``."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) + self.offset_s

    def since(self, moment_s: float, noted: "Clock") -> float | None:
        """Convert a moment (seconds since the epoch) from the clock ``noted`` to this one; None after a reboot."""
        return moment_s + self.set_since(noted) if noted.boot == self.boot else None

    def set_since(self, noted: "Clock") -> float:
        """Return by how many seconds the wall clock was set since then; 0 too where another boot does not tell."""
        set_by = self.offset_s - noted.offset_s if noted.boot == self.boot else 0.0
        return set_by if abs(set_by) > SLEWED_S else 0.0


@dataclass(frozen=True, slots=True)
class StoppedClock(Clock):
    """A clock that always shows the same moment, to replay a case."""

    moment_s: float  # seconds since the epoch

    def now_s(self) -> float:
        return self.moment_s


def probe_clock(proc: Path = Path("/proc")) -> Clock:
    """
    Read the clock of this host.

    Raises:
        OSError: the kernel's boot_id cannot be read.
    """
    boot = (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return Clock(boot, time.time() - time.clock_gettime(time.CLOCK_BOOTTIME))
