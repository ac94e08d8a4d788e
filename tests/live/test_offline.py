"""Conversions with placement's API down, on its database: PostgreSQL and MariaDB, by the installed command."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from beds import databases
from beds.agents import run_agent
from beds.by_hand import ByHand
from beds.placement import serving_on
from beds.process import free_port
from beds.trees import add_consumer, lay_down, read_back
from beds.upgrades import UPGRADES, Story, write_config, write_host

pytestmark = pytest.mark.live

STORY = Story(UPGRADES / "01-flat-vgpu-to-gpus")
Serve = Callable[[Path], AbstractContextManager[str]]


@pytest.fixture(params=[databases.postgresql, databases.mariadb], ids=["PostgreSQL", "MariaDB"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    serve: Serve = request.param
    with serve(tmp_path / "database") as url:
        yield url


def test_a_host_is_converted_while_the_api_is_down_and_the_api_agrees_afterwards(database: str, tmp_path: Path) -> None:
    data, port = STORY.data, free_port()
    own = {"placement": {"auth_type": "none", "endpoint": f"http://127.0.0.1:{port}"}}
    own["agent"] = {"state_directory": str(tmp_path / "state")}
    config = write_config({**data["config"], **own}, tmp_path / "agent.conf")
    options = ("--host", write_host(data, tmp_path), "--config-file", config, "--format", "json")
    connection = databases.with_driver(database)
    with serving_on(connection, tmp_path / "placement", port=port) as server:
        placement = ByHand(server.url)
        lay_down(placement, data["before"]["providers"])
        for name, consumer in data["before"]["consumers"].items():
            add_consumer(placement, name, consumer)

    down = run_agent("reshape", *options)
    planned = run_agent("reshape", *options, "--database", database)
    applied = run_agent("reshape", *options, "--database", database, "--apply", "--digest", planned.json["digest"])

    with serving_on(connection, tmp_path / "placement", port=port) as server:
        after = read_back(ByHand(server.url), data["before"]["consumers"])
        online = run_agent("sync", *options)
    assert down.code == 1
    assert "no connection" in down.err
    assert (planned.code, applied.code) == (3, 0), planned.err + applied.out + applied.err
    assert after == {key: STORY.expected[key] for key in ("providers", "consumers")}
    assert (online.code, online.json["outcome"]) == (0, "unchanged"), online.out + online.err
