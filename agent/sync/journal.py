"""
The journal of conversions: a file for each below the state directory, with the plan and the tree before and after it.

A person can see in it which consumer had what, the verb ``undo`` reads it, and a conversion on trial waits in it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

from agent.errors import StateError
from agent.state.files import checksum, read_state, remove, state_files, write_state
from agent.state.memory import same_place
from agent.sync.decide.feature import Draft
from agent.sync.decide.undoing import DONE, Conversion
from agent.sync.json_form import encode_observed_tree, encode_plan
from reportclient.errors import PlacementError
from reportclient.forecast import forecast
from reportclient.json_text import decode_as

_FORMAT = 1
_FOLDER = "journal"
_KEPT = 100  # entries of a placement that are kept, the latest ones
_STAMP = "%Y%m%dT%H%M%S.%fZ"  # begins the name of an entry
_VOID = "nothing of it was done"  # outcome of an attempt to take back after which the conversion was found to stand


@contextmanager
def journaled(directory: Path, where: str, draft: Draft) -> Iterator[None]:
    """
    Write the entry of a conversion to disk, let the conversion run inside, and write how it ended.

    ``directory`` is the state directory, ``where`` the placement's name.

    Raises:
        StateError: the entry cannot be written, and nothing was sent; or the end cannot be remembered.
    """
    began, node, wishes = datetime.now(UTC), draft.view.node, draft.view.wishes
    path = directory / _FOLDER / f"{_after_all(directory, began):{_STAMP}}-{draft.root_uuid}.json"
    entry: dict[str, object] = {
        "format": _FORMAT,
        "node": node,
        "where": where,
        "layout": draft.stands_in,
        "target": draft.layout,
        "agreed": wishes.agreed,  # the digest of the plan that a person read, of which this one may be the rest
        "undoes": wishes.undone.name if wishes.undone else None,  # the entry that this conversion takes back
        "confirm_by_s": _confirm_by_s(draft),
        "trial_ended": None,
        "began": began.isoformat(),
        "ended": None,
        "outcome": "begun",
        "before": encode_observed_tree(draft.observed, draft.way.allocations),
        "after": encode_observed_tree(forecast(draft.plan, draft.observed), draft.allocations_after),
        **encode_plan(draft.plan, draft.observed),
    }
    _write(path, entry)
    try:
        yield
    except PlacementError as error:
        outcome = f"it is not known whether this was done: {error}"
        _write(path, entry | {"ended": datetime.now(UTC).isoformat(), "outcome": outcome})
        raise
    else:
        try:
            _write(path, entry | {"ended": datetime.now(UTC).isoformat(), "outcome": DONE})
        except StateError as error:
            raise StateError(f"{node} was converted, but that cannot be remembered: {error}") from error
    finally:
        with suppress(OSError, StateError):
            _remove_old(directory, where)


def _after_all(directory: Path, now: datetime) -> datetime:
    """Return a time that sorts after all entries, also where the clock was set back since."""
    with suppress(ValueError):
        for latest in state_files(directory / _FOLDER, ".json")[-1:]:
            stamp = datetime.strptime(latest.stem.partition("-")[0], _STAMP).replace(tzinfo=UTC)
            return max(now, stamp + timedelta(microseconds=1))
    return now


def read_journal(directory: Path, where: str) -> tuple[Conversion, ...]:
    """
    Return the entries of a state directory about the placement ``where``, the latest last; empty: no conversion.

    Raises:
        StateError: an entry cannot be read, or is no entry.
    """
    found = []
    for path in state_files(directory / _FOLDER, ".json"):
        try:
            body = json.loads(read_state(path))
            if body.pop("checksum") != checksum(body):
                raise ValueError("checksum")
            told = {**body, "path": str(path), "digest": body.get("agreed") or body["digest"]}
            found += [decode_as(Conversion, told)] if same_place(body["where"], where) else []
        except FileNotFoundError:  # moved away meanwhile
            continue
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise StateError(
                f"{path} is damaged ({type(error).__name__}): what was done last is not known, so nothing is taken "
                f"back. Move the file away to go on without it"
            ) from error
    return tuple(found)


def _confirm_by_s(draft: Draft) -> float | None:
    """Return until when a conversion is on trial: as it is asked for, or as that was begun which it goes on with."""
    wishes, begun = draft.view.wishes, draft.view.terms.trial
    if wishes.confirm_by_s or wishes.undone:
        return wishes.confirm_by_s or None
    return begun.confirm_by_s if begun and begun.is_gone_on_with(draft.layout) else None


def _remove_old(directory: Path, where: str) -> None:
    """Remove all entries but the latest ones, and those which the last conversion began with, or takes back."""
    if len(state_files(directory / _FOLDER, ".json")) <= _KEPT:
        return
    every = read_journal(directory, where)
    entries = [one for one in every if one.outcome != _VOID]
    needed, undone = _first_attempts(entries), {one.undoes for one in _attempts(entries)}
    for place, one in enumerate(entries):
        if one.name in undone:
            needed |= {one.name, *_first_attempts(entries[: place + 1])}
    for one in every[:-_KEPT]:
        if one.name not in needed:
            remove(Path(one.path))


def _attempts(entries: Sequence[Conversion]) -> list[Conversion]:
    """Return the last entry, and before it all whose end is not known, the first one first."""
    return [*takewhile(lambda one: one.outcome != DONE or one is entries[-1], reversed(entries))][::-1]


def _first_attempts(entries: Sequence[Conversion]) -> set[str]:
    """Return the names of those of these attempts that go on with none before."""
    several = _attempts(entries)
    pairs = pairwise(several)
    return {one.name for one in several[:1]} | {then.name for one, then in pairs if not _is_continued(one, then)}


def find_trial(directory: Path, where: str) -> Conversion | None:
    """
    Return the last conversion in a placement if it waits for a person to confirm it; None: it does not.

    Raises:
        StateError: as ``read_journal``.
    """
    if not _may_wait(directory, where):
        return None
    last = kept_conversions(read_journal(directory, where))[-1:]
    return next((one for one in last if one.is_on_trial), None)


def _may_wait(directory: Path, where: str) -> bool:
    """Return whether a trial may wait, by the latest entry of a placement alone; a pass does not read all of them."""
    for path in reversed(state_files(directory / _FOLDER, ".json")):
        try:
            entry = json.loads(read_state(path))
            if same_place(entry["where"], where):
                return not entry.get("trial_ended") and bool(entry["outcome"] != DONE or entry.get("confirm_by_s"))
        except FileNotFoundError:  # moved away meanwhile
            continue
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return True  # ``read_journal`` says what is wrong
    return False


def end_begun(directory: Path, where: str, layout: str) -> None:
    """
    Note the end of a conversion to this layout that was not known: its answer was lost, or its rest moved nothing.

    Attempts to take it back did nothing if it stands. What cannot be read of the journal is left as it is.

    Raises:
        StateError: an entry cannot be written.
    """
    entries: tuple[Conversion, ...] = ()
    with suppress(StateError):
        entries = read_journal(directory, where)
    for last in (one for one in reversed(entries) if one.outcome != _VOID):
        if last.outcome == DONE or (last.target != layout and not last.undoes):
            return
        found = DONE if last.target == layout else _VOID
        _change_entry(last, ended=datetime.now(UTC).isoformat(), outcome=found)
        if found == DONE:
            return


def end_trial(trial: Conversion, how: str) -> None:
    """Note how a trial ended; StateError: it ended, but that cannot be written."""
    try:
        _change_entry(trial, trial_ended=how)
    except StateError as error:
        raise StateError(
            f"the trial of {trial.began} ended ({how}), but {trial.path} cannot say so: {error}"
        ) from error


def _change_entry(conversion: Conversion, **changes: str) -> None:
    path = Path(conversion.path)
    try:
        entry = json.loads(read_state(path))
        entry.pop("checksum")
    except FileNotFoundError:  # moved away meanwhile
        return
    except (ValueError, KeyError, AttributeError, RecursionError) as error:
        raise StateError(f"{path} is damaged ({type(error).__name__})") from error
    _write(path, entry | changes)


def kept_conversions(entries: Iterable[Conversion]) -> tuple[Conversion, ...]:
    """
    Return the conversions of a journal, each with all its attempts as one entry.

    An attempt that another writer or a failure cut off goes on in the next entry to the same layout: the conversion
    began with the first one, and stands as the last one left it. An attempt after which the stock was changed by others
    did nothing, and counts for nothing. While a conversion is being taken back, it is the last one.
    """
    found: list[Conversion] = []
    for one in (each for each in entries if each.outcome != _VOID):
        last = found[-1] if found else None
        if last and _is_continued(last, one):
            found.pop()
            one = _gone_on_with(last, one)
        found.append(one)
    return _without_unfinished_undo(found)


def _is_continued(one: Conversion, then: Conversion) -> bool:
    """Return whether an entry is the next attempt at the conversion of the one before it."""
    return one.outcome != DONE and one.trial_ended is None and (one.node, one.target) == (then.node, then.target)


def _gone_on_with(first: Conversion, then: Conversion) -> Conversion:
    """Return two attempts at one conversion as one."""
    before, after = first.before, then.before
    if first.layout == then.layout and _stocked(before) == _stocked(after):  # nothing moved until then
        before = {**after, "providers": before["providers"]}
    elif first.layout == then.layout:
        named = before["providers"].keys() | _stocked(after).keys()  # without what the first attempt made
        kept = {name: one for name, one in after["providers"].items() if name in named}
        return replace(then, before={**after, "providers": kept})
    digest = then.digest if then.agreed else first.digest
    return replace(then, began=first.began, digest=digest, layout=first.layout, before=before)


def _stocked(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inventories of the providers that have some, by name."""
    return {name: one["inventories"] for name, one in tree["providers"].items() if one.get("inventories")}


def _without_unfinished_undo(found: list[Conversion]) -> tuple[Conversion, ...]:
    """Return the conversions up to the one that is being taken back, if the last entry does not know how that ended."""
    last = found[-1] if found else None
    if last is None or last.outcome == DONE or not last.undoes:
        return tuple(found)
    for place, one in enumerate(found):
        if one.name == last.undoes:
            back = replace(one, outcome=f"it is being taken back: {last.outcome}", undone_by=last.name)
            return (*found[:place], back)
    return tuple(found)


def _write(path: Path, entry: Mapping[str, object]) -> None:
    write_state(path, json.dumps({**entry, "checksum": checksum(entry)}, indent=1))
