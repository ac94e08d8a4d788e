"""How long requests were under way, however many at a time."""

from typing import Any

import pytest

from agent.connect.senders import MeteredSender, Underway
from beds.clock import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(0)
    monkeypatch.setattr("time.monotonic", clock)
    return clock


def test_time_in_which_several_requests_are_under_way_counts_once(clock: Clock) -> None:
    underway = Underway()
    with underway:
        clock.now = 1
        with underway:
            clock.now = 3
        clock.now = 4
    clock.now = 10
    with underway:
        clock.now = 10.5

    assert underway.seconds == 4.5


def test_a_request_that_fails_was_under_way_too(clock: Clock) -> None:
    class Silent:
        def request(self, url: str, method: str, **_: Any) -> Any:
            clock.now += 60
            raise TimeoutError(url, method)

    underway = Underway()
    told: list[tuple[str, str, int, float]] = []
    sender = MeteredSender(Silent(), lambda *one: told.append(one), underway)

    with pytest.raises(TimeoutError):
        sender.request("/traits", "GET")

    assert told == [("GET", "/traits", 0, 60)]
    assert underway.seconds == 60
