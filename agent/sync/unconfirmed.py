"""
A conversion that is taken back unless a person confirms it in time: a file for each node, below the state directory.

It is written before the conversion begins, so that one that is cut off is taken back too.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from agent.state.files import read_trusted, remove_state, seal, state_files, unseal, write_state
from agent.state.memory import same_place
from agent.sync.json_form import encode
from agent.sync.node import ComputeNode
from reportclient.json_text import decode_as

_FORMAT = 1
_FOLDER = "unconfirmed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unconfirmed:
    """A conversion that waits for a person."""

    node: str
    root_uuid: str
    where: str  # the placement's name
    began: str  # of its first attempt, as the journal has it
    by_s: float  # seconds since the epoch: when it is taken back

    @property
    def by(self) -> str:
        return datetime.fromtimestamp(self.by_s, UTC).isoformat(timespec="seconds")


def await_confirmation(node: ComputeNode, root_uuid: str, began: str, by_s: float) -> None:
    """
    Let a conversion wait for a person; one that goes on after it was cut off waits as it did.

    Raises:
        StateError: that cannot be written.
    """
    waiting = Unconfirmed(node=node.name, root_uuid=root_uuid, where=node.where, began=began, by_s=by_s)
    write_state(_path(node.settings.folders.state, root_uuid), seal(encode(waiting), form=_FORMAT, indent=1))


def find_unconfirmed(node: ComputeNode) -> Unconfirmed | None:
    """
    Return what waits on a node in this placement; None where nothing does, or the file is damaged, which is logged.

    Raises:
        StateError: it cannot be read.
    """
    for path in state_files(node.settings.folders.state / _FOLDER, ".json"):
        found = read_trusted(
            path,
            lambda text: decode_as(Unconfirmed, unseal(text, form=_FORMAT)),
            None,
            "what says until when a conversion is to be confirmed is not valid: it is not taken back",
        )
        if found and found.node == node.name and same_place(found.where, node.where):
            return found
    return None


def confirm(node: ComputeNode, waiting: Unconfirmed) -> None:
    """Let what waits stand; StateError: the file cannot be removed."""
    remove_state(_path(node.settings.folders.state, waiting.root_uuid))


def _path(directory: Path, root_uuid: str) -> Path:
    return directory / _FOLDER / f"{root_uuid}.json"
