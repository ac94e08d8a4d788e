"""Finds running processes by name."""

import psutil


def probe_processes(name: str) -> tuple[int, ...]:
    """Return the pids of processes whose program, or script run by an interpreter, has this file name; lowest first."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if any(word.rpartition("/")[2] == name for word in words[:2]):
            found.append(process.pid)
    return tuple(sorted(found))
