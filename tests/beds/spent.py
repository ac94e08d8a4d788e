"""CPU that a test and the servers that it started took, as the kernel counts: other work adds nothing to it."""

import os
import time
from dataclasses import astuple, dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU seconds so far, of PostgreSQL, of all other processes that this one started, and of this one."""

    database_s: float
    others_s: float
    own_s: float
    kernel_s: float  # of those of this one, where its other threads go on

    def __sub__(self, before: "Spent") -> "Spent":
        return Spent(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))

    def __truediv__(self, parts: float) -> "Spent":
        return Spent(*(whole / parts for whole in astuple(self)))


def spent() -> Spent:
    """As of now (/proc/PID/task/TID/schedstat, proc(5)); what ended processes took is left out."""
    database_s = others_s = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            name, seconds = process.name(), _cpu_s(process.pid)
        except (psutil.NoSuchProcess, OSError):
            continue
        if name == "postgres":
            database_s += seconds
        else:
            others_s += seconds
    return Spent(database_s, others_s, time.process_time(), os.times().system)


def _cpu_s(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task")
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9
