"""HTTP sessions that take a login to no other server, and no answer that is too large or comes too slowly."""

import re
import time
from contextlib import suppress
from email.utils import formatdate
from http.client import HTTPResponse
from io import BufferedReader, RawIOBase
from socket import socket
from typing import Any
from urllib.parse import urljoin

import requests
from keystoneauth1 import exceptions
from keystoneauth1.session import TCPKeepAliveAdapter
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ReadTimeoutError

from reportclient.json_text import check_values

LIMIT_BYTES = 32 << 20  # of an answer once it is unpacked; 1,000 nodes of an Ironic take 2 MiB
LONGEST_SLEEP_S = 10  # in one request, before it is sent again as its service asks
_PART_BYTES = 1 << 16
_DIGITS = 18  # so many digits of a header's number are read
_DAY_S = 86_400


class UnusableAnswer(exceptions.ClientException):
    """An answer that is too large, or leads to another server; the request is not sent again."""


class GuardedSession(requests.Session):
    """
    A session that follows redirects only within one server, as keystoneauth sends token and password along.

    An answer has at most ``LIMIT_BYTES`` and ``MOST_VALUES``. It must be whole within the timeout of its request, which
    the libraries below apply to each part of an answer only.
    """

    def __init__(self, connections: int = 10) -> None:
        """``connections`` to one server stay open, as that many threads send."""
        super().__init__()
        for scheme in _POOLS:
            self.mount(scheme + "://", _Adapter(pool_maxsize=connections))

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """
        Send a request and return its whole answer.

        Raises:
            UnusableAnswer: the answer is too large, or leads to another server.
            requests.RequestException: no answer, or none in time.
        """
        answer = super().send(request, **{**kwargs, "stream": True})
        with answer:
            self._check_redirect(answer)
            _put_off(answer)
            answer._content = _read(answer)  # where requests itself keeps an answer that was read
            _check_values(answer)
        return answer

    def _check_redirect(self, answer: requests.Response) -> None:
        location = answer.headers.get("Location", "")
        leaves = bool(location) and 300 <= answer.status_code < 400
        with suppress(ValueError):  # of an address that is none, which no request can follow
            leaves = leaves and self.should_strip_auth(answer.url, urljoin(answer.url, location))  # type: ignore[no-untyped-call]
        if leaves:
            raise UnusableAnswer(
                f"it redirects to another server, {location}: the login is not sent there; if that is the right one, "
                f"configure its URL instead of {answer.url}"
            )


def _put_off(answer: requests.Response) -> None:
    """Write a long wait as a date: keystoneauth sleeps through any number of seconds, with the lock held."""
    seconds = answer.headers.get("Retry-After", "").strip()
    if re.fullmatch(r"-?[0-9]+", seconds) and not 0 <= int(seconds[:_DIGITS]) <= LONGEST_SLEEP_S:
        until_s = time.time() + min(int(seconds[:_DIGITS]), _DAY_S)
        answer.headers["Retry-After"] = formatdate(until_s, usegmt=True)


def _read(answer: requests.Response) -> bytes:
    parts, size = [], 0
    try:
        for part in answer.iter_content(_PART_BYTES):
            size += len(part)
            if size > LIMIT_BYTES:
                raise UnusableAnswer(f"{answer.url} answers with more than {LIMIT_BYTES >> 20} MiB")
            parts.append(part)
    except requests.ConnectionError as error:
        if error.args and isinstance(error.args[0], ReadTimeoutError):
            raise requests.ReadTimeout(error) from error
        raise
    return b"".join(parts)


def _check_values(answer: requests.Response) -> None:
    try:
        check_values(answer.content)
    except ValueError as error:
        raise UnusableAnswer(f"the answer of {answer.url} cannot be read: {error}") from error


class _Until(RawIOBase):
    """What is read from a socket, until the socket's timeout is over since this was made."""

    def __init__(self, raw: RawIOBase, connection: socket) -> None:
        self._raw, self._socket, self._limit_s = raw, connection, connection.gettimeout()
        self._end_s = time.monotonic() + (self._limit_s or 0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read as ``RawIOBase``; TimeoutError once the time is over."""
        if self._limit_s is None:
            return self._raw.readinto(buffer)
        left_s = self._end_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(f"the answer was not whole in {self._limit_s:g} s")
        self._socket.settimeout(left_s)
        try:
            return self._raw.readinto(buffer)
        finally:
            self._socket.settimeout(self._limit_s)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(HTTPResponse):
    def __init__(self, sock: socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = BufferedReader(_Until(self.fp.detach(), sock))


def _guarded(pool: type[HTTPConnectionPool]) -> type[HTTPConnectionPool]:
    """Return a kind of pool whose connections read each answer as ``_Response``."""
    connection = type("_Connection", (pool.ConnectionCls,), {"response_class": _Response})
    return type("_Pool", (pool,), {"ConnectionCls": connection})


_POOLS = {"http": _guarded(HTTPConnectionPool), "https": _guarded(HTTPSConnectionPool)}


class _Adapter(TCPKeepAliveAdapter):
    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = _POOLS
        return manager
