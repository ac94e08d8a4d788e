"""
Send requests to placement, and turn refusals into our errors by status and ``errors[0].code``.

Retries of a request belong to keystoneauth (``[placement] connect_retries``, ``status_code_retries``).
"""

import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NoReturn

from keystoneauth1 import exceptions
from requests import Response

from reportclient.errors import (
    Absent,
    Conflict,
    Forbidden,
    LeftBehind,
    NameTaken,
    NoRoom,
    Rejected,
    Unavailable,
)
from reportclient.keystone import FAILURES, Sender, explain

RACED = ("placement.concurrent_update", "placement.inventory.inuse", "placement.resource_provider.inuse")
"""Error codes of a 409 that another writer causes, for instance when it uses what was free at the time of the plan."""
_OF_ANY_400 = "The server could not comply with the request since it is either malformed or otherwise incorrect. "
LEFT_BEHIND = "expected 0 but got None"  # in the detail of a 409, about a consumer's generation
NO_ROOM = "placement.undefined_code"  # code of a 409 for allocations that do not fit
LATE = (408, 504)  # a proxy's answers for a server that did not answer in time
_DIGITS = 18  # so many digits of a number in a header are read
Body = Mapping[str, object] | Callable[[tuple[int, int]], Mapping[str, object]] | None  # or by microversion
LONGEST_WAIT_S = 3600.0  # upper limit of a Retry-After
OLDEST, NEWEST = (1, 30), (1, 39)  # 1.30 brought the reshaper
AGAIN_S = 3600.0  # after a 406, until our newest microversion is tried again


class Transport:
    """
    Sends requests at a microversion that both sides support. Several threads may use one transport.

    That is our newest one, until a server refuses it; and again an hour later, as that server may have been the last
    old one of several. ``sender`` is a keystoneauth adapter; ``where`` names the server in messages. ``now`` returns
    seconds since the epoch.
    """

    def __init__(self, sender: Sender, *, where: str, now: Callable[[], float] = time.time) -> None:
        self._sender = sender
        self.writes = 0  # requests of ``send`` that placement carried out
        self._counting = threading.Lock()
        self._last = threading.local()  # of this thread's last request
        self.now = now
        self._where = where
        self.microversion = NEWEST  # of the next request
        self._lowered_s = 0.0  # when a server refused our newest; 0: none did
        self.skew_s: float | None = None  # the server's clock minus ours, by the last answer; None when it had no date

    @property
    def request_id(self) -> str:
        """Id in the server's log of this thread's last request; empty when its answer had none."""
        return getattr(self._last, "request_id", "")

    def get(self, path: str) -> tuple[dict[str, Any], str]:
        """
        Return the body of a GET, and its Last-Modified ("" when there is none).

        Raises:
            Unavailable: no answer, or the copy of a cache.
            Rejected: the request was refused.
        """
        answer = self._exchange("GET", path)
        if _age_s(answer):
            answer = self._exchange("GET", path, {"Cache-Control": "no-cache, max-age=0", "Pragma": "no-cache"})
        if age := _age_s(answer):
            raise Unavailable(
                f"a cache between this host and {self._where} answered GET {path} with a copy {age} s old, although "
                f"the request forbids that: configure that cache to forward requests with Cache-Control: no-cache"
            )
        return self._body(answer, "GET", path), answer.headers.get("Last-Modified", "")

    def send(
        self, method: str, path: str, body: Body = None, *, newest: tuple[int, int] = NEWEST, once: bool = False
    ) -> Any:
        """
        Send a write and return the answer's body, None when there is none.

        ``newest`` is the last microversion with this form of the body. With ``once`` the request is not sent again when
        its answer is lost: the caller has to read whether it took effect.

        Raises:
            Unavailable: no answer; the request may have taken effect.
            Conflict, Rejected: the request was refused.
        """
        answer = self._exchange(method, path, body=body, newest=newest, once=once)
        with self._counting:
            self.writes += 1
        return None if answer.status_code in (201, 204) and not answer.content else self._body(answer, method, path)

    def _exchange(
        self,
        method: str,
        path: str,
        headers: dict[str, str] | None = None,
        body: Body = None,
        newest: tuple[int, int] = NEWEST,
        once: bool = False,
    ) -> Response:
        if self._lowered_s and self.now() - self._lowered_s >= AGAIN_S:
            self.microversion, self._lowered_s = NEWEST, 0.0
        more: dict[str, Any] = {"connect_retries": 0, "status_code_retries": 0} if once else {}
        for is_last in (False, True):
            spoken = min(self.microversion, newest)
            if body is not None:
                more["json"] = body(spoken) if callable(body) else body
            asked = {"Cache-Control": "no-cache"} | (headers or {})
            try:
                version = ".".join(map(str, spoken))
                answer: Response = self._sender.request(path, method, microversion=version, headers=asked, **more)
            except FAILURES as error:
                _explain(error, self._where, self.now())
            self.skew_s = _skew_s(answer.headers.get("Date", ""), self.now())
            self._last.request_id = answer.headers.get("x-openstack-request-id", "")
            if answer.status_code != 406 or is_last:
                break
            self.microversion, self._lowered_s = _agree(_first_error(answer), self._where), self.now()
        if answer.status_code >= 400:
            _refuse(answer, method, path, self._where, self.now())
        return answer

    def _body(self, answer: Response, method: str, path: str) -> dict[str, Any]:
        try:
            body = answer.json()
            if isinstance(body, dict):
                return body
            cause: Exception | None = None
        except (ValueError, RecursionError) as error:
            cause = error
        raise Unavailable(
            f"{self._where} answered {method} {path} with {_kind(answer)}, but placement answers with "
            f"JSON: does the endpoint lead to placement itself, not to a web page or proxy?"
        ) from cause


def _agree(error: dict[str, Any], where: str) -> tuple[int, int]:
    """Return the newest microversion that both sides support, from the range in a 406."""
    try:
        low, high = (tuple(map(int, error[key].split(".")))[:2] for key in ("min_version", "max_version"))
        if len(low) != 2 or len(high) != 2:
            raise ValueError("no version")
    except (KeyError, ValueError, AttributeError) as cause:
        raise Unavailable(f"{where} answered 406 without its range of microversions: is it placement?") from cause
    if high < OLDEST or low > NEWEST:
        raise Rejected(
            f"{where} supports microversions {error['min_version']} to {error['max_version']}, but this agent needs "
            f"1.30 to 1.39: upgrade placement to Stein or later, or this agent"
        )
    return min((high[0], high[1]), NEWEST)


def _first_error(answer: Response) -> dict[str, Any]:
    try:
        first = answer.json()["errors"][0]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return {}
    return first if isinstance(first, dict) else {}


def _refuse(answer: Response, method: str, path: str, where: str, now_s: float) -> NoReturn:
    """Raise the error that an answer with status 400 or above means."""
    error = _first_error(answer)
    code, status = error.get("code", ""), answer.status_code
    detail = " ".join(str(error.get("detail", "")).split()).removeprefix(_OF_ANY_400)[:300] or _kind(answer)
    request = answer.headers.get("x-openstack-request-id", "")
    asked = f"{where} answered {method} {path} with {status}{f' ({request})' if request else ''}"
    if status == 401:
        raise Rejected(f"{asked}: the token was not accepted: check the user and its roles in [placement]")
    if status == 403:
        raise Forbidden(f"{asked}: the user lacks a role for this: give it the role service on its project")
    if status == 404 and error:
        raise Absent(f"{asked}: {detail}: does the endpoint lead to placement?")
    if status == 409 and code == RACED[0] and LEFT_BEHIND in detail:
        raise LeftBehind(
            f"{asked}: an earlier claim was refused, but placement kept its consumer without allocations: claim again"
        )
    if status == 409 and code in RACED:
        raise Conflict(f"{asked}: another writer came first{f', {detail}' if code != RACED[0] else ''}")
    if status == 409 and code == "placement.duplicate_name":
        raise NameTaken(f"{asked}: {detail}")
    if status == 409 and code == NO_ROOM and "/allocations" in path:
        raise NoRoom(f"{asked}: {detail}")
    if status in (408, 425, 429) or status >= 500 or not error:
        advice = "is [placement] endpoint the address of placement?" if status == 404 else "see placement's log"
        unsure = "" if method == "GET" else "; it is not known whether anything changed"
        raise Unavailable(
            f"{asked}: {detail}: {advice}{unsure}",
            retry_after_s=_retry_after_s(answer.headers.get("Retry-After", ""), now_s),
            late=status in LATE,
        )
    raise Rejected(f"{asked}: {detail}")


def _kind(answer: Response) -> str:
    kind: str = answer.headers.get("Content-Type", "").partition(";")[0]
    return {"text/html": "a web page", "": "nothing readable"}.get(kind, kind)


def _age_s(answer: Response) -> int:
    """Return the age in seconds of a cache's copy (RFC 9111 Age); 0 for an answer of the server itself."""
    age = str(answer.headers.get("Age", "")).strip()
    return int(age[:_DIGITS]) if age.isdecimal() else 0


def parse_date(text: str) -> datetime | None:
    """Return an RFC 9110 date, in UTC if it names no zone; None when there is no valid date."""
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)


def _skew_s(text: str, now_s: float) -> float | None:
    date = parse_date(text)
    return date.timestamp() - now_s if date else None


def _retry_after_s(text: str, now_s: float) -> float:
    """Return the seconds that the server asks us to wait (RFC 9110: a number, or a date); 0: none, or not readable."""
    if text.strip().isdecimal():
        return min(float(text.strip()[:_DIGITS]), LONGEST_WAIT_S)
    return min(max(0.0, _skew_s(text, now_s) or 0.0), LONGEST_WAIT_S)


def _explain(error: Exception, where: str, now_s: float) -> NoReturn:
    """Raise our error, with advice, for what keystoneauth raised before any answer came."""
    text, may_pass = explain(error, where, "placement")
    if not may_pass:
        raise Rejected(text) from error
    raise Unavailable(
        text,
        retry_after_s=_retry_after_s(str(getattr(error, "retry_after", "")), now_s),
        late=isinstance(error, (exceptions.ConnectTimeout, exceptions.GatewayTimeout)),
    ) from error
