"""Reads what has the disks of guests: a file system with nova's image cache, a volume group, or a Ceph cluster."""

import shutil
from pathlib import Path
from stat import S_ISREG

from drivers.errors import DiscoveryError
from drivers.facts import DiskFacts, DiskSpace
from drivers.host.commands import probe_group, probe_pool
from drivers.policy import CephPool, DiskPlace, InstancesFolder, VolumeGroup

_BLOCK = 512  # bytes of st_blocks, whatever the file system (inode(7))


def probe_disk(place: DiskPlace) -> DiskFacts:
    """
    Return the size of what has the disks of guests; ``DiskUnread`` where a Ceph cluster does not answer.

    Raises:
        DiscoveryError: the place cannot be read.
    """
    if isinstance(place, CephPool):
        return probe_pool(place)
    if isinstance(place, VolumeGroup):
        return probe_group(place)
    return _probe_folder(place)


def _probe_folder(disk: InstancesFolder) -> DiskSpace:
    """
    Return size and free space of the file system of the instances (statvfs; root's reserve counts in the total).

    If they may be missing, the nearest existing parent is read where nova has not made the folder yet. Else a missing
    folder is an error, and so is a link to nowhere: its file system may not be mounted.
    """
    try:
        place = disk.instances
        while disk.may_be_missing and _is_absent(place) and place != place.parent:
            place = place.parent
        usage = shutil.disk_usage(place)
    except OSError as error:
        raise DiscoveryError(
            f"cannot read the size of the file system at {disk.instances} ([DEFAULT] instances_path): "
            f"{error.strerror or error}: is it mounted?"
        ) from error
    cached = _cached(disk.image_cache, place) if disk.image_cache else None
    missing = None if place == disk.instances else str(disk.instances)
    return DiskSpace(usage.total, usage.free, image_cache_bytes=cached, folder=str(place), missing=missing)


def _is_absent(place: Path) -> bool:
    try:
        place.lstat()
    except FileNotFoundError:
        return True
    return False


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
