"""How long the service waits after a failed pass."""

import time
from pathlib import Path

import pytest

from agent.service.pace import LATE_RETRY_S, Pace
from agent.settings.read import load_settings
from reportclient.errors import Unavailable


@pytest.fixture
def pace(tmp_path: Path) -> Pace:
    config = tmp_path / "agent.conf"
    config.write_text("[agent]\ninterval = 60\n", encoding="utf-8")
    return Pace(load_settings([config], service=True))


def waits(pace: Pace, error: Exception, times: int) -> list[float]:
    found = []
    for _ in range(times):
        pace.failed(error)
        found.append(pace._retry - time.monotonic())
    return found


def test_a_server_that_refuses_is_asked_again_once_a_period_at_least(pace: Pace) -> None:
    found = waits(pace, Unavailable("refused"), 30)

    assert found[0] <= 1
    assert 29 <= found[-1] <= 60
    assert max(found) <= 60


def test_a_server_that_is_late_is_asked_less_and_less(pace: Pace) -> None:
    """So that a fleet whose requests nobody waits for any more does not ask as fast as it can for ever."""
    found = waits(pace, Unavailable("too late", late=True), 30)

    assert found[0] <= 1
    assert found[8] > 120
    assert LATE_RETRY_S / 2 - 1 <= found[-1] <= LATE_RETRY_S


def test_one_late_answer_after_a_longer_outage_makes_no_wait_longer(pace: Pace) -> None:
    waits(pace, Unavailable("refused"), 25)

    assert waits(pace, Unavailable("too late", late=True), 1)[0] <= 60
    waits(pace, Unavailable("too late", late=True), 12)
    assert waits(pace, Unavailable("refused"), 1)[0] <= 60
    assert waits(pace, Unavailable("too late", late=True), 1)[0] <= 60


def test_a_longer_wait_that_the_server_asks_for_is_added(pace: Pace) -> None:
    assert waits(pace, Unavailable("later", retry_after_s=500), 1)[0] >= 499
