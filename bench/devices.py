"""Parts 5 and 6: what discovery of many devices costs, and how soon hot-plug is in placement."""

import statistics
import sys
from pathlib import Path
from typing import Any

from beds import placement
from beds.synthetic import bed
from beds.synthetic.hosts import FOUR_CELLS, WIDE
from beds.synthetic.plugging import Plugging
from bench.goals import Goal, print_table
from bench.lab import HERE, NOVA_PYTHON, run

ROUNDS_OF_DISCOVERY = 9
ROUNDS_OF_PLUGGING = 20
DISCOVERY_LIMIT = 1.5  # times listing and dumping every device once
PLUGGING_LIMIT_S = 1.0


def discover_wide(scratch: Path, template: Path) -> tuple[Goal, ...]:
    """8 cards with 64 VFs each and 16 GPUs, behind a real libvirtd."""
    with bed.serving(scratch / "wide", WIDE) as host:
        inside = ["env", f"PYTHONPATH={HERE.parent}", sys.executable, HERE / "wide.py"]
        both = run([*host.libvirtd.inside, *inside, host.libvirtd.uri, ROUNDS_OF_DISCOVERY]).json
        nova = run([*host.libvirtd.inside, NOVA_PYTHON, "-W", "ignore", HERE / "nova_wide.py", host.libvirtd.uri]).json
    plain, ours = (_median(both[name]) for name in ("plain", "ours"))
    ratio = ours["wall_s"] / plain["wall_s"]
    rows = [
        _row("list and dump every device once", plain, plain),
        _row("this agent, at each pass", ours, plain),
        _row("nova 34, at its first pass; then never again", nova, plain),
    ]
    print_table(("discovery", "devices", "wall s", "CPU s", "libvirt calls", "times list and dump"), rows)
    limit = f"at most {DISCOVERY_LIMIT}"
    return (Goal("discovery beside listing and dumping once", f"{ratio:.2f}", limit, ratio <= DISCOVERY_LIMIT),)


def plug(scratch: Path, template: Path) -> tuple[Goal, ...]:
    """The service on a synthetic host: seconds from the event to what placement answers."""
    (scratch / "plug").mkdir()
    with (
        placement.serving(scratch / "plug/placement", template) as server,
        bed.serving(scratch / "plug/host", FOUR_CELLS) as host,
        Plugging(host, server.url, scratch / "plug") as plugging,
    ):
        rounds = [plugging.round() for _ in range(ROUNDS_OF_PLUGGING)]
    seconds = {what: [one[what] for one in rounds] for what in rounds[0]}
    print(f"{ROUNDS_OF_PLUGGING} rounds, debounce included")
    print_table(
        ("event", "p50 s", "max s"),
        [(what, f"{statistics.median(times):.2f}", f"{max(times):.2f}") for what, times in seconds.items()],
    )
    slowest = max(max(times) for times in seconds.values())
    return (Goal("hot-plug to placement, slowest", f"{slowest:.2f} s", "under 1 s", slowest < PLUGGING_LIMIT_S),)


def _median(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts of the last run with the median times of all."""
    times = {name: statistics.median(one[name] for one in runs) for name in ("wall_s", "cpu_s")}
    return {**runs[-1], **times}


def _row(what: str, one: dict[str, Any], plain: dict[str, Any]) -> tuple[object, ...]:
    calls = sum(one["calls"].values())
    ratio = one["wall_s"] / plain["wall_s"]
    return what, one["devices"], f"{one['wall_s']:.3f}", f"{one['cpu_s']:.3f}", calls, f"{ratio:.2f}"
