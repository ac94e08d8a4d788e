"""Small files that a power cut leaves whole or as they were, with a checksum that shows whether they are damaged."""

import errno
import hashlib
import json
import logging
import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from agent.errors import StateError
from agent.state.rights import owners_rights

LOG = logging.getLogger(__name__)
T = TypeVar("T")
MOST_BYTES = 64 << 20  # of a file that is read whole
_NEW = ".new"  # end of a temporary file's name


def temporary_path(path: Path) -> Path:
    """Return the path of the temporary file that is written first and then renamed to ``path``."""
    return path.with_name(f"{path.name}{_NEW}")


def replace_file(
    path: Path, content: str | bytes, mode: int | None = None, *, named: bool = False, lasting: bool = True
) -> None:
    """
    Replace a file, whole or not at all, and wait until it is on disk unless it need not be ``lasting``.

    ``mode`` is as for ``write_file``. A missing folder is made, but not for a file that a person ``named``: others may
    write that at the same time, as no lock is held, and it is then whole, as one of them wrote it.

    Raises:
        OSError: the file cannot be written; the old one stays, and nothing else.
    """
    temporary = path.with_name(f".{uuid4().hex}{_NEW}") if named else temporary_path(path)
    with owners_rights(path):
        if not named:
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            write_file(temporary, content, mode, lasting=lasting)
            temporary.rename(path)
        except OSError:
            with suppress(OSError):
                remove(temporary)
            raise
        if lasting:
            sync_folder(path.parent)


def write_file(path: Path, content: str | bytes, mode: int | None = None, *, lasting: bool = True) -> None:
    """
    Write a file, and wait until it is on disk if it is to be ``lasting``; ``mode`` None: as the umask says.

    A file that is there is overwritten in place, so that the disk space it reserves is used; a link, or a file of
    another user, is replaced.
    """
    with owners_rights(path), os.fdopen(_open_own(path, mode or 0o666), "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.truncate()
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        if lasting:
            file.flush()
            os.fsync(file.fileno())


def _open_own(path: Path, mode: int) -> int:
    """Open a file for writing that belongs to this user alone, and make it where there is none."""
    flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with suppress(OSError):
        descriptor = os.open(path, flags)
        found = os.fstat(descriptor)
        if (
            stat.S_ISREG(found.st_mode)
            and (found.st_uid, found.st_nlink) == (os.geteuid(), 1)
            and not found.st_mode & 0o777 & ~mode
        ):
            return descriptor
        os.close(descriptor)
    path.unlink(missing_ok=True)
    return os.open(path, flags | os.O_CREAT | os.O_EXCL, mode)


def read_whole(path: Path | str) -> bytes:
    """
    Read a file of at most ``MOST_BYTES``, and no device or pipe, which may never end.

    Raises:
        OSError: the file does not exist or cannot be read.
    """
    with owners_rights(path):
        opened = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    with opened as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
            raise OSError(errno.EFBIG, f"no file of at most {MOST_BYTES >> 20} MiB", str(path))
        return file.read()


def read_named(path: Path) -> str:
    """
    Read UTF-8 text of at most 1 MiB from a file, or a pipe, that a person names.

    Raises:
        OSError: it does not exist, cannot be read, or has more. ValueError: it is no UTF-8 text.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            text = file.read((1 << 20) + 1)
    except UnicodeDecodeError as error:
        raise ValueError("it is no text") from error
    if len(text) > 1 << 20:
        raise OSError(errno.EFBIG, "it has more than 1 MiB", str(path))
    return text


def remove(path: Path) -> None:
    """
    Remove a file; nothing happens where there is none.

    Raises:
        OSError: it cannot be removed.
    """
    with owners_rights(path):
        path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk: a rename or link in it then outlasts a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_state(path: Path) -> bytes:
    """
    Read a file of the state directory, as ``read_whole``.

    Raises:
        FileNotFoundError: there is none. StateError: it cannot be read.
    """
    try:
        return read_whole(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StateError(f"cannot read {path}: {error.strerror}") from error


def read_trusted(path: Path, decode: Callable[[str], T], otherwise: T, doubt: str) -> T:
    """
    Return what a file of the state directory holds, or ``otherwise`` where there is none.

    The same where it is damaged or of another format, so that ``decode`` fails; then ``doubt`` is logged.

    Raises:
        StateError: it cannot be read.
    """
    try:
        return decode(read_state(path).decode())
    except FileNotFoundError:
        return otherwise
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        LOG.warning("%s file=%s reason=%s", doubt, path, error)
        return otherwise


def write_state(path: Path, text: str, mode: int | None = None, *, lasting: bool = True) -> None:
    """
    Replace a file of the state directory, as ``replace_file``.

    Raises:
        StateError: it cannot be written; the old one stays.
    """
    try:
        replace_file(path, text, mode, lasting=lasting)
    except OSError as error:
        raise StateError(f"cannot write {path}: {error.strerror}: make room or set [agent] state_directory") from error


def remove_state(path: Path) -> None:
    """
    Remove a file of the state directory for good; nothing happens where there is none.

    Raises:
        StateError: it cannot be removed.
    """
    try:
        if path.exists():
            remove(path)
            sync_folder(path.parent)
    except OSError as error:
        raise StateError(f"cannot remove {path}: {error.strerror}: remove it by hand") from error


def state_files(folder: Path, *suffixes: str) -> list[Path]:
    """
    Return the files of a folder whose names end so, by name; empty where there is no such folder.

    Raises:
        StateError: the folder cannot be read. (``Path.glob`` takes it for an empty one.)
    """
    try:
        with owners_rights(folder), os.scandir(folder) as found:
            return sorted(folder / one.name for one in found if one.name.endswith(suffixes))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StateError(f"cannot read {folder}: {error.strerror}") from error


def seal(body: Mapping[str, object], *, form: int, indent: int | None = None) -> str:
    """Return a JSON text with a format number and a checksum, for ``unseal``."""
    return json.dumps({"format": form, "checksum": checksum(body), "body": body}, indent=indent) + "\n"


def unseal(text: str, *, form: int) -> dict[str, Any]:
    """
    Return the body of a sealed text.

    Raises:
        ValueError, KeyError, TypeError, RecursionError: the text is damaged, or of another format.
    """
    record = json.loads(text)
    body: dict[str, Any] = record["body"]
    if record["format"] != form:
        raise ValueError(f"format {record['format']}")
    if record["checksum"] != checksum(body):
        raise ValueError("checksum")
    return body


def checksum(body: Mapping[str, object]) -> str:
    """Return the SHA-256, as hex digits, of a JSON object."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
