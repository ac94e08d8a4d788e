"""Reads the size of the file system that holds the instances, and what nova's image cache takes of it."""

from pathlib import Path
from stat import S_ISREG

import psutil

from drivers.errors import DiscoveryError
from drivers.facts import DiskSpace
from drivers.policy import DiskPlace

_BLOCK = 512  # bytes of st_blocks, whatever the file system (inode(7))


def probe_disk(disk: DiskPlace) -> DiskSpace:
    """
    Return size and free space of the file system of the instances (statvfs; root's reserve counts in the total).

    If they may be missing, the nearest existing parent is read where nova has not made the folder yet. Else a missing
    folder is an error: its file system may not be mounted.

    Raises:
        DiscoveryError: the file system, or the image cache, cannot be read.
    """
    try:
        place = disk.instances
        while disk.may_be_missing and not place.exists() and place != place.parent:
            place = place.parent
        usage = psutil.disk_usage(str(place))
    except OSError as error:
        raise DiscoveryError(
            f"cannot read the size of the file system at {disk.instances} ([DEFAULT] instances_path): "
            f"{error.strerror or error}: is it mounted?"
        ) from error
    cached = _cached(disk.image_cache, place) if disk.image_cache else 0
    return DiskSpace(total_bytes=usage.total, free_bytes=usage.free, image_cache_bytes=cached)


def _cached(cache: Path, place: Path) -> int:
    """
    Return the bytes that the files of nova's image cache occupy; 0 without the folder.

    As nova (virt/libvirt/imagecache.py), a cache on another file system than ``place`` takes nothing of it. Unlike
    nova, a folder that cannot be read is an error, and not an empty one.
    """
    try:
        if cache.stat().st_dev != place.stat().st_dev:
            return 0
        return sum(_occupied(file) for file in cache.iterdir())
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise DiscoveryError(
            f"cannot read nova's image cache at {cache} ([image_cache] subdirectory_name): {error.strerror or error}: "
            f"allow this user to list the folder, or set [workarounds] reserve_disk_resource_for_image_cache = false"
        ) from error


def _occupied(file: Path) -> int:
    """Return the bytes that a regular file occupies; 0 for anything else, and for a file that is gone meanwhile."""
    try:
        state = file.stat()
    except FileNotFoundError:
        return 0
    return state.st_blocks * _BLOCK if S_ISREG(state.st_mode) else 0
