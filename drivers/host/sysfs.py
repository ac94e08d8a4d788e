"""
Reads files of the kernel's /sys and /proc, from the live host or from a host archive.

A file that does not exist is None; a file that cannot be read, or is not text, is an error that names the file.
"""

import errno
from collections.abc import Callable, MutableMapping
from pathlib import Path

from drivers.errors import DiscoveryError, Vanished
from drivers.host.archive import Document, read_text, refuse_outside

MAX_FILE_BYTES = 64 * 1024  # the kernel writes attributes of one page
MAX_TABLE_BYTES = 16 * 1024 * 1024  # 131,071 lines of /proc/net/route; a host archive's files have the same limit
UNREAD = "\0"  # in a host archive: the file could not be read; no file of text has this byte
GONE = (errno.ENODEV, errno.ENXIO)  # the file's device was removed after the file was opened


class KernelFiles:
    """The files ``sys/...`` and ``proc/...`` below ``root``, which is ``/`` on a live host."""

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
        except (FileNotFoundError, NotADirectoryError):
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
