"""Runs laws, histories of guests, a crowd of clients and races of reshapes for long; SOAK_SEED repeats a seed."""

import os
import random
import subprocess
import sys

TURNS = 200  # of a host between its layouts
HISTORIES, REAL_HISTORIES = 10_000, 300  # of guests, crashes and audits
LATE = "tests/live/test_audit.py::test_a_consumer_whose_guest_may_be_on_its_way_is_not_judged"
NODES = 10_000  # of one Ironic
CROWD_S = 300  # of clients and auditors at once
EXAMPLES = 20_000  # as the profile "soak" in tests/conftest.py says

LAWS = " or ".join(
    f"test_{name}"
    for name in ("diff", "state", "shape", "parse", "layouts", "hold", "nodedev", "sysfs", "moves", "ironic")
)


def main() -> int:
    """Hypothesis with many examples; the seed makes a failure repeatable."""
    seed = os.environ.get("SOAK_SEED") or str(random.SystemRandom().randrange(2**32))
    print(f"seed {seed}, {EXAMPLES} examples a law; repeat with SOAK_SEED={seed} make soak", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", f"--hypothesis-seed={seed}", "--hypothesis-profile=soak"]
    laws = subprocess.run([*command, "tests/unit", "-k", LAWS], check=False).returncode
    print(f"\n{HISTORIES} histories in memory, {REAL_HISTORIES} on placement's own application", flush=True)
    many = {"HISTORIES": str(HISTORIES), "REAL_HISTORIES": str(REAL_HISTORIES)}
    histories = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-s",
        f"--hypothesis-seed={seed}",
        "tests/contract/test_histories.py",
    ]
    laws = laws or subprocess.run(histories, check=False, env=os.environ | many).returncode
    print(f"\neight clients and two auditors on PostgreSQL for {CROWD_S} s", flush=True)
    crowd = [sys.executable, "-m", "pytest", "-q", "-s", "tests/live/test_crowd.py", LATE]
    many = {"CROWD_S": str(CROWD_S), "LATE_S": "30", "SOAK_SEED": seed}
    laws = laws or subprocess.run(crowd, check=False, env=os.environ | many).returncode
    print(f"\n{NODES} bare-metal nodes", flush=True)
    nodes = [sys.executable, "-m", "pytest", "-q", "-s", "tests/live/test_ironic.py", "-k", "quiet_pass"]
    laws = laws or subprocess.run(nodes, check=False, env=os.environ | {"NODES": str(NODES)}).returncode
    print(f"\nkilled at every request, and turned {TURNS} times under schedulers", flush=True)
    long = {"RESHAPE_KILLS": "all", "RESHAPE_TURNS": str(TURNS), "SOAK_SEED": seed}
    races = [sys.executable, "-m", "pytest", "-q", "-s", "tests/live/test_reshape_races.py"]
    return laws or subprocess.run(races, check=False, env=os.environ | long).returncode


if __name__ == "__main__":
    sys.exit(main())
