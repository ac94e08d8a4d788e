"""Nova's answers: what it knows, what it certainly does not know, and when neither can be told."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from keystoneauth1 import exceptions

from agent.nova.answers import NovaRecord, NovaWitness, essential, parse_host, parse_migration, parse_server
from agent.nova.client import NovaClient, NovaSilent
from agent.nova.flavors import Flavor
from beds.nova import HOST, SECRET, Direct, FakeNova, as_json, failing
from beds.proxy import Answer, Request
from reportclient.recording import RecordedSender, RecordingSender, decode_exchanges, encode_exchanges

ROOT = "root-uuid"


@pytest.fixture
def nova() -> FakeNova:
    """A nova with this host, one server on it and one elsewhere, and a migration from each."""
    found = FakeNova(hypervisors={ROOT: HOST})
    found.add_server("here", task="deleting")
    found.add_server("there", host="other-nova-host")
    found.add_migration("resize", of="here", status="finished")
    found.add_migration("abroad", of="there", status="error", host="third-nova-host")
    return found


def ask(nova: FakeNova, *consumers: str) -> NovaWitness:
    return NovaClient(Direct(nova), "nova at X").witness(ROOT, consumers)


def test_servers_and_migrations_of_the_host_cost_four_requests(nova: FakeNova) -> None:
    told = ask(nova, "here", "resize")

    assert (told.host, told.silence, told.unknown) == (HOST, "", frozenset())
    assert (set(told.servers), set(told.migrations)) == ({"here"}, {"resize"})
    assert told.servers["here"].task == "deleting"
    assert (told.migrations["resize"].server, told.migrations["resize"].is_open) == ("here", True)
    assert [one.partition("?")[0] for one in nova.asked] == [
        f"/os-hypervisors/{ROOT}",
        "/servers/detail",
        "/os-migrations",
        "/os-migrations",  # until a page is empty
    ]


@pytest.mark.parametrize("limit", [1, 2, 1000])
def test_a_flavor_is_found_by_name_or_id_on_any_page(nova: FakeNova, limit: int) -> None:
    nova.max_limit = limit
    for name in ("small", "large"):
        nova.add_flavor(name, **{"hw:cpu_policy": "dedicated"})
    client = NovaClient(Direct(nova), "nova at X")

    found = client.flavor("large")

    assert found == client.flavor("id of large")
    assert found == Flavor(
        name="large",
        vcpus=4,
        memory_mb=2048,
        root_gb=10,
        swap_mb=512,
        extra_specs={"hw:cpu_policy": "dedicated"},
    )
    assert client.flavor("none such") is None


def test_an_image_is_found_by_name_or_id_with_its_properties(nova: FakeNova) -> None:
    nova.images.append({"id": "i", "name": "debian", "metadata": {"hw_cpu_policy": "dedicated", "min": 1}})
    client = NovaClient(Direct(nova), "nova at X")

    assert client.image("debian") == client.image("i") == {"hw_cpu_policy": "dedicated", "min": "1"}
    assert client.image("none such") is None
    nova.fault = failing(500)
    with pytest.raises(NovaSilent, match="nova at X gave no usable answer to GET /images/detail"):
        client.image("debian")


def test_whether_nova_has_a_hypervisor_costs_one_request(nova: FakeNova) -> None:
    client = NovaClient(Direct(nova), "nova at X")

    assert client.record(ROOT) == NovaRecord(host=HOST)
    assert client.record("another-uuid") == NovaRecord(unknown=True)
    nova.fault = failing(500)
    assert "nova at X gave no usable answer" in client.record(ROOT).silence
    assert len(nova.asked) == 3


def test_a_consumer_of_another_host_is_looked_up_by_itself(nova: FakeNova) -> None:
    told = ask(nova, "there", "abroad", "nobody")

    assert told.servers["there"].host == "other-nova-host"
    assert told.migrations["abroad"].server == ""
    assert (set(told.unknown), told.silence) == ({"nobody"}, "")
    assert len(nova.asked) == 4 + 1 + 3 + 3 + 1


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_listings_are_read_to_their_end(nova: FakeNova, limit: int) -> None:
    nova.max_limit = limit
    for number in range(6):
        nova.add_server(f"s{number}")
        nova.add_migration(f"m{number}", of="here", status="done", hidden=limit == 7 and number % 2 == 0)

    told = ask(nova, "nobody")

    assert told.servers.keys() >= {f"s{number}" for number in range(6)}
    assert told.migrations.keys() >= {f"m{number}" for number in range(6) if limit < 7 or number % 2}
    assert told.unknown == {"nobody"}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param({"hypervisors": {}}, "no hypervisor with the uuid of this host's root", id="another host's uuid"),
        pytest.param({"filters": False}, "does not list the servers of host nova-host alone", id="filters are ignored"),
        pytest.param({"fault": failing(403)}, "with 403: docs/allocations.md lists the rights", id="no rights"),
        pytest.param({"fault": failing(403, "os-migrations")}, "GET /os-migrations with 403", id="no right to those"),
        pytest.param({"fault": failing(500)}, "status 500", id="broken"),
        pytest.param({"fault": failing(500, "os-migrations")}, "GET /os-migrations .status 500", id="half broken"),
        pytest.param({"fault": failing(400)}, "status 400", id="refuses the question"),
        pytest.param({"fault": lambda _: Answer(404, (), b"<html>")}, "the endpoint is nova's", id="a proxy's 404"),
        pytest.param({"fault": lambda _: as_json(404, {})}, "the endpoint is nova's", id="somebody's 404"),
        pytest.param({"fault": lambda _: Answer(200, (), b"hello")}, "the endpoint is nova's", id="no JSON"),
        pytest.param({"fault": lambda _: as_json(200, [])}, "the endpoint is nova's", id="a list"),
        pytest.param({"fault": lambda _: as_json(200, {"hypervisor": {"service": {}}})}, "'host'", id="no host"),
        pytest.param({"fault": lambda _: as_json(300, {"choices": []})}, "with its version", id="no version"),
        pytest.param({"fault": lambda _: Answer(406)}, "microversion 2.69: upgrade nova", id="too old"),
    ],
)
def test_an_answer_that_does_not_show_everything_decides_nothing(
    nova: FakeNova, change: dict[str, Any], why: str
) -> None:
    for name, value in change.items():
        setattr(nova, name, value)

    told = ask(nova, "nobody", "there")

    assert (told.unknown, set(told.asked)) == (frozenset(), {"nobody", "there"})
    assert why.partition(" .")[0] in told.silence
    assert told.silence.startswith("nova at X")
    assert "\n" not in told.silence


@pytest.mark.parametrize("part", ["/servers/nobody", "uuid=nobody", "marker=nobody"])
@pytest.mark.parametrize("status", [403, 500])
def test_after_a_failure_nothing_more_is_asked_and_nothing_is_unknown_to_nova(
    nova: FakeNova, part: str, status: int
) -> None:
    nova.fault = failing(status, part)

    told = ask(nova, "aaa", "here", "nobody", "there")

    assert (set(told.unknown), set(told.servers)) == (set(), {"here"})
    assert told.silence
    assert not any("there" in one for one in nova.asked)


def test_what_a_cell_does_not_know_while_its_database_goes_away_is_undecided(nova: FakeNova) -> None:
    def away(request: Request) -> None:
        if "marker=gone" in request.path:
            nova.hypervisors.clear()

    nova.fault = away

    told = ask(nova, "gone", "here")

    assert told.unknown == frozenset()
    assert "the database of its cell is away" in told.silence


def test_a_404_of_a_user_who_sees_one_project_only_is_no_proof(nova: FakeNova) -> None:
    nova.all_projects = False

    told = ask(nova, "there", "nobody")

    assert told.servers["there"].host == "other-nova-host"
    assert told.unknown == {"nobody"}


def test_a_filter_by_uuid_that_is_ignored_is_no_proof(nova: FakeNova) -> None:
    nova.servers = [one for one in nova.servers if one["id"] == "here"]
    nova.filters = False

    told = ask(nova, "nobody")

    assert (told.unknown, "ignores the filter uuid" in told.silence) == (frozenset(), True)


def test_a_listing_without_an_end_is_given_up(nova: FakeNova) -> None:
    def again(request: Request) -> Answer | None:
        return as_json(200, {"migrations": nova.migrations[:1]}) if "os-migrations" in request.path else None

    nova.fault = again

    assert "lists migrations without an end" in ask(nova, "nobody").silence


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (exceptions.ConnectFailure("http://admin:hunter2@nova/"), "no connection: does it run"),
        (exceptions.ConnectTimeout("http://k/v3/auth/tokens"), "Keystone gives no token"),
        (exceptions.Unauthorized("x"), "application credential in [nova]"),
    ],
)
def test_a_nova_that_is_away_is_told_with_advice_and_without_passwords(error: Exception, advice: str) -> None:
    class Away:
        def request(self, url: str, method: str, **kwargs: Any) -> Any:
            raise error

    told = NovaClient(Away(), "nova at X").witness(ROOT, ["nobody"])

    assert (told.host, told.unknown) == ("", frozenset())
    assert advice in told.silence
    assert "hunter2" not in told.silence


@pytest.mark.parametrize(
    ("parse", "record"),
    [
        (parse_server, {}),
        (parse_server, {"id": 5, "status": "ACTIVE"}),
        (parse_server, {"id": "s", "status": ""}),
        (parse_host, {"hypervisor": {"service": {"host": ""}}}),
        (parse_server, None),
        (parse_migration, {"uuid": "m", "status": "done"}),
        (parse_migration, {"id": 3, "status": "done", "instance_uuid": "s"}),
    ],
)
def test_what_is_no_record_is_an_error(parse: Callable[[Any], object], record: Any) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        parse(record)


# -- cases -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 1000])
def test_recorded_answers_say_the_same_and_have_no_secrets(nova: FakeNova, limit: int) -> None:
    nova.max_limit = limit
    nova.add_server("here too")
    consumers = ("here", "there", "resize", "abroad", "nobody")
    kept: list[Any] = []
    first = NovaClient(RecordingSender(Direct(nova), kept, essential), "nova at X").witness(ROOT, consumers)

    text = encode_exchanges(kept)
    again = NovaClient(RecordedSender(decode_exchanges(text)), "nova at X").witness(ROOT, consumers)

    assert again == first
    assert SECRET in json.dumps(nova.servers)
    assert SECRET not in text


@pytest.mark.parametrize("text", ["", "hello", "[]", "5", '{"itemNotFound": {"code": 404}}'])
def test_what_is_no_answer_about_servers_is_kept_as_it_is(text: str) -> None:
    assert essential(text) == text


def test_an_answer_in_another_form_is_kept_without_what_it_has() -> None:
    more = {"servers_links": [], "more": SECRET}
    kept = essential(json.dumps({"servers": SECRET, "server": [[SECRET], {"id": "a", "x": SECRET}], **more}))

    assert json.loads(kept) == {"servers": None, "server": [[None], {"id": "a"}], "servers_links": []}
