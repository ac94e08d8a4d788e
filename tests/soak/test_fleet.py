"""
A thousand services on one placement with PostgreSQL: what they ask of it at rest, and after all of them were restarted.

``AGENTS=1000 FLEET_S=600`` takes some twenty minutes (make soak).
"""

import gc
import os
import statistics
from pathlib import Path

import pytest

from beds import databases
from beds.fleet import Fleet, requests_a_second
from beds.placement import serving_on
from beds.spent import Spent, spent

pytestmark = pytest.mark.live

AGENTS = int(os.environ.get("AGENTS", "1000"))
SECONDS = float(os.environ.get("FLEET_S", "600"))
SPREADS_S = (0, 10, 30)
RESTARTS = 5  # with each spread; the figures are their medians
# Requests of nova 34's client for a root without children or guests: N + 1 a period and 4 N + 5 at a refresh for N
# children, as make bench counts them.
NOVA_WARM, NOVA_REFRESH, REFRESH_S = 1, 5, 300


def test_a_fleet_at_rest_asks_once_a_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A service collects garbage after each pass. Here that would look through the objects of all, as they share a
    # process; Python's own collections go on.
    monkeypatch.setattr(gc, "collect", lambda: 0)
    with (
        databases.postgresql(tmp_path / "database") as url,
        serving_on(databases.with_driver(url), tmp_path / "placement") as server,
    ):
        fleet, before = Fleet(tmp_path / "fleet", server.url, AGENTS), spent()
        fleet.start()
        populated = fleet.wait_until_ready(1200)
        fleet.stop()
        print(f"\n{AGENTS} services populated an empty placement in {populated:.0f} s{cpu(before)}")

        for spread_s in SPREADS_S:
            seen, before = [], spent()
            for _ in range(RESTARTS):
                fleet.stop()
                fleet = Fleet(tmp_path / "fleet", server.url, AGENTS, start_spread_s=spread_s)
                skip = server.log.stat().st_size
                fleet.start()
                ready = fleet.wait_until_ready(600)
                rates = requests_a_second(server.log, skip)
                seen.append((ready, sum(rates), max(rates), fleet.worst_s))
            ready, count, most, worst = map(statistics.median, zip(*seen, strict=True))
            print(
                f"all restarted at once {RESTARTS} times, start_spread {spread_s} s: all ready after {ready:.1f} s, "
                f"{count:.0f} requests, {count / AGENTS:.1f} a service, most in a second {most:.0f}, "
                f"worst pass {worst:.2f} s{cpu(before)}; each: {seen}"
            )
        fleet.watch(2 * fleet.interval_s)  # the rest of the first period, and one whole

        skip, before, begun = server.log.stat().st_size, spent(), fleet.passes()
        fleet.worst_s, fleet.took = 0.0, []
        fleet.watch(SECONDS)
        rates, passes = requests_a_second(server.log, skip), fleet.passes() - begun
        used = cpu(before)
        fleet.stop()
        nova = AGENTS * (NOVA_WARM / fleet.interval_s + NOVA_REFRESH / REFRESH_S)
        print(
            f"at rest for {SECONDS:g} s: {sum(rates)} requests, {sum(rates) / SECONDS:.1f} a second, most in a second "
            f"{max(rates)}; {passes} passes, {sum(rates) / passes:.2f} requests a pass; passes took "
            f"{statistics.median(fleet.took):.3f} s (median), {fleet.worst_s:.2f} s (worst); nova 34's client would "
            f"send {nova:.1f} a second{used}"
        )

        assert all(status.outcomes and set(status.outcomes.values()) == {"unchanged"} for status in fleet.statuses())
        assert sum(rates) <= passes * 1.01 + 5


def cpu(before: Spent) -> str:
    used = spent() - before
    return f"; CPU s: services {used.own_s:.1f}, placement {used.others_s:.1f}, database {used.database_s:.1f}"
