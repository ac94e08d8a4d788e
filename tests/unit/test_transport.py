"""What an answer, or the lack of one, means."""

from datetime import UTC, datetime

import pytest
from keystoneauth1 import exceptions

from fakes import FakeAnswer, FakeSender
from reportclient.errors import Absent, Conflict, Forbidden, NameTaken, PlacementError, Rejected, Unavailable
from reportclient.transport import AGAIN_S, Transport, parse_date

HTML = {"Content-Type": "text/html; charset=utf-8"}


NOW_S = datetime(2024, 1, 1, tzinfo=UTC).timestamp()


def transport(*answers: FakeAnswer | Exception) -> Transport:
    sender = FakeSender(list(answers))
    return Transport(sender, where="placement at x", now=lambda: NOW_S)


def refusal(status: int, code: str = "", detail: str = "why", **more: str) -> FakeAnswer:
    return FakeAnswer(status, {"errors": [{"code": code, "detail": detail, **more}]})


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        pytest.param(refusal(400), Rejected, "answered PUT /a with 400: why", id="malformed"),
        pytest.param(refusal(401), Rejected, "token was not accepted", id="token"),
        pytest.param(refusal(403), Forbidden, "give it the role service", id="role"),
        pytest.param(refusal(404), Absent, "why", id="absent"),
        pytest.param(refusal(409, "placement.concurrent_update"), Conflict, "another writer came first", id="raced"),
        pytest.param(refusal(409, "placement.duplicate_name"), NameTaken, "why", id="name"),
        pytest.param(refusal(409, "placement.inventory.inuse"), Conflict, "why", id="in use"),
        pytest.param(refusal(409, "placement.undefined_code"), Rejected, "why", id="no room"),
        pytest.param(refusal(503), Unavailable, "it is not known whether anything changed", id="down"),
        pytest.param(refusal(429), Unavailable, "why", id="too many"),
        pytest.param(FakeAnswer(502, "<html>", HTML), Unavailable, "a web page", id="proxy error page"),
        pytest.param(FakeAnswer(404, "<html>", HTML), Unavailable, "a web page", id="404 of a web server"),
        pytest.param(FakeAnswer(500, []), Unavailable, "nothing readable", id="no reason at all"),
    ],
)
def test_a_refusal_is_told_by_status_and_code(answer: FakeAnswer, kind: type[PlacementError], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        transport(answer).send("PUT", "/a", {})

    assert type(caught.value) is kind


def test_a_web_page_for_a_read_asks_for_the_address_and_a_read_changes_nothing() -> None:
    with pytest.raises(
        Unavailable, match=r"with 404: a web page: is \[placement\] endpoint the address of placement\?$"
    ):
        transport(FakeAnswer(404, "<html>", HTML)).get("/a")
    with pytest.raises(Unavailable, match=r"with 503: why: see placement's log$"):
        transport(refusal(503)).get("/a")


@pytest.mark.parametrize(
    ("error", "kind", "advice"),
    [
        pytest.param(exceptions.SSLError("x"), Rejected, "cafile", id="unknown CA"),
        pytest.param(
            exceptions.SSLError("[SSL: WRONG_VERSION_NUMBER] wrong version number"),
            Rejected,
            "answers without TLS: is https right in",
            id="https for an http port",
        ),
        pytest.param(exceptions.ConnectTimeout("x"), Unavailable, "timeout", id="slow"),
        pytest.param(exceptions.ConnectFailure("x"), Unavailable, "does it run", id="nobody there"),
        pytest.param(
            exceptions.ConnectFailure("Unable to establish connection to http://k/v3/auth/tokens: refused"),
            Unavailable,
            "Keystone gives no token",
            id="nobody there to give a token",
        ),
        pytest.param(
            exceptions.ConnectTimeout("Request to http://k/v3/auth/tokens timed out"),
            Unavailable,
            "Keystone gives no token",
            id="nobody in time to give a token",
        ),
        pytest.param(exceptions.Unauthorized("x"), Rejected, "refused the credentials", id="password"),
        pytest.param(exceptions.NotFound("x"), Rejected, "application credential deleted", id="credential gone"),
        pytest.param(exceptions.EndpointNotFound("x"), Rejected, "region_name", id="catalog"),
        pytest.param(exceptions.EmptyCatalog("x"), Rejected, "name a project", id="unscoped"),
        pytest.param(exceptions.MissingRequiredOptions([]), Rejected, "auth_type", id="options"),
        pytest.param(exceptions.InternalServerError("x"), Unavailable, "Keystone failed", id="keystone 500"),
        pytest.param(OSError("Could not find a CA bundle"), Rejected, "cafile", id="no such CA file"),
    ],
)
def test_what_keeps_an_answer_away_comes_with_advice(error: Exception, kind: type[PlacementError], advice: str) -> None:
    with pytest.raises(kind, match=advice) as caught:
        transport(error).get("/a")

    assert str(caught.value).startswith("placement at x: ")
    assert "\n" not in str(caught.value)


def test_a_web_page_in_place_of_json_is_no_answer() -> None:
    with pytest.raises(Unavailable, match="a web page, but placement answers with JSON"):
        transport(FakeAnswer(200, "<html>", HTML)).get("/a")


def test_the_newest_microversion_is_asked_for_and_an_older_servers_is_agreed_on() -> None:
    sender = FakeSender([refusal(406, min_version="1.0", max_version="1.36"), FakeAnswer(), FakeAnswer()])
    one = Transport(sender, where="x")

    one.get("/a")
    one.get("/b")

    assert [asked[2]["microversion"] for asked in sender.asked] == ["1.39", "1.36", "1.36"]


def test_the_newest_microversion_is_asked_for_again_an_hour_after_an_old_server_refused_it() -> None:
    sender = FakeSender([refusal(406, min_version="1.0", max_version="1.36"), *[FakeAnswer()] * 4])
    moments = [NOW_S]
    one = Transport(sender, where="x", now=lambda: moments[-1])

    for later_s in (0, AGAIN_S - 1, AGAIN_S, 2 * AGAIN_S):
        moments.append(NOW_S + later_s)
        one.get("/a")

    assert [asked[2]["microversion"] for asked in sender.asked] == ["1.39", "1.36", "1.36", "1.39", "1.39"]


def test_a_server_without_the_reshaper_is_refused_with_both_ranges() -> None:
    with pytest.raises(Rejected, match=r"supports microversions 1\.0 to 1\.29, but this agent needs 1\.30 to 1\.39"):
        transport(refusal(406, min_version="1.0", max_version="1.29")).get("/a")


def test_a_406_without_a_range_is_not_placements() -> None:
    with pytest.raises(Unavailable, match="is it placement"):
        transport(refusal(406)).get("/a")


def test_every_request_asks_caches_to_stand_aside() -> None:
    sender = FakeSender([FakeAnswer()])

    Transport(sender, where="x").get("/a")

    assert sender.asked[0][2]["headers"]["Cache-Control"] == "no-cache"


def test_a_cached_copy_is_asked_for_again_and_then_refused() -> None:
    aged = FakeAnswer(headers={"Age": "7"})

    assert transport(aged, FakeAnswer(body={"a": 1})).get("/a")[0] == {"a": 1}
    with pytest.raises(Unavailable, match="a copy 7 s old"):
        transport(aged, aged).get("/a")


def test_an_empty_answer_to_a_write_is_none() -> None:
    assert transport(FakeAnswer(204, "", text="")).send("PUT", "/traits/CUSTOM_A") is None


def test_the_servers_clock_is_read_from_its_date() -> None:
    one = transport(FakeAnswer(headers={"Date": "Mon, 01 Jan 2024 01:00:00 GMT"}))

    one.get("/a")

    assert one.skew_s == 3600


@pytest.mark.parametrize("header", ["yesterday", ""])
def test_a_server_without_a_date_has_no_clock(header: str) -> None:
    one = transport(FakeAnswer(headers={"Date": header}))

    one.get("/a")

    assert one.skew_s is None


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        pytest.param("120", 120, id="seconds"),
        pytest.param("86400", 3600, id="a day is not believed"),
        pytest.param("Mon, 01 Jan 2024 00:30:00 GMT", 1800, id="a date"),
        pytest.param("Sat, 01 Jan 2000 00:00:00 GMT", 0, id="a date that is over"),
        pytest.param("soon", 0, id="nothing that can be told"),
        pytest.param("", 0, id="nothing"),
    ],
)
def test_a_server_may_say_for_how_long_it_wants_to_be_left_alone(asked: str, seconds: float) -> None:
    with pytest.raises(Unavailable) as caught:
        transport(FakeAnswer(503, {}, {"Retry-After": asked})).get("/a")

    assert caught.value.retry_after_s == seconds


@pytest.mark.parametrize(
    ("answer", "late"),
    [
        pytest.param(exceptions.ConnectTimeout("x"), True, id="no answer"),
        pytest.param(exceptions.GatewayTimeout("x"), True, id="none of Keystone through a proxy"),
        pytest.param(FakeAnswer(504, "<html>", HTML), True, id="none through a proxy"),
        pytest.param(FakeAnswer(408, "<html>", HTML), True, id="a proxy that closes"),
        pytest.param(exceptions.ConnectFailure("x"), False, id="refused"),
        pytest.param(FakeAnswer(503, "<html>", HTML), False, id="no server behind a proxy"),
    ],
)
def test_a_server_that_is_late_is_told_from_one_that_refuses(answer: FakeAnswer | Exception, late: bool) -> None:
    with pytest.raises(Unavailable) as caught:
        transport(answer).get("/a")

    assert (caught.value.late, caught.value.retry_after_s) == (late, 0)


@pytest.mark.parametrize(
    "headers",
    [
        {"Date": "Mon, 01 Jan 2024 00:00:00 +99999999999999999999"},
        {"Age": "9" * 5000},
        {"Retry-After": "9" * 5000},
        {"Retry-After": "-1000000"},
    ],
    ids=["a zone that is none", "an age without end", "a wait without end", "a wait that is over"],
)
def test_headers_that_make_no_sense_are_not_believed(headers: dict[str, str]) -> None:
    with pytest.raises(Unavailable) as caught:
        transport(FakeAnswer(503, {}, headers), FakeAnswer(503, {}, headers)).get("/a")

    assert 0 <= caught.value.retry_after_s <= 3600


@pytest.mark.parametrize("text", ["Mon, 01 Jan 2024 00:00:00 -0000", "Mon, 01 Jan 2024 00:00:00 GMT"])
def test_a_date_is_of_utc_whatever_it_says(text: str) -> None:
    assert parse_date(text) == datetime(2024, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("leak", [KeyError("token"), TypeError("5"), AttributeError("get")])
def test_what_keystoneauth_leaks_is_no_fault_of_ours(leak: Exception) -> None:
    with pytest.raises(Unavailable, match="is not in Keystone's form"):
        transport(leak).get("/a")


def test_a_password_in_a_url_is_told_to_nobody() -> None:
    failure = exceptions.ConnectFailure("cannot reach http://user:sec@ret@host/resource_providers?a=b@c")

    with pytest.raises(Unavailable, match=r"http://\*\*\*@host/resource_providers\?a=b@c"):
        transport(failure).get("/a")
