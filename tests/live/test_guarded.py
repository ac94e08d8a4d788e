"""Servers that lead elsewhere, answer without an end, or too slowly: what a request takes from them."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from keystoneauth1 import exceptions
from keystoneauth1.session import Session

from agent.connect.guarded import GuardedSession, UnusableAnswer
from beds import proxy
from beds.agents import run_agent
from beds.golden import HOSTS
from beds.nova import as_json
from beds.proxy import Proxy, Request
from reportclient.transport import _retry_after_s

pytestmark = pytest.mark.live
Answer = Callable[[BaseHTTPRequestHandler], None]


class Server(ThreadingHTTPServer):
    """A server on loopback that answers by path, and keeps the headers that it was sent."""

    daemon_threads = True

    def __init__(self, answers: dict[str, Answer]) -> None:
        self.heard: list[dict[str, str]] = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(handler) -> None:  # noqa: N805
                self.heard.append(dict(handler.headers))
                answers[handler.path](handler)

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def served(answers: dict[str, Answer]) -> Iterator[Server]:
    server = Server(answers)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def whole(body: bytes) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def redirect(location: str, status: int = 307) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Location", location)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def drip(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    for _ in range(100):
        handler.wfile.write(b" ")
        time.sleep(0.1)


def drip_headers(handler: BaseHTTPRequestHandler) -> None:
    for letter in b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 100:
        handler.wfile.write(bytes([letter]))
        time.sleep(0.1)


def get(url: str, *, timeout: float = 5.0) -> bytes:
    session = Session(session=GuardedSession(), timeout=timeout)
    return bytes(session.get(url, headers={"X-Auth-Token": "secret"}, authenticated=False).content)


@pytest.mark.parametrize("status", [301, 303, 308])
def test_a_token_does_not_follow_a_redirect_to_another_server(status: int) -> None:
    with served({"/": whole(b"caught")}) as sink, served({"/": redirect(f"{sink.url}/", status)}) as server:
        with pytest.raises(UnusableAnswer, match=f"another server, {sink.url}/") as caught:
            get(f"{server.url}/")

        assert sink.heard == []
        assert server.url in str(caught.value)


def test_a_redirect_within_a_server_is_followed() -> None:
    answers = {"/there": whole(b"found")}
    with served(answers) as server:
        answers["/"] = redirect(f"{server.url}/there")
        assert get(f"{server.url}/") == b"found"


@pytest.mark.parametrize("location", ["https://127.0.0.1/", "//127.0.0.1:1/", "http://localhost:80/"])
def test_another_scheme_port_or_host_is_another_server(location: str) -> None:
    with served({"/": redirect(location)}) as server, pytest.raises(UnusableAnswer, match="another server"):
        get(f"{server.url}/")


@pytest.mark.parametrize("answer", [drip, drip_headers])
def test_an_answer_must_be_whole_in_the_time_of_its_request(answer: Answer) -> None:
    began = time.monotonic()
    with served({"/": answer}) as server, pytest.raises(exceptions.ConnectTimeout):
        get(f"{server.url}/", timeout=0.5)

    assert time.monotonic() - began < 5  # the answer takes 10 s


@pytest.mark.parametrize("seconds", ["11", "1000000", "9" * 40, "-1"])
def test_a_service_that_asks_to_wait_for_long_does_not_hold_the_request(seconds: str) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(503)
        handler.send_header("Retry-After", seconds)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    began = time.monotonic()
    with served({"/": answer}) as server:
        session = Session(session=GuardedSession(), timeout=5)
        told = session.get(f"{server.url}/", authenticated=False, raise_exc=False, status_code_retries=1)

        assert len(server.heard) == 2
    assert time.monotonic() - began < 5
    assert abs(_retry_after_s(told.headers["Retry-After"], time.time()) - min(max(int(seconds), 0), 3600)) < 3


def test_a_connection_is_used_again_after_an_answer() -> None:
    with served({"/": whole(b"one")}) as server:
        session = Session(session=GuardedSession(), timeout=5)
        ports = {session.get(f"{server.url}/", authenticated=False).content for _ in range(3)}

        assert ports == {b"one"}
        pools = session.session.get_adapter(server.url).poolmanager.pools  # type: ignore[attr-defined]
        assert [pools[key].num_connections for key in pools.keys()] == [1]  # noqa: SIM118 - no iterator without


# -- a login of the command, and each service that sends it elsewhere -------------------------------------------------

PASSWORD, TOKEN = "password-of-the-agent", "token-of-the-agent"
LOGIN = {
    **{"auth_type": "password", "username": "agent", "password": PASSWORD, "project_name": "service"},
    **{"user_domain_name": "Default", "project_domain_name": "Default"},
}


def sends_elsewhere(sink: Proxy, status: int) -> Callable[[Request, object], proxy.Answer]:
    return lambda request, _: proxy.Answer(status, (("Location", f"{sink.url}{request.path}"),))


def keystone_for(services: Proxy, sink: Proxy) -> Callable[[Request, object], proxy.Answer]:
    """Answers each login with a token, and a catalog in which one server is every service; its link leads elsewhere."""
    catalog = [
        {"type": kind, "name": kind, "id": kind, "endpoints": [{"id": kind, **_endpoint(f"{services.url}/{kind}")}]}
        for kind in ("placement", "baremetal", "compute")
    ]
    dates = {"issued_at": "2026-01-01T00:00:00.000000Z", "expires_at": "2099-01-01T00:00:00.000000Z"}
    token = {"methods": ["password"], **dates, "user": {"id": "u", "name": "agent"}, "catalog": catalog}

    def answer(request: Request, _forward: object) -> proxy.Answer:
        if request.method == "POST":
            assert PASSWORD in request.body.decode()
            return replace(as_json(201, {"token": token}), headers=(("X-Subject-Token", TOKEN),))
        version = {"id": "v3.14", "status": "stable", "links": [{"rel": "self", "href": f"{sink.url}/v3/"}]}
        return as_json(200, {"version": version})

    return answer


def _endpoint(url: str) -> dict[str, str]:
    return {"interface": "public", "url": url, "region": "RegionOne", "region_id": "RegionOne"}


@pytest.mark.parametrize("service", ["placement", "keystone", "ironic", "nova"])
def test_no_service_gets_the_login_sent_elsewhere(
    service: str, write_config: Callable[..., Path], tmp_path: Path
) -> None:
    asked: list[Request] = []
    caught: list[Request] = []

    def take(request: Request, _forward: object) -> proxy.Answer:
        caught.append(request)
        return as_json(200, {})

    with Proxy("", hook=take) as sink, Proxy("") as services, Proxy("") as keystone:
        elsewhere, login = sends_elsewhere(sink, 307), keystone_for(services, sink)

        def answer(request: Request, forward: object) -> proxy.Answer:
            asked.append(request)
            return (
                login(request, forward) if (request.method, request.path) == ("GET", "/v3") else elsewhere(request, 0)
            )

        services.hook = answer
        keystone.hook = answer if service == "keystone" else login
        groups = {name: {**LOGIN, "auth_url": f"{keystone.url}/v3"} for name in ("placement", "ironic", "nova")}
        driver = {"compute_driver": "ironic.IronicDriver"} if service == "ironic" else {}
        config = write_config(DEFAULT=driver, agent={"state_directory": tmp_path / "state"}, **groups)
        files = ("--config-file", HOSTS / "four-cells/agent.conf", "--config-file", config)
        options: tuple[object, ...] = ("--host", HOSTS / "four-cells/archive", *files)
        if service == "nova":
            options = (*options, "--embedded-dir", tmp_path / "run")
            run_agent("sync", *options)  # so that nova is asked about a host that placement has
        verb = {"ironic": "discover", "nova": "check"}.get(service, "show")
        done = run_agent(verb, *(files if service == "ironic" else options))

    assert done.code in (1, 3), done.out
    assert f"redirects to another server, {sink.url}" in " ".join((done.out + done.err).split()), done.out + done.err
    assert caught == []
    secrets = [one.header("X-Auth-Token") == TOKEN or PASSWORD in one.body.decode() for one in asked]
    assert any(secrets), "the login was there to be taken"
