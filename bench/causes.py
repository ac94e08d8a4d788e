"""
Where the CPU of the service goes, from its start to its first pass and in a quiet pass.

Usage: causes.py CONFIG_FILE PASSES: is the service, without its waits. Prints ``{"start": [[PART, MS], ...], "quiet":
[[PART, MS A PASS], ...]}``, milliseconds of CPU of all its threads.
"""

import functools
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

BEGAN = time.process_time()
PERIOD_S = 0.5  # as the service rests between two passes, so that its caches are cold
SPENT: Counter[str] = Counter()  # seconds by part, each without the parts inside it
STACK: list[float] = []


def timed(part: str, work: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function in a form that adds its CPU to a part."""

    @functools.wraps(work)
    def wrapped(*arguments: Any, **more: Any) -> Any:
        began = time.process_time()
        STACK.append(0.0)
        try:
            return work(*arguments, **more)
        finally:
            took_s = time.process_time() - began
            SPENT[part] += took_s - STACK.pop()
            if STACK:
                STACK[-1] += took_s

    return wrapped


def load() -> Any:
    """Import what the command imports for the service, and return the service's class."""
    from agent.command.arguments import parsers
    from agent.service.loop import Daemon

    parsers()
    return Daemon


def time_parts() -> None:
    """Time the parts of a pass from now on."""
    import agent.service.reporting
    from agent.service.loop import Daemon
    from agent.service.rounds import Audits
    from agent.sync.node import ComputeNode
    from drivers.libvirt.driver import LibvirtDriver
    from reportclient.transport import Transport

    for owner, name, part in (
        (Daemon, "_pass", "all else"),
        (LibvirtDriver, "survey", "reading the host"),
        (Transport, "get", "the request to placement"),
        (ComputeNode, "complete", "deciding"),
        (Audits, "take", "the audit"),
        (agent.service.reporting, "write_status", "status.json"),
    ):
        setattr(owner, name, timed(part, getattr(owner, name)))


def main() -> None:
    """Start, and take passes."""
    config, passes = Path(sys.argv[1]), int(sys.argv[2])
    start = {"the interpreter": BEGAN}
    daemon_class = load()
    start["imports"] = time.process_time() - sum(start.values())
    from agent.connect.choice import Choice

    time_parts()
    daemon = daemon_class(Choice(config_files=(config,), service=True))
    daemon.set_up_log(0)
    start["reading the configuration"] = time.process_time() - sum(start.values())
    daemon._pass((), regular=True)
    start["the first pass"] = time.process_time() - sum(start.values())
    daemon._pass((), regular=True)
    daemon._pass((), regular=True)
    SPENT.clear()
    for _ in range(passes):
        daemon._pass((), regular=True)
        time.sleep(PERIOD_S)
    quiet = [(part, 1000 * spent_s / passes) for part, spent_s in SPENT.most_common()]
    told = {"start": [(part, 1000 * spent_s) for part, spent_s in start.items()], "quiet": quiet}
    print(json.dumps(told), flush=True)
    os._exit(0)  # the threads of libvirt and udev stay


main()
