"""
Send requests through a keystoneauth adapter, and say why no answer came: the same for placement and for Ironic.

The adapter asks Keystone for a token and for the catalog on the way, so a request can fail before it reaches its
service.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, Protocol

from keystoneauth1 import exceptions

from reportclient.errors import KEYSTONE_AWAY, LEAKED, asked_keystone, mask, shorten

FAILURES = (exceptions.ClientException, OSError, ArithmeticError, ValueError, *LEAKED)
"""Everything that an adapter raises when no answer came."""
NO_CONNECTION = (exceptions.ConnectTimeout, exceptions.ConnectFailure)
_PLAIN_HTTP = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")  # OpenSSL's words for it
_AT_ONCE = nullcontext()  # keystoneauth's own semaphore waits by the wall clock: for hours when that was set back


class PassOver(exceptions.ClientException):
    """The time of a pass is over; the request was not sent."""


class Answer(Protocol):
    """A ``requests`` response, as far as we use it."""

    status_code: int

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def content(self) -> bytes: ...

    @property
    def text(self) -> str: ...

    def json(self) -> Any: ...


class Sender(Protocol):
    """A keystoneauth adapter, as far as we use it."""

    def request(self, url: str, method: str, **kwargs: Any) -> Any: ...


def request(
    sender: Sender, path: str, method: str, *, version: str, headers: Mapping[str, str], **more: object
) -> Answer:
    """
    Send one request at a microversion, and return its answer whatever its status is; ``more`` goes to the adapter.

    Raises:
        any of ``FAILURES``: no answer came.
    """
    answer: Answer = sender.request(
        path,
        method,
        raise_exc=False,
        microversion=version,
        headers={"Accept": "application/json", **headers},
        rate_semaphore=_AT_ONCE,
        **more,
    )
    return answer


def speaks_plain_http(error: Exception) -> bool:
    """Return whether the other side of a TLS connection answered without TLS, as an http port does."""
    return isinstance(error, exceptions.SSLError) and any(word in str(error) for word in _PLAIN_HTTP)


def no_answer(error: Exception, where: str, advice: str) -> str:
    """Return one line about a failure: where, what to do next, and the cause without passwords."""
    no_token = isinstance(error, NO_CONNECTION) and asked_keystone(error)
    return f"{where}: {KEYSTONE_AWAY if no_token else advice} ({describe(error)})"


def describe(error: Exception) -> str:
    """Return the kind and the text of an error on one line, without passwords."""
    return f"{type(error).__name__}: {shorten(mask(str(error)))}"
