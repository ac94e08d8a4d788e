"""Old trees, converted on a real placement by the installed command: ``tests/upgrades/``."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from beds.agents import run_agent
from beds.golden import HOSTS
from beds.placement import PlacementServer
from beds.trees import identity
from beds.upgrades import Story, Upgrade, stories

pytestmark = pytest.mark.live


def told(moves: list[dict[str, Any]], consumers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Moves with the names that a story has for its consumers."""
    names = {identity(name): name for name in consumers}
    return [move | {"consumer": names[move["consumer"]]} for move in moves]


@pytest.mark.parametrize("story", [pytest.param(story, id=story.folder.name) for story in stories()])
def test_an_old_tree_becomes_the_new_one_and_nobody_loses_anything(
    story: Story, placement_server: PlacementServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    lab = Upgrade(story.data, placement_server.url, tmp_path)

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


def test_after_a_conversion_that_moves_nothing_the_screen_shows_the_table_of_the_dry_run_too(tmp_path: Path) -> None:
    host = HOSTS / "four-cells"
    options = ("--embedded-dir", tmp_path, "--host", host / "archive", "--config-file", host / "agent.conf")
    assert run_agent("sync", *options).code == 0

    planned = run_agent("reshape", "--to", "cells", *options)
    applied = run_agent("reshape", "--to", "cells", "--apply", *options)

    table = planned.out.partition("\ndigest ")[0]
    assert "used/total of each class" in table
    assert applied.out.startswith(table), applied.out + applied.err
