"""What the command costs before it does anything, and what looking at a host loads."""

import re
import statistics
import sys
from collections import Counter
from pathlib import Path

from bench.goals import Goal, print_table
from bench.lab import AGENT, HERE, run, write_config
from drivers.fake import write_host

RUNS = 10
WALL_GOAL_S = 0.3
PEAK_GOAL_MIB = 45
WATCHED = re.compile(r"placement|openstack|keystoneauth1|oslo_\w+")
UNWANTED = ("placement", "openstack")


def measure_startup(scratch: Path, _: Path) -> tuple[Goal, ...]:
    """Wall time and peak memory of ``--help``; the modules that ``discover`` imports."""
    return *_help(), _imports(scratch)


def _help() -> tuple[Goal, Goal]:
    wall_s, peak_mib = _cost([str(AGENT), "--help"])
    bare_s, bare_mib = _cost([sys.executable, "-c", "pass"])
    print_table(
        ("command", f"wall s, median of {RUNS}", "peak memory MiB"),
        [
            ("compute-node-agent --help", f"{wall_s:.3f}", f"{peak_mib:.1f}"),
            ("python -c pass", f"{bare_s:.3f}", f"{bare_mib:.1f}"),
        ],
    )
    return (
        Goal("--help, wall time", f"{wall_s:.3f} s", f"under {WALL_GOAL_S} s", wall_s < WALL_GOAL_S),
        Goal("--help, peak memory", f"{peak_mib:.1f} MiB", f"under {PEAK_GOAL_MIB} MiB", peak_mib < PEAK_GOAL_MIB),
    )


def _cost(command: list[str]) -> tuple[float, float]:
    """Median wall seconds and the largest peak in MiB."""
    runs = run([sys.executable, "-I", "-S", HERE / "spawn.py", RUNS, *command]).json
    return statistics.median(wall_s for wall_s, _ in runs), max(peak_kib for _, peak_kib in runs) / 1024


def _imports(scratch: Path) -> Goal:
    archive = write_host(scratch / "startup", seed=0, shape="small")
    config = write_config(scratch / "startup")
    discover = [AGENT, "discover", "--host", archive.root, "--config-file", config, "--format", "json"]
    looked = run([sys.executable, "-X", "importtime", *discover])
    modules = [line.rpartition("|")[2].strip() for line in looked.err.splitlines() if line.startswith("import time:")]
    packages = Counter(module.partition(".")[0] for module in modules if not module.startswith("_"))
    watched = {name: count for name, count in sorted(packages.items()) if WATCHED.fullmatch(name)}
    print(f"\ndiscover --host ARCHIVE ({looked.wall_s:.2f} s under -X importtime) imports {len(modules)} modules;")
    print("of the OpenStack libraries:")
    absent = {name: 0 for name in UNWANTED if name not in watched}
    print_table(("package", "modules"), list((absent | watched).items()))
    found = [name for name in UNWANTED if name in watched]
    return Goal(
        "discover imports none of " + ", ".join(UNWANTED),
        ", ".join(found) or "none",
        "none",
        not found and bool(modules),
    )
