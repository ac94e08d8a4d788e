"""
A thousand services on one placement with PostgreSQL: what they ask of it at rest, and after all of them were restarted.

It takes some twenty minutes (make soak); ``AGENTS=20 FLEET_S=60`` takes less.
"""

import os
import statistics
from pathlib import Path

import pytest

from beds import databases
from beds.fleet import AGENTS, REST_S, SPREADS_S, Fleet, requests_a_second
from beds.placement import serving_on
from beds.spent import Spent, spent

pytestmark = pytest.mark.live

COUNT = int(os.environ.get("AGENTS", str(AGENTS)))
SECONDS = float(os.environ.get("FLEET_S", str(REST_S)))
RESTARTS = 7  # with each spread; the figures are their medians
# Requests of nova 34's client for a root without children or guests: N + 1 a period and 4 N + 5 at a refresh for N
# children, as make bench counts them.
NOVA_WARM, NOVA_REFRESH, REFRESH_S = 1, 5, 300


def test_a_fleet_at_rest_asks_once_a_pass(tmp_path: Path) -> None:
    with (
        databases.postgresql(tmp_path / "database") as url,
        serving_on(databases.with_driver(url), tmp_path / "placement") as server,
    ):
        with Fleet(tmp_path / "fleet", server.url, COUNT) as fleet:
            populated, _, _, _, used = started(fleet, server.log)
        print(f"\n{COUNT} services populated an empty placement in {populated:.1f} s{cpu(used)}")

        for spread_s in SPREADS_S:
            seen, used = [], Spent()
            for _ in range(RESTARTS):
                with Fleet(tmp_path / "fleet", server.url, COUNT, start_spread_s=spread_s) as fleet:
                    *figures, more = started(fleet, server.log)
                seen.append(figures)
                used += more
            ready, count, most, worst = map(statistics.median, zip(*seen, strict=True))
            print(
                f"all restarted at once {RESTARTS} times, start_spread {spread_s} s: all ready after {ready:.1f} s, "
                f"{count:.0f} requests, {count / COUNT:.1f} a service, most in a second {most:.0f}, "
                f"worst pass {worst:.2f} s{cpu(used)}; each: {seen}"
            )

        with Fleet(tmp_path / "fleet", server.url, COUNT, start_spread_s=SPREADS_S[-1]) as fleet:
            started(fleet, server.log)
            fleet.watch(2 * fleet.interval_s)  # the rest of the first period, and one whole
            skip, before, begun = server.log.stat().st_size, spent(), fleet.passes()
            fleet.worst_s, fleet.took = 0.0, []
            fleet.watch(SECONDS)
            rates, passes = requests_a_second(server.log, skip), fleet.passes() - begun
            used, outcomes = spent() - before, fleet.outcomes()
            median_s = statistics.median_grouped(fleet.took, 0.001)  # each is rounded to milliseconds
        nova = COUNT * (NOVA_WARM / fleet.interval_s + NOVA_REFRESH / REFRESH_S)
        print(
            f"at rest for {SECONDS:g} s: {sum(rates)} requests, {sum(rates) / SECONDS:.1f} a second, most in a second "
            f"{max(rates)}; {passes} passes, {sum(rates) / passes:.2f} requests a pass; passes took "
            f"{median_s:.4f} s (median), {fleet.worst_s:.3f} s (worst); nova 34's client would send "
            f"{nova:.1f} a second{cpu(used)}"
        )

    assert outcomes == {"unchanged": COUNT}
    assert passes >= 0.9 * COUNT * (SECONDS // fleet.interval_s)
    assert sum(rates) <= passes * 1.01 + 5


def started(fleet: Fleet, log: Path) -> tuple[float, int, int, float, Spent]:
    """Seconds until all are ready, requests, the most in a second, the slowest pass, and CPU from the start on."""
    fleet.prepare()
    skip, before = log.stat().st_size, spent()
    fleet.start()
    ready = fleet.wait_until_ready(1200)
    rates = requests_a_second(log, skip)
    return round(ready, 2), sum(rates), max(rates), round(fleet.worst_s, 2), spent() - before


def cpu(used: Spent) -> str:
    return f"; CPU s: services {used.services_s:.1f}, placement {used.others_s:.1f}, database {used.database_s:.1f}"
