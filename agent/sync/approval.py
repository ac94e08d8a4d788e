"""
A person's approval of one plan, for the unattended conversion before each start of the service.

It is a checksummed file for each node, below the state directory. An approval is used once: it is marked before its
conversion begins, and removed when any conversion of the node is done, as it was given for the tree before that.
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
    )
    _write(approval_path(node, draft.root_uuid), approval)


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


def forget_approval(node: ComputeNode, root_uuid: str) -> None:
    """
    Remove the approval for a node, damaged or not; the caller holds the lock (``locked``).

    Raises:
        StateError: it cannot be removed.
    """
    remove_state(approval_path(node, root_uuid))


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


def approvals(directory: Path) -> tuple[tuple[Path, Approval], ...]:
    """
    Return the approvals in a state directory, each with its file, without damaged ones.

    Raises:
        StateError: an approval, or the folder of all, cannot be read.
    """
    found = ((path, read_approval(path)) for path in state_files(directory / _FOLDER, ".json"))
    return tuple((path, one) for path, one in found if one)


def tell_approval(path: Path, approval: Approval) -> str:
    """Return a sentence on an approval, with what a person can do about it."""
    waits = "was begun and is completed" if approval.begun else "is carried out"
    return (
        f"the plan {approval.digest} for {approval.node}, approved {approval.approved}, {waits} before the service "
        f"starts the next time with {approval.where}: reshape --withdraw takes that back ({path})"
    )


@contextmanager
def spent(node: ComputeNode, draft: Draft) -> Iterator[None]:
    """
    Mark the approval of a conversion, let the conversion run inside, and then remove any approval for the node.

    Raises:
        StateError: the approval cannot be marked, and nothing was sent; or it cannot be removed afterwards.
    """
    approval = find_approval(node, draft.root_uuid)
    if approval and not approval.begun and approval.digest == draft.plan.digest:
        _write(approval_path(node, draft.root_uuid), replace(approval, begun=True))
    yield
    forget_approval(node, draft.root_uuid)


def _write(path: Path, approval: Approval) -> None:
    write_state(path, seal(encode(approval), form=_FORMAT, indent=1))
