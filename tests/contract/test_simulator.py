"""The simulator of fleets: its queues against queueing theory, its agents against the agent's own code."""

import itertools
import os
import random
import statistics
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "tools"))

import simpy
from simulator.agents import BEFORE, Agent, Cloud, Ways, place_of
from simulator.costs import Activity, Cost, Pause, read_costs
from simulator.scenarios import Setup, World, after_fleet_restart, after_placement_restart, an_hour_later, at_rest
from simulator.stations import Cores, Interpreter, Queue, Service, Steps, Thread
from simulator.validate import TABLES, origin

from agent.connect import tokens
from agent.service import pace
from agent.settings.read import load_settings
from beds.clock import Clock
from beds.spent import Spent
from configured import changed

COSTS = read_costs()
SMALL = Setup(hosts=200, workers=2, keystone_workers=2, database_cores=2)


@pytest.mark.parametrize("busy", [0.3, 0.8])
def test_a_single_worker_makes_requests_wait_as_theory_says(busy: float) -> None:
    """M/D/1: requests at random moments that all cost the same wait busy / (2 (1 - busy)) costs in the mean."""
    env, dice, cost = simpy.Environment(), random.Random(1), Cost(0.01, 0.0, 0.0, 1)
    service, waits = Service(env, 1, 1, Cores(env, 1)), []

    def ask() -> Steps:
        began = env.now
        yield from service.serve(cost)
        waits.append(env.now - began - cost.service_s)

    def come() -> Steps:
        while True:
            yield env.timeout(dice.expovariate(busy / cost.service_s))
            env.process(ask())

    env.process(come())
    env.run(1000)

    assert statistics.fmean(waits) == pytest.approx(cost.service_s * busy / (2 * (1 - busy)), rel=0.1)


def test_cores_that_are_shared_give_everybody_the_same_part() -> None:
    env, ended = simpy.Environment(), []
    cores = Cores(env, 2)

    def work() -> Steps:
        yield from cores.compute(1.0)
        ended.append(env.now)

    for _ in range(8):
        env.process(work())
    env.run()

    assert min(ended) > 3.9
    assert max(ended) == pytest.approx(4.0, abs=0.05)
    assert cores.busy_s == pytest.approx(8.0)


def test_services_compute_one_thread_at_a_time_and_only_while_placement_does_not() -> None:
    env, ended = simpy.Environment(), {}
    machine = Cores(env, 2, turn_s=0.001)
    queue, lock = Queue(env, machine, slice_s=0.004), Interpreter(env)

    def serve(name: str) -> Steps:
        yield from Thread(queue, lock).compute(1.0)
        ended[name] = env.now

    def place() -> Steps:
        yield env.timeout(0.5)
        yield from machine.compute(1.0)
        ended["placement"] = env.now

    for name in ("service", "another"):
        env.process(serve(name))
    for _ in range(2):
        env.process(place())
    env.run()

    assert ended["placement"] == pytest.approx(1.5, abs=0.005)
    first, last = sorted((ended["service"], ended["another"]))
    assert 2.9 < first < last  # in turns, and neither before the other
    assert last == pytest.approx(3.0, abs=0.005)


def test_a_thread_gives_up_the_interpreter_when_another_has_waited_for_a_turn() -> None:
    env, ended = simpy.Environment(), {}
    queue, lock = Queue(env, Cores(env, 2, turn_s=0.001), slice_s=0.004), Interpreter(env)

    def compute(name: str, seconds: float) -> Steps:
        yield from Thread(queue, lock).compute(seconds)
        ended[name] = env.now

    env.process(compute("long", 1.0))
    env.process(compute("short", 0.001))
    env.run()

    assert 0.005 <= ended["short"] < 0.008
    assert ended["long"] == pytest.approx(1.001, abs=0.001)
    assert lock.holder is None


def test_a_thread_that_asks_for_something_leaves_the_interpreter_to_one_that_waits() -> None:
    env, ended = simpy.Environment(), {}
    queue, lock = Queue(env, Cores(env, 2, turn_s=0.001), slice_s=0.004), Interpreter(env)

    def compute(name: str) -> Steps:
        thread = Thread(queue, lock)
        yield from thread.compute(0.003)
        ended[name] = env.now
        yield env.timeout(0.001)
        yield from thread.compute(0.003)

    env.process(compute("first"))
    env.process(compute("second"))
    env.run()

    assert ended["first"] == pytest.approx(0.003)
    assert ended["second"] == pytest.approx(0.006)


def test_a_thread_that_waited_goes_before_half_of_those_that_compute() -> None:
    env, dice, waits = simpy.Environment(), random.Random(1), []
    queue, everybody_s = Queue(env, Cores(env, 1, turn_s=0.001), slice_s=0.004), 20 * 0.004

    def come_again() -> Steps:
        thread = Thread(queue, Interpreter(env))
        yield env.timeout(0.5)
        for _ in range(50):
            began = env.now
            yield from thread.compute(0.001)
            waits.append(env.now - began)
            yield env.timeout(dice.uniform(0, everybody_s))

    for _ in range(20):
        env.process(Thread(queue, Interpreter(env)).compute(1.0))
    env.process(come_again())
    env.run(10.0)

    assert 0.3 * everybody_s < statistics.fmean(waits) < 0.7 * everybody_s


def test_services_together_take_what_they_took_and_no_more() -> None:
    starts = {"first": Spent(2.0, 0.030, 0.050), "restart, spread 0": Spent(2.0, 0.020, 0.020)}
    rests = Spent(2.0, 0.004, 0.006)
    costs = COSTS.together({**starts, "quiet": rests})

    found, start_s = costs.hosts["soak"], costs.hosts["soak"]["start"].agent_s
    assert start_s > 0
    for name, took in starts.items():
        assert found[name].agent_s + start_s == pytest.approx(took.services_s, rel=0.001)
    assert found["quiet"].agent_s == pytest.approx(rests.services_s, rel=0.001)
    placement_s = costs.loaded("quiet")["GET /resource_providers"].service_s + costs.pause.share_s
    assert placement_s == pytest.approx(rests.others_s, rel=0.001)


def test_a_thread_begins_when_it_has_a_core() -> None:
    """A service that waits for its turn does not know yet that its pass is due, and does not count the wait."""
    env, begins, ends = simpy.Environment(), [], []
    queue = Queue(env, Cores(env, 1, turn_s=0.001), slice_s=0.004)

    def compute() -> Steps:
        begins.append((yield from Thread(queue, Interpreter(env)).compute(0.004)))
        ends.append(env.now)

    for _ in range(2):
        env.process(compute())
    env.run()

    assert begins == pytest.approx([0.0, 0.004])
    assert ends == pytest.approx([0.004, 0.008])


def test_a_thread_that_had_much_does_not_wait_for_those_that_come_later() -> None:
    env = simpy.Environment()
    queue = Queue(env, Cores(env, 1, turn_s=0.001), slice_s=0.004)
    greedy, ended = Thread(queue, Interpreter(env)), []

    def come_back() -> Steps:
        yield from greedy.compute(0.5)
        yield env.timeout(1.0)
        yield from greedy.compute(0.004)
        ended.append(env.now)

    def come_later() -> Steps:
        yield env.timeout(1.49)
        while env.now < 3:
            env.process(Thread(queue, Interpreter(env)).compute(0.004))
            yield env.timeout(0.004)

    env.process(come_back())
    env.process(come_later())
    env.run(5.0)

    assert ended[0] < 1.6


@pytest.mark.parametrize("pauses_s", [(0.1,), (0.05, 0.15)])
def test_a_process_that_collects_its_garbage_lets_requests_wait_and_is_busy(pauses_s: tuple[float, ...]) -> None:
    env, cost, took = simpy.Environment(), Cost(0.002, 0.0, 0.0, 1), []
    machine = Cores(env, 2)
    service = Service(env, 1, 4, Cores(env, 1), pause=Pause(every=10, service_s=pauses_s), cores=machine)

    def ask() -> Steps:
        while True:
            began = env.now
            yield from service.serve(cost)
            took.append(env.now - began)
            yield env.timeout(0.05)

    for _ in range(2):
        env.process(ask())
    env.run(100)

    pauses = len(took) // 10
    assert service.busy_s == pytest.approx(len(took) * 0.002 + pauses * 0.1, rel=0.1)
    assert pauses <= sum(one > min(pauses_s) for one in took) <= 2 * (pauses + 1)  # both requests may wait
    assert any(one > max(pauses_s) for one in took)
    assert statistics.median(took) < 0.01
    assert max(took) < max(pauses_s) + 0.01


def test_processes_of_a_machine_get_the_same_part_of_it_whatever_their_turns() -> None:
    env, ended = simpy.Environment(), {}
    machine = Cores(env, 1, turn_s=0.001)
    hasty, slow = Cores(env, 1, machine, 0.001), Cores(env, 1, machine, 0.1)

    def work(name: str, process: Cores) -> Steps:
        yield from process.compute(1.0)
        ended[name] = env.now

    env.process(work("hasty", hasty))
    env.process(work("slow", slow))
    env.run()

    assert min(ended.values()) > 1.98


def test_passes_are_due_when_the_agents_own_timetable_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clock = Clock()
    monkeypatch.setattr("time.monotonic", clock)
    monkeypatch.setattr("oslo_service.periodic_task.now", clock)
    monkeypatch.setattr("random.random", lambda: 0.0)  # no jitter
    config = tmp_path / "agent.conf"
    config.write_text("[agent]\ninterval = 60\nstart_spread = 60\n", encoding="utf-8")
    settings = changed(load_settings([config], service=True), folders={"state": Path("/nowhere/7")})
    taken: list[float] = []
    paced = pace.Pace(settings)
    while len(taken) < 6:
        clock.now = paced.due
        if paced.tick():
            taken.append(clock.now)

    env = simpy.Environment()
    nothing = Activity((0.0,), ())
    service = Service(env, 1, 1, Cores(env, 1))
    cloud = Cloud(env, service, None, {}, Ways(token_s=None), Without())
    place = place_of(os.uname().nodename, "/nowhere/7")
    env.process(Agent(cloud, place, {"restart": nothing, "quiet": nothing, "whole": nothing}).run("restart"))
    env.run(600)

    assert [when for when, _ in cloud.record.took][:6] == pytest.approx([one - 1000.0 for one in taken], abs=0.01)


class Without(random.Random):
    """Dice that always show the least."""

    def random(self) -> float:
        return 0.0


def test_defaults_are_the_agents_own(tmp_path: Path) -> None:
    config = tmp_path / "agent.conf"
    config.write_text("", encoding="utf-8")
    settings, ways = load_settings([config], service=True), Ways()

    assert (ways.interval_s, ways.start_spread_s, ways.full_audit_interval_s) == (
        settings.service.interval_s,
        settings.service.start_spread_s,
        settings.service.full_audit_interval_s,
    )
    assert ways.late_retry_s == pace.LATE_RETRY_S
    assert ways.renewed == (tokens.FIRST_PART, tokens.LAST_PART)


def test_no_pass_is_lost_while_placement_is_away() -> None:
    seen = after_placement_restart(SMALL, COSTS)

    assert seen.failures > SMALL.hosts  # each asked in vain
    assert seen.well_s is not None
    assert seen.well_s < 90


def test_at_rest_each_host_asks_once_in_a_period() -> None:
    seen = at_rest(SMALL, COSTS, 1200)

    hosts = sum(seen.requests.values()) / seen.ended_s * 61  # the period has some jitter
    boots = 2 * SMALL.claims_a_s * 61
    assert hosts - boots == pytest.approx(SMALL.hosts * (1 + 3 / 60), rel=0.05)  # whole looks ask for three more
    assert seen.failures == 0


def test_the_database_works_no_longer_than_requests_take() -> None:
    world = World(SMALL, COSTS)
    world.rest()
    world.env.run(300)

    most = max(one.database_s for one in world.cloud.kinds.values())
    assert 0 < world.database.busy_s <= world.placement.arrived.total() * (most + 0.2)


def test_a_fleet_that_keeps_its_tokens_logs_in_no_more_when_it_is_restarted() -> None:
    kept, lost = (
        after_fleet_restart(replace(SMALL, ways=Ways(keeps_token=keeps)), COSTS).logins for keeps in (True, False)
    )

    def peak(of: Mapping[int, int]) -> int:
        return max(sum(of.get(start + second, 0) for second in range(10)) for start in range(120, 180))

    assert peak(lost) > 4 * peak(kept)


def test_tokens_that_end_together_are_renewed_apart_now() -> None:
    now, before = (an_hour_later(replace(SMALL, hosts=1200, ways=ways), COSTS) for ways in (Ways(), BEFORE))

    assert now.failures == 0
    assert now.worst_pass_s < 2
    assert before.worst_pass_s > 10


def test_the_page_tells_what_follows_from_the_costs_that_are_kept() -> None:
    """After ``SIMULATE=measure`` or another soak, run ``make simulate``."""
    assert TABLES.read_text(encoding="utf-8").startswith(origin())


def test_all_figures_of_the_soak_test_but_two_are_foretold_within_a_fifth() -> None:
    table = TABLES.read_text(encoding="utf-8").partition("<!-- validation -->")[2].partition("<!-- end")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    figures = {(row[0], row[1]): int(row[4].removesuffix("%")) for row in rows if row[-1].endswith("%")}

    assert len(figures) == 18
    assert {name for name, apart in figures.items() if abs(apart) > 20} == {
        ("restarted, spread 0", "most"),
        ("restarted, spread 30", "worst_s"),
    }


def test_searches_cost_more_in_larger_clouds() -> None:
    times = [COSTS.search_s("devices", hosts) for hosts in (100, 1000, 3000, 5000, 20_000)]

    assert all(less < more for less, more in itertools.pairwise(times))
    assert times[0] == pytest.approx(0.04)
