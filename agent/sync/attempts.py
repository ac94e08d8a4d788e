"""
Repeat work at once after another writer was first: look, plan and write again.

Two other loops repeat something else: ``convert.py`` a whole conversion, with waits, also when placement does not
answer; ``agent/allocations/operations.py`` one request about a guest.
"""

import random
import time
from collections.abc import Callable
from typing import TypeVar

from reportclient.errors import Conflict

T = TypeVar("T")
_PAUSE_S = 0.1  # at most, between attempts beyond the first few


def repeat_on_conflict(
    attempts: int,
    work: Callable[[], T],
    on_conflict: Callable[[Conflict, int], None] | None = None,
    *,
    patience_s: float = 0.0,
) -> T:
    """
    Return the result of ``work``, called again after a Conflict: ``attempts`` times in all, or for ``patience_s``.

    ``on_conflict`` is called after each conflict, also the last one, with the number of the attempt (from 1).

    Raises:
        Conflict: the last attempt ended with it too. As ``work`` and ``on_conflict``.
    """
    attempt, end_s = 0, time.monotonic() + patience_s
    while True:
        attempt += 1
        try:
            return work()
        except Conflict as error:
            if on_conflict:
                on_conflict(error, attempt)
            if attempt >= attempts and time.monotonic() >= end_s:
                raise
            if attempt >= attempts:
                time.sleep(random.uniform(0, _PAUSE_S))
