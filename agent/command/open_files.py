"""Finds files with a password that others than their owner, root and the service can read."""

import grp
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from agent.bundle.secrets import holds_secret
from agent.connect.adapters import NEEDED
from agent.settings.options import LOGINS
from agent.settings.read import Settings
from agent.settings.values import mentions


def open_files(settings: Settings) -> list[str]:
    """Return a sentence for each such file: configuration files, and files for LoadCredential= beside them."""
    trusted = _trusted_groups(settings.folders.state)
    found = dict.fromkeys([*_configured(settings), *_credentials(settings)])
    return [
        f"{path} has a password, and {who} can read it: give it the mode 640, and a group of only what must read it"
        for path in found
        if (who := _readers(path, trusted))
    ]


def _configured(settings: Settings) -> Iterator[Path]:
    for path, _line, _group, name, value in mentions(settings.apis.source):
        if holds_secret(name, value.strip().strip("\"'")):
            yield path


def _credentials(settings: Settings) -> Iterator[Path]:
    """Yield files with the names of systemd's credentials: beside the configuration, and as a unit gets them."""
    folders = [Path(path).absolute().parent for path in settings.apis.source.config_file or ()]
    folders += [Path(folder) for folder in (os.environ.get("CREDENTIALS_DIRECTORY"),) if folder]
    for folder in folders:
        for name in (f"{group}-{option.replace('_', '-')}" for group in LOGINS for option in NEEDED):
            if os.path.exists(folder / name):
                yield folder / name


def _readers(path: Path, trusted: frozenset[int]) -> str:
    """
    Return who can read a file and should not, by its mode and those of the folders above; empty: nobody.

    With an access list the bits of the group are the list's mask (acl(5)): the group is not judged then.
    """
    real = path.resolve()
    try:
        file, above = real.stat(), [folder.stat() for folder in real.parents]
    except FileNotFoundError:  # it went since it was found
        return ""
    if file.st_mode & stat.S_IROTH and all(one.st_mode & stat.S_IXOTH for one in above):
        return "every user of this host"
    if file.st_gid in trusted or not file.st_mode & stat.S_IRGRP or _has_access_list(real):
        return ""
    passes = all(one.st_mode & (stat.S_IXGRP if one.st_gid == file.st_gid else stat.S_IXOTH) for one in above)
    return f"the group {_name(file.st_gid)}" if passes else ""


def _has_access_list(path: Path) -> bool:
    try:
        return "system.posix_acl_access" in os.listxattr(path)
    except OSError:  # a file system without such lists
        return False


def _trusted_groups(state_directory: Path) -> frozenset[int]:
    """Return the groups of root, of the service, and of nova, with which the service shares nova.conf."""
    try:
        service = state_directory.stat().st_gid
    except OSError:  # before the first start
        service = os.getegid()
    with suppress(KeyError):
        return frozenset({0, service, grp.getgrnam("nova").gr_gid})
    return frozenset({0, service})


def _name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
