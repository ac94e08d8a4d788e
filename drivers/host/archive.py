"""
Reads the files of a host: the kernel's own, or those of a host archive, which this module also writes.

A host archive is a host as a folder of small files, for tests, bug reports and planning elsewhere.
"""

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from stat import S_ISREG
from types import MappingProxyType
from typing import Any
from uuid import UUID

from drivers.errors import DiscoveryError, MalformedFact, Vanished
from drivers.facts import DiskFacts, DiskSpace, DiskUnread, PoolSpace
from reportclient.json_text import decode_json

FORMAT = 1
DISK = "disk.json"
NOWHERE = Path("/nonexistent")  # has no files, as those of another machine are not here
MAX_ARCHIVE_BYTES = 16 * 1024 * 1024  # limit for one file; libvirt's largest answers are below 1 MiB
MAX_FILE_BYTES = 64 * 1024  # the kernel writes attributes of one page
MAX_TABLE_BYTES = 16 * 1024 * 1024  # 131,071 lines of /proc/net/route
UNREAD = "\0"  # in a host archive: the file could not be read; no file of text has this byte
GONE = (errno.ENODEV, errno.ENXIO)  # the file's device was removed after the file was opened
_PART_BYTES = 64 * 1024  # read at once


@dataclass(frozen=True, slots=True)
class Document:
    """A text with its source."""

    text: str
    source: str  # where it was read, for messages


class KernelFiles:
    """
    The files ``sys/...`` and ``proc/...`` below ``root``, which is ``/`` on a live host.

    A file that does not exist is None; a file that cannot be read, or is not text, is an error that names the file.
    """

    def __init__(self, root: Path, *, live: bool = False, record: MutableMapping[str, str] | None = None) -> None:
        """``live``: the files are this host's and can go away. ``record`` gets the text of each file read, by name."""
        self._root = str(root).rstrip("/")
        self._record = record
        self.live = live

    def recording(self, files: MutableMapping[str, str]) -> "KernelFiles":
        """Return the same files, such that the text of each one that is read goes into ``files``: name -> text."""
        return KernelFiles(Path(self._root or "/"), live=self.live, record=files)

    def read(self, name: str, most: int = MAX_FILE_BYTES) -> Document | None:
        """
        Read one file; None when there is no such file, or the device's driver does not support it (EOPNOTSUPP).

        Raises:
            DiscoveryError: the file cannot be read.
            MalformedFact: it is not text, or longer than ``most`` bytes; or a link of an archive leads out of it.
            Vanished: its device went away.
        """
        path = f"{self._root}/{name}"
        if not self.live:
            refuse_outside(path, self._root or "/")
        try:
            text = read_text(path, most)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                return None
            if self._record is not None:
                self._record[name] = UNREAD
            if error.errno in GONE:
                raise Vanished(f"{path} went away while it was read") from error
            raise DiscoveryError(f"cannot read {path}: {error.strerror}: is this agent run as root?") from error
        if self._record is not None:
            self._record[name] = text
        return Document(text, path)

    def names(self, folder: str) -> list[str]:
        """
        Return the names in a folder, sorted; empty where there is no such folder.

        Raises:
            DiscoveryError: it cannot be listed.
            MalformedFact: a link of an archive leads out of it.
        """
        path = f"{self._root}/{folder}"
        if not self.live:
            refuse_outside(path, self._root or "/")
        try:
            return sorted(one.name for one in Path(path).iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise DiscoveryError(f"cannot list {path}: {error.strerror}: is this agent run as root?") from error

    def ask(self, name: str, answer: Callable[[], str]) -> Document | None:
        """
        Return what the kernel answers on a live host; of an archive the file, None where an older agent recorded it.

        Raises:
            DiscoveryError: the kernel does not answer (OSError of ``answer``); or as ``read``.
        """
        if not self.live:
            return self.read(name, MAX_TABLE_BYTES)
        record = {} if self._record is None else self._record
        try:
            record[name] = answer()
        except OSError as error:
            record[name] = UNREAD
            raise DiscoveryError(f"the kernel does not answer for {name}: {error}") from error
        return Document(record[name], name)


@dataclass(frozen=True, slots=True)
class HostArchive:
    """A recorded host; every error of a read names the file."""

    root: Path

    def read(self, name: str) -> Document:
        """
        Read one file, given by its path inside the archive.

        Raises:
            DiscoveryError: the file is missing or cannot be read.
            MalformedFact: it is not text, too large, or outside the archive.
        """
        if (found := self.find(name)) is None:
            raise DiscoveryError(
                f"host archive {self.root} has no {name}: give the folder that compute-node-agent record wrote, or "
                f"a .tar.gz of it; if this is that folder, record the host again"
            )
        return found

    def find(self, name: str) -> Document | None:
        """Read one file; None where the archive does not have it; errors as ``read``."""
        return self.files.read(name, MAX_ARCHIVE_BYTES)

    @property
    def files(self) -> KernelFiles:
        """The files below the archive's folder, as they would be below ``/``."""
        return KernelFiles(self.root)

    def read_json(self, name: str) -> dict[str, Any]:
        """Read the JSON object in one file; errors as ``read``, and MalformedFact when it is not a JSON object."""
        document = self.read(name)
        try:
            value = decode_json(document.text)
        except (ValueError, RecursionError) as error:
            raise MalformedFact(f"{document.source} is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise MalformedFact(f"{document.source} is not a JSON object")
        return value

    def check(self) -> None:
        """
        Refuse an archive that is incomplete or has another format than this version reads.

        Raises:
            DiscoveryError: there is no such folder, or a recorded file is missing.
            MalformedFact: another format, or a malformed ``host.json``.
        """
        if not os.path.isdir(self.root):
            raise DiscoveryError(f"there is no folder {self.root}: give the one that compute-node-agent record wrote")
        host = self.read_json("host.json")
        if host.get("format") != FORMAT:
            raise MalformedFact(
                f"{self.root / 'host.json'}: format is {host.get('format')!r}, this version reads {FORMAT}"
            )
        files = host.get("files", [])
        if not (isinstance(files, list) and all(isinstance(name, str) and len(name) < 1000 for name in files)):
            raise MalformedFact(f"{self.root / 'host.json'}: files is not a list of names")
        missing = [name for name in files if not os.path.isfile(self.root / name)]
        if missing:
            raise DiscoveryError(
                f"host archive {self.root} lacks {', '.join(missing[:5])}, which host.json lists: "
                f"copy the whole archive, or record the host again"
            )

    def hostname(self) -> str:
        """Return the recorded host's name, which is the name of its root provider; MalformedFact where it cannot be."""
        with fields(self.root / "host.json"):
            hostname = self.read_json("host.json")["hostname"]
            if not (isinstance(hostname, str) and hostname.isprintable() and 0 < len(hostname.strip()) <= 200):
                raise ValueError(f"hostname {str(hostname)[:60]!r} cannot be used as the name of a provider")
            return hostname

    def disk(self) -> DiskFacts:
        """Read what was recorded of the disks of guests; errors as ``read_json``."""
        with fields(self.root / DISK):
            disk = self.read_json(DISK)
            if "because" in disk:
                return DiskUnread(str(disk["because"]))
            if "pool" in disk:
                fsid = str(UUID(disk["fsid"])) if disk.get("fsid") else ""
                return PoolSpace(str(disk["pool"]), whole(disk["cluster_bytes"]), whole(disk["pool_gib"]), fsid)
            return DiskSpace(
                total_bytes=whole(disk["total_bytes"]),
                free_bytes=whole(disk["free_bytes"]),
                image_cache_bytes=whole(disk["image_cache_bytes"]) if "image_cache_bytes" in disk else None,
                volume_group=disk.get("volume_group"),
                folder=disk.get("folder"),
                missing=disk.get("missing"),
            )

    def compute_id(self) -> str | None:
        """Return the text of the recorded ``compute_id`` file; None when the host had none."""
        found = self.find("compute_id")
        return found.text if found else None


def with_index(
    files: Mapping[str, str],
    hostname: str,
    recorded_at: str = "1970-01-01T00:00:00Z",
    uname: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Return the files of an archive, by their paths in it, with ``host.json``, which lists them."""
    about = {"format": FORMAT, "hostname": hostname, "recorded_at": recorded_at, "uname": dict(uname)}
    return {**files, "host.json": json.dumps({**about, "files": sorted(files)}, indent=1) + "\n"}


def write_files(root: Path, files: Mapping[str, str]) -> HostArchive:
    """
    Write the files of an archive.

    Raises:
        OSError: the folder cannot be written.
    """
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return HostArchive(root)


def read_text(path: str, most: int) -> str:
    """
    Return the text of a file; does not wait for a pipe in place of a file.

    Raises:
        OSError: it cannot be read, or is not a regular file.
        MalformedFact: it is not UTF-8 text, or longer than ``most`` bytes.
    """
    data = bytearray()
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        while len(data) <= most and (more := os.read(descriptor, _PART_BYTES)):
            data += more
    finally:
        os.close(descriptor)
    if len(data) > most:
        raise MalformedFact(f"{path} is longer than {most >> 10} KiB, the limit for such a file")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise MalformedFact(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    if "\0" in text:
        raise MalformedFact(f"{path} is not text: it holds a zero byte")
    return text


def refuse_outside(path: Path | str, root: Path | str) -> None:
    """Raise MalformedFact where a link leads a path out of an archive, which may come from somebody else."""
    top = os.path.realpath(root)
    if os.path.commonpath((os.path.realpath(path), top)) != top:
        raise MalformedFact(f"{path} leads out of the host archive: replace the link by what it leads to")


def encode_disk(disk: DiskFacts) -> str:
    """Return the text of the archive's file DISK."""
    return json.dumps({name: value for name, value in asdict(disk).items() if value is not None}) + "\n"


def whole(value: object) -> int:
    """Return a JSON value that must be a whole number and not negative; ValueError where it is not."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{str(value)[:40]!r} is not a whole number of 0 or more")
    return value


@contextmanager
def fields(source: object) -> Iterator[None]:
    """Turn errors of missing or ill-typed fields inside the block into a MalformedFact that names ``source``."""
    try:
        yield
    except KeyError as error:
        raise MalformedFact(f"{source} lacks {error}") from error
    except (TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise MalformedFact(f"{source} holds a value of the wrong kind: {error}") from error
