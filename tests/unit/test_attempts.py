"""Work begins again after another writer was first, and only then."""

from contextlib import suppress

import pytest

from agent.sync.attempts import Attempts
from reportclient.errors import Conflict


def lost(attempts: Attempts, most: int) -> int:
    """How many conflicts in a row are suffered, at most this many."""
    for number in range(most):
        try:
            raise Conflict(f"of attempt {number}")
        except Conflict:
            with suppress(Conflict):
                attempts.lose()
                continue
            return number + 1
    return most


@pytest.mark.parametrize(("attempts", "ends"), [((1,), 1), ((5,), 5), ((2, 600.0), 20)])
def test_the_last_conflict_is_raised_again(attempts: tuple[int, float], ends: int) -> None:
    tries = Attempts(*attempts)

    assert (lost(tries, 20), tries.lost) == (ends, ends)
