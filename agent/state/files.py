"""Writing small files so that they are there whole, or not at all, after a power cut."""

import os
from pathlib import Path


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
