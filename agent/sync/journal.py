"""
What every conversion was about: its plan with an image of the host before and one after, a file each.

A person can tell from it who had what; nothing is read from it again.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent.errors import StateError
from agent.state.files import replace_durably
from agent.sync.decide.draft import Prospect
from agent.sync.json_form import encode_after, encode_observed, encode_plan
from agent.sync.node import Planner
from reportclient.errors import PlacementError

FORMAT = 1
KEPT = 100  # entries, the latest


@contextmanager
def journaled(planner: Planner, prospect: Prospect) -> Iterator[None]:
    """
    Inside, a conversion is carried out; before it its entry is on disk, and after it how it ended.

    Raises:
        StateError: the entry cannot be written; then nothing else is.
    """
    began = datetime.now(UTC)
    folder = planner.settings.state_directory / "journal"
    path = folder / f"{began:%Y%m%dT%H%M%S.%fZ}-{prospect.root_uuid}.json"
    entry = {
        "format": FORMAT,
        "node": planner.node,
        "where": planner.where,
        "began": began.isoformat(),
        "ended": None,
        "outcome": "begun",
        "before": encode_observed(prospect.observed, prospect.allocations),
        "after": encode_after(prospect.plan, prospect.observed, prospect.allocations_after),
        **encode_plan(prospect.plan, prospect.observed),
    }
    _write(path, entry)
    try:
        yield
    except PlacementError as error:
        _write(path, entry | {"ended": datetime.now(UTC).isoformat(), "outcome": f"not known to be done: {error}"})
        raise
    else:
        _write(path, entry | {"ended": datetime.now(UTC).isoformat(), "outcome": "done"})
    finally:
        with suppress(OSError):
            for old in sorted(folder.glob("*.json"))[:-KEPT]:
                old.unlink()


def _write(path: Path, entry: dict[str, Any]) -> None:
    try:
        replace_durably(path, json.dumps(entry, indent=1))
    except OSError as error:
        raise StateError(f"cannot write {path}: {error.strerror}: make room or set [agent] state_directory") from error
