"""Conversions of a journal: attempts that were cut off and gone on with are one."""

from pathlib import Path
from typing import Any

from agent.sync.journal import DONE, Entry, conversions


def entry(number: int, outcome: str = DONE, target: str = "numa", agreed: str | None = None) -> Entry:
    body: dict[str, Any] = {"before": {"providers": {f"before-{number}": {}}}, "agreed": agreed}
    return Entry(
        path=Path(f"{number}.json"),
        node="host",
        where="placement",
        began=f"time {number}",
        outcome=outcome,
        digest=agreed or f"digest-{number}",
        layout=f"layout-{number}",
        target=target,
        consumers=1,
        body=body,
        whole=True,
    )


def test_conversions_that_were_done_stand_each_for_themselves() -> None:
    several = (entry(1), entry(2, target="devices"), entry(3))

    assert conversions(several) == several


def test_attempts_are_one_conversion_that_begins_as_the_first_and_ends_as_the_last() -> None:
    (one,) = conversions([entry(1, "begun"), entry(2, "it is not known"), entry(3)])

    assert (one.began, one.layout, one.digest, one.outcome) == ("time 1", "layout-1", "digest-1", DONE)
    assert one.body["before"] == {"providers": {"before-1": {}}}


def test_the_digest_is_the_one_that_a_person_agreed_to_at_last() -> None:
    (one,) = conversions([entry(1, "begun", agreed="first"), entry(2, agreed="second")])

    assert one.digest == "second"


def test_an_attempt_at_another_layout_is_another_conversion() -> None:
    assert len(conversions([entry(1, "begun"), entry(2, target="cells")])) == 2
