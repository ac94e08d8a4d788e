"""The verbs that write this host into files for others: ``record`` a host archive, ``bundle`` all for a bug report."""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from agent.bundle.collect import BundlePart, collect
from agent.bundle.secrets import hide, secrets_of
from agent.command.exits import Exit
from agent.command.result import Report, agreed, choice_of, settings_of
from agent.command.wording import columns
from agent.connect.choice import Choice, check_hypervisor, open_driver, settings_for
from agent.errors import ConfigError, StateError
from agent.settings.read import Settings
from agent.state.identity import read_identity
from agent.state.rights import owners_rights
from agent.sync.case import pack_case, write_packed
from agent.sync.json_form import Form, encode
from agent.sync.recorder import archive_files
from drivers import FAKE
from drivers.errors import DiscoveryError
from drivers.host.archive import write_files
from drivers.libvirt.connection import LiveConnection
from drivers.libvirt.recorded import DEVICES
from drivers.looks import look

_TOP = "bundle"
_CASES = "cases/"


def record(options: argparse.Namespace) -> Report:
    """
    Record this host into the folder ``options.directory``, which is new or empty.

    The host is read completely before the first file is written.

    Raises:
        DiscoveryError, PolicyError: the host cannot be read. StateError: the folder has files or cannot be written.
    """
    folder: Path = options.directory
    with _writing(folder):
        if folder.exists() and any(folder.iterdir()):  # before the host is read, which may take long
            raise StateError(f"{folder} is not empty: record into a new folder")
    files = host_files(settings_of(options))
    with _writing(folder), owners_rights(folder):
        write_files(folder, files)
    lines = [f"recorded this host in {folder}: {len(files)} files"]
    return Report(data={"directory": folder, "files": len(files)}, lines=lines)


def host_files(settings: Settings) -> dict[str, str]:
    """
    Return the files of a host archive of this host.

    Raises:
        DiscoveryError, PolicyError: the host cannot be read. ConfigError: the driver makes hosts up.
    """
    if settings.hypervisor.driver == FAKE:
        raise ConfigError(
            f"[DEFAULT] compute_driver = {settings.hypervisor.driver} makes hosts up: to record this one, use another "
            f"driver"
        )
    whole = replace(settings, policy=replace(settings.policy, layout="numa"))  # the layout for which most is read
    with open_driver(whole, Choice()) as driver:
        node = driver.name()
        survey = look(partial(driver.survey, node))
    if survey.facts.disk_unread:
        raise DiscoveryError(survey.facts.disk_unread[0])
    everything = look(LiveConnection(settings.hypervisor.libvirt_uri).devices)
    files = {**{f"{DEVICES}/{name}.xml": document.text for name, document in everything}, **survey.files}
    return archive_files(replace(survey, files=files, compute_id=read_identity(settings.folders.identity)), node)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StateError(f"cannot write the host archive: {error.strerror}: {error.filename or folder}") from error


def bundle(options: argparse.Namespace) -> Report:
    """Show what would be inside, and write it after a yes."""
    path: Path = options.file
    if path.exists():
        raise StateError(f"{path} exists: name a new file")
    settings = settings_for(replace(choice_of(options), service=True))
    check_hypervisor(settings)  # a driver of bare-metal nodes has no host to record
    secrets = secrets_of(settings)
    parts = [_without(secrets, one) for one in collect(settings, partial(host_files, settings))]
    data = {"path": path, "parts": [_encode_part(one) for one in parts], "written": False}
    lines = columns(map(_row_of, parts), heads=("part", "KiB", "files"))
    if not (options.yes or agreed([*lines, _written("not written:", path)], f"write {path}?")):
        lines.append(_written("not written:", path))
        return Report(data=data, lines=lines, exit=Exit.DIFFERENCES, remarks=["nothing was written: --yes writes it"])
    files = {name: text for part in parts for name, text in part.files.items()}
    write_packed(path, pack_case(_with_contents(files, data), _TOP), _TOP)
    return Report(data={**data, "written": True}, lines=[*lines, _written("written to", path)])


def _encode_part(part: BundlePart) -> Form:
    """Return a part as JSON: instead of the texts of its files their bytes."""
    return {
        "what": part.what,
        "files": {name: len(text.encode()) for name, text in part.files.items()},
        "missing": part.missing,
    }


def _row_of(part: BundlePart) -> tuple[str, str, str]:
    """Return what a part is, the size of its files in KiB, and their names."""
    if not part.files:
        return part.what, "", f"missing: {part.missing}"
    first = next(iter(part.files))
    several = f"{first.rpartition('/')[0]}/: {len(part.files)} files" if len(part.files) > 1 else first
    return part.what, f"{sum(len(text.encode()) for text in part.files.values()) / 1024:.0f}", several


def _written(verb: str, path: Path) -> str:
    return f"{verb} {path}; without secrets, names are as they are"


def _without(secrets: frozenset[str], part: BundlePart) -> BundlePart:
    """Return a part without secrets, also in the text that says why it is missing."""
    return replace(part, files=hide(part.files, secrets), missing=hide({"": part.missing}, secrets)[""])


def _with_contents(files: Mapping[str, str], data: Form) -> dict[str, bytes]:
    """Return the files of the bundle: each case packed for plan --replay, and CONTENTS.json."""
    cases: dict[str, dict[str, bytes]] = defaultdict(dict)
    found = {"CONTENTS.json": (json.dumps(encode(data), indent=1) + "\n").encode()}
    for name, text in files.items():
        if name.startswith(_CASES):
            case, _, below = name.removeprefix(_CASES).partition("/")
            cases[case][below] = text.encode()
        else:
            found[name] = text.encode()
    return {**found, **{f"{_CASES}{case}.tar.gz": pack_case(below) for case, below in cases.items()}}
