"""``explain --request``: whether a host is a candidate as placement says, and what it lacks by placement's own word."""

import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from beds import placement
from beds.agents import Result, run_agent
from beds.golden import GoldenHost, golden_hosts, write_layout
from beds.placement import NOAUTH_HEADERS
from beds.requests import adds_up_wrongly
from reportclient.request import format_request, parse_request

pytestmark = pytest.mark.live

EACH = 6  # requests on each of the hosts
ABSENT = ("HW_CPU_X86_SGX", "STORAGE_DISK_SSD", "HW_GPU_API_VULKAN")
STOCKS = [(host, host.layouts[number % len(host.layouts)]) for number, host in enumerate(golden_hosts())]


class Lab:
    """One recorded host in a placement of its own."""

    def __init__(self, url: str, host: GoldenHost, layout: str, folder: Path) -> None:
        self._url, self.folder = url, folder
        config = folder / "agent.conf"
        config.write_text(
            f"[placement]\nauth_type = none\nendpoint = {url}\n[agent]\nstate_directory = {folder}/state\n"
        )
        files = (host.config, config, write_layout(layout, folder))
        self.options = ["--host", host.archive, *(option for file in files for option in ("--config-file", file))]
        synced = run_agent("sync", *self.options)
        assert synced.code == 0, synced.err

    def explain(self, query: str) -> Result:
        path = self.folder / "request"
        path.write_text(f"# as nova logs it\nGET /allocation_candidates?limit=1000&{query}\n")
        return run_agent("explain", *self.options, "--request", path, "--format", "json")

    def candidates(self, query: str) -> list[Any]:
        found: list[Any] = self.send("GET", f"/allocation_candidates?limit=20&{query}")["allocation_requests"]
        return found

    def take(self, query: str) -> None:
        """A consumer takes the first candidate of a request."""
        chosen = self.candidates(query)[0]["allocations"]
        who = {"project_id": "p", "user_id": "u", "consumer_generation": None, "consumer_type": "INSTANCE"}
        self.send("PUT", f"/allocations/{uuid.uuid4()}", {"allocations": chosen, **who})

    def tree(self) -> list[tuple[dict[str, int], list[str]]]:
        """The capacity by class, and the traits, of each provider."""
        found = []
        for one in self.send("GET", "/resource_providers")["resource_providers"]:
            path = f"/resource_providers/{one['uuid']}"
            stocks = self.send("GET", f"{path}/inventories")["inventories"]
            capacity = {
                name: int((it["total"] - it["reserved"]) * it["allocation_ratio"]) for name, it in stocks.items()
            }
            found.append((capacity, self.send("GET", f"{path}/traits")["traits"]))
        return found

    def send(self, method: str, path: str, body: object = None) -> Any:
        headers = {**NOAUTH_HEADERS, "OpenStack-API-Version": "placement 1.39"}
        answer = requests.request(method, f"{self._url}{path}", json=body, headers=headers, timeout=30)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.text else None


@pytest.fixture(params=STOCKS, ids=[f"{host.folder.name}-{layout}" for host, layout in STOCKS])
def lab(request: pytest.FixtureRequest, placement_template: Path, tmp_path: Path) -> Iterator[Lab]:
    host, layout = request.param
    with placement.serving(tmp_path / "placement", placement_template) as server:
        yield Lab(server.url, host, layout, tmp_path)


def drawn(chance: random.Random, tree: list[tuple[dict[str, int], list[str]]]) -> Iterator[str]:
    """A request for what is there, or a little more than that."""
    stocked = [one for one in tree if one[0]]
    for group in ("", "_PORT", "_GPU")[: chance.randint(1, 3)]:
        capacity, traits = chance.choice(stocked)
        asked = {}
        for name in chance.sample(sorted(capacity), min(len(capacity), chance.randint(1, 2))):
            most = capacity[name]
            asked[name] = chance.choice((1, 1, max(1, most // 2), max(1, most), most + 1))
        yield f"resources{group}={','.join(f'{name}:{amount}' for name, amount in asked.items())}"
        wanted = chance.sample(traits, min(len(traits), chance.randint(0, 2)))
        if not chance.randrange(3):
            wanted.append(f"!{chance.choice(ABSENT)}")
        if wanted:
            yield f"required{group}={','.join(wanted)}"
        if not chance.randrange(3):
            yield f"required{group}=in:{','.join(sorted(chance.sample(ABSENT, chance.randint(1, 2))))}"
        if traits and not chance.randrange(8) and not group:
            yield f"root_required={chance.choice(traits)}"
    yield f"group_policy={chance.choice(('none', 'isolate'))}"


def test_placement_says_the_same_of_requests_on_the_test_hosts(lab: Lab, request: pytest.FixtureRequest) -> None:
    chance = random.Random(request.node.name)
    tree = lab.tree()
    lab.take("resources=MEMORY_MB:1024" if any("MEMORY_MB" in stock for stock, _ in tree) else "resources=VCPU:1")
    asked = 0

    while asked < EACH:
        query = "&".join(drawn(chance, tree))
        wishes = parse_request(query)
        refused = {name for one in wishes if one.unwanted for name in one.names}
        if adds_up_wrongly(wishes) or any(not one.unwanted and refused & one.names for one in wishes):
            continue  # placement refuses what is wanted and not wanted
        told = lab.explain(query)
        assert told.code == 0, told.err
        answer = told.json

        missing = [one for one in wishes if str(one) in {each["wish"] for each in answer["missing"]}]
        assert answer["candidate"] is bool(lab.candidates(query)), (query, answer)
        assert bool(missing) is not answer["candidate"]
        left = [one for one in wishes if one not in missing]
        if rest := format_request(left):
            assert lab.candidates(rest), (query, answer)
        for one in missing:
            if more := format_request([each for each in wishes if each in left or each == one]):
                assert not lab.candidates(more), (query, answer, one)
        asked += 1
