"""Keeps root from acting for somebody else: below the folder of another user it has only that user's rights."""

import os
import pwd
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path

_ONE = threading.RLock()  # rights are those of the whole process


@contextmanager
def owners_rights(path: Path | str) -> Iterator[None]:
    """
    Inside the context, root has the rights of the user whose folder ``path`` leads through first; nobody else changes.

    Who owns a folder can exchange everything below it at any moment, by a link to a file of root's too. What is made
    inside the context belongs to that user, so nothing has to be given to it. The groups are those of the user, without
    those that a unit adds.

    Raises:
        OSError: a folder of the path cannot be looked at.
    """
    owner = _first_owner(str(path)) if os.getuid() == 0 else None
    if owner is None:
        yield
        return
    with _ONE:
        before = os.geteuid(), os.getegid(), os.getgroups()
        if owner.st_uid == before[0]:  # this thread has these rights already
            yield
            return
        _become(owner.st_uid, owner.st_gid, _groups(owner))
        try:
            yield
        finally:
            _become(*before)


def _first_owner(path: str) -> os.stat_result | None:
    """Return the first folder, link or file on the way to a path that is not root's; None where all are root's."""
    for way in dict.fromkeys((os.path.abspath(path), os.path.realpath(path))):  # noqa: PTH100 - paths as texts: quick
        for part in accumulate(way.split("/")[1:], "{}/{}".format, initial=""):
            try:
                found = os.lstat(part or "/")
            except FileNotFoundError:
                break
            if found.st_uid:
                return found
    return None


def _groups(owner: os.stat_result) -> list[int]:
    try:
        user = pwd.getpwuid(owner.st_uid)
    except KeyError:  # a user of a container
        return [owner.st_gid]
    return os.getgrouplist(user.pw_name, user.pw_gid)


def _become(user: int, group: int, groups: list[int]) -> None:
    os.seteuid(0)
    os.setgroups(groups)
    os.setegid(group)
    os.seteuid(user)
