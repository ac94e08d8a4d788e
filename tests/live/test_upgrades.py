"""Old trees, converted on a real placement by the installed command: ``tests/upgrades/``."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from beds.agents import Result, run_agent
from beds.by_hand import ByHand
from beds.placement import PlacementServer
from beds.trees import add_consumer, identity, lay_down, read_back
from beds.upgrades import Story, stories, write_config, write_host

pytestmark = pytest.mark.live


class Lab:
    """One story laid down in one placement, and the command on its host."""

    def __init__(self, story: Story, server: PlacementServer, folder: Path) -> None:
        self.data = story.data
        self.before = self.data["before"]
        self.placement = ByHand(server.url)
        self._url = server.url
        self._folder = folder
        archive = write_host(self.data, folder)
        self.options = ("--host", archive, "--config-file", self.configured(self.data["config"]))
        lay_down(self.placement, self.before["providers"])
        if first := self.data.get("first"):
            config = self.configured(first, "first.conf")
            done = run_agent("sync", "--host", archive, "--config-file", config)
            assert done.code == 0, done.out + done.err
        for name, consumer in self.before["consumers"].items():
            add_consumer(self.placement, name, consumer)

    def configured(self, conf: Mapping[str, Mapping[str, Any]], name: str = "agent.conf") -> Path:
        own = {
            "placement": {"auth_type": "none", "endpoint": self._url},
            "agent": {"state_directory": str(self._folder / "state")},
        }
        return write_config({**conf, **own}, self._folder / name)

    def run(self, verb: str, *more: object) -> Result:
        return run_agent(verb, *self.options, *more, "--format", "json")

    def stands(self) -> Any:
        return read_back(self.placement, self.before["consumers"])


def told(moves: list[dict[str, Any]], consumers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Moves with the names that a story has for its consumers."""
    names = {identity(name): name for name in consumers}
    return [move | {"consumer": names[move["consumer"]]} for move in moves]


@pytest.mark.parametrize("story", [pytest.param(story, id=story.folder.name) for story in stories()])
def test_an_old_tree_becomes_the_new_one_and_nobody_loses_anything(
    story: Story, placement_server: PlacementServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    lab = Lab(story, placement_server, tmp_path)

    needed = lab.run("sync")
    untouched = lab.stands()
    planned = lab.run("reshape")
    applied = lab.run("reshape", "--apply", "--digest", planned.json["digest"])
    after = lab.stands()
    again = lab.run("reshape", "--apply")

    assert (needed.code, planned.code, applied.code) == (3, 3, 0), needed.err + planned.err + applied.out + applied.err
    assert needed.json["outcome"] == "reshape-needed"
    assert untouched["consumers"] == lab.before["consumers"]
    assert sum("POST /reshaper" in request for request in planned.json["requests"]) == 1
    found = after | {"moves": told(planned.json["moves"], lab.before["consumers"])}
    if request.config.getoption("--update-golden"):
        story.write_expected(found)
    assert found == story.expected
    assert (again.code, again.json["outcome"], again.json["operations"]) == (0, "unchanged", [])
    assert amounts(after) == amounts(lab.before) or story.folder.name in ("02-vcpu-to-pcpu", "09-custom-to-standard")
    journal = [json.loads(path.read_text()) for path in (tmp_path / "state" / "journal").iterdir()]
    assert [(entry["outcome"], entry["digest"]) for entry in journal] == [("done", planned.json["digest"])]


def amounts(tree: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """What each consumer has of each class, wherever."""
    found: dict[str, dict[str, int]] = {}
    for name, consumer in tree["consumers"].items():
        sums = found.setdefault(name, {})
        for resources in consumer["allocations"].values():
            for resource_class, amount in resources.items():
                sums[resource_class] = sums.get(resource_class, 0) + amount
    return found
