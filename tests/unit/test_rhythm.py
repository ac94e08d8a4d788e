"""When passes are due: each host at a moment of its own, and none put off by who reads the configuration anew."""

import itertools
import statistics
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from agent.service.pace import Pace
from agent.settings.read import Settings, load_settings
from beds.clock import Clock
from configured import changed


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("time.monotonic", clock)
    monkeypatch.setattr("oslo_service.periodic_task.now", clock)
    return clock


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    config = tmp_path / "agent.conf"
    config.write_text("[agent]\ninterval = 60\nfull_audit_interval = 600\nstart_spread = 30\n", encoding="utf-8")
    return load_settings([config], service=True)


def nothing() -> None:
    pass


def note(moments: list[float], clock: Clock) -> None:
    moments.append(clock.now)


class Paced(Pace):
    """A pace whose ticks are noted."""

    def __init__(self, settings: Settings, take_pass: Callable[[], object], whole: Callable[[], object]) -> None:
        super().__init__(settings)
        self.take_pass, self.whole = take_pass, whole

    def tick(self) -> bool:
        self.deep = False
        takes = super().tick()
        if takes:
            self.take_pass()
        if self.deep:
            self.whole()
        return takes


def rhythm(
    settings: Settings, host: int, take_pass: Callable[[], object] = nothing, whole: Callable[[], object] = nothing
) -> Paced:
    return Paced(changed(settings, folders={"state": Path(f"/nowhere/{host}")}), take_pass, whole)


def test_a_fleet_that_starts_at_once_passes_one_by_one(settings: Settings, clock: Clock) -> None:
    dues = [rhythm(settings, host).due - clock.now for host in range(200)]

    assert min(dues) >= 0
    assert max(dues) <= 30
    assert statistics.fmean(dues) == pytest.approx(15, abs=3)
    assert rhythm(settings, 7).due - clock.now == dues[7]


def test_the_second_pass_comes_at_the_hosts_own_moment(settings: Settings, clock: Clock) -> None:
    began, dues = clock.now, []
    for host in range(200):
        clock.now = began
        one = rhythm(settings, host)
        clock.now = one.due + 2  # which its first pass took
        one.tick()
        assert 30 <= one.due - clock.now <= 90
        dues.append((one.due - began) % 60)

    assert statistics.fmean(dues) == pytest.approx(30, abs=5)


def test_a_first_pass_that_comes_late_is_not_followed_by_another_at_once(settings: Settings, clock: Clock) -> None:
    for host in range(50):
        one = rhythm(changed(settings, service={"start_spread_s": 600}), host)
        clock.now = one.due
        one.tick()
        assert 30 <= one.due - clock.now <= 90


def test_from_then_on_there_is_a_pass_in_each_period_and_now_and_then_one_that_reads_everything(
    settings: Settings, clock: Clock
) -> None:
    taken: list[float] = []
    whole: list[float] = []
    one = rhythm(settings, 1, lambda: taken.append(clock.now), lambda: whole.append(clock.now))
    began = clock.now
    while clock.now < began + 6000:
        clock.now = one.due
        one.tick()

    assert all(58 <= later - earlier <= 64 for earlier, later in itertools.pairwise(taken[1:]))  # with some jitter
    assert all(0.6 * 600 <= later - earlier <= 1.05 * 600 + 64 for earlier, later in itertools.pairwise(whole))
    assert len(whole) >= 9


def test_a_pass_that_was_held_back_is_not_followed_by_another_at_once(settings: Settings, clock: Clock) -> None:
    """Three passes in a row that want a smaller host must see it for a while, not for a moment."""
    taken: list[float] = []
    one = rhythm(settings, 1, lambda: taken.append(clock.now))
    for held_back_s in (0, 0, 57, 0, 55, 50, 0):
        clock.now = one.due + held_back_s
        one.tick()

    assert len(taken) == 7
    assert all(later - earlier >= 30 for earlier, later in itertools.pairwise(taken))


@pytest.mark.parametrize("took_s", [2.0, 59.0, 100.0, 400.0])
def test_a_pass_longer_than_its_period_is_not_followed_by_another_without_a_pause(
    settings: Settings, clock: Clock, took_s: float
) -> None:
    """Thousands of nodes, or a slow placement: the next pass would ask it again at the moment of the last answer."""
    one = rhythm(settings, 1)
    for _ in range(9):
        clock.now = max(clock.now, one.due)
        if one.tick():
            clock.now += took_s
            one.rest()
            assert one.due - clock.now >= 30


def test_hosts_that_start_at_once_do_not_read_everything_all_at_once(settings: Settings, clock: Clock) -> None:
    began = clock.now
    minutes: Counter[int] = Counter()
    for host in range(200):
        whole: list[float] = []
        clock.now = began
        one = rhythm(
            changed(settings, service={"full_audit_interval_s": 3600}), host, whole=partial(note, whole, clock)
        )
        while not whole:
            clock.now = one.due
            one.tick()
        minutes[int(whole[0] - began) // 60] += 1

    assert max(minutes.values()) <= 200 / 8
    assert min(minutes) >= 35


def test_who_begins_anew_again_and_again_puts_off_no_pass(settings: Settings, clock: Clock) -> None:
    one = rhythm(settings, 1)
    due = one.due
    while clock.now < due:
        clock.now += 1
        one.restart(settings)
        assert one.due <= max(due, clock.now)
