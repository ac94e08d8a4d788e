"""
Eight clients at once on a placement with several workers and PostgreSQL, an auditor that heals on each host.

By hand: ``CROWD_S=300`` for five minutes (make soak).
"""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from keystoneauth1.adapter import Adapter

from agent.connect.adapters import open_service
from agent.settings.read import keep_in, load_settings
from beds import databases
from beds.crowd import GRACE_S, Crowd
from beds.placement import serving_on

pytestmark = pytest.mark.live

SECONDS = float(os.environ.get("CROWD_S", "15"))
SEED = int(os.environ.get("SOAK_SEED", "20261121"))


def test_the_audits_find_the_truth_among_eight_clients(tmp_path: Path) -> None:
    """The audits wait for ten seconds, and what nobody interrupts is to be over by then: the longest is printed."""
    with (
        databases.postgresql(tmp_path / "database") as url,
        serving_on(databases.with_driver(url), tmp_path / "placement") as server,
    ):
        config = tmp_path / "agent.conf"
        config.write_text(f"[placement]\nauth_type = none\nendpoint = {server.url}\n", encoding="utf-8")
        settings = load_settings([config])

        def open_sender() -> Adapter:
            return open_service(settings, "placement")[0]

        own = replace(keep_in(settings, tmp_path / "state"), recorded=True, audit_grace_s=GRACE_S)
        crowd = Crowd(open_sender, own, SEED)
        crowd.run(SECONDS)
        print(f"\n{SECONDS:g} s: {dict(sorted(crowd.counts.items()))}, the longest {crowd.longest_s:.1f} s")

        assert crowd.wrong == []
        assert crowd.held() == crowd.expected()
        assert min(crowd.counts[what] for what in ("spawn done", "move done", "audit", "finding healed")) > 0
