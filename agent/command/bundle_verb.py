"""The verb ``bundle``: what a bug report needs, in one file."""

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from agent.bundle.collect import BundlePart, collect
from agent.bundle.secrets import hide, secrets_of
from agent.command.exits import Exit
from agent.command.record import host_files
from agent.command.result import Report, agreed, choice_of
from agent.command.wording import columns
from agent.connect.choice import check_hypervisor, settings_for
from agent.errors import StateError
from agent.sync.case import check_folder, pack_case, write_packed
from agent.sync.json_form import Form, encode

_TOP = "bundle"
_CASES = "cases/"


def bundle(options: argparse.Namespace) -> Report:
    """Show what would be inside, and write it after a yes."""
    path: Path = options.file
    if path.exists():
        raise StateError(f"{path} exists: name a new file")
    check_folder(path, _TOP)
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
