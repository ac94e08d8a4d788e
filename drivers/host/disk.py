"""The file system that holds the instances."""

from pathlib import Path

import psutil

from drivers.errors import DiscoveryError
from drivers.facts import DiskSpace


def probe_disk(instances: Path) -> DiskSpace:
    """
    Size and free space of the file system of ``instances`` (statvfs, root's reserve counted in the total).

    A folder that nova has not made yet is read at its nearest existing parent, where it will be made.

    Raises:
        DiscoveryError: the file system cannot be asked.
    """
    place = instances
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        usage = psutil.disk_usage(str(place))
        return DiskSpace(total_bytes=usage.total, free_bytes=usage.free)
    except OSError as error:
        raise DiscoveryError(
            f"cannot read the size of the file system at {place} ([DEFAULT] instances_path): {error.strerror or error}"
        ) from error
