"""The file locks of the state directory: one process writes at a time, and at most one process is the service."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from oslo_concurrency import lockutils

from agent.errors import StateError
from agent.state.rights import owners_rights

_PATIENCE_S = 10  # wait for another process that writes


def locked(directory: Path) -> AbstractContextManager[None]:
    """
    Inside the context, no other process of this agent writes.

    Raises:
        StateError: the folder cannot be written, or another process has had the lock for ten seconds.
    """
    another = (
        f"another compute-node-agent has been writing for {_PATIENCE_S} s (lock in {directory}): let it finish, or "
        f"stop the service"
    )
    return _holding("agent", directory, another, patience_s=_PATIENCE_S)


def serving(directory: Path) -> AbstractContextManager[None]:
    """
    Inside the context, this process is the service of this state directory; each of its passes also takes ``locked``.

    Raises:
        StateError: the folder cannot be written, or a service with this state directory runs already.
    """
    return _holding("service", directory, f"the service runs already with {directory}: stop it first", patience_s=0)


@contextmanager
def _holding(name: str, directory: Path, otherwise: str, *, patience_s: int) -> Iterator[None]:
    """Inside the context, no other process has the lock of this name."""
    try:
        with owners_rights(directory):
            _make_private(directory, name)
            lock = lockutils.external_lock(name, lock_path=str(directory))
            taken = lock.acquire(blocking=patience_s > 0, timeout=patience_s)
        if not taken:
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


def _make_private(directory: Path, name: str) -> None:
    """Let nobody else open a lock's file: who can read it can hold it, and so stop this agent."""
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(directory / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_uid == os.geteuid():
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)
