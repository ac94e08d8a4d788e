"""Probable mistakes of an operator, told by ``check``, and by verbs whose numbers they may make wrong."""

import stat
from pathlib import Path

from agent.bundle.secrets import holds_secret
from agent.errors import ConfigError
from agent.settings.read import Settings
from agent.settings.slips import slips_of_the_pen
from agent.settings.values import Values, mentions
from agent.sync.provider_yaml import unread_keys
from drivers.base import Survey
from drivers.libvirt.shape import idle


def doubtful_names(settings: Settings) -> tuple[str, ...]:
    """Return a sentence for each name in the files that is probably misspelt, and for each vGPU type without a card."""
    return (*slips_of_the_pen(Values(settings.apis.source)), *_unread(settings))


def _unread(settings: Settings) -> tuple[str, ...]:
    """Return a sentence for each key of the operator's files that is not read; a wrong file is told elsewhere."""
    try:
        return unread_keys(settings.operator_files.folder)
    except ConfigError:
        return ()


def doubts(settings: Settings, survey: Survey | None) -> list[str]:
    """Return a sentence for each name and each rule that has no effect here; without a survey only for names."""
    unmatched = idle(survey.facts, settings.policy) if survey else ()
    return [f"configuration: {text}" for text in (*doubtful_names(settings), *unmatched)]


def open_files(settings: Settings) -> list[str]:
    """Return a sentence for each configuration file with a password that every user of this host can read."""
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
