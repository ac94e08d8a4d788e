"""Runs the laws of the planner and the races of reshapes for long, with a new seed; SOAK_SEED repeats one."""

import os
import random
import subprocess
import sys

TURNS = 200  # of a host between its layouts
EXAMPLES = 20_000  # as the profile "soak" in tests/conftest.py says

LAWS = " or ".join(
    f"test_{name}" for name in ("diff", "state", "shape", "parse", "layouts", "hold", "nodedev", "sysfs", "moves")
)


def main() -> int:
    """Hypothesis with many examples; the seed makes a failure repeatable."""
    seed = os.environ.get("SOAK_SEED") or str(random.SystemRandom().randrange(2**32))
    print(f"seed {seed}, {EXAMPLES} examples a law; repeat with SOAK_SEED={seed} make soak", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", f"--hypothesis-seed={seed}", "--hypothesis-profile=soak"]
    laws = subprocess.run([*command, "tests/unit", "-k", LAWS], check=False).returncode
    print(f"\nkilled at every request, and turned {TURNS} times under schedulers", flush=True)
    long = {"RESHAPE_KILLS": "all", "RESHAPE_TURNS": str(TURNS), "SOAK_SEED": seed}
    races = [sys.executable, "-m", "pytest", "-q", "-s", "tests/live/test_reshape_races.py"]
    return laws or subprocess.run(races, check=False, env=os.environ | long).returncode


if __name__ == "__main__":
    sys.exit(main())
