"""Runs for long what make test runs once; SOAK_SEED repeats a seed, SOAK_ONLY (a step's number) runs one step."""

import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass, field

EXAMPLES = 20_000  # as the profile "soak" in tests/conftest.py says
LAWS = " or ".join(
    f"test_{name}"
    for name in (
        *("diff", "state", "shape", "parse", "layouts", "hold", "nodedev", "sysfs", "moves", "ironic"),
        *("foreign", "nodes", "settings"),
    )
)
LATE = "tests/live/test_audit.py::test_a_consumer_whose_guest_may_be_on_its_way_is_not_judged"
KILLED = "tests/live/test_daemon.py::test_it_recovers_from_a_kill_at_any_moment"


@dataclass(frozen=True)
class Step:
    """One run of pytest, and how much of what it is to do."""

    what: str
    arguments: tuple[str, ...]
    much: dict[str, str] = field(default_factory=dict)


STEPS = (
    Step(
        f"laws, {EXAMPLES} examples each",
        ("--hypothesis-profile=soak", "tests/unit", "-k", LAWS),
        {"SETTINGS_EXAMPLES": "2000"},
    ),
    Step(
        f"laws of whole passes, {EXAMPLES} worlds each", ("tests/contract/test_worlds.py",), {"WORLDS": str(EXAMPLES)}
    ),
    Step(
        "10,000 histories of guests in memory, 300 on placement's own application",
        ("-s", "tests/contract/test_histories.py"),
        {"HISTORIES": "10000", "REAL_HISTORIES": "300"},
    ),
    Step(
        "eight clients and two auditors on PostgreSQL for 300 s",
        ("-s", "tests/live/test_crowd.py", LATE),
        {"CROWD_S": "300", "LATE_S": "30"},
    ),
    Step("10,000 bare-metal nodes", ("-s", "tests/live/test_ironic.py", "-k", "quiet_pass"), {"NODES": "10000"}),
    Step(
        "conversions killed at every request, and 200 turns under schedulers",
        ("-s", "tests/live/test_reshape_races.py"),
        {"RESHAPE_KILLS": "all", "RESHAPE_TURNS": "200"},
    ),
    Step("the service killed 500 times", ("-s", KILLED), {"KILLS": "500"}),
    Step("a day of the service, a second a minute", ("-s", "tests/soak/test_day.py"), {"HOURS": "24"}),
    Step(
        "1,000 services on one placement for ten minutes",
        ("-s", "tests/soak/test_fleet.py"),
        {"AGENTS": "1000", "FLEET_S": "600"},
    ),
)


def main() -> int:
    """Every step, even after one that failed; the seed makes a failure repeatable."""
    seed = os.environ.get("SOAK_SEED") or str(random.SystemRandom().randrange(2**32))
    only = os.environ.get("SOAK_ONLY")
    print(f"seed {seed}; repeat with SOAK_SEED={seed} make soak, one step with SOAK_ONLY=NUMBER", flush=True)
    told = []
    for number, step in enumerate(STEPS, 1):
        if only in (None, str(number)):
            print(f"\n== {number}. {step.what}", flush=True)
            began = time.monotonic()
            command = [sys.executable, "-m", "pytest", "-q", f"--hypothesis-seed={seed}", *step.arguments]
            code = subprocess.run(command, check=False, env=os.environ | step.much | {"SOAK_SEED": seed}).returncode
            told.append((number, code, time.monotonic() - began, step.what))
    print()
    for number, code, seconds, what in told:
        print(f"{number}. {'passed' if code == 0 else 'FAILED'} {seconds:6.0f} s  {what}")
    return max((code for _, code, _, _ in told), default=0)


if __name__ == "__main__":
    sys.exit(main())
