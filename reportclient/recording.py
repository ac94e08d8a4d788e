"""Record requests with their answers, and replay the answers later without a network."""

import builtins
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from keystoneauth1 import exceptions

from reportclient.errors import Rejected, mask
from reportclient.json_text import decode_as, decode_json
from reportclient.keystone import FAILURES, Sender

_KEPT = ("Age", "Content-Type", "Date", "Last-Modified", "Retry-After", "x-openstack-request-id")
"""Headers of an answer that the agent reads; no others are recorded."""


class Unrecorded(Rejected):
    """The request was not sent when the answers were recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """
    One request with its answer or its failure, in the form of a ``requests`` response as far as we use it.

    It contains no secrets: tokens are in headers that are not recorded, and the text of a failure is masked.
    """

    method: str
    path: str
    microversion: str
    body: object = None  # of the request, as decoded JSON; None: no body
    status: int = 0  # 0: no answer
    headers: dict[str, str] = field(default_factory=dict)
    text: str = ""  # body of the answer
    failure: str = ""  # class of the exception when there was no answer; empty: there was one
    cause: str = ""  # text of that exception

    @property
    def status_code(self) -> int:
        return self.status

    @property
    def content(self) -> bytes:
        return self.text.encode()

    def json(self) -> Any:
        """Return the decoded body of the answer; ValueError when it is no JSON, as from ``requests``."""
        return decode_json(self.text)


class RecordingSender:
    """
    Sends through another sender, and adds each exchange to ``exchanges``, which the caller empties.

    ``reduced`` returns the part of an answer's body that is kept.
    """

    def __init__(self, sender: Sender, exchanges: list[Exchange], reduced: Callable[[str], str] = str) -> None:
        self._sender = sender
        self._exchanges = exchanges
        self._reduced = reduced

    def request(self, url: str, method: str, **kwargs: Any) -> Any:
        """Send as ``Sender`` does; errors are those of the other sender."""
        asked = Exchange(method=method, path=url, microversion=_version(kwargs), body=kwargs.get("json"))
        try:
            answer = self._sender.request(url, method, **kwargs)
        except FAILURES as error:
            self._exchanges.append(replace(asked, failure=type(error).__name__, cause=mask(str(error))))
            raise
        headers = {name: str(answer.headers[name]) for name in _KEPT if name in answer.headers}
        text = answer.content.decode(errors="replace")  # JSON is UTF-8; requests would guess it, which is slow
        self._exchanges.append(replace(asked, status=answer.status_code, headers=headers, text=self._reduced(text)))
        return answer


class RecordedSender:
    """Answers equal requests with their recorded answers, in the recorded order; the last one is repeated."""

    def __init__(self, exchanges: Iterable[Exchange]) -> None:
        self._left: dict[tuple[str, str, str], list[Exchange]] = {}
        for one in exchanges:
            self._left.setdefault((one.method, one.path, one.microversion), []).append(one)

    def request(self, url: str, method: str, **kwargs: Any) -> Exchange:
        """
        Answer as ``Sender`` does.

        Raises:
            Unrecorded: this request was not recorded. Also the exception that was recorded for it.
        """
        left = self._left.get((method, url, _version(kwargs)))
        if not left:
            raise Unrecorded(
                f"{method} {url} is not in the case: the version that saved it did not send this request; replay the "
                f"case with that version"
            )
        found = left.pop(0) if len(left) > 1 else left[0]
        if found.failure:
            raise _failure(found)
        return found


def encode_exchanges(exchanges: Iterable[Exchange]) -> str:
    """Return one line of JSON for each exchange."""
    return "".join(json.dumps(asdict(one)) + "\n" for one in exchanges)


def decode_exchanges(text: str) -> tuple[Exchange, ...]:
    """
    Return the exchanges that ``encode_exchanges`` encoded.

    Raises:
        ValueError, RecursionError: the text is in another form.
    """
    return tuple(decode_as(Exchange, decode_json(line)) for line in text.split("\n") if line)


def _failure(found: Exchange) -> Exception:
    """Return the recorded exception with its text, without its own constructor, which would extend the text again."""
    named = getattr(exceptions, found.failure, None) or getattr(builtins, found.failure, None)
    kind = named if isinstance(named, type) and issubclass(named, FAILURES) else exceptions.ClientException
    error: Exception = kind.__new__(kind, found.cause)
    return error


def _version(kwargs: Mapping[str, object]) -> str:
    return str(kwargs.get("microversion", ""))
