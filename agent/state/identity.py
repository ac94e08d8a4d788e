"""This host's identity: nova's ``compute_id`` file, which holds the uuid of the root provider."""

import os
import uuid
from collections.abc import Iterable
from pathlib import Path

from agent.errors import StateError
from agent.state.files import read_whole, sync_folder, write_file
from agent.state.rights import owners_rights

FILE = "compute_id"
_NAMESPACE = uuid.UUID("0d1b1c86-6b0e-45d7-9a5e-0a1d9a0f6f0e")


def read_identity(folders: Iterable[Path]) -> str | None:
    """
    Return the uuid in the ``compute_id`` files of these folders, None if there is no such file.

    Raises:
        StateError: a file holds no uuid or cannot be read, or two files disagree.
    """
    found: dict[str, str] = {}
    for path in dict.fromkeys(f"{folder}/{FILE}" for folder in folders):
        try:
            found[path] = parse_identity(read_whole(path).decode(errors="replace"), path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StateError(f"cannot read {path}, this host's identity: {error.strerror}") from error
    if len(set(found.values())) > 1:
        raise StateError(
            "compute_id files disagree: "
            + ", ".join(f"{p} says {u}" for p, u in found.items())
            + ": keep the file with the uuid of this host's root provider, and remove the other files"
        )
    return next(iter(found.values()), None)


def parse_identity(text: str, source: str) -> str:
    """
    Return the uuid that the text of a ``compute_id`` file holds.

    Raises:
        StateError: the text is not a uuid; the message names the file as ``source``.
    """
    try:
        return str(uuid.UUID(text.strip()))
    except ValueError as error:
        raise StateError(
            f"{source} holds no uuid: write the uuid of this host's root provider into it "
            f"(openstack resource provider list), or remove it and run compute-node-agent adopt, which looks for that"
        ) from error


def keep_identity(folder: Path, identity: str | None = None) -> str:
    """
    Write an identity, by default a new one, into ``folder``, which has none, and return it.

    The file is whole on disk when this returns.

    Raises:
        StateError: the file cannot be written, or there is one, as another process made it meanwhile.
    """
    identity = identity or str(uuid.uuid4())
    path, temporary = folder / FILE, folder / f".{FILE}.{os.getpid()}"
    with owners_rights(folder):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_file(temporary, identity)
            os.link(temporary, path)  # unlike a rename, this fails if the file exists
            sync_folder(folder)
        except OSError as error:
            nowhere = (
                f", a link to {path.readlink()}, which is not there" if path.is_symlink() and not path.exists() else ""
            )
            raise StateError(f"cannot write {path}, this host's identity: {error.strerror}{nowhere}") from error
        finally:
            temporary.unlink(missing_ok=True)
    return identity


def planned_identity(hostname: str) -> str:
    """Return a uuid with which a plan can be shown before the identity is made: the same at each call."""
    return str(uuid.uuid5(_NAMESPACE, hostname))
