"""
Read nova's provider.yaml (schema version 1): inventories and traits that operators add to providers of this host.

The files are read anew at each pass; what they no longer name is withdrawn. A folder without any file says nothing: it
may be of a mount that is missing.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Any

from agent.errors import ConfigError
from agent.form_errors import form_error
from agent.misspelt import nearest
from agent.sync.decide.additions import COMPUTE_NODE, Addition
from agent.sync.yaml_file import load_once
from reportclient.names import is_custom, spelled
from reportclient.ownership import check_no_marks
from reportclient.payload import decode_inventory

_VERSION = re.compile(r"1\.\d+")
_NOVAS = "__source_file"  # key that nova's code keeps for itself
_TO_WITHDRAW = (
    "To withdraw everything that its files added before, put a file there that says only meta: {schema_version: '1.0'}"
)


def read_additions(
    folder: Path, *, required: bool = False, added: bool = False, shown: Path | None = None
) -> tuple[Addition, ...]:
    """
    Return the entries of every ``*.yaml`` in the folder, in the order of file names; empty when there is no folder.

    Messages name the folder ``shown`` where that is given. ``added``: the files added something before.

    Raises:
        ConfigError: the folder or a file in it cannot be read, a file breaks the schema, an entry has a class twice, or
            two entries name one provider by the same name or uuid; with ``required``, also when there is no folder;
            with ``added``, also when there is no file.
    """
    additions: dict[str, Addition] = {}
    files = _files(folder, shown or folder, required or added)
    if added and not files:
        raise ConfigError(
            f"[compute] provider_config_location: {shown or folder} has no *.yaml file, so all that its files added "
            f"would be withdrawn: put the files back. {_TO_WITHDRAW}, or run sync --force"
        )
    for file in files:
        path = (shown or folder) / file.name
        content = load_once(file, path)
        _check_schema(content, path)
        decoded = [_decode(entry, path) for entry in content.get("providers", ())]
        for addition in filter(None, decoded):
            if other := additions.get(addition.provider):
                raise ConfigError(f"{path}: provider {addition.provider} is named in {other.source} already")
            additions[addition.provider] = addition
    return tuple(additions.values())


def unread_keys(folder: Path) -> tuple[str, ...]:
    """Return a sentence for each key that the form has no place for, and that is ignored, as in nova."""
    return tuple(
        sentence for path in _files(folder, folder, required=False) for sentence in _unread(load_once(path, path), path)
    )


def _unread(content: object, path: Path) -> Iterator[str]:
    entries = content.get("providers") if isinstance(content, dict) else None
    places: list[tuple[str, object, tuple[str, ...]]] = [("the file", content, ("meta", "providers"))]
    for number, entry in enumerate(entries if isinstance(entries, list) else ()):
        places.append((f"providers[{number}]", entry, ("identification", "inventories", "traits")))
        for part in ("inventories", "traits"):
            below = entry.get(part) if isinstance(entry, dict) else None
            places.append((f"providers[{number}].{part}", below, ("additional",)))
    for place, value, known in places:
        for key in value if isinstance(value, dict) else ():
            if key not in known:
                yield f"{path}: {place} has {key}, which is not read{nearest(str(key), known)}"


def _files(folder: Path, shown: Path, required: bool) -> list[Path]:
    try:
        paths = sorted(folder.iterdir())
    except FileNotFoundError as error:
        if required:
            raise ConfigError(
                f"[compute] provider_config_location: there is no folder {shown}: create it, and put its files back. "
                f"{_TO_WITHDRAW}"
            ) from error
        return []
    except OSError as error:
        raise ConfigError(f"[compute] provider_config_location: cannot read {shown}: {error.strerror}") from error
    return [path for path in paths if path.suffix == ".yaml" and not path.name.startswith(".")]


def _check_schema(content: object, path: Path) -> None:
    meta = content.get("meta") if isinstance(content, dict) else None
    version = meta.get("schema_version") if isinstance(meta, dict) else None
    if not (isinstance(version, str) and _VERSION.fullmatch(version)):
        advice = ": write it in quotes" if isinstance(version, float) else ""
        found = "is missing" if version is None else f"is {version!r}"
        raise ConfigError(f"{path}: meta.schema_version {found}, and this agent reads '1.0'{advice}")
    schema = json.loads(resources.files("agent.sync").joinpath("provider_yaml.json").read_text(encoding="utf-8"))
    if wrong := form_error(content, schema):
        raise ConfigError(f"{path}: {wrong}")
    if isinstance(content, dict) and _NOVAS in content:
        raise ConfigError(f"{path}: the file has {_NOVAS}, which nova keeps for itself and refuses: remove it")


def _decode(entry: dict[str, Any], path: Path) -> Addition | None:
    """Return what one entry adds; None when it adds nothing."""
    ((key, provider),) = entry["identification"].items()
    if key == "uuid" and provider != COMPUTE_NODE:
        provider = provider.lower()
    elif key == "name":
        provider = spelled(provider)
    groups = entry.get("inventories", {}).get("additional", ())
    records = {name: record for group in groups for name, record in group.items()}
    if twice := [name for name, count in Counter(chain(*groups)).items() if count > 1]:
        raise ConfigError(f"{path}: provider {provider} has {twice[0]} twice: join them")
    traits = frozenset(entry.get("traits", {}).get("additional", ()))
    if foreign := sorted(name for name in (*records, *traits) if not is_custom(name)):
        raise ConfigError(f"{path}: {', '.join(foreign)} of provider {provider}: only CUSTOM_ names can be added")
    try:
        check_no_marks(traits)
        inventories = {name: decode_inventory(record) for name, record in records.items()}
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"{path}: provider {provider}: {error}") from error
    for name, one in inventories.items():
        if one.min_unit > one.max_unit:
            raise ConfigError(
                f"{path}: provider {provider}: {name} has min_unit {one.min_unit} and max_unit {one.max_unit}: nobody "
                f"could have any"
            )
    if not (inventories or traits):
        return None
    return Addition(provider=provider, source=path, inventories=inventories, traits=traits)
