"""Finds configuration files with a password that every user of this host can read."""

import stat
from pathlib import Path

from agent.bundle.secrets import holds_secret
from agent.settings.read import Settings
from agent.settings.values import mentions


def open_files(settings: Settings) -> list[str]:
    """Return a sentence for each such file."""
    with_secrets = dict.fromkeys(
        path
        for path, _line, _group, name, value in mentions(settings.apis.source)
        if holds_secret(name, value.strip().strip("\"'"))
    )
    return [
        f"{path} has a password, and every user of this host can read it: give it the mode 640, and a group of only "
        f"what must read it"
        for path in with_secrets
        if _is_open(path.resolve())
    ]


def _is_open(path: Path) -> bool:
    """Return whether the modes of a file and of the folders above let every user read it."""
    return bool(path.stat().st_mode & stat.S_IROTH) and all(
        folder.stat().st_mode & stat.S_IXOTH for folder in path.parents
    )
