"""
Begin again at once after another writer was first: look, plan and write again.

Two other loops repeat something else: ``convert.py`` a whole conversion, with waits, also when placement does not
answer; ``agent/allocations/operations.py`` one request about a guest.
"""

import random
import time
from dataclasses import dataclass, field

_PAUSE_S = 0.1  # at most, between attempts beyond the first few


@dataclass(slots=True)
class Attempts:
    """How often something was tried: ``most`` times in all, or for ``patience_s``."""

    most: int
    patience_s: float = 0.0
    lost: int = 0  # attempts at which another writer was first
    began_s: float = field(default_factory=time.monotonic)

    def lose(self) -> None:
        """Count the Conflict that is handled now, and raise it again if it was that of the last attempt."""
        self.lost += 1
        if self.lost < self.most:
            return
        if time.monotonic() - self.began_s >= self.patience_s:
            raise
        time.sleep(random.uniform(0, _PAUSE_S))
