"""Requests with their answers: kept as they go by, and given again later, without any network."""

import builtins
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from keystoneauth1 import exceptions

from reportclient.errors import LEAKED, Rejected, mask
from reportclient.transport import Sender

_KEPT = ("Age", "Content-Type", "Date", "Last-Modified", "Retry-After", "x-openstack-request-id")
"""The headers of an answer that are looked at; no others are kept."""
_FAILURES = (exceptions.ClientException, OSError, ArithmeticError, ValueError, *LEAKED)


class Unrecorded(Rejected):
    """What is asked was not asked when the answers were recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """
    One request and what became of it.

    Secrets are not in it: tokens are in headers that are not kept, and a failure's text is masked.
    """

    method: str
    path: str
    microversion: str
    body: Any = None  # of the request, as JSON has it
    status: int = 0  # 0: no answer
    headers: dict[str, str] = field(default_factory=dict)
    text: str = ""  # of the answer
    failure: str = ""  # the name of the exception where there was no answer
    cause: str = ""  # and its text

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells one question from another."""
        return self.method, self.path, self.microversion


class RecordingSender:
    """Sends through another, and keeps what went by in ``exchanges``, which the caller empties."""

    def __init__(self, sender: Sender, exchanges: list[Exchange]) -> None:
        self._sender = sender
        self._exchanges = exchanges

    def request(self, url: str, method: str, **kwargs: Any) -> Any:
        """As ``Sender``; errors as those of the other."""
        asked: dict[str, Any] = {"method": method, "path": url, "microversion": _version(kwargs)}
        asked["body"] = kwargs.get("json")
        try:
            answer = self._sender.request(url, method, **kwargs)
        except _FAILURES as error:
            self._exchanges.append(Exchange(**asked, failure=type(error).__name__, cause=mask(str(error))))
            raise
        headers = {name: str(answer.headers[name]) for name in _KEPT if name in answer.headers}
        text = answer.content.decode(errors="replace")  # JSON is UTF-8; requests would guess, which takes long
        self._exchanges.append(Exchange(**asked, status=answer.status_code, headers=headers, text=text))
        return answer


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """What we use of a ``requests`` response."""

    exchange: Exchange

    @property
    def status_code(self) -> int:
        return self.exchange.status

    @property
    def headers(self) -> dict[str, str]:
        return self.exchange.headers

    @property
    def content(self) -> bytes:
        return self.exchange.text.encode()

    @property
    def text(self) -> str:
        return self.exchange.text

    def json(self) -> Any:
        """As ``requests`` does; ValueError where it is no JSON."""
        return json.loads(self.exchange.text)


class RecordedSender:
    """Gives the recorded answers again: to the same question in the same order, the last one again and again."""

    def __init__(self, exchanges: Iterable[Exchange]) -> None:
        self._left: dict[tuple[str, str, str], list[Exchange]] = {}
        for one in exchanges:
            self._left.setdefault(one.key, []).append(one)

    def request(self, url: str, method: str, **kwargs: Any) -> RecordedAnswer:
        """
        As ``Sender``.

        Raises:
            Unrecorded: it was not asked then. Whatever the request raised then.
        """
        left = self._left.get((method, url, _version(kwargs)))
        if not left:
            raise Unrecorded(f"{method} {url} is not in the case: this version asks what the one that saved it did not")
        found = left.pop(0) if len(left) > 1 else left[0]
        if found.failure:
            raise _failure(found)
        return RecordedAnswer(found)


def encode_exchanges(exchanges: Iterable[Exchange]) -> str:
    """One line of JSON for each."""
    return "".join(json.dumps(asdict(one)) + "\n" for one in exchanges)


def decode_exchanges(text: str) -> tuple[Exchange, ...]:
    """
    What ``encode_exchanges`` made a text of.

    Raises:
        ValueError, TypeError: it is no such text.
    """
    return tuple(Exchange(**json.loads(line)) for line in text.splitlines())


def _failure(found: Exchange) -> Exception:
    """The exception of then with its text; not by its own constructor, which would add to the text once more."""
    named = getattr(exceptions, found.failure, None) or getattr(builtins, found.failure, None)
    kind = named if isinstance(named, type) and issubclass(named, _FAILURES) else exceptions.ClientException
    error: Exception = kind.__new__(kind, found.cause)
    return error


def _version(kwargs: dict[str, Any]) -> str:
    return str(kwargs.get("microversion", ""))
