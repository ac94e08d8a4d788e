"""CPU of the processes that a test started, as the kernel counts it: other work adds nothing to it."""

from collections import defaultdict
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path

import psutil

from beds.services import NAME


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU seconds so far, of PostgreSQL, of services of a fleet, and of all other processes that this one started."""

    database_s: float = 0.0
    services_s: float = 0.0
    others_s: float = 0.0

    def __add__(self, more: "Spent") -> "Spent":
        return Spent(*(one + other for one, other in zip(astuple(self), astuple(more), strict=True)))

    def __sub__(self, before: "Spent") -> "Spent":
        return Spent(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))

    def __truediv__(self, parts: float) -> "Spent":
        return Spent(*(whole / parts for whole in astuple(self)))


def spent() -> Spent:
    """As of now (/proc/PID/task/TID/schedstat, proc(5)); what ended processes took is left out."""
    found: dict[str, float] = defaultdict(float)
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess, OSError):
            found[process.name()] += _cpu_s(process.pid)
    database_s, services_s = found.pop("postgres", 0.0), found.pop(NAME, 0.0)
    return Spent(database_s, services_s, sum(found.values()))


def _cpu_s(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task")
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9
