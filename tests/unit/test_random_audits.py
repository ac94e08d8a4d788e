"""Audits of random hosts say what they said before, to the last number and word: what differs is on purpose."""

from pathlib import Path

import pytest

from beds.audits import line_of
from beds.golden import differences

LIVES = Path(__file__).parents[1] / "lives"
EACH = 200  # hosts of a file


@pytest.mark.parametrize("first", range(0, 1600, EACH))
def test_an_audit_says_of_a_host_what_it_said_before(first: int, request: pytest.FixtureRequest) -> None:
    """A line that differs is shown whole by ``python -m beds.audits NUMBER``, here and at the commit before."""
    found = "".join(f"{line_of(number)}\n" for number in range(first, first + EACH))

    assert not differences(found, LIVES / f"audits-{first:04}", update=request.config.getoption("--update-golden"))
