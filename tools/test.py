"""Runs every kind of test and closes with a summary that a person can read."""

import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

ASIDE = tuple(
    f"tests/live/test_{name}.py"
    for name in (
        "audit",
        "beds",
        "cases",
        "connection",
        "healed_cases",
        "host",
        "hotplug",
        "leaving",
        "odd_consumers",
        "offline",
        "passes",
        "upgrades",
        "wrong_inputs",
    )
)
LIVE = "libvirtd, placement and Keystone over TLS, the installed command"
KINDS = (  # two rows of them at a time: tests wait more than they work, and these two do not wait for each other
    (
        ("unit", "values, planners and parsers; no I/O", ["tests/unit"]),
        ("contract", "the report client on placement's own application", ["tests/contract"]),
        ("live, aside", f"{LIVE}: one command or one host, and one placement", [*ASIDE]),
    ),
    (("live", LIVE, ["tests/live", *(f"--ignore={path}" for path in ASIDE)]),),
)


@dataclass(frozen=True)
class Result:
    """How one kind of test went."""

    kind: str
    what: str
    counts: dict[str, int]
    seconds: float
    ok: bool


def run(kind: str, what: str, paths: list[str], tell: Callable[[str], object]) -> Result:
    """Run one kind, telling pytest's output as it comes."""
    tell(f"\n== {kind}: {what}\n")
    started = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "--color=no", "--durations=3", *paths]
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            tell(line)
            lines.append(line)
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for number, name in re.findall(r"(\d+) (passed|failed|skipped|error)", lines[-1]):
        counts["failed" if name == "error" else name] += int(number)
    ok = process.returncode == 0 and counts["passed"] > 0
    return Result(kind, what, counts, time.monotonic() - started, ok)


def show(line: str) -> None:
    print(line, end="", flush=True)


def main() -> int:
    """Run all kinds, even after a failure; of those aside the output is shown once they are through."""
    aside, shown = KINDS
    told: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: [run(*kind, told.append) for kind in aside])
        results = [run(*kind, show) for kind in shown]
        results = [*waiting.result(), *results]
    show("".join(told))
    print(f"\n{'kind':12} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>8}  what it shows")
    for result in results:
        passed, failed, skipped = (result.counts[name] for name in ("passed", "failed", "skipped"))
        print(f"{result.kind:12} {passed:7} {failed:7} {skipped:8} {result.seconds:8.0f}  {result.what}")
    totals = {name: sum(result.counts[name] for result in results) for name in ("passed", "failed", "skipped")}
    print(f"\n{totals['passed']} passed, {totals['failed']} failed, {totals['skipped']} skipped")
    return 0 if all(result.ok for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
