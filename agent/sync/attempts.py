"""
Repeat work at once after another writer was first: look, plan and write again.

Two other loops repeat something else: ``convert.py`` a whole conversion, with waits, also when placement does not
answer; ``agent/allocations/operations.py`` one request about a guest.
"""

from collections.abc import Callable
from typing import TypeVar

from reportclient.errors import Conflict

T = TypeVar("T")


def _pass_over(_error: Conflict, _attempt: int) -> None:
    """Default callback: nothing to do between two attempts."""


def repeat_on_conflict(
    attempts: int, work: Callable[[], T], on_conflict: Callable[[Conflict, int], None] = _pass_over
) -> T:
    """
    Return the result of ``work``, which is called again after a Conflict, ``attempts`` times in all.

    ``on_conflict`` is called after each conflict, also the last one, with the number of the attempt (from 1).

    Raises:
        Conflict: the last attempt ended with it too. As ``work`` and ``on_conflict``.
    """
    attempt = 0
    while True:
        attempt += 1
        try:
            return work()
        except Conflict as error:
            on_conflict(error, attempt)
            if attempt >= attempts:
                raise
