"""Work begins again after another writer was first, and only then."""

from types import SimpleNamespace
from typing import Any

import pytest

from agent.sync import convert
from agent.sync.outcome import Outcome, Status
from agent.sync.run import again
from reportclient.errors import Conflict, PlacementError, Unavailable


@pytest.mark.parametrize(("conflicts", "patience_s", "made"), [(0, 0, 1), (4, 0, 5), (7, 600, 8), (5, 0, None)])
def test_work_begins_again_until_no_other_writer_is_first(conflicts: int, patience_s: float, made: int | None) -> None:
    tried: list[int] = []

    def act() -> int:
        tried.append(0)
        if len(tried) <= conflicts:
            raise Conflict(f"of attempt {len(tried)}")
        return len(tried)

    if made is None:
        with pytest.raises(Conflict, match=r"of attempt 5; 5 attempts in a row in .* s: find out who writes on host"):
            again(act, "host", patience_s)
    else:
        assert again(act, "host", patience_s) == made


@pytest.mark.parametrize(
    ("error", "longest_s"), [(Conflict("another"), 0.1), (Unavailable("no answer"), 10.0)], ids=lambda one: str(one)
)
def test_a_conversion_gives_way_to_a_placement_that_does_not_answer_and_not_to_who_claims(
    error: PlacementError, longest_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    monkeypatch.setattr("random.uniform", lambda _, most: most)
    node: Any = SimpleNamespace(name="host", settings=SimpleNamespace(changes=SimpleNamespace(reshape_timeout_s=600)))

    def act() -> Outcome:
        if len(waits) < 9:
            raise error
        return Outcome(node="host", status=Status.CHANGED)

    convert._patiently(node, act)

    assert max(waits) == longest_s
