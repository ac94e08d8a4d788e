"""Conversions of a journal: attempts that were cut off and gone on with are one."""

from dataclasses import replace
from typing import Any

from agent.sync.decide.undoing import DONE, Conversion
from agent.sync.journal import kept_conversions


def entry(number: int, outcome: str = DONE, target: str = "numa", agreed: str | None = None, **more: Any) -> Conversion:
    told: dict[str, Any] = {
        "path": f"{number}.json",
        "node": "host",
        "began": f"time {number}",
        "outcome": outcome,
        "digest": agreed or f"digest-{number}",
        "agreed": agreed,
        "layout": f"layout-{number}",
        "target": target,
        "before": {"providers": {f"before-{number}": {}}},
        "after": {},
        "moves": (),
    }
    return Conversion(**(told | more))


def test_conversions_that_were_done_stand_each_for_themselves() -> None:
    several = (entry(1), entry(2, target="devices"), entry(3))

    assert kept_conversions(several) == several


def test_attempts_are_one_conversion_that_begins_as_the_first_and_ends_as_the_last() -> None:
    (one,) = kept_conversions([entry(1, "begun"), entry(2, "it is not known"), entry(3)])

    assert (one.began, one.layout, one.digest, one.outcome) == ("time 1", "layout-1", "digest-1", DONE)
    assert one.before == {"providers": {"before-1": {}}}


def test_the_digest_is_the_one_that_a_person_agreed_to_at_last() -> None:
    (one,) = kept_conversions([entry(1, "begun", agreed="first"), entry(2, agreed="second")])

    assert one.digest == "second"


def test_an_attempt_at_another_layout_is_another_conversion() -> None:
    assert len(kept_conversions([entry(1, "begun"), entry(2, target="cells")])) == 2


def test_an_attempt_whose_trial_ended_is_not_gone_on_with() -> None:
    several = (entry(1, "begun", confirm_by_s=1.0, trial_ended="taken back"), entry(2))

    assert kept_conversions(several) == several


def stands(*empty: str, **stock: int) -> dict[str, Any]:
    """A tree with these totals, and with empty providers."""
    found: dict[str, Any] = {name: {"inventories": {"VCPU": {"total": one}}} for name, one in stock.items()}
    return {"providers": found | {name: {"inventories": {}} for name in empty}}


def test_an_attempt_that_did_nothing_before_others_changed_the_stock_does_not_count() -> None:
    """It was refused last month: what it saw is not what was there before the conversion of today."""
    first = replace(entry(1, "refused", before=stands(host=8)), layout="devices")
    then = replace(entry(2, before=stands("cell", host=16)), layout="devices")

    (one,) = kept_conversions([first, then])

    assert (one.began, one.digest) == ("time 2", "digest-2")
    assert one.before == stands(host=16)


def test_an_attempt_that_only_made_empty_providers_is_gone_on_with() -> None:
    first = replace(entry(1, "begun", before=stands(host=8)), layout="devices")
    then = replace(entry(2, before=stands("cell", host=8)), layout="devices")

    (one,) = kept_conversions([first, then])

    assert one.before == stands(host=8)


def test_a_conversion_that_is_being_taken_back_is_the_last_one() -> None:
    """The way back was cut off, or placement refused it: it is gone on with, and no other way back is made of it."""
    there = entry(1, undoes=None)
    back = replace(entry(2, "it is not known", target="devices", undoes="1"), layout="numa")

    (one,) = kept_conversions([there, back])

    assert (one.name, one.digest, one.target) == ("1", "digest-1", "numa")
    assert one.outcome == "it is being taken back: it is not known"
    assert len(kept_conversions([there, replace(back, outcome=DONE)])) == 2
