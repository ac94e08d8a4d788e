"""This host's identity: nova's ``compute_id`` file, one uuid that is the uuid of the root provider."""

import os
import uuid
from collections.abc import Iterable
from pathlib import Path

from agent.errors import StateError
from agent.state.files import sync_folder, write_durably

FILE = "compute_id"
_NAMESPACE = uuid.UUID("0d1b1c86-6b0e-45d7-9a5e-0a1d9a0f6f0e")


def read_identity(folders: Iterable[Path]) -> str | None:
    """
    The uuid in the ``compute_id`` files of these folders, None when there is none.

    Raises:
        StateError: a file holds no uuid or cannot be read, or two of them disagree.
    """
    found: dict[Path, str] = {}
    for path in dict.fromkeys(folder / FILE for folder in folders):
        try:
            found[path] = parse_identity(path.read_text(encoding="utf-8", errors="replace"), str(path))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StateError(f"cannot read {path}, this host's identity: {error.strerror}") from error
    if len(set(found.values())) > 1:
        raise StateError(
            "compute_id files disagree: "
            + ", ".join(f"{p} says {u}" for p, u in found.items())
            + ": keep the one whose uuid this host's root provider has, remove the others"
        )
    return next(iter(found.values()), None)


def parse_identity(text: str, source: str) -> str:
    """
    The uuid that a ``compute_id`` file holds.

    Raises:
        StateError: it holds none; ``source`` names it.
    """
    try:
        return str(uuid.UUID(text.strip()))
    except ValueError as error:
        raise StateError(
            f"{source} holds no uuid: put in the uuid of this host's root provider "
            f"(openstack resource provider list), or remove the file for a new identity"
        ) from error


def create_identity(folder: Path) -> str:
    """
    Make a new identity and keep it in ``folder``; it is on disk whole before this returns.

    Raises:
        StateError: it cannot be written, or appeared meanwhile.
    """
    path, identity = folder / FILE, str(uuid.uuid4())
    draft = folder / f".{FILE}.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_durably(draft, identity)
        os.link(draft, path)  # fails when the file is there, unlike a rename
        sync_folder(folder)
    except OSError as error:
        raise StateError(f"cannot write {path}, this host's identity: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)
    return identity


def planned_identity(hostname: str) -> str:
    """A stand-in for an identity that is still to be made, for a look at the plan: the same at each look."""
    return str(uuid.uuid5(_NAMESPACE, hostname))
