"""The first pass of one agent over many made-up hosts, on a real placement: what it sends, and what harms it not."""

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from beds.agents import run_agent
from beds.by_hand import ByHand
from beds.placement import PlacementServer
from beds.proxy import Proxy
from beds.service import made_up, serving

pytestmark = pytest.mark.live

HOSTS, PROVIDERS = 150, 3  # a root and two cells each
FEW = 12  # requests of a first pass beside those for providers and batches
Write = Callable[..., Path]


@pytest.fixture
def proxy(placement_server: PlacementServer) -> Iterator[Proxy]:
    with Proxy(placement_server.url) as counting:
        yield counting


def kinds(proxy: Proxy) -> Counter[str]:
    """The requests since the last call: how many of each kind."""
    found = Counter(f"{seen.method} /{seen.path.partition('?')[0].split('/')[1]}" for seen in proxy.seen)
    proxy.seen.clear()
    return found


def fleet_of(hosts: int, seed: int) -> dict[str, dict[str, object]]:
    return {"fake": {"hosts": hosts, "seed": seed, "shape": "medium"}, "compute": {"layout": "cells"}}


def test_the_first_pass_costs_two_requests_a_provider_and_the_next_one_a_host(
    placement_server: PlacementServer, proxy: Proxy, write_config: Write, tmp_path: Path
) -> None:
    seed = uuid.uuid4().int % 10**9
    taken = {"name": f"fake-{seed}-medium-0070", "uuid": str(uuid.uuid4())}
    ByHand(placement_server.url).send("POST", "/resource_providers", taken)
    config = write_config(
        DEFAULT={"compute_driver": "fake.FakeDriver"},
        placement={"auth_type": "none", "endpoint": proxy.url},
        agent={"state_directory": tmp_path / "state"},
        **fleet_of(HOSTS, seed),
    )
    options = ("--config-file", config, "--format", "json")

    first = run_agent("sync", *options, timeout=300)
    sent = kinds(proxy)
    second = run_agent("sync", *options)
    quiet = kinds(proxy)

    outcomes = [node["outcome"] for node in first.json["nodes"]]
    assert outcomes == ["changed"] * 70 + ["failed"] + ["changed"] * (HOSTS - 71)
    assert taken["uuid"] in first.json["nodes"][70]["notes"][0]
    assert sent["POST /reshaper"] == 2, sent
    assert sum(sent.values()) <= 2 * PROVIDERS * HOSTS + HOSTS / 100 + FEW, sent
    assert [node["outcome"] for node in second.json["nodes"]] == [
        one.replace("changed", "unchanged") for one in outcomes
    ]
    assert sum(quiet.values()) <= HOSTS - 1 + 5, quiet  # the host without a tree asks for its name too


def test_the_service_audits_the_hosts_that_it_made_without_a_request(proxy: Proxy, tmp_path: Path) -> None:
    hosts = 20
    groups = made_up(tmp_path, {"auth_type": "none", "endpoint": proxy.url}, interval=20)
    with serving(tmp_path, {**groups, **fleet_of(hosts, uuid.uuid4().int % 10**9)}) as service:
        service.wait(lambda: service.passes() >= 1)
        first = kinds(proxy)
        service.wait(lambda: service.passes() >= 2)
        second = kinds(proxy)

    assert sum(first.values()) <= 2 * PROVIDERS * hosts + 1 + FEW, first
    assert sum(second.values()) == hosts, second
    assert "WARNING" not in service.lines()
