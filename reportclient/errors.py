"""Errors of placement, named by what the caller must do, and texts of others as they may be printed."""

import re
from collections.abc import Iterable

USERINFO = re.compile(r"(?<=://)(?:[^\s\"'<>?#]*@(?:[^\s\"'<>/]*@)?|[^\s\"'<>/]*@)")
"""User and password in a URL, also with an unescaped /, @ or ? in the password; never the query of the URL."""
MOST_URLS = 16
_WORDS = re.compile(r"([\s\"'<>]+)")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, and those that change the direction of text (Unicode's Bidi_Control) or begin a line."""


def printable(text: str) -> str:
    """
    Return a text in which no character can move a cursor, hide what stands there, or begin a line.

    Names and messages of other services come to terminals and logs.
    """
    return _UNPRINTABLE.sub(lambda one: ascii(one[0])[1:-1], text)


def mask(text: str) -> str:
    """
    Return the text without users and passwords of URLs, for messages, logs and files.

    A word with more than ``MOST_URLS`` beginnings of URLs is no URL, and is masked whole: to look for a login behind
    each of them takes a time that grows with the square of their number.
    """
    words = _WORDS.split(text)
    return "".join("***" if word.count("://") > MOST_URLS else USERINFO.sub("***@", word) for word in words)


def shorten(text: str, head: int = 90, tail: int = 70) -> str:
    """Return the text on one line; of a long text the beginning, and the end, where libraries name the cause."""
    line = " ".join(text.split())
    return line if len(line) <= head + tail else f"{line[:head]} ... {line[-tail:]}"


def few(names: Iterable[str], most: int = 4) -> str:
    """Return the first names of a list, and how many more there are, for a sentence."""
    every = list(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return f"{', '.join(every[:most])}{more}"


class PlacementError(Exception):
    """Base of all errors of placement; the message is one line: what happened, where, and what to do next."""


class Unavailable(PlacementError):
    """No answer, 5xx, or an answer that is not placement's: no change is known; try again in the next pass."""

    def __init__(self, message: str, *, retry_after_s: float = 0.0, late: bool = False) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s  # how long the server asks to wait; 0: it does not ask
        self.late = late  # no answer came in time: the server may be overloaded, and still at work for this request


class Conflict(PlacementError):
    """Another writer came first, for instance 409 ``placement.concurrent_update``: observe again, plan again."""


class LeftBehind(Conflict):
    """409 for a new consumer that a refused claim left in placement, invisible and with generation 0."""


class Rejected(PlacementError):
    """Understood and refused: never send the same request again."""


class Absent(Rejected):
    """404: placement does not have what the request names, or no longer."""


class Forbidden(Rejected):
    """403: the user lacks a role that this request needs."""


class NoRoom(Rejected):
    """409 for allocations: a provider has less left than requested, or does not give such amounts."""


class NameTaken(Rejected):
    """409 ``placement.duplicate_name``: a provider with this name or uuid exists already."""


class TreeMismatch(Rejected):
    """The tree in placement contradicts this host's name or uuid, or has providers of another writer in the way."""


class UnsafePlan(PlacementError):
    """The plan would take away more than it may; nothing was sent."""


class Unplaceable(UnsafePlan):
    """What a consumer holds has no place in the desired tree, or no certain one; nothing was sent."""


class Unlawful(UnsafePlan):
    """The plan does what no plan may do: a fault of this agent; nothing was sent."""

    def __init__(self, message: str, laws: tuple[str, ...]) -> None:
        super().__init__(message)
        self.laws = laws  # the law of each breach
