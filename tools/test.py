"""Runs every kind of test that needs services, and closes with a summary that a person can read."""

import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

KINDS = (
    ("contract", "the report client on placement's own application, drivers on libvirt's library", "tests/contract", 2),
    ("live", "libvirtd, placement and Keystone over TLS, the installed command", "tests/live", 6),
    ("fuzz", "parsers, on a few real files and answers that were changed", "tests/fuzz", 1),
)  # live tests wait more than they work: six processes keep two cores busy
# A process namespace of its own, for which one needs to be root: a nova-compute of this machine is no sign there.
APART = (
    ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", '"$@"; exit $?', "sh")
    if not os.geteuid()
    else ()
)
# files that begin
LONGEST = ("test_ironic", "test_synthetic", "test_daemon", "test_reshape_races", "test_crowd")


@dataclass(frozen=True)
class Result:
    """How one kind of test went."""

    kind: str
    what: str
    counts: dict[str, int]
    seconds: float
    ok: bool


def run(kind: str, what: str, folder: str, workers: int) -> Result:
    """Run one kind and show its output: a file by one worker, in a folder with room for the paths of sockets."""
    print(f"\n== {kind}: {what}", flush=True)
    started = time.monotonic()
    files = sorted(Path(folder).rglob("test_*.py"), key=lambda path: (path.stem not in LONGEST, path))
    command = [*APART, sys.executable, "-m", "pytest", "-q", "--color=no", "--durations=10", *map(str, files)]
    last = ""
    with tempfile.TemporaryDirectory(prefix="t", ignore_cleanup_errors=True) as folder_of_run:
        command += [f"--basetemp={folder_of_run}/t", "-n", str(workers), "--dist", "loadfile", "--no-loadscope-reorder"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                last = line
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for number, name in re.findall(r"(\d+) (passed|failed|skipped|error)", last):
        counts["failed" if name == "error" else name] += int(number)
    ok = process.returncode == 0 and counts["passed"] > 0
    return Result(kind, what, counts, time.monotonic() - started, ok)


def main() -> int:
    """Run all kinds, even after a failure."""
    results = [run(*kind) for kind in KINDS]
    print(f"\n{'kind':12} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>8}  what it shows")
    for result in results:
        passed, failed, skipped = (result.counts[name] for name in ("passed", "failed", "skipped"))
        print(f"{result.kind:12} {passed:7} {failed:7} {skipped:8} {result.seconds:8.0f}  {result.what}")
    totals = {name: sum(result.counts[name] for result in results) for name in ("passed", "failed", "skipped")}
    print(f"\n{totals['passed']} passed, {totals['failed']} failed, {totals['skipped']} skipped")
    return 0 if all(result.ok for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
