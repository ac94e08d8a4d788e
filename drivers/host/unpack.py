"""Unpacks host archives and cases (``.tar.gz``): only regular files, folders, and links that stay inside."""

import os.path
import tarfile
from pathlib import Path

from drivers.errors import DiscoveryError, MalformedFact
from drivers.host.archive import MAX_ARCHIVE_BYTES

MAX_MEMBERS = 100_000
MAX_TOTAL_BYTES = 1024 * 1024 * 1024


def unpack(packed: Path, folder: Path) -> Path:
    """
    Unpack into ``folder``, and return the archive's root: ``folder``, or the only folder in it.

    Symbolic links are unpacked when they stay inside the archive.

    Raises:
        DiscoveryError: the file cannot be read.
        MalformedFact: a path or link leads out of the folder, or there are more or larger files than any host has.
    """
    try:
        with tarfile.open(packed, "r:gz") as tar:
            _extract(tar, folder, packed)
    except (OSError, tarfile.TarError, EOFError, RuntimeError) as error:
        raise DiscoveryError(f"cannot unpack {packed}: {error}") from error
    tops = list(folder.iterdir())
    return tops[0] if len(tops) == 1 and tops[0].is_dir() else folder


def _extract(tar: tarfile.TarFile, folder: Path, packed: Path) -> None:
    total = 0
    for count, member in enumerate(tar):
        total += member.size
        if count >= MAX_MEMBERS or total > MAX_TOTAL_BYTES or member.size > MAX_ARCHIVE_BYTES:
            raise MalformedFact(
                f"{packed} is not a host archive: it has too many or too large files, found at {member.name}"
            )
        if not (member.isfile() or member.isdir() or member.issym()) or _leads_out(member, folder):
            raise MalformedFact(f"{packed}: {member.name} leads out of the archive or is not a regular file")
        member.mode = 0o700 if member.isdir() else 0o600
        tar.extract(member, folder, set_attrs=False)


def _leads_out(member: tarfile.TarInfo, folder: Path) -> bool:
    """Return whether a member, or the target of a link, is outside of ``folder``; follows links unpacked before."""
    top, place = folder.resolve(), folder / member.name
    ways = [place.parent, place, *([place.parent / member.linkname] if member.issym() else [])]
    return os.path.isabs(member.name) or not all(way.resolve().is_relative_to(top) for way in ways)
