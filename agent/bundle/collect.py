"""Collects what a bug report needs; a part that cannot be had is named with the reason, and the others are kept."""

import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path

from agent.errors import USER_ERRORS, StateError
from agent.service.cases import case_files
from agent.service.status import read_status, record_of
from agent.settings.read import Settings
from agent.settings.saved import encode_options
from agent.state.files import state_files
from drivers.host.unpack import unpack

_CASES = 3  # the last ones
_JOURNAL = ("journalctl", "--unit=compute-node-agent*", "--lines=5000", "--no-pager", "--output=short-iso-precise")
_JOURNAL_S = 60
_LOG_BYTES = 4 << 20  # the end of a log file


@dataclass(frozen=True, slots=True)
class BundlePart:
    """One part of a bundle: its files by path, or why it has none."""

    what: str
    files: Mapping[str, str] = field(default_factory=dict)
    missing: str = ""  # why there are no files; empty: there are


def collect(settings: Settings, record: Callable[[], Mapping[str, str]]) -> Iterator[BundlePart]:
    """Yield all parts; ``record`` returns the files of a host archive; the settings are those of the service."""
    yield _part("the host, as record writes it", lambda: {f"host/{path}": text for path, text in record().items()})
    yield _part("the options that decide plans, to use with the host", lambda: {"agent.conf": encode_options(settings)})
    yield _part("all options, without secrets", lambda: {"configuration.txt": _options(settings)})
    yield _part("the operator's provider files", lambda: _provider_files(settings.operator_files.folder))
    status = partial(read_status, settings.folders.state)
    yield _part("the service's last status", lambda: {"status.json": json.dumps(record_of(status()), indent=1) + "\n"})
    yield from _cases(settings.folders.state)
    yield _part("versions", lambda: {"versions.txt": _versions()})
    yield _part("the service's journal", lambda: {"journal.txt": _journal()})
    if log := settings.apis.source.log_file:
        path = Path(settings.apis.source.log_dir or "") / log
        yield _part("the end of its log file", lambda: {"log.txt": _end_of(path)})


def _part(what: str, read: Callable[[], Mapping[str, str]]) -> BundlePart:
    try:
        return BundlePart(what, read())
    except (*USER_ERRORS, OSError, subprocess.SubprocessError) as error:
        return BundlePart(what, missing=str(error))


def _cases(directory: Path) -> Iterator[BundlePart]:
    what = "a pass that was refused or failed, for plan --replay"
    try:
        paths = case_files(directory)
    except StateError as error:
        yield BundlePart(what, missing=str(error))
        return
    for path in paths[-_CASES:]:
        yield _part(what, partial(_case, path))


def _options(settings: Settings) -> str:
    """Return all options that the agent knows, also those with their defaults; ``hide`` takes the secrets out."""
    lines = ["[DEFAULT]"]
    for name, value in settings.apis.source.items():
        if hasattr(value, "items"):
            lines += [f"[{name}]", *(f"{option} = {one}" for option, one in value.items())]
        else:
            lines.append(f"{name} = {value}")
    return "\n".join(lines) + "\n"


def _provider_files(folder: Path) -> dict[str, str]:
    found = {
        f"provider_config/{path.name}": path.read_text(encoding="utf-8", errors="replace")  # a wrong byte is to be seen
        for path in state_files(folder, ".yaml", ".yml")
    }
    if not found:
        raise FileNotFoundError(f"{folder} has none")
    return found


def _case(path: Path) -> dict[str, str]:
    """Return the files of a case below ``cases/NAME/``."""
    with tempfile.TemporaryDirectory(prefix="compute-node-agent-") as scratch:
        folder = unpack(path, Path(scratch))
        name = path.name.removesuffix(".tar.gz")
        return {
            f"cases/{name}/{one.relative_to(folder)}": one.read_text(encoding="utf-8", errors="replace")
            for one in sorted(folder.rglob("*"))
            if one.is_file()
        }


def _versions() -> str:
    lines = [f"compute-node-agent {metadata.version('compute-node-agent')}", f"Python {sys.version}"]
    with suppress(OSError):
        lines.append(platform.freedesktop_os_release().get("PRETTY_NAME", "a system without a name"))
    lines.append(f"{platform.system()} {platform.release()} {platform.machine()}")
    packages = {one.metadata["Name"]: one.version for one in metadata.distributions() if one.metadata["Name"]}
    return "\n".join([*lines, "", *(f"{name} {packages[name]}" for name in sorted(packages, key=str.lower))]) + "\n"


def _journal() -> str:
    done = subprocess.run(_JOURNAL, capture_output=True, text=True, errors="replace", timeout=_JOURNAL_S, check=False)
    if done.returncode or not done.stdout:
        raise OSError(done.stderr.strip() or "journalctl shows nothing")
    return done.stdout


def _end_of(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LOG_BYTES))
        return file.read().decode(errors="replace")
