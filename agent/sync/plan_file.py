"""Plans in a file: ``plan --out`` writes it, and ``sync --plan`` carries out these plans, and no others."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from agent import VERSION
from agent.errors import ConfigError, StateError
from agent.state.files import read_named, replace_named, seal, unseal
from agent.sync.decide.feature import Draft
from agent.sync.json_form import encode_plan
from agent.sync.node import ComputeNode
from reportclient.json_text import decode_as, encode

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """The plan of one node, as it was shown."""

    node: str
    where: str  # the placement's name
    digest: str
    plan: Mapping[str, object]  # for people, as ``encode_plan`` has it


@dataclass(frozen=True, slots=True)
class _PlanFile:
    plans: tuple[SavedPlan, ...]


def write_plans(path: Path, plans: Iterable[tuple[ComputeNode, Draft]]) -> None:
    """
    Write the plans of several nodes; a file that is there is replaced.

    Raises:
        StateError: it cannot be written.
    """
    saved = [
        SavedPlan(node.name, node.where, draft.plan.digest, encode_plan(draft.plan, draft.observed))
        for node, draft in plans
    ]
    made = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        replace_named(path, seal({"version": VERSION, "made": made, "plans": encode(saved)}, form=_FORMAT, indent=1))
    except OSError as error:
        raise StateError(f"--out {path} cannot be written: {error.strerror}: name another file") from error


def read_plans(path: Path) -> Mapping[str, SavedPlan]:
    """
    Return the plans of a file, by node.

    Raises:
        ConfigError: it cannot be read, or ``plan --out`` did not write it so.
    """
    try:
        return {one.node: one for one in decode_as(_PlanFile, unseal(read_named(path, 64), form=_FORMAT)).plans}
    except OSError as error:
        raise ConfigError(f"--plan {path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"--plan {path} is not a file that plan --out wrote, or was changed since ({type(error).__name__}): write "
            f"it again with compute-node-agent plan --out FILE"
        ) from error
