"""The end of a host: its tree is taken away whole or not at all, or is given to nova without our marks."""

from pathlib import Path
from typing import Any

import pytest

from beds.agents import Result, run_agent
from beds.by_hand import ByHand
from beds.golden import HOSTS
from beds.placement import PlacementServer
from beds.proxy import Answer, Forward, Proxy, Request
from beds.service import made_up, noauth, serving
from beds.upgrades import write_config

pytestmark = pytest.mark.live

HOST = HOSTS / "four-cells"
MARK = "CUSTOM_OWNER_COMPUTE_NODE_AGENT"


class Ending:
    """A recorded host that was synced, and the commands for its end."""

    def __init__(self, url: str, folder: Path) -> None:
        self.placement = ByHand(url)
        self._folder = folder
        self._url = url
        assert self.run("sync").code == 0
        (self.root,) = (one for one in self.placement.providers().values() if one["parent_provider_uuid"] is None)

    def run(self, verb: str, *more: object, url: str = "", **groups: dict[str, object]) -> Result:
        agent = {"state_directory": self._folder / "state"}
        own = write_config({"placement": noauth(url or self._url), "agent": agent, **groups}, self._folder / "own.conf")
        files = ("--config-file", HOST / "agent.conf", "--config-file", own)
        return run_agent(verb, "--host", HOST / "archive", *files, "--format", "json", *more)

    def stocks(self) -> dict[str, Any]:
        """Each provider's stock, by name."""
        return {name: self.placement.stock(one["uuid"]) for name, one in self.placement.providers().items()}

    def marked(self) -> int:
        found = self.placement.send("GET", f"/resource_providers?required={MARK}")
        return len(found["resource_providers"])


@pytest.fixture
def ending(placement_server: PlacementServer, tmp_path: Path) -> Ending:
    return Ending(placement_server.url, tmp_path)


def test_a_host_is_retired_by_one_request_and_deletions(ending: Ending, placement_server: PlacementServer) -> None:
    count = len(ending.stocks())
    dry = ending.run("retire", "--dry-run")
    assert (dry.code, len(ending.stocks())) == (3, count)

    with Proxy(placement_server.url) as proxy:
        done = ending.run("retire", url=proxy.url)
        writes = [seen.method for seen in proxy.seen if seen.method != "GET"]

    assert (done.code, done.json["outcome"], ending.stocks()) == (0, "changed", {})
    assert writes == ["POST", *["DELETE"] * count]
    again = ending.run("retire")
    assert (again.code, again.json["outcome"], again.json["operations"]) == (0, "unchanged", [])


def test_a_host_with_a_child_of_others_is_not_retired(ending: Ending) -> None:
    name = f"{ending.root['name']}:agent"
    ending.placement.add_child(ending.root["uuid"], name, "NET_BW_EGR_KILOBIT_PER_SEC", 1000)
    stocks = ending.stocks()

    done = ending.run("retire")

    assert (done.code, "belong to other services" in done.json["notes"][0]) == (4, True)
    assert ending.stocks() == stocks


def test_a_claim_in_the_last_moment_keeps_the_whole_tree(ending: Ending, placement_server: PlacementServer) -> None:
    """The scheduler is quicker than the one request that takes all stock away."""
    stocks = ending.stocks()

    def claim_before(request: Request, forward: Forward) -> Answer:
        if request.method == "POST" and not held:
            ending.placement.allocate(ending.root["uuid"], "VCPU", 1)
            held.append(request)
        return forward(request)

    held: list[Request] = []
    with Proxy(placement_server.url, hook=claim_before) as proxy:
        done = ending.run("retire", url=proxy.url)

    assert held
    assert (done.code, done.json["outcome"]) == (4, "unsafe")
    assert ending.stocks() == stocks


def test_a_tree_that_is_handed_over_keeps_its_stock_and_loses_our_marks(ending: Ending) -> None:
    """Its cards stay nova's by their names and traits."""
    stocks = ending.stocks()
    assert ending.marked() == len(stocks)
    refused = ending.run("hand-over")
    assert (refused.code, "nova would not maintain" in refused.json["notes"][0]) == (4, True)
    assert ending.marked() == len(stocks)

    done = ending.run("hand-over", "--force")

    assert (done.code, ending.marked(), ending.stocks()) == (0, 0, stocks)


def test_a_layout_that_nova_does_not_know_is_not_handed_over(ending: Ending) -> None:
    layout: dict[str, object] = {"layout": "numa"}
    assert ending.run("sync", "--force", compute=layout).code == 0

    done = ending.run("hand-over", "--force", compute=layout)

    assert (done.code, "reshape --to devices" in done.json["notes"][0]) == (4, True)
    assert ending.marked() > 0


def test_nothing_is_retired_under_a_running_service(placement_server: PlacementServer, tmp_path: Path) -> None:
    with serving(tmp_path, made_up(tmp_path, noauth(placement_server.url))) as service:
        service.wait(lambda: service.passes() >= 1)
        for verb in ("retire", "hand-over"):
            done = run_agent(verb, "--config-file", service.config)
            assert (done.code, "stop it first" in done.err) == (1, True)
        service.wait_for_passes(1)
    assert len(ByHand(placement_server.url).providers()) == 1


def test_what_this_agent_never_wrote_is_not_its_to_retire(ending: Ending) -> None:
    ending.placement.remove_traits(ending.root["uuid"], MARK)

    done = ending.run("retire")

    assert (done.code, "does not carry this agent's mark" in done.json["notes"][0]) == (4, True)
