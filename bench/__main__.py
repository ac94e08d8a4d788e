"""
Runs all parts and closes with the goals; exit code 1 when one is missed.

BENCH_PARTS (numbers, with commas) runs these alone.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from beds.placement import placement_template
from beds.process import BedError
from bench.audit import compare_audits
from bench.conversions import compare_conversions
from bench.counts import count_requests
from bench.devices import discover_wide, plug
from bench.goals import Goal, print_summary
from bench.lab import HERE, BenchError
from bench.layouts import measure_layouts
from bench.nodes import compare_nodes
from bench.reshape import compare_reshapes
from bench.rest import measure_rest
from bench.startup import measure_startup
from bench.traits import compare_roots
from bench.writers import contest_root

Part = Callable[[Path, Path], tuple[Goal, ...]]  # (scratch folder, database of an empty placement)

PARTS: tuple[tuple[str, Part], ...] = (
    ("1. the command: what it costs to start", measure_startup),
    ("2. the root: nova's libvirt driver and ours on this host", compare_roots),
    ("3. requests: nova's report client and ours on one placement", count_requests),
    ("4. two writers on one root", contest_root),
    ("5. devices: 8 cards with 64 VFs each and 16 GPUs", discover_wide),
    ("6. hot-plug: from the event to placement", plug),
    ("7. a reshape: vGPUs from the root to each GPU, nova's report client and ours", compare_reshapes),
    ("8. conversions on PostgreSQL, nova's report client and ours", compare_conversions),
    ("9. an audit, and a pass of nova's report client", compare_audits),
    ("10. a fleet, and bare-metal nodes: our passes, and nova's", compare_nodes),
    ("11. what a layout costs placement's candidate search", measure_layouts),
    ("12. the service at rest, and nova's compute modules", measure_rest),
)


ONLY = frozenset(filter(None, os.environ.get("BENCH_PARTS", "").split(",")))  # empty: all


def main() -> int:
    """Every part that is wanted, even after one that failed."""
    if strange := ONLY - {_number(title) for title, _ in PARTS}:
        print(f"BENCH_PARTS: there is no part {', '.join(sorted(strange))}, only 1 to {len(PARTS)}", file=sys.stderr)
        return 2
    started = time.monotonic()
    goals: list[Goal] = []
    with tempfile.TemporaryDirectory(prefix="compute-node-agent-bench-") as scratch:
        template = placement_template(HERE.parent / ".bench/cache")
        for title, part in PARTS:
            if ONLY and _number(title) not in ONLY:
                continue
            print(f"\n== {title}\n", flush=True)
            goals += _measure(title, part, Path(scratch), template)
    print("\n== summary\n")
    held = print_summary(goals)
    print(f"measured in {time.monotonic() - started:.0f} s")
    return 0 if held else 1


def _measure(title: str, part: Part, scratch: Path, template: Path) -> tuple[Goal, ...]:
    try:
        return part(scratch, template)
    except (BenchError, BedError) as error:
        print(f"could not be measured: {error}")
        return (Goal(f"part {_number(title)}", "did not finish", "measured", False),)


def _number(title: str) -> str:
    return title.partition(".")[0]


if __name__ == "__main__":
    sys.exit(main())
