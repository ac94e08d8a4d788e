"""Conversions with placement's API down, on its database: PostgreSQL and MariaDB, by the installed command."""

import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

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


def elsewhere(lab: Upgrade, folder: Path, placement: dict[str, object]) -> tuple[object, ...]:
    """The options that say that placement's API is somewhere else, by default where nobody listens."""
    return ("--config-file", write_config({"placement": placement}, folder / "elsewhere.conf"))


def test_a_conversion_on_the_database_is_refused_while_the_api_answers(
    lab: Upgrade, placement_server: PlacementServer
) -> None:
    before = lab.stands()

    planned = on_its_database(lab, placement_server)
    refused = on_its_database(lab, placement_server, "--apply", "--digest", planned.json["digest"])

    assert (planned.code, refused.code, refused.json["outcome"]) == (3, 4, "unsafe")
    for told in (planned.err, *refused.json["notes"]):
        assert f"placement at {placement_server.url} answers" in told
        assert "stop placement's API first, or leave out --database" in told
    assert lab.stands() == before


NOT_TOLD = "cannot find out whether"
BY_A_PERSON = "--api-is-down"


@pytest.mark.parametrize(
    ("answer", "code", "told"),
    [
        pytest.param(
            Answer(401, OF_OPENSTACK, b""), 4, "stop placement's API first", id="an API that asks for a token"
        ),
        pytest.param(Answer(500, OF_OPENSTACK, b""), 4, "stop placement's API first", id="an API that fails"),
        pytest.param(Answer(503, OF_OPENSTACK, b""), 4, "stop placement's API first", id="an API without Keystone"),
        pytest.param(Answer(503, (), b"<html>no server is available"), 0, "", id="a balancer before no API"),
        pytest.param(Answer(504, (), b"<html>"), 4, NOT_TOLD, id="a balancer before a silent API"),
        pytest.param(Answer(404, (), b"<html>"), 4, NOT_TOLD, id="a web server that serves other APIs"),
        pytest.param(Answer(401, (), b""), 4, NOT_TOLD, id="a service of no known kind"),
    ],
)
def test_an_answer_tells_whether_an_api_runs(
    answer: Answer, code: int, told: str, lab: Upgrade, placement_server: PlacementServer, tmp_path: Path
) -> None:
    with Proxy(placement_server.url, hook=lambda *_: answer) as front:
        other = elsewhere(lab, tmp_path, {"endpoint": front.url})
        done = on_its_database(lab, placement_server, *other, "--apply")

    assert done.code == code, done.out + done.err
    assert told in " ".join(done.json["notes"])


def test_an_api_that_answers_is_not_down_by_a_persons_word(lab: Upgrade, placement_server: PlacementServer) -> None:
    done = on_its_database(lab, placement_server, "--apply", BY_A_PERSON)

    assert done.code == 4, done.out + done.err
    assert BY_A_PERSON not in done.json["notes"][0]


def test_an_api_that_takes_connections_and_is_silent_may_be_up(
    lab: Upgrade, placement_server: PlacementServer, tmp_path: Path
) -> None:
    def wait(_request: Request, _forward: Forward) -> Answer:
        time.sleep(6)
        return Answer(200, (), b"")

    with Proxy(placement_server.url, hook=wait) as front:
        done = on_its_database(lab, placement_server, *elsewhere(lab, tmp_path, {"endpoint": front.url}), "--apply")

    assert done.code == 4, done.out + done.err
    assert "takes connections and does not answer" in done.json["notes"][0]


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


def without_keystone() -> dict[str, object]:
    names = ("username", "password", "project_name", "user_domain_name", "project_domain_name")
    closed = f"http://127.0.0.1:{free_port()}/v3"
    return {"auth_type": "password", "auth_url": closed, **dict.fromkeys(names, "x")}


@pytest.mark.parametrize(
    ("unseen", "why"),
    [
        pytest.param({"endpoint": "http://placement.invalid:8778"}, "Name or service|resol", id="a name not in DNS"),
        pytest.param(None, "no answer in 3 s", id="dropped packets"),
        pytest.param(without_keystone(), "", id="the catalog of a Keystone that is down"),
    ],
)
def test_an_api_that_could_not_be_looked_for_is_not_down(
    unseen: dict[str, object] | None, why: str, lab: Upgrade, placement_server: PlacementServer, tmp_path: Path
) -> None:
    before, began = lab.stands(), time.monotonic()

    with dropping_packets() as silent:
        retried = unseen or {"endpoint": silent, "timeout": 60, "connect_retries": 3}
        options = ("--apply", *elsewhere(lab, tmp_path, retried))
        done = on_its_database(lab, placement_server, *options)
        took_s, stood = time.monotonic() - began, lab.stands()
        looked = on_its_database(lab, placement_server, *options, BY_A_PERSON)

    assert (done.code, done.json["outcome"]) == (4, "unsafe"), done.out + done.err
    (note,) = done.json["notes"]
    assert NOT_TOLD in note
    assert BY_A_PERSON in note
    assert re.search(why, note)
    assert took_s < 20
    assert stood == before
    if unseen is None or "endpoint" in unseen:
        assert (looked.code, looked.json["outcome"]) == (0, "changed"), looked.out + looked.err


def test_an_api_whose_port_is_closed_is_down(lab: Upgrade, placement_server: PlacementServer, tmp_path: Path) -> None:
    closed: dict[str, object] = {"endpoint": f"http://127.0.0.1:{free_port()}"}

    done = on_its_database(lab, placement_server, *elsewhere(lab, tmp_path, closed), "--apply")

    assert (done.code, done.json["outcome"]) == (0, "changed"), done.out + done.err


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
