"""
A person's approval of one plan, for the unattended conversion before each start of the service: a file for each node.

It is used once: it is marked before its conversion begins, and removed when any conversion of the node is done, as it
was given for the tree before that.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from agent.state.files import read_trusted, remove_state, seal, state_files, unseal, write_state
from agent.state.memory import same_place
from agent.sync.decide.feature import Draft
from agent.sync.json_form import encode
from agent.sync.node import ComputeNode
from reportclient.json_text import decode_as
from reportclient.plan import Outline

_FORMAT = 1
_FOLDER = "approvals"


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
    return node.settings.folders.state / _FOLDER / f"{root_uuid}.json"


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
    for path in state_files(directory / _FOLDER, ".json"):
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
    read = ((path, read_approval(path)) for path in state_files(directory / _FOLDER, ".json"))
    return tuple(
        f"the plan {one.digest} for {one.node}, approved {one.approved}, "
        f"{'was begun and is completed' if one.begun else 'is carried out'} before the service starts the next time "
        f"with {one.where}, if the configuration asks for it then: reshape --withdraw takes that back ({path})"
        for path, one in read
        if one
    )


@contextmanager
def using_approval(node: ComputeNode, draft: Draft) -> Iterator[None]:
    """
    Mark the approval of a plan that is carried out inside, and remove any approval of the node once that is done.

    Raises:
        StateError: it cannot be marked, and nothing was sent; or it cannot be removed.
    """
    path, approval = approval_path(node, draft.root_uuid), find_approval(node, draft.root_uuid)
    if approval and not approval.begun and approval.digest == draft.plan.digest:
        _write_approval(path, replace(approval, begun=True))
    yield
    remove_state(path)


def _write_approval(path: Path, approval: Approval) -> None:
    write_state(path, seal(encode(approval), form=_FORMAT, indent=1))
