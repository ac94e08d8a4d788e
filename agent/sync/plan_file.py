"""
Plans that a person saw, in files: ``plan --out`` writes some, and the agent keeps each one that ``reshape`` shows.

``sync --plan`` carries out the plans of such a file, and no others. Of a plan that was shown a refusal says what
changed since.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from agent import VERSION
from agent.errors import ConfigError, StateError
from agent.state.files import files_in, read_named, read_whole, remove, replace_durably, replace_named, seal, unseal
from agent.sync.decide.feature import Draft
from agent.sync.json_form import PlanForm, encode_kept
from agent.sync.node import ComputeNode
from reportclient.json_text import decode_as

_FORMAT = 1
_KEPT = 50  # shown plans that are kept, the latest ones
_DAMAGED = (ValueError, KeyError, TypeError, RecursionError)  # what ``_decode`` raises of a file


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """The plan of one node, as it was shown."""

    node: str
    where: str  # the placement's name
    plan: PlanForm


@dataclass(frozen=True, slots=True)
class _PlanFile:
    plans: tuple[SavedPlan, ...]


def write_plans(path: Path, plans: Iterable[tuple[ComputeNode, Draft]]) -> None:
    """
    Write the plans of several nodes; a file that is there is replaced.

    Raises:
        StateError: it cannot be written.
    """
    try:
        replace_named(path, _encode(plans))
    except OSError as error:
        raise StateError(f"--out {path} cannot be written: {error.strerror}: name another file") from error


def read_plans(path: Path) -> Mapping[str, SavedPlan]:
    """
    Return the plans of a file, by node.

    Raises:
        ConfigError: it cannot be read, or ``plan --out`` did not write it so.
    """
    try:
        return {one.node: one for one in _decode(read_named(path, 64))}
    except OSError as error:
        raise ConfigError(f"--plan {path} cannot be read: {error.strerror}") from error
    except _DAMAGED as error:
        raise ConfigError(
            f"--plan {path} is not a file that plan --out wrote, or was changed since ({type(error).__name__}): write "
            f"it again with compute-node-agent plan --out FILE"
        ) from error


def remember_plan(node: ComputeNode, draft: Draft) -> None:
    """Keep a plan that is shown, so that a refusal can say later what changed; skip it where no file can be written."""
    path = _shown_path(node, draft.plan.digest)
    with suppress(OSError):
        replace_durably(path, _encode([(node, draft)]))
        for old in sorted(files_in(path.parent, ".json"), key=lambda path: path.lstat().st_mtime)[:-_KEPT]:
            remove(old)


def remembered_plan(node: ComputeNode, digest: str) -> PlanForm | None:
    """Return the plan of a digest as it was shown on this host; None when it was not, or is not readable."""
    with suppress(OSError, *_DAMAGED):
        (saved,) = _decode(read_whole(_shown_path(node, digest)).decode())
        return saved.plan
    return None


def _shown_path(node: ComputeNode, digest: str) -> Path:
    return node.settings.folders.state / f"plans/{digest}.json"


def _encode(plans: Iterable[tuple[ComputeNode, Draft]]) -> str:
    saved = [
        {"node": node.name, "where": node.where, "plan": encode_kept(draft.plan, draft.observed)}
        for node, draft in plans
    ]
    made = datetime.now(UTC).isoformat(timespec="seconds")
    return seal({"version": VERSION, "made": made, "plans": saved}, form=_FORMAT, indent=1)


def _decode(text: str) -> tuple[SavedPlan, ...]:
    return decode_as(_PlanFile, unseal(text, form=_FORMAT)).plans
