"""
Begin again at once after another writer was first: look, plan and write again.

Two other loops repeat something else: ``convert.py`` a whole conversion, with waits, also when placement does not
answer; ``agent/allocations/operations.py`` one request about a guest.
"""

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from reportclient.errors import Conflict

LOG = logging.getLogger(__name__)
T = TypeVar("T")
ATTEMPTS = 5  # at most, when another writer is first each time
_PAUSE_S = 0.1  # at most, between attempts beyond these


def again(act: Callable[[], T], name: str, patience_s: float = 0.0) -> T:
    """
    Return what ``act`` returns at the first attempt at which no other writer was first on the tree of ``name``.

    Raises:
        Conflict: others were first at ``ATTEMPTS`` attempts in a row, and ``patience_s`` is over.
    """
    began_s, lost = time.monotonic(), 0
    while True:
        try:
            return act()
        except Conflict as error:
            lost, past_s = lost + 1, time.monotonic() - began_s
            if lost >= ATTEMPTS and past_s >= patience_s:
                within = f"{lost} attempts in a row in {past_s:.1f} s"
                raise Conflict(f"{error}; {within}: find out who writes on {name}") from error
        LOG.info("another writer was first, planning again node=%s attempt=%d", name, lost)
        if lost >= ATTEMPTS:
            time.sleep(random.uniform(0, _PAUSE_S))
