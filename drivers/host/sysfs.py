"""
Files of the kernel's /sys and /proc, read through their root: the live one, or that of a host archive.

What is absent is None; what is there and cannot be read, or is no text, is an error that names the file.
"""

import errno
import os
from collections.abc import MutableMapping
from pathlib import Path

from drivers.errors import DiscoveryError, MalformedFact, Vanished
from drivers.host.archive import Document

MAX_FILE_BYTES = 64 * 1024  # the kernel writes attributes of one page; /proc/net/route of a large host is longer
GONE = (errno.ENODEV, errno.ENXIO)  # the device of an open attribute was removed


class KernelFiles:
    """``sys/...`` and ``proc/...`` below ``root``, which is ``/`` on a live host."""

    def __init__(self, root: Path, *, live: bool = False, record: MutableMapping[str, str] | None = None) -> None:
        self._root = str(root).rstrip("/")
        self._record = record
        self.live = live

    def recording(self, files: MutableMapping[str, str]) -> "KernelFiles":
        """The same files, of which each that is read is kept: name -> text."""
        return KernelFiles(Path(self._root or "/"), live=self.live, record=files)

    def read(self, name: str) -> Document | None:
        """
        One file's text; None when there is no such file, or its device's driver does not serve it.

        Raises:
            DiscoveryError: it cannot be read. MalformedFact: it is no text. Vanished: its device went away.
        """
        path = f"{self._root}/{name}"
        try:
            data = _read(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                return None
            if error.errno in GONE:
                raise Vanished(f"{path} went away while it was read") from error
            raise DiscoveryError(f"cannot read {path}: {error.strerror}: is this agent run as root?") from error
        return self._document(path, name, data)

    def _document(self, path: str, name: str, data: bytes) -> Document:
        if len(data) > MAX_FILE_BYTES:
            raise MalformedFact(f"{path} is longer than {MAX_FILE_BYTES >> 10} KiB, as no such file is")
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise MalformedFact(f"{path} is no text: {error.reason} at byte {error.start}") from error
        if "\0" in text:
            raise MalformedFact(f"{path} is no text: it holds a zero byte")
        if self._record is not None:
            self._record[name] = text
        return Document(text, path)


def _read(path: str) -> bytes:
    """Read at most ``MAX_FILE_BYTES`` and one more byte; does not wait for a pipe that stands in place of a file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        data = os.read(descriptor, MAX_FILE_BYTES + 1)
        while 0 < len(data) <= MAX_FILE_BYTES and (more := os.read(descriptor, MAX_FILE_BYTES + 1 - len(data))):
            data += more
        return data
    finally:
        os.close(descriptor)
