"""Many made-up hosts of one agent: the first passes together, and host by host, on one placement each."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from agent.connect.choice import Choice, node_of, open_client, open_driver, settings_for
from agent.sync.in_bulk import report_new
from agent.sync.node import ComputeNode
from agent.sync.outcome import Outcome, Status
from agent.sync.run import run_pass
from beds import databases, placement
from beds.proxy import Proxy
from bench.goals import Goal, print_table
from bench.lab import BenchError, write_config

HOSTS = int(os.environ.get("BENCH_FLEET", "300"))
PROVIDERS = 3  # of a host: a root and two cells
FEW = 12  # requests beside those for providers and batches

Pass = Callable[[Sequence[ComputeNode]], list[Outcome]]
Figures = tuple[int, float]  # requests, seconds


def compare_fleets(folder: Path) -> tuple[Goal, ...]:
    """The first and the second pass of a fleet: as one agent takes them, and as it would take them for each host."""
    folder.mkdir()
    rows = [
        (way, what, HOSTS, PROVIDERS * HOSTS, *figures)
        for way, take in (("host by host", _one_by_one), ("together", _together))
        for what, figures in zip(("first", "second"), _passes(folder / way.replace(" ", "-"), take), strict=True)
    ]
    head = ("way", "pass", "hosts", "providers", "requests", "s", "hosts a second")
    print_table(head, [(*row[:5], f"{row[5]:.1f}", f"{HOSTS / row[5]:.0f}") for row in rows])
    most, asked = 2 * PROVIDERS * HOSTS + HOSTS // 100 + FEW, rows[2][4]
    quiet = rows[3][4]
    return (
        Goal(f"requests of a first pass over {HOSTS} hosts", str(asked), f"at most {most}", asked <= most),
        Goal("requests of the pass after it", str(quiet), f"at most {HOSTS}", quiet <= HOSTS),
    )


def _passes(folder: Path, take: Pass) -> tuple[Figures, Figures]:
    folder.mkdir()
    with (
        databases.postgresql(folder / "database") as database,
        placement.serving_on(databases.with_driver(database), folder / "placement") as server,
        Proxy(server.url) as proxy,
    ):
        config = write_config(
            folder,
            DEFAULT={"compute_driver": "fake.FakeDriver"},
            fake={"hosts": HOSTS, "shape": "medium"},
            compute={"layout": "cells"},
            placement={"auth_type": "none", "endpoint": proxy.url},
        )
        choice = Choice(config_files=(config,))
        settings = settings_for(choice)
        client, where = open_client(settings, choice, writes=True)
        with open_driver(settings, choice) as driver:
            nodes = [node_of(name, driver, client, settings, where, choice) for name in driver.nodes()]
            return _measured(proxy, nodes, take, Status.CHANGED), _measured(proxy, nodes, take, Status.UNCHANGED)


def _measured(proxy: Proxy, nodes: Sequence[ComputeNode], take: Pass, wanted: Status) -> Figures:
    proxy.seen.clear()
    began = time.perf_counter()
    outcomes = take(nodes)
    seconds = time.perf_counter() - began
    if other := [one for one in outcomes if one.status is not wanted]:
        raise BenchError(f"{len(other)} hosts are not {wanted.value}: {other[0].node} {other[0].status.value}")
    return len(proxy.seen), seconds


def _one_by_one(nodes: Sequence[ComputeNode]) -> list[Outcome]:
    return [run_pass(node) for node in nodes]


def _together(nodes: Sequence[ComputeNode]) -> list[Outcome]:
    made = report_new(nodes)
    return [made.get(node.name) or run_pass(node) for node in nodes]
