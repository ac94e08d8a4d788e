"""Plans in a file that ``plan --out`` writes: ``sync --plan`` carries out these plans, and no others."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from agent import VERSION
from agent.errors import ConfigError, StateError
from agent.state.files import read_named, replace_durably, seal, unseal
from agent.sync.decide.feature import Draft
from agent.sync.forms import PlanForm
from agent.sync.json_form import encode_kept
from agent.sync.node import ComputeNode

_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPlan:
    """The plan of one node, as it was shown."""

    node: str
    where: str  # the placement's name
    plan: PlanForm

    def __post_init__(self) -> None:
        for name, text in (("node", self.node), ("where", self.where), ("digest", self.plan["digest"])):
            if not isinstance(text, str):
                raise TypeError(f"{name} is no text")


def write_plans(path: Path, plans: Iterable[tuple[ComputeNode, Draft]]) -> None:
    """
    Write the plans of several nodes; a file that is there is replaced.

    Raises:
        StateError: it cannot be written.
    """
    body = {
        "version": VERSION,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "plans": [
            {"node": node.name, "where": node.where, "plan": encode_kept(draft.plan, draft.observed)}
            for node, draft in plans
        ],
    }
    try:
        replace_durably(path, seal(body, form=_FORMAT, indent=1))
    except OSError as error:
        raise StateError(f"--out {path} cannot be written: {error.strerror}: name another file") from error


def read_plans(path: Path) -> Mapping[str, SavedPlan]:
    """
    Return the plans of a file, by node.

    Raises:
        ConfigError: it cannot be read, or ``plan --out`` did not write it so.
    """
    try:
        body = unseal(read_named(path, 64), form=_FORMAT)
        found = [SavedPlan(node=one["node"], where=one["where"], plan=one["plan"]) for one in body["plans"]]
    except OSError as error:
        raise ConfigError(f"--plan {path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"--plan {path} is not a file that plan --out wrote, or was changed since ({type(error).__name__}): write "
            f"it again with compute-node-agent plan --out FILE"
        ) from error
    return {one.node: one for one in found}
