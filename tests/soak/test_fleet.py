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

pytestmark = pytest.mark.live

AGENTS = int(os.environ.get("AGENTS", "1000"))
SECONDS = float(os.environ.get("FLEET_S", "600"))
SPREADS_S = (0, 10, 30)
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
        fleet = Fleet(tmp_path / "fleet", server.url, AGENTS)
        fleet.start()
        populated = fleet.wait_until_ready(1200)
        fleet.stop()
        print(f"\n{AGENTS} services populated an empty placement in {populated:.0f} s")

        for spread_s in SPREADS_S:
            fleet = Fleet(tmp_path / "fleet", server.url, AGENTS, start_spread_s=spread_s)
            skip = server.log.stat().st_size
            fleet.start()
            ready = fleet.wait_until_ready(600)
            rates = requests_a_second(server.log, skip)
            print(
                f"all restarted at once, start_spread {spread_s} s: all ready after {ready:.0f} s, "
                f"{sum(rates)} requests, {sum(rates) / AGENTS:.1f} a service, most in a second {max(rates)}, "
                f"worst pass {fleet.worst_s:.1f} s"
            )
            if spread_s != SPREADS_S[-1]:
                fleet.stop()
        fleet.watch(2 * fleet.interval_s)  # the rest of the first period, and one whole

        skip, before = server.log.stat().st_size, fleet.passes()
        fleet.worst_s, fleet.took = 0.0, []
        fleet.watch(SECONDS)
        rates, passes = requests_a_second(server.log, skip), fleet.passes() - before
        fleet.stop()
        nova = AGENTS * (NOVA_WARM / fleet.interval_s + NOVA_REFRESH / REFRESH_S)
        print(
            f"at rest for {SECONDS:g} s: {sum(rates)} requests, {sum(rates) / SECONDS:.1f} a second, most in a second "
            f"{max(rates)}; {passes} passes, {sum(rates) / passes:.2f} requests a pass; passes took "
            f"{statistics.median(fleet.took):.3f} s (median), {fleet.worst_s:.2f} s (worst); nova 34's client would "
            f"send {nova:.1f} a second"
        )

        assert all(status.outcomes and set(status.outcomes.values()) == {"unchanged"} for status in fleet.statuses())
        assert sum(rates) <= passes * 1.01 + 5
