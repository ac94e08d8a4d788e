"""A request that is sent again and again is prepared once, and always sent as it would be otherwise."""

from collections.abc import Mapping
from typing import Any

import pytest
import requests
from requests import PreparedRequest, Response
from requests.adapters import BaseAdapter

from agent.connect.repeated import RepeatingSession

URL = "http://placement/resource_providers?in_tree=1"


class Server(BaseAdapter):
    """Answers everything, and keeps what was sent."""

    def __init__(self, cookie: str = "") -> None:
        super().__init__()
        self.sent: list[PreparedRequest] = []
        self._cookie = cookie

    def send(self, request: PreparedRequest, *_: Any, **__: Any) -> Response:
        self.sent.append(request)
        answer = Response()
        answer.status_code, answer._content, answer.url = 200, b"{}", request.url or ""
        if self._cookie:
            answer.cookies.set("balancer", self._cookie)
        return answer

    def close(self) -> None:
        pass


def session(kind: type[requests.Session], server: Server) -> requests.Session:
    made = kind()
    made.trust_env = False
    made.mount("http://", server)
    return made


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The URLs that were prepared, in order."""
    seen: list[str] = []
    real = requests.Session.prepare_request

    def noted(self: requests.Session, request: requests.Request) -> PreparedRequest:
        seen.append(str(request.url))
        return real(self, request)

    monkeypatch.setattr(requests.Session, "prepare_request", noted)
    return seen


def headers(number: int) -> Mapping[str, str]:
    return {"X-Auth-Token": f"token {number}", "X-Openstack-Request-Id": f"req-{number}", "Cache-Control": "no-cache"}


def test_the_same_request_is_prepared_once_and_has_the_headers_of_each_time(prepared: list[str]) -> None:
    ours, theirs = Server(), Server()
    repeating, plain = session(RepeatingSession, ours), session(requests.Session, theirs)

    for number in range(3):
        repeating.request("GET", URL, headers=headers(number))
    assert prepared == [URL]

    for number in range(3):
        plain.request("GET", URL, headers=headers(number))
    for one, other in zip(ours.sent, theirs.sent, strict=True):
        assert (one.method, one.url, one.headers, one.body) == (other.method, other.url, other.headers, other.body)


def test_another_request_is_prepared_anew(prepared: list[str]) -> None:
    server = Server()
    repeating = session(RepeatingSession, server)
    sent: tuple[tuple[str, dict[str, Any]], ...] = (
        ("GET", {"headers": headers(1)}),
        ("DELETE", {"headers": headers(1)}),
        ("GET", {"headers": {**headers(1), "Pragma": "no-cache"}}),
        ("GET", {"headers": {"X-Auth-Token": "t"}}),
        ("PUT", {"headers": {"X-Auth-Token": "t"}}),
        ("PUT", {"headers": {"X-Auth-Token": "t"}, "json": {"a": 1}}),
        ("PUT", {"headers": {"X-Auth-Token": "t"}, "data": '{"a": 2}'}),
        ("PUT", {"headers": {"X-Auth-Token": "t"}, "data": '{"a": 3}'}),
        ("GET", {"headers": {"X-Auth-Token": "t"}, "json": {}}),
        ("GET", {"headers": {"X-Auth-Token": "t"}, "data": "4"}),
        ("GET", {"headers": {"X-Auth-Token": "t"}, "files": {"f": b"5"}}),
        ("GET", {"headers": {"X-Auth-Token": "t", "Pragma": None}}),
        ("GET", {"headers": {"X-Auth-Token": "t"}, "params": {"name": "n"}}),
        ("GET", {"headers": {"X-Auth-Token": "t"}, "auth": ("user", "password")}),
        ("GET", {"headers": {"X-Auth-Token": "t"}, "cookies": {"a": "b"}}),
        ("GET", {"headers": {"X-Auth-Token": "t"}, "hooks": {"response": [lambda answer, **_: answer]}}),
    )
    for method, settings in sent:
        repeating.request(method, URL, **settings)

    assert len(prepared) == len(sent)
    assert [one.method for one in server.sent] == [method for method, _ in sent]
    bodies = [one.body for one in server.sent if one.body]
    assert bodies[:5] == [b'{"a": 1}', '{"a": 2}', '{"a": 3}', b"{}", "4"]
    assert b"5" in bodies[5]
    assert all("Pragma" not in one.headers for one in server.sent[3:])


def test_a_request_that_was_changed_after_it_was_sent_is_sent_as_it_was() -> None:
    server = Server()
    repeating = session(RepeatingSession, server)
    repeating.request("GET", URL, headers=headers(1))
    server.sent[0].url = "http://elsewhere/"
    repeating.request("GET", URL, headers=headers(2))
    assert server.sent[1].url == URL


def test_a_login_in_the_url_counts_each_time() -> None:
    ours, theirs = Server(), Server()
    for kind, server in ((RepeatingSession, ours), (requests.Session, theirs)):
        one = session(kind, server)
        for _ in range(3):
            one.request("GET", "http://url:secret@placement/p", headers={"Authorization": "Basic other"})
            one.request("GET", "http://url:secret@placement/p", headers={"Accept": "*/*"})

    assert [sent.headers["Authorization"] for sent in ours.sent] == [
        sent.headers["Authorization"] for sent in theirs.sent
    ]


@pytest.mark.parametrize("value", ["a\nb: c", " a", 5])
def test_a_header_that_cannot_be_sent_is_refused_each_time(value: Any) -> None:
    repeating = session(RepeatingSession, Server())
    repeating.request("GET", URL, headers={"X-Name": "a"})
    with pytest.raises(requests.exceptions.InvalidHeader):
        repeating.request("GET", URL, headers={"X-Name": value})


def test_a_cookie_of_a_balancer_is_sent_from_then_on() -> None:
    server = Server(cookie="node-7")
    repeating = session(RepeatingSession, server)
    repeating.request("GET", URL, headers=headers(1))
    repeating.cookies.set("balancer", "node-7")  # which requests does with a real answer
    repeating.request("GET", URL, headers=headers(2))
    assert server.sent[1].headers["Cookie"] == "balancer=node-7"


def test_where_the_environment_counts_it_is_looked_at_each_time(prepared: list[str]) -> None:
    repeating = session(RepeatingSession, Server())
    repeating.trust_env = True
    for number in range(2):
        repeating.request("GET", URL, headers=headers(number))
    assert len(prepared) == 2
