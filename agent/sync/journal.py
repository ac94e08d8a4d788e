"""
Journal of conversions: one file for each, with the plan and the tree before and after it.

A person can see in it which consumer had what; the agent never reads it.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from agent.errors import StateError
from agent.state.files import replace_durably
from agent.sync.decide.draft import Draft
from agent.sync.json_form import encode_after, encode_observed_tree, encode_plan
from agent.sync.node import ComputeNode
from reportclient.errors import PlacementError

_FORMAT = 1
_KEPT = 100  # entries that are kept, the latest ones


@contextmanager
def journaled(node: ComputeNode, draft: Draft) -> Iterator[None]:
    """
    Write the entry of a conversion to disk, let the conversion run inside, and write how it ended.

    Raises:
        StateError: the entry cannot be written; if that is before the conversion, it does not run.
    """
    began = datetime.now(UTC)
    folder = node.settings.state_directory / "journal"
    path = folder / f"{began:%Y%m%dT%H%M%S.%fZ}-{draft.root_uuid}.json"
    entry: dict[str, object] = {
        "format": _FORMAT,
        "node": node.name,
        "where": node.where,
        "began": began.isoformat(),
        "ended": None,
        "outcome": "begun",
        "before": encode_observed_tree(draft.observed, draft.allocations),
        "after": encode_after(draft.plan, draft.observed, draft.allocations_after),
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
        _write(path, entry | {"ended": datetime.now(UTC).isoformat(), "outcome": "done"})
    finally:
        with suppress(OSError):
            for old in sorted(folder.glob("*.json"))[:-_KEPT]:
                old.unlink()


def _write(path: Path, entry: Mapping[str, object]) -> None:
    try:
        replace_durably(path, json.dumps(entry, indent=1))
    except OSError as error:
        raise StateError(f"cannot write {path}: {error.strerror}: make room or set [agent] state_directory") from error
