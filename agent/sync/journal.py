"""
Files about conversions, below the state directory: a person's approval of one plan, and the journal.

An approval, a file for each node, is for the unattended conversion before each start of the service. It is used once:
it is marked before its conversion begins, and removed when any conversion of the node is done, as it was given for the
tree before that. The journal has a file for each conversion, with the plan and the tree before and after it: a person
can see in it which consumer had what, and the verb ``undo`` reads it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any

from agent.errors import StateError
from agent.state.files import (
    checksum,
    read_state,
    read_trusted,
    remove,
    remove_state,
    seal,
    state_files,
    unseal,
    write_state,
)
from agent.state.memory import same_place
from agent.sync.decide.feature import Draft
from agent.sync.decide.undoing import DONE, Conversion
from agent.sync.json_form import encode, encode_observed_tree, encode_plan
from agent.sync.node import ComputeNode
from reportclient.errors import PlacementError
from reportclient.forecast import forecast
from reportclient.json_text import decode_as
from reportclient.plan import Outline

_FORMAT = 1  # of both kinds of files
_APPROVALS, _JOURNAL = "approvals", "journal"  # folders
_KEPT = 100  # entries of the journal that are kept, the latest ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """Approval of one plan for one node in one placement, by the plan's digest."""

    node: str
    where: str  # the placement's name
    digest: str
    approved: str  # the time of the approval, as ISO 8601 in UTC
    outline: Outline  # tells whether a later plan is the rest of this one, after a conversion that was cut off
    layout: str = ""  # which the plan converts to; empty: an older version of the agent did not write it
    begun: bool = False  # True: the conversion may have been carried out, in part or in full


def approval_path(node: ComputeNode, root_uuid: str) -> Path:
    """Return the file for a node's approval, whether there is one or not."""
    return node.settings.folders.state / _APPROVALS / f"{root_uuid}.json"


def approve(node: ComputeNode, draft: Draft) -> None:
    """
    Approve the plan of a draft; an earlier approval for the node is replaced.

    The caller holds the lock (``locked``).

    Raises:
        StateError: the approval cannot be written.
    """
    approval = Approval(
        node=node.name,
        where=node.where,
        digest=draft.plan.digest,
        approved=datetime.now(UTC).isoformat(timespec="seconds"),
        outline=draft.plan.outline,
        layout=draft.layout,
    )
    _write_approval(approval_path(node, draft.root_uuid), approval)


def find_approval(node: ComputeNode, root_uuid: str) -> Approval | None:
    """Return the approval for a node in this placement; None where there is none that counts. As ``read_approval``."""
    found = read_approval(approval_path(node, root_uuid))
    return found if found and found.node == node.name and same_place(found.where, node.where) else None


def read_approval(path: Path) -> Approval | None:
    """
    Read one approval; None where there is none, or where it is damaged, which is logged.

    Raises:
        StateError: it cannot be read.
    """
    return read_trusted(
        path,
        lambda text: decode_as(Approval, unseal(text, form=_FORMAT)),
        None,
        "an approval is not valid, and does not count: approve the plan again",
    )


def withdraw(directory: Path) -> tuple[tuple[Path, ...], tuple[tuple[Path, Approval], ...]]:
    """
    Remove all approvals of a state directory but those whose conversion was begun: these are to be completed.

    Returns the files that were removed, and the approvals that stay. The caller holds the lock (``locked``).

    Raises:
        StateError: an approval cannot be read, or cannot be removed.
    """
    gone: list[Path] = []
    begun: list[tuple[Path, Approval]] = []
    for path in state_files(directory / _APPROVALS, ".json"):
        one = read_approval(path)
        if one and one.begun:
            begun.append((path, one))
        else:
            remove_state(path)
            gone.append(path)
    return tuple(gone), tuple(begun)


def tell_approvals(directory: Path) -> tuple[str, ...]:
    """
    Return a sentence on each valid approval in a state directory, with what a person can do about it.

    Raises:
        StateError: an approval, or the folder of all, cannot be read.
    """
    read = ((path, read_approval(path)) for path in state_files(directory / _APPROVALS, ".json"))
    return tuple(
        f"the plan {one.digest} for {one.node}, approved {one.approved}, "
        f"{'was begun and is completed' if one.begun else 'is carried out'} before the service starts the next time "
        f"with {one.where}, if the configuration asks for it then: reshape --withdraw takes that back ({path})"
        for path, one in read
        if one
    )


@contextmanager
def journaled(node: ComputeNode, draft: Draft) -> Iterator[None]:
    """
    Write the entry of a conversion to disk, let the conversion run inside, and write how it ended.

    An approval of it is marked before, and any approval for the node is removed once it is done.

    Raises:
        StateError: entry or mark cannot be written, and nothing was sent; or the end cannot be remembered.
    """
    approval = find_approval(node, draft.root_uuid)
    if approval and not approval.begun and approval.digest == draft.plan.digest:
        _write_approval(approval_path(node, draft.root_uuid), replace(approval, begun=True))
    began, wishes = datetime.now(UTC), draft.view.wishes
    folder = node.settings.folders.state / _JOURNAL
    path = folder / f"{began:%Y%m%dT%H%M%S.%fZ}-{draft.root_uuid}.json"
    entry: dict[str, object] = {
        "format": _FORMAT,
        "node": node.name,
        "where": node.where,
        "layout": draft.stands_in,
        "target": draft.layout,
        "agreed": wishes.agreed,  # the digest of the plan that a person read, of which this one may be the rest
        "undoes": wishes.undone.name if wishes.undone else None,  # the entry that this conversion takes back
        "confirm_by_s": _confirm_by_s(node, draft),
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
            raise StateError(f"{node.name} was converted, but that cannot be remembered: {error}") from error
    finally:
        with suppress(OSError, StateError):
            _remove_old(node.settings.folders.state, node.where)
    remove_state(approval_path(node, draft.root_uuid))


def read_journal(folder: Path, where: str) -> tuple[Conversion, ...]:
    """
    Return the entries of a state directory about the placement ``where``, the latest last; empty: no conversion.

    Raises:
        StateError: an entry cannot be read, or is no entry.
    """
    found = []
    for path in state_files(folder / _JOURNAL, ".json"):
        try:
            body = json.loads(read_state(path))
            if body.pop("checksum") != checksum(body):
                raise ValueError("checksum")
            told = {**body, "path": str(path), "digest": body.get("agreed") or body["digest"]}
            found += [decode_as(Conversion, told)] if same_place(body["where"], where) else []
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise StateError(
                f"{path} is damaged ({type(error).__name__}): what was done last is not known, so nothing is taken "
                f"back. Move the file away to go on without it"
            ) from error
    return tuple(found)


def _confirm_by_s(node: ComputeNode, draft: Draft) -> float | None:
    """Return until when a conversion is on trial: as it is asked for, or as that was begun which it goes on with."""
    wishes, begun = draft.view.wishes, None
    if not wishes.confirm_by_s and not wishes.undone:
        begun = find_trial(node.settings.folders.state, node.where)
    goes_on = begun and begun.outcome != DONE and begun.target == draft.layout
    return begun.confirm_by_s if begun and goes_on else wishes.confirm_by_s or None


def _remove_old(directory: Path, where: str) -> None:
    """Remove all entries but the latest ones, and those which the last conversion began with, or takes back."""
    old = state_files(directory / _JOURNAL, ".json")[:-_KEPT]
    if not old:
        return
    entries = read_journal(directory, where)
    begun = [*takewhile(lambda one: one.outcome != DONE or one is entries[-1], reversed(entries))]
    needed = {begun[-1].name, *(one.undoes for one in begun)} if begun else set()
    for path in old:
        if path.stem not in needed:
            remove(path)


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
    for path in reversed(state_files(directory / _JOURNAL, ".json")):
        try:
            entry = json.loads(read_state(path))
            if same_place(entry["where"], where):
                return not entry.get("trial_ended") and bool(entry["outcome"] != DONE or entry.get("confirm_by_s"))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return True  # ``read_journal`` says what is wrong
    return False


def end_begun(node: ComputeNode, layout: str) -> None:
    """
    Note the end of a conversion to this layout that was not known: its answer was lost, or its rest moved nothing.

    Raises:
        StateError: its entry cannot be written. What cannot be read of the journal is left as it is.
    """
    directory = node.settings.folders.state
    with suppress(StateError):
        for last in read_journal(directory, node.where)[-1:]:
            if last.outcome != DONE and last.target == layout:
                _change_entry(last, ended=datetime.now(UTC).isoformat(), outcome=DONE)


def end_trial(conversion: Conversion, how: str) -> None:
    """Let a conversion on trial stand, or say that it is taken back; StateError: its entry cannot be written."""
    _change_entry(conversion, trial_ended=how)


def _change_entry(conversion: Conversion, **changes: str) -> None:
    path = Path(conversion.path)
    entry = json.loads(read_state(path))
    entry.pop("checksum")
    _write(path, entry | changes)


def kept_conversions(entries: Iterable[Conversion]) -> tuple[Conversion, ...]:
    """
    Return the conversions of a journal, each with all its attempts as one entry.

    An attempt that another writer or a failure cut off goes on in the next entry to the same layout: the conversion
    began with the first one, and stands as the last one left it. An attempt after which the stock was changed by others
    did nothing, and counts for nothing. While a conversion is being taken back, it is the last one.
    """
    found: list[Conversion] = []
    for one in entries:
        last = found[-1] if found else None
        if last and last.outcome != DONE and (last.node, last.target) == (one.node, one.target):
            found.pop()
            one = _gone_on_with(last, one)
        found.append(one)
    return _without_unfinished_undo(found)


def _gone_on_with(first: Conversion, then: Conversion) -> Conversion:
    """Return two attempts at one conversion as one."""
    before, after = first.before, then.before
    if first.layout == then.layout and _stocked(before) != _stocked(after):
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
            return (*found[:place], replace(one, outcome=f"it is being taken back: {last.outcome}"))
    return tuple(found)


def _write(path: Path, entry: Mapping[str, object]) -> None:
    write_state(path, json.dumps({**entry, "checksum": checksum(entry)}, indent=1))


def _write_approval(path: Path, approval: Approval) -> None:
    write_state(path, seal(encode(approval), form=_FORMAT, indent=1))
