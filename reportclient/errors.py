"""
What can go wrong with placement, named by what the caller must do.

PlacementError
    Unavailable     no answer, or one that is no answer: nothing known to have changed; next pass
    Conflict        somebody else wrote first: observe again, plan again
        LeftBehind  a consumer that is to be new holds nothing and is there: write it with generation 0
    Rejected        understood and refused: never retry as it is
        Absent      no such thing in placement
        Forbidden   refused for want of a role
        NoRoom      a provider has less left than is asked for: elsewhere, or later
        NameTaken   a provider of that name or uuid exists
        TreeMismatch  the tree that placement holds is not this host's to write
    UnsafePlan      the plan would take away more than it may: nothing was sent
        Unplaceable   what a guest holds has no place in the new tree: nothing was sent
"""

import re

KEYSTONE_AWAY = "Keystone gives no token: does it run, and is auth_url right?"
LEAKED = (KeyError, IndexError, TypeError, AttributeError, RecursionError)
"""By keystoneauth, of answers that are none of Keystone's."""
USERINFO = re.compile(r"(?<=://)(?:[^\s\"'<>?#]*@(?:[^\s\"'<>/]*@)?|[^\s\"'<>/]*@)")
"""Of a URL: user and password, which may have a /, an @ or a ? in it that nobody escaped; never its query."""


def mask(text: str) -> str:
    """The same without passwords of URLs, as messages, logs and files may show it."""
    return USERINFO.sub("***@", text)


def asked_keystone(error: Exception) -> bool:
    """Whether it was a token that could not be asked for: nothing but the address in keystoneauth's message tells."""
    return "/auth/tokens" in str(error)


def shorten(text: str, head: int = 90, tail: int = 70) -> str:
    """On one line, and of a long one the beginning and the end, where libraries tell the cause."""
    line = " ".join(text.split())
    return line if len(line) <= head + tail else f"{line[:head]} ... {line[-tail:]}"


class PlacementError(Exception):
    """Base of all; the message is one line that says what, where and what to do next."""


class Unavailable(PlacementError):
    """No answer, 5xx, or an answer that is not placement's: nothing known to have changed; next pass."""

    def __init__(self, message: str, *, retry_after_s: float = 0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s  # for which the other side asks to be left alone


class Conflict(PlacementError):
    """409 ``placement.concurrent_update``: observe again, plan again."""


class LeftBehind(Conflict):
    """409 for a new consumer that placement keeps unseen, with generation 0, since it refused an earlier claim."""


class Rejected(PlacementError):
    """Understood and refused: never retry as it is."""


class Absent(Rejected):
    """404: what the request names is not there (any more)."""


class Forbidden(Rejected):
    """403: the user lacks a role that this request needs."""


class NoRoom(Rejected):
    """409 without a code: a provider has less left than is asked for, or not in such amounts."""


class NameTaken(Rejected):
    """409 ``placement.duplicate_name``: a provider with this name or uuid is there already."""


class TreeMismatch(Rejected):
    """The root that placement holds contradicts this host's name or uuid, or another writer keeps changing it."""


class UnsafePlan(PlacementError):
    """The plan would take away more than it may; nothing was sent."""


class Unplaceable(UnsafePlan):
    """What a consumer holds has no place in the tree that is wanted, or nobody can tell which; nothing was sent."""
