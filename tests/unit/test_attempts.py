"""Work is repeated after another writer was first, and only then."""

import pytest

from agent.sync.attempts import repeat_on_conflict
from reportclient.errors import Conflict, LeftBehind, Rejected


class Work:
    """Work that ends as the test says, attempt by attempt."""

    def __init__(self, *endings: Exception | str) -> None:
        self.endings = list(endings)

    def __call__(self) -> str:
        ending = self.endings.pop(0)
        if isinstance(ending, Exception):
            raise ending
        return ending


def test_work_is_repeated_after_conflicts_until_it_is_done() -> None:
    seen: list[tuple[str, int]] = []
    work = Work(Conflict("first"), LeftBehind("second"), "done", "never")

    done = repeat_on_conflict(5, work, lambda error, attempt: seen.append((str(error), attempt)))

    assert (done, work.endings) == ("done", ["never"])
    assert seen == [("first", 1), ("second", 2)]


def test_the_last_conflict_is_raised_and_reported_too() -> None:
    seen: list[int] = []
    work = Work(Conflict("first"), Conflict("second"), "never")

    with pytest.raises(Conflict, match="second"):
        repeat_on_conflict(2, work, lambda _error, attempt: seen.append(attempt))

    assert (seen, work.endings) == ([1, 2], ["never"])


def test_work_is_repeated_more_often_while_there_is_patience() -> None:
    work = Work(*(Conflict(str(number)) for number in range(20)), "done")

    assert repeat_on_conflict(2, work, patience_s=600) == "done"


def test_another_error_ends_the_work_at_once() -> None:
    work = Work(Conflict("first"), Rejected("refused"), "never")

    with pytest.raises(Rejected, match="refused"):
        repeat_on_conflict(5, work)

    assert work.endings == ["never"]


def test_an_error_between_two_attempts_ends_the_work() -> None:
    def reject(_error: Conflict, _attempt: int) -> None:
        raise Rejected("refused")

    work = Work(Conflict("first"), "never")

    with pytest.raises(Rejected, match="refused"):
        repeat_on_conflict(5, work, reject)

    assert work.endings == ["never"]
