"""A small HTTP proxy before a server: it counts, and a hook between the two decides what becomes of a request."""

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

import requests

from beds.process import LOOPBACK

Headers = tuple[tuple[str, str], ...]
# Headers of one connection (RFC 9110, 7.6.1), and the length, which is set anew.
PER_CONNECTION = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came in; ``path`` includes the query."""

    method: str
    path: str
    headers: Headers = ()
    body: bytes = b""

    def header(self, name: str) -> str:
        """The value of a header, empty when it was not sent."""
        return _header(self.headers, name)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, the server's or a hook's own."""

    status: int
    headers: Headers = ()
    body: bytes = b""

    def header(self, name: str) -> str:
        """The value of a header, empty when it was not sent."""
        return _header(self.headers, name)


@dataclass(frozen=True, slots=True)
class Seen:
    """One exchange as the client saw it; ``path`` includes the query, ``status`` is None when there was no answer."""

    method: str
    path: str
    status: int | None


Forward = Callable[[Request], Answer]
Hook = Callable[[Request, Forward], Answer]
"""
Called for each request, in the thread of its connection. It may answer itself, wait, write to the server in between, or
forward and then answer something else. Raising ``ConnectionError`` hangs up without an answer.
"""


def pass_on(request: Request, forward: Forward) -> Answer:
    """The hook of a proxy which only counts."""
    return forward(request)


def slowly(seconds: float) -> Hook:
    """A hook that passes a request on after so long."""

    def wait(request: Request, forward: Forward) -> Answer:
        time.sleep(seconds)
        return forward(request)

    return wait


def losing(end: str) -> Hook:
    """A hook that carries out a write whose path has this end, and then hangs up."""

    def lose(request: Request, forward: Forward) -> Answer:
        answer = forward(request)
        if request.method != "GET" and request.path.endswith(end):
            raise ConnectionError("it was processed")
        return answer

    return lose


def refusing(part: str, answer: Answer = Answer(403)) -> Hook:
    """A hook that gives this answer wherever a path has this part."""
    return lambda request, forward: answer if part in request.path else forward(request)


@dataclass
class Cache:
    """
    A hook which stores answers to GET for ever, although placement answers ``Cache-Control: no-cache``.

    It serves them as they were, old ``Last-Modified`` and all, plus ``Age``. A request with ``Cache-Control: no-cache``
    goes to the server and renews what is stored, unless the cache is ``stubborn``.
    """

    stubborn: bool = False
    clock: Callable[[], float] = time.monotonic
    _stored: dict[tuple[str, str], tuple[float, Answer]] = field(default_factory=dict)

    def __call__(self, request: Request, forward: Forward) -> Answer:
        """Answer from the store if allowed, else from the server; 200 is stored, all else passes through."""
        key = request.path, request.header("OpenStack-API-Version")  # placement's Vary
        fresh_wanted = "no-cache" in request.header("Cache-Control") and not self.stubborn
        if request.method == "GET" and key in self._stored and not fresh_wanted:
            since, answer = self._stored[key]
            return replace(answer, headers=(*answer.headers, ("Age", str(int(self.clock() - since)))))
        answer = forward(request)
        if request.method == "GET" and answer.status == 200:
            self._stored[key] = self.clock(), answer
        return answer


class Proxy:
    """Listens on a loopback port (plain HTTP) as long as its context lasts; ``hook`` may be replaced meanwhile."""

    def __init__(self, upstream: str, *, hook: Hook = pass_on, cafile: Path | None = None) -> None:
        """``upstream`` has no slash at the end; ``cafile`` is what an upstream with TLS is verified with."""
        self.hook = hook
        self.seen: list[Seen] = []
        self._upstream = upstream
        self._verify: bool | str = str(cafile) if cafile else True
        self._server = _Server(self.answer)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self) -> str:
        """Where to send requests instead of the upstream; no slash at the end."""
        return f"http://{LOOPBACK}:{self._server.server_port}"

    def answer(self, request: Request) -> Answer:
        """The hook's answer, recorded before the client has it."""
        status: int | None = None
        try:
            answer = self.hook(request, self.forward)
            status = answer.status
            return answer
        finally:
            self.seen.append(Seen(request.method, request.path, status))

    def forward(self, request: Request) -> Answer:
        """Ask the upstream. Redirects are the client's business; the environment has no say."""
        with requests.Session() as http:
            http.trust_env = False
            reply = http.request(
                request.method,
                self._upstream + request.path,
                headers=dict(request.headers),
                data=request.body,
                verify=self._verify,
                allow_redirects=False,
            )
        return Answer(reply.status_code, _end_to_end(reply.headers.items()), reply.content)

    def __enter__(self) -> Self:
        """Start to serve."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop to serve; an exchange in progress ends by itself."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    def __init__(self, answer: Callable[[Request], Answer]) -> None:
        self.answer = answer
        super().__init__((LOOPBACK, 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    """HTTP/1.0, one exchange a connection: no connection is left to idle when a test ends."""

    server: _Server

    def exchange(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        request = Request(self.command, self.path, _end_to_end(self.headers.items()), self.rfile.read(length))
        try:
            self._reply(self.server.answer(request))
        except (ConnectionError, requests.ConnectionError):
            self.close_connection = True  # either side hung up, or the hook wants us to

    do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = exchange  # noqa: N815 - names given by http.server

    def _reply(self, answer: Answer) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        if answer.status != 204:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, *_: object) -> None:
        """Say nothing on stderr: the proxy's record is ``seen``."""


def _end_to_end(headers: Iterable[tuple[str, str]]) -> Headers:
    return tuple((name, value) for name, value in headers if name.lower() not in PER_CONNECTION)


def _header(headers: Headers, name: str) -> str:
    return next((value for key, value in headers if key.lower() == name.lower()), "")
