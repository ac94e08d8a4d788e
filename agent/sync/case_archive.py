"""Write a case or a bundle as one ``.tar.gz`` file, whole or not at all."""

import io
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from agent.errors import StateError
from agent.state.files import replace_file
from agent.state.rights import owners_rights
from drivers.host.archive import MAX_ARCHIVE_BYTES
from drivers.host.unpack import MAX_MEMBERS, MAX_TOTAL_BYTES

MAX_MEMBER_BYTES = 256 << 20  # limit for one file of a case: the answers about 10,000 nodes have about 50 MiB
_HOSTS = "hosts/"  # host archives, whose files have the limit MAX_ARCHIVE_BYTES


def check_folder(path: Path, what: str = "case") -> None:
    """
    Test that a case can be written to ``path``; leaves no file there.

    Raises:
        StateError: no file can be made in its folder.
    """
    try:
        with owners_rights(path), tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise _unwritten(path, error, what) from error


def pack_case(files: Mapping[str, bytes], top: str = "case") -> bytes:
    """
    Return a ``.tar.gz`` with these files, by their names in the case; all are in one folder, ``top``.

    Raises:
        StateError: a file is too large, or all files are, or they are too many: the case could not be unpacked.
    """
    large = [name for name, data in files.items() if len(data) > _limit(name)]
    if large or sum(map(len, files.values())) > MAX_TOTAL_BYTES or len(files) > MAX_MEMBERS:
        raise StateError(
            f"no {top} is saved, because {large[0] if large else 'it'} would be larger than a replay accepts: "
            f"send the log of the verb with -vv instead"
        )
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, data in sorted(files.items()):
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size, member.mode = len(data), 0o600
            tar.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def _limit(name: str) -> int:
    return MAX_ARCHIVE_BYTES if name.startswith(_HOSTS) else MAX_MEMBER_BYTES


def write_packed(path: Path, data: bytes, what: str = "case", *, named: bool = True) -> None:
    """
    Write a file that only its owner can read; ``named`` is as for ``replace_file``.

    Raises:
        StateError: the file cannot be written; nothing is left of it.
    """
    try:
        replace_file(path, data, 0o600, named=named)
    except OSError as error:
        raise _unwritten(path, error, what) from error


def _unwritten(path: Path, error: OSError, what: str = "case") -> StateError:
    return StateError(f"cannot write the {what} {path}: {error.strerror}: name another file")
