"""
Runs a command several times and prints each run's wall seconds and peak resident KiB, as JSON.

Usage: python -I -S spawn.py TIMES COMMAND... A process of its own, as the kernel lets a child begin with the peak of
the process that started it: this one is smaller than any command it measures.
"""

import os
import sys
import time


def main() -> None:
    """Measure; the command's output goes to /dev/null."""
    times, command = int(sys.argv[1]), sys.argv[2:]
    null = os.open(os.devnull, os.O_RDWR)
    print([_measure(command, null) for _ in range(times)])


def _measure(command: list[str], null: int) -> list[float]:
    redirect = [(os.POSIX_SPAWN_DUP2, null, stream) for stream in (0, 1, 2)]
    started = time.perf_counter()
    pid = os.posix_spawn(command[0], command, os.environ, file_actions=redirect)
    _, status, usage = os.wait4(pid, 0)
    wall_s = time.perf_counter() - started
    if status:
        raise SystemExit(f"{command} ended with {os.waitstatus_to_exitcode(status)}")
    return [wall_s, usage.ru_maxrss]


main()
