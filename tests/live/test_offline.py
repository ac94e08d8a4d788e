"""Conversions with placement's API down, on its database: PostgreSQL and MariaDB, by the installed command."""

import re
import shutil
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest

from agent.connect.adapters import api_in_the_way
from agent.settings.read import load_settings
from beds import databases
from beds.agents import Result, run_agent
from beds.by_hand import ByHand
from beds.placement import PlacementServer, serving_on
from beds.process import free_port
from beds.proxy import Answer, Forward, Proxy, Request
from beds.trees import add_consumer, lay_down, read_back
from beds.upgrades import UPGRADES, Story, Upgrade, write_config, write_host

pytestmark = pytest.mark.live

OF_OPENSTACK = (("x-openstack-request-id", "req-1"),)

STORY = Story(UPGRADES / "01-flat-vgpu-to-gpus")
Serve = Callable[[Path], AbstractContextManager[str]]


@pytest.fixture(params=[databases.postgresql, databases.mariadb], ids=["PostgreSQL", "MariaDB"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    serve: Serve = request.param
    with serve(tmp_path / "database") as url:
        yield url


@pytest.fixture
def lab(placement_server: PlacementServer, tmp_path: Path) -> Upgrade:
    return Upgrade(STORY.data, placement_server.url, tmp_path)


def on_its_database(lab: Upgrade, server: PlacementServer, *more: object) -> Result:
    (file,) = server.directory.glob("*.sqlite*")
    return lab.run("reshape", "--database", f"sqlite:///{file}", *more)


def test_a_conversion_on_the_database_is_refused_while_the_api_answers(
    lab: Upgrade, placement_server: PlacementServer
) -> None:
    before = lab.stands()

    planned = on_its_database(lab, placement_server)
    refused = on_its_database(lab, placement_server, "--apply", "--digest", planned.json["digest"])
    overruled = on_its_database(lab, placement_server, "--apply", BY_A_PERSON)

    assert (planned.code, refused.code, refused.json["outcome"], overruled.code) == (3, 4, "unsafe", 4)
    for told in (planned.err, *refused.json["notes"], *overruled.json["notes"]):
        assert f"placement at {placement_server.url} answers" in told
        assert "stop placement's API first, or leave out --database" in told
        assert BY_A_PERSON not in told
    assert lab.stands() == before


NOT_TOLD = "cannot find out whether"
BY_A_PERSON = "--api-is-down"


def look(folder: Path, **placement: object) -> str:
    """Look for an API, by default one without authentication."""
    config = write_config({"placement": {"auth_type": "none"} | placement}, folder / "agent.conf")
    return api_in_the_way(load_settings([config]))


def late(_request: Request, _forward: Forward) -> Answer:
    time.sleep(6)
    return Answer(200)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        pytest.param(Answer(401, OF_OPENSTACK), "stop placement's API first", id="an API that asks for a token"),
        pytest.param(Answer(500, OF_OPENSTACK), "stop placement's API first", id="an API that fails"),
        pytest.param(Answer(503, OF_OPENSTACK), "stop placement's API first", id="an API without Keystone"),
        pytest.param(Answer(503, (), b"<html>no server is available"), "", id="a balancer before no API"),
        pytest.param(Answer(504, (), b"<html>"), NOT_TOLD, id="a balancer before a silent API"),
        pytest.param(Answer(404, (), b"<html>"), NOT_TOLD, id="a web server that serves other APIs"),
        pytest.param(Answer(401), NOT_TOLD, id="a service of no known kind"),
        pytest.param(None, "no answer in 3 s", id="one that is silent"),
    ],
)
def test_an_answer_tells_whether_an_api_runs(answer: Answer | None, told: str, tmp_path: Path) -> None:
    with Proxy("http://127.0.0.1:1", hook=(lambda *_: answer) if answer else late) as front:
        found = look(tmp_path, endpoint=front.url)

    assert told in found if told else not found


@contextmanager
def dropping_packets() -> Iterator[str]:
    """The URL of a listener with a full queue, where the kernel drops who knocks."""
    with socket.socket() as listener, socket.socket() as one, socket.socket() as other:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for knocking in (one, other):
            knocking.setblocking(False)
            knocking.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_an_api_whose_host_has_no_name_or_whose_keystone_is_away_cannot_be_told(tmp_path: Path) -> None:
    names = ("username", "password", "project_name", "user_domain_name", "project_domain_name")
    closed = f"http://127.0.0.1:{free_port()}"
    login = {"auth_type": "password", "auth_url": f"{closed}/v3", **dict.fromkeys(names, "x")}

    nameless, tokenless = look(tmp_path, endpoint="http://placement.invalid:8778"), look(tmp_path, **login)

    assert NOT_TOLD in nameless
    assert NOT_TOLD in tokenless
    assert re.search("Name or service|resol", nameless)
    assert not look(tmp_path, endpoint=closed)


def test_an_api_that_could_not_be_looked_for_is_down_by_a_persons_word(
    lab: Upgrade, placement_server: PlacementServer, tmp_path: Path
) -> None:
    before, began = lab.stands(), time.monotonic()

    with dropping_packets() as silent:
        retried = {"endpoint": silent, "timeout": 60, "connect_retries": 3}
        options = ("--apply", "--config-file", write_config({"placement": retried}, tmp_path / "elsewhere.conf"))
        done = on_its_database(lab, placement_server, *options)
        took_s, stood = time.monotonic() - began, lab.stands()
        looked = on_its_database(lab, placement_server, *options, BY_A_PERSON)

    assert (done.code, done.json["outcome"]) == (4, "unsafe"), done.out + done.err
    (note,) = done.json["notes"]
    assert all(words in note for words in (NOT_TOLD, BY_A_PERSON, "no answer in 3 s"))
    assert took_s < 20
    assert stood == before
    assert (looked.code, looked.json["outcome"]) == (0, "changed"), looked.out + looked.err


@pytest.mark.parametrize(
    ("database", "message"),
    [
        pytest.param("", "names no database", id="no database"),
        pytest.param("postgresql://u:SECRET@h:port/p", "names no database", id="no port"),
        pytest.param("sqlite:///missing.sqlite", "names no database", id="no file"),
        pytest.param("postgresql://u:SECRET@127.0.0.1:1/p?password=SECRET", "does it run", id="no server"),
    ],
)
def test_a_database_that_is_none_is_one_line_and_tells_no_password(database: str, message: str, tmp_path: Path) -> None:
    config = write_config({"agent": {"state_directory": tmp_path}, **STORY.data["config"]}, tmp_path / "agent.conf")
    options = ("--host", write_host(STORY.data, tmp_path), "--config-file", config)

    done = run_agent("reshape", *options, "--database", database)

    assert (done.code, message in done.err) == (1, True), done.err
    assert "SECRET" not in done.err + done.out


def test_a_database_of_another_release_is_refused_and_stays(placement_template: Path, tmp_path: Path) -> None:
    file = tmp_path / "placement.sqlite"
    shutil.copy(placement_template / file.name, file)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = 'b4ed3a175331'")
    before = file.read_bytes()
    config = write_config({"agent": {"state_directory": tmp_path}, **STORY.data["config"]}, tmp_path / "agent.conf")
    options = ("--host", write_host(STORY.data, tmp_path), "--config-file", config, "--apply", BY_A_PERSON)

    done = run_agent("reshape", *options, "--database", f"sqlite:///{file}")

    assert (done.code, file.read_bytes() == before) == (1, True), done.out
    assert "its schema is b4ed3a175331, and the openstack-placement installed here needs" in done.err


def test_without_a_configured_api_a_person_must_say_that_none_runs(
    lab: Upgrade, placement_server: PlacementServer, tmp_path: Path
) -> None:
    own = {"agent": {"state_directory": tmp_path / "other"}, **STORY.data["config"]}
    (file,) = placement_server.directory.glob("*.sqlite*")
    options = ("--host", tmp_path / "host", "--config-file", write_config(own, tmp_path / "own.conf"))

    planned = run_agent("reshape", *options, "--database", f"sqlite:///{file}")
    refused = run_agent("reshape", *options, "--database", f"sqlite:///{file}", "--apply")

    assert (planned.code, refused.code) == (3, 4), refused.out + refused.err
    for told in (planned.err, refused.out):
        assert "no placement API is configured" in " ".join(told.split())
        assert BY_A_PERSON in told


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
