"""Unpacks host archives and cases (``.tar.gz``): only regular files, folders, and links that stay inside."""

import gzip
import os.path
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from drivers.errors import DiscoveryError, MalformedFact
from drivers.host.archive import MAX_ARCHIVE_BYTES

MAX_MEMBERS = 25_000  # take 4 s; a device is two files
MAX_TOTAL_BYTES = 1024 * 1024 * 1024
MAX_DEPTH = 50  # folders in folders
_PADDING_BYTES = 1024 * 1024  # most that a program writes after the last file; tar fills up 10 KiB
_HEADER_BYTES = 2 * _PADDING_BYTES  # most that is read of one member before its content


def unpack(packed: Path, folder: Path, *, most_bytes: int = MAX_ARCHIVE_BYTES) -> Path:
    """
    Unpack into ``folder``, and return the archive's root: ``folder``, or the only folder in it.

    Symbolic links are unpacked when they stay inside the archive. ``most_bytes`` is the limit for one file.

    Raises:
        DiscoveryError: the file cannot be read to its end.
        MalformedFact: a path or link leads out of the folder, or there are more or larger files than any host has.
    """
    try:
        with _Parts(packed) as whole:
            with tarfile.open(fileobj=whole, mode="r:", errorlevel=2) as tar:
                _extract(_members(tar, whole), tar, folder, packed, most_bytes)
            if len(whole.read(_PADDING_BYTES + 1)) > _PADDING_BYTES:  # the end has the checksum
                raise MalformedFact(f"{packed} is not a host archive or case: it goes on after its last file")
    except (OSError, tarfile.TarError, EOFError, RuntimeError, ValueError, zlib.error) as error:
        no_gzip = "it is not a gzip file: give a folder, a .tar.gz of one, or a case that --save wrote"
        why = no_gzip if isinstance(error, gzip.BadGzipFile) else error
        raise DiscoveryError(f"cannot unpack {packed}: {why}") from error
    tops = list(folder.iterdir())
    return tops[0] if len(tops) == 1 and tops[0].is_dir() else folder


class _Parts(gzip.GzipFile):
    """A file with bounded headers: tarfile keeps long names and extended headers whole, whatever size they state."""

    of_header: int | None = 0  # bytes that were read of a header; None: what is read is none

    def read(self, size: int | None = -1) -> bytes:
        if self.of_header is not None:
            self.of_header += size or 0
            if size is None or size < 0 or self.of_header > _HEADER_BYTES:
                raise ValueError(f"it has a header of {self.of_header} bytes or more")
        return super().read(size)


def _members(tar: tarfile.TarFile, whole: _Parts) -> Iterator[tarfile.TarInfo]:
    while member := tar.next():
        whole.of_header = None if member.isfile() else 0  # for a link that cannot be made, tarfile reads on
        yield member
        tar.members.clear()  # type: ignore[attr-defined]  # tarfile keeps the headers of all, and for all that follow
        tar.pax_headers = {}
        whole.of_header = 0
    whole.of_header = None


def _extract(
    members: Iterable[tarfile.TarInfo], tar: tarfile.TarFile, folder: Path, packed: Path, most_bytes: int
) -> None:
    tar.extraction_filter = lambda member, _: member  # each is looked at here, in the same way in every Python
    total, top = 0, os.path.realpath(folder)
    for count, member in enumerate(members):
        total += member.size
        if count >= MAX_MEMBERS or total > MAX_TOTAL_BYTES or member.size > most_bytes:
            raise MalformedFact(
                f"{packed} is not a host archive or case: it has too many or too large files, found at {member.name}"
            )
        if member.name.count("/") > MAX_DEPTH:
            raise MalformedFact(f"{packed} is not a host archive or case: it has more than {MAX_DEPTH} nested folders")
        if member.isdir() and os.path.normpath(member.name) == ".":
            continue  # the folder itself, as in tar -C FOLDER .
        if not (member.isfile() or member.isdir() or member.issym()) or _leads_out(member, top):
            raise MalformedFact(f"{packed}: {member.name} leads out of the archive or is not a regular file")
        member.mode = 0o700 if member.isdir() else 0o600
        tar.extract(member, folder, set_attrs=False)


def _leads_out(member: tarfile.TarInfo, top: str) -> bool:
    """Return whether a member, or the target of a link, is outside of ``top``; follows links unpacked before."""
    place = os.path.join(top, member.name)
    ways = [place, *([os.path.join(os.path.dirname(place), member.linkname)] if member.issym() else [])]
    real = [f"{os.path.realpath(way)}/" for way in ways]
    return os.path.isabs(member.name) or not all(way.startswith(f"{top}/") for way in real)
