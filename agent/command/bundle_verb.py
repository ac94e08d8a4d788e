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
from agent.command.host_tables import print_bundle
from agent.command.record import host_files
from agent.command.result import Report, choice_of
from agent.command.results import Bundle, PartContents
from agent.command.screen import agreed
from agent.connect.choice import check_hypervisor, settings_for
from agent.errors import StateError
from agent.sync.case import check_folder, pack_case, write_packed
from agent.sync.json_form import encode

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
    sizes = [{name: len(text.encode()) for name, text in one.files.items()} for one in parts]
    contents = tuple(PartContents(one.what, files, one.missing) for one, files in zip(parts, sizes, strict=True))
    data = Bundle(path=path, parts=contents)
    if not (options.yes or agreed(print_bundle, data, f"write {path}?")):
        return Report(
            data=data, table=print_bundle, exit=Exit.DIFFERENCES, remarks=["nothing was written: --yes writes it"]
        )
    files = {name: text for part in parts for name, text in part.files.items()}
    write_packed(path, pack_case(_with_contents(files, data), _TOP), _TOP)
    return Report(data=replace(data, written=True), table=print_bundle)


def _without(secrets: frozenset[str], part: BundlePart) -> BundlePart:
    """Return a part without secrets, also in the text that says why it is missing."""
    return replace(part, files=hide(part.files, secrets), missing=hide({"": part.missing}, secrets)[""])


def _with_contents(files: Mapping[str, str], data: Bundle) -> dict[str, bytes]:
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
