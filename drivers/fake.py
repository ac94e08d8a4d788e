"""The fake driver: a host that is made up, as a host archive with what its libvirt would answer."""

import json
import uuid
from pathlib import Path

from drivers.host.archive import HostArchive, with_index, write_files

NAMESPACE = uuid.UUID("5b2f0c3e-8f0c-4c57-9d0f-6a52a6f2a7b1")
MADE_UP = Path(__file__).parent / "made_up"  # of each shape a file: path -> text of its archive
SHAPES = ("gpu", "large", "medium", "mixed", "network", "small")


def write_host(folder: Path, *, seed: int, shape: str) -> HostArchive:
    """
    Write the archive of a made-up host of one of ``SHAPES`` below ``folder``; each seed has its own name and uuid.

    Raises:
        OSError: the folder cannot be written.
    """
    name = f"fake-{seed}-{shape}"
    files = json.loads((MADE_UP / f"{shape}.json").read_text(encoding="utf-8"))
    return write_files(folder / name, with_index({**files, "compute_id": f"{uuid.uuid5(NAMESPACE, name)}\n"}, name))
