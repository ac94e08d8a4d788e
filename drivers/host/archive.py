"""A host archive: a host as a folder of small files, for tests, bug reports and planning for a host elsewhere."""

import json
import os.path
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drivers.errors import DiscoveryError, MalformedFact
from drivers.facts import DiskSpace

FORMAT = 1
DISK = "disk.json"
MAX_ARCHIVE_BYTES = 16 * 1024 * 1024  # of one file; libvirt's largest answers are below 1 MiB


@dataclass(frozen=True, slots=True)
class Document:
    """A text and where it was read, for messages."""

    text: str
    source: str


@dataclass(frozen=True, slots=True)
class HostArchive:
    """A recorded host; every read names its file when it fails."""

    root: Path

    def read(self, name: str) -> Document:
        """
        One file's text.

        Raises:
            DiscoveryError: it is missing or cannot be read.
            MalformedFact: it is no text, or larger than any such file is.
        """
        path = self.root / name
        if os.path.exists(path) and not os.path.isfile(path):
            raise MalformedFact(f"{path} is no plain file")
        try:
            with path.open("rb") as file:
                data = file.read(MAX_ARCHIVE_BYTES + 1)
        except FileNotFoundError as error:
            if not os.path.isdir(self.root):
                raise DiscoveryError(f"there is no host archive {self.root}") from error
            raise DiscoveryError(f"host archive {self.root} has no {name}: record the host again") from error
        except OSError as error:
            raise DiscoveryError(f"cannot read {path} of the host archive: {error.strerror}") from error
        if len(data) > MAX_ARCHIVE_BYTES:
            raise MalformedFact(f"{path} is larger than {MAX_ARCHIVE_BYTES >> 20} MiB, as no file of a host archive is")
        try:
            return Document(data.decode(), str(path))
        except UnicodeDecodeError as error:
            raise MalformedFact(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error

    def read_json(self, name: str) -> dict[str, Any]:
        """One file's JSON object; errors as ``read``, and MalformedFact when it is no object."""
        document = self.read(name)
        try:
            value = json.loads(document.text)
        except (ValueError, RecursionError) as error:
            raise MalformedFact(f"{document.source} is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise MalformedFact(f"{document.source} holds no JSON object")
        return value

    def names(self, folder: str) -> tuple[str, ...]:
        """The files in a folder of the archive, sorted; empty when it has no such folder."""
        path = self.root / folder
        if os.path.exists(path) and not os.path.isdir(path):
            raise MalformedFact(f"{path} is no folder")
        return tuple(sorted(file.name for file in path.iterdir())) if os.path.isdir(path) else ()

    def check(self) -> None:
        """
        Refuse what is no whole archive of a format that this version reads.

        Raises:
            DiscoveryError: a file that was recorded is missing.
            MalformedFact: another format.
        """
        host = self.read_json("host.json")
        if host.get("format") != FORMAT:
            raise MalformedFact(
                f"{self.root / 'host.json'}: format is {host.get('format')!r}, this version reads {FORMAT}"
            )
        files = host.get("files", [])
        if not (isinstance(files, list) and all(isinstance(name, str) and len(name) < 1000 for name in files)):
            raise MalformedFact(f"{self.root / 'host.json'}: files is no list of names")
        missing = [name for name in files if not (self.root / name).is_file()]
        if missing:
            raise DiscoveryError(
                f"host archive {self.root} lacks {', '.join(missing[:5])}, which was recorded: "
                f"copy it whole, or record the host again"
            )

    def hostname(self) -> str:
        """The recorded host's name: the name of its root provider."""
        with fields(self.root / "host.json"):
            hostname = self.read_json("host.json")["hostname"]
            if not (isinstance(hostname, str) and hostname.isprintable() and 0 < len(hostname.strip()) <= 200):
                raise ValueError(f"hostname {str(hostname)[:60]!r} is no name of a provider")
            return hostname

    def disk(self) -> DiskSpace:
        """The recorded file system of the instances."""
        with fields(self.root / DISK):
            disk = self.read_json(DISK)
            return DiskSpace(total_bytes=whole(disk["total_bytes"]), free_bytes=whole(disk["free_bytes"]))

    def compute_id(self) -> str | None:
        """The recorded identity as it stands in its file, None when the host had none."""
        return self.read("compute_id").text if (self.root / "compute_id").exists() else None


def encode_disk(disk: DiskSpace) -> str:
    """The file of the instances' file system."""
    return json.dumps({"total_bytes": disk.total_bytes, "free_bytes": disk.free_bytes}, indent=1) + "\n"


def whole(value: object) -> int:
    """A whole number of a JSON file, not negative."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{str(value)[:40]!r} is no whole number")
    return value


@contextmanager
def fields(source: object) -> Iterator[None]:
    """Inside, a missing or ill-typed field is a MalformedFact that names ``source``."""
    try:
        yield
    except KeyError as error:
        raise MalformedFact(f"{source} lacks {error}") from error
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise MalformedFact(f"{source} holds a value of the wrong kind: {error}") from error
