"""Devices of random hosts are offered as they were before, to the last word: what differs is on purpose."""

import hashlib
from pathlib import Path

import pytest

from beds.golden import differences
from random_hosts import World

GOLDEN = Path(__file__).parents[1] / "random" / "devices"
EACH = 20  # worlds of a line


def test_devices_are_offered_as_before(request: pytest.FixtureRequest) -> None:
    """Where a number's eight digits differ, compare ``World(number).told()`` with that of the commit before."""
    told = ("\n".join(World(number).told()) for number in range(1000))
    found = [hashlib.sha256(one.encode()).hexdigest()[:8] for one in told]

    lines = "".join(f"{at} {' '.join(found[at : at + EACH])}\n" for at in range(0, len(found), EACH))
    assert not differences(lines, GOLDEN, update=request.config.getoption("--update-golden"))
