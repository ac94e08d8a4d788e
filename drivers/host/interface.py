"""An interface without hardware, as guests and bridges have them: what shows that it is the same as before."""

import os
from pathlib import Path

FOLDER = Path("/sys/devices/virtual/net")


def look_at_interface(folder: str) -> int | None:
    """Return the inode of its folder, which is another one after the interface came again; None: it is not there."""
    try:
        return os.stat(folder).st_ino  # noqa: PTH116 - as an object, a path would cost more than the call
    except OSError:
        return None
