"""What a person reads of what a verb found."""

from io import StringIO

import pytest
from rich.console import Console

from agent.printers import print_left

OPERATION = {"operation": "delete", "provider": "host", "uuid": "u"}


def left(outcome: str, *notes: str) -> str:
    out = StringIO()
    data = {"node": "host", "outcome": outcome, "notes": notes, "operations": [OPERATION], "moves": [], "digest": "d"}
    print_left(Console(file=out, width=200), data)
    return out.getvalue()


def test_a_retirement_that_is_refused_shows_no_plan() -> None:
    text = left("unsafe", "2 VCPU on host are held")

    assert text.splitlines() == ["host: refused: nothing was written", "  2 VCPU on host are held"]


@pytest.mark.parametrize("outcome", ["unchanged", "changed"])
def test_a_retirement_that_is_done_or_would_be_shows_its_plan_first(outcome: str) -> None:
    first, *rest = left(outcome).splitlines()

    assert "host: " not in first
    assert rest[-1].startswith("host: ")
