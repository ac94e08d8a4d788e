"""
Waits that outlast a process: moments as the wall clock has them, put right when somebody set that clock meanwhile.

CLOCK_BOOTTIME is set by nobody and counts suspended time too (clock_gettime(2)); it begins anew with each boot of the
host (/proc/sys/kernel/random/boot_id), and then nothing tells how long a wait was.
"""

import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

SLEWED_S = 5.0  # less than that is a clock that is kept right, not one that was set


@dataclass(frozen=True, slots=True)
class Clock:
    """How the wall clock stands to the one that nobody sets."""

    boot: str
    offset_s: float  # the wall clock minus CLOCK_BOOTTIME

    def now_s(self) -> float:
        """The moment now (seconds since the epoch), whatever was done to the wall clock since this one was probed."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) + self.offset_s

    def since(self, moment_s: float, noted: "Clock") -> float | None:
        """A moment (seconds since the epoch) that was noted by ``noted``, by this clock; None: of another boot."""
        if noted.boot != self.boot:
            return None
        set_by = self.offset_s - noted.offset_s
        return moment_s + set_by if abs(set_by) > SLEWED_S else moment_s


@dataclass(frozen=True, slots=True)
class StoppedClock(Clock):
    """A clock that stands still, for what is looked at again later."""

    moment_s: float

    def now_s(self) -> float:
        return self.moment_s


def probe_clock(proc: Path = Path("/proc")) -> Clock:
    """
    The clock of this host now.

    Raises:
        OSError: the kernel does not tell which boot this is.
    """
    return Clock(_boot(proc), time.time() - time.clock_gettime(time.CLOCK_BOOTTIME))


@lru_cache(1)  # no process sees two
def _boot(proc: Path) -> str:
    return (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def encode_clock(clock: Clock) -> dict[str, Any]:
    """As a file of ours has it."""
    return {"boot": clock.boot, "offset_s": clock.offset_s}


def decode_clock(record: Any) -> Clock:
    """
    The clock by which a file of ours was written.

    Raises:
        KeyError, TypeError, ValueError: the record is none.
    """
    return Clock(str(record["boot"]), float(record["offset_s"]))
