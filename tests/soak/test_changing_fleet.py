"""
Services of hosts that change by a script, on one placement with PostgreSQL, beside a scheduler.

``AGENTS=1000 CHANGES_S=600`` takes some twenty minutes (make soak); ``AGENTS=20 CHANGES_S=30`` shows that it works.
"""

import os
import random
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest

from beds import databases
from beds.by_hand import ByHand
from beds.fleet import Fleet, requests_a_second
from beds.ledger import Ledger
from beds.made_up import claim, release, stock_of, use_of
from beds.placement import serving_on
from drivers.fake.fleet import make_hosts
from drivers.fake.hosts import FakeHost, GuestKind
from drivers.fake.script import History, history, parse_script

pytestmark = pytest.mark.live

AGENTS = int(os.environ.get("AGENTS", "1000"))
SECONDS = int(os.environ.get("CHANGES_S", "600"))
SEED = int(os.environ.get("SOAK_SEED", "20"))
SHAPE = "mixed"
INTERVAL_S = max(1, SECONDS // 10)
STILL = 2  # one host in so many never changes
EVERY = 4  # intervals between two changes of a host: its agent has reported a card when guests get VFs of it
LINES: tuple[dict[str, str], ...] = (
    *({"do": "start_guest", "kind": kind} for kind in get_args(GuestKind)),
    *({"do": "end_guest"},) * 3,
    *({"do": "add_card", "card": card} for card in ("nic", "gpu")),
)


def make_script(host: FakeHost, moments: Iterable[float], chance: random.Random) -> list[dict[str, Any]]:
    """Return a step for each moment, of those that can happen to the host then."""
    steps: list[dict[str, Any]] = []
    for after_s in moments:
        for line in chance.sample(LINES, len(LINES)):
            longer = [*steps, {"after_s": after_s, **line}]
            try:
                history(host, parse_script({"steps": longer}))
            except ValueError:
                continue
            steps = longer
            break
    return steps


def make_scripts(hosts: Iterable[FakeHost]) -> dict[int, list[dict[str, Any]]]:
    """Return the steps of each host that changes, by its number."""
    chance = random.Random(SEED)
    changing = [(number, host) for number, host in enumerate(hosts) if number % STILL]
    return {
        number: make_script(host, range(chance.randrange(1, EVERY * INTERVAL_S), SECONDS, EVERY * INTERVAL_S), chance)
        for number, host in changing
    }


def acts_beside(moments: History, placement: ByHand) -> list[tuple[float, Callable[[], None]]]:
    """Return what nova does to a host's guests, and when: it claims before they start, and releases after they end."""
    found: list[tuple[float, Callable[[], None]]] = []
    for before, now in pairwise(moments):
        come = [guest for guest in now.host.guests if guest not in before.host.guests]
        gone = [guest for guest in before.host.guests if guest not in now.host.guests]
        if come:
            found.append((now.after_s - 1, partial(claim, placement, now.host, come)))
        found += [(now.after_s, partial(release, placement, guest)) for guest in gone]
    return found


def test_placement_follows_the_hosts_that_change_and_the_others_are_not_written(tmp_path: Path) -> None:
    hosts = [make_hosts(1, seed=number, shape=SHAPE)[0] for number in range(AGENTS)]
    scripts = make_scripts(hosts)
    histories = [history(host, parse_script({"steps": scripts.get(n, [])})) for n, host in enumerate(hosts)]
    with (
        databases.postgresql(tmp_path / "database") as url,
        serving_on(databases.with_driver(url), tmp_path / "placement") as server,
    ):
        placement, ledger = ByHand(server.url), Ledger(url)
        with Fleet(tmp_path / "fleet", server.url, AGENTS, INTERVAL_S, shape=SHAPE) as fleet:
            fleet.start()
            fleet.wait_until_ready(1200)
        for host in hosts:
            claim(placement, host, host.guests)
        before = ledger.generations()

        skip = server.log.stat().st_size
        with Fleet(tmp_path / "fleet", server.url, AGENTS, INTERVAL_S, shape=SHAPE, scripts=scripts) as fleet:
            fleet.start()
            acts = [act for moments in histories for act in acts_beside(moments, placement)]
            for after_s, act in sorted(acts, key=lambda act: act[0]):
                fleet.watch_until(after_s)
                act()
            fleet.watch_until(SECONDS + 2 * INTERVAL_S)
            passes, outcomes = fleet.passes(), fleet.outcomes()
        rates, moment, after = requests_a_second(server.log, skip), ledger.look(), ledger.generations()
        ledger.close()
    print(
        f"\n{sum(map(len, scripts.values()))} changes of {len(scripts)} of {AGENTS} hosts in {SECONDS} s, interval "
        f"{INTERVAL_S} s: {len(acts)} claims and releases, {passes} passes, {sum(rates)} requests of all, most "
        f"in a second {max(rates)}, worst pass {fleet.worst_s:.1f} s"
    )

    now = [moments[-1].host for moments in histories]
    assert {slot: total for slot, (total, _) in moment.stock.items()} == {
        slot: total for host in now for slot, total in stock_of(host).items()
    }
    assert moment.use == {row: amount for host in now for row, amount in use_of(host).items()}
    still = {slot[0] for number, host in enumerate(hosts) if number not in scripts for slot in stock_of(host)}
    assert {name: after[name] for name in still} == {name: before[name] for name in still}
    assert outcomes == {"unchanged": AGENTS}
