"""Runs the laws of the planner for long, with a new seed that is printed; SOAK_SEED repeats one."""

import os
import random
import subprocess
import sys

EXAMPLES = 20_000  # as the profile "soak" in tests/conftest.py says

LAWS = "test_diff or test_state or test_shape or test_parse or test_layouts or test_hold or test_nodedev or test_sysfs"


def main() -> int:
    """Hypothesis with many examples; the seed makes a failure repeatable."""
    seed = os.environ.get("SOAK_SEED") or str(random.SystemRandom().randrange(2**32))
    print(f"seed {seed}, {EXAMPLES} examples a law; repeat with SOAK_SEED={seed} make soak", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", f"--hypothesis-seed={seed}", "--hypothesis-profile=soak"]
    return subprocess.run([*command, "tests/unit", "-k", LAWS], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
