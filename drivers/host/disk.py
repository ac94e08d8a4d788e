"""Reads the size of the file system that holds the instances."""

from pathlib import Path

import psutil

from drivers.errors import DiscoveryError
from drivers.facts import DiskSpace


def probe_disk(instances: Path, *, may_be_missing: bool = False) -> DiskSpace:
    """
    Return size and free space of the file system of ``instances`` (statvfs; root's reserve counts in the total).

    With ``may_be_missing``, the nearest existing parent is read where nova has not made the folder yet. Else a missing
    folder is an error: its file system may not be mounted.

    Raises:
        DiscoveryError: the file system cannot be read.
    """
    try:
        place = instances
        while may_be_missing and not place.exists() and place != place.parent:
            place = place.parent
        usage = psutil.disk_usage(str(place))
    except OSError as error:
        raise DiscoveryError(
            f"cannot read the size of the file system at {instances} ([DEFAULT] instances_path): "
            f"{error.strerror or error}: is it mounted?"
        ) from error
    return DiskSpace(total_bytes=usage.total, free_bytes=usage.free)
