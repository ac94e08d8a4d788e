"""The file locks of the state directory: one process writes at a time, and at most one process is the service."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from oslo_concurrency import lockutils

from agent.errors import StateError

_PATIENCE_S = 10  # wait for another process that writes


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """
    Inside the context, no other process of this agent writes.

    Raises:
        StateError: the folder cannot be written, or another process has had the lock for ten seconds.
    """
    another = (
        f"another compute-node-agent has been writing for {_PATIENCE_S} s (lock in {directory}): let it finish, or "
        f"stop the service"
    )
    with _holding("agent", directory, another, patience_s=_PATIENCE_S):
        yield


@contextmanager
def serving(directory: Path) -> Iterator[None]:
    """
    Inside the context, this process is the service of this state directory; each of its passes also takes ``locked``.

    Raises:
        StateError: the folder cannot be written, or a service with this state directory runs already.
    """
    with _holding("service", directory, f"the service runs already with {directory}: stop it first", patience_s=0):
        yield


@contextmanager
def _holding(name: str, directory: Path, otherwise: str, *, patience_s: int) -> Iterator[None]:
    """Inside the context, no other process has the lock of this name."""
    try:
        lock = lockutils.external_lock(name, lock_path=str(directory))
        if not lock.acquire(blocking=patience_s > 0, timeout=patience_s):
            raise StateError(otherwise)
    except OSError as error:
        raise StateError(
            f"cannot write below {directory}: {error.strerror}: run as the agent's own user, or set "
            f"[agent] state_directory"
        ) from error
    try:
        yield
    finally:
        lock.release()
        _give_back(directory)


def _give_back(directory: Path) -> None:
    """Give files that root made to the folder's owner, the service's user, who could not replace them otherwise."""
    owner = directory.stat() if os.geteuid() == 0 and directory.exists() else None
    if owner is None or owner.st_uid == 0:
        return
    for folder, folders, files in os.walk(directory):
        for name in (*folders, *files):
            path = Path(folder, name)
            with suppress(OSError):  # another process may have removed the file
                made = path.lstat()
                if made.st_uid == 0 and (made.st_nlink == 1 or path.is_dir()):
                    os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
