"""Small files that are whole or not there at all after a power cut, and that tell whether they can be trusted."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any


def draft_of(path: Path) -> Path:
    """Where a file is written before it takes its name."""
    return path.with_name(f"{path.name}.new")


def replace_durably(path: Path, text: str) -> None:
    """
    Replace a file, whole or not at all, and see it on disk; its folder is made if it is not there.

    Raises:
        OSError: it cannot be written; the old one stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_durably(draft_of(path), text)
    draft_of(path).rename(path)
    sync_folder(path.parent)


def write_durably(draft: Path, text: str) -> None:
    """Write a draft, whose room may have been made sure of before, and see it on disk."""
    with draft.open("r+b" if draft.exists() else "wb") as file:
        file.write(text.encode())
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """See the names in a folder on disk: a rename or link in it lasts from here on."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def seal(body: dict[str, Any], *, form: int, indent: int | None = None) -> str:
    """A JSON text with the number of its form and a checksum, for ``unseal``."""
    return json.dumps({"format": form, "checksum": checksum(body), "body": body}, indent=indent) + "\n"


def unseal(text: str, *, form: int) -> dict[str, Any]:
    """
    The body of a sealed text.

    Raises:
        ValueError, KeyError, TypeError, RecursionError: it is damaged, or of another form.
    """
    record = json.loads(text)
    body: dict[str, Any] = record["body"]
    if record["format"] != form:
        raise ValueError(f"format {record['format']}")
    if record["checksum"] != checksum(body):
        raise ValueError("checksum")
    return body


def checksum(body: dict[str, Any], more: str = "") -> str:
    """The SHA-256 of a JSON object, and of a text that goes with it."""
    return hashlib.sha256((json.dumps(body, sort_keys=True) + more).encode()).hexdigest()
