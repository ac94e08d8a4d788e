"""What something costs this process: CPU time, and the most memory beyond what it had."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Cost:
    """How an action ended (its result, or the error that it raised), and what it took."""

    ending: object
    seconds: float  # of CPU
    mib: float


def cost(act: Callable[[], object]) -> Cost:
    """Call ``act``, and return what it cost."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forgets the highest memory so far
    before, began = _mib("VmRSS"), time.process_time()
    ending: object
    try:
        ending = act()
    except Exception as error:
        ending = error
    return Cost(ending, time.process_time() - began, _mib("VmHWM") - before)


def _mib(what: str) -> float:
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return int(text.partition(what + ":")[2].split()[0]) / 1024
