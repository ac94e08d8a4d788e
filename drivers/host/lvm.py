"""Reads the size of a volume group of LVM, by the command that nova uses (lvm(8), vgs(8))."""

from drivers.errors import DiscoveryError
from drivers.facts import DiskSpace
from drivers.host.commands import CommandFailed, output_of
from drivers.policy import VolumeGroup

PATIENCE_S = 30
# --readonly: without LVM's locks, as nothing is changed.
VGS = ("vgs", "--readonly", "--noheadings", "--nosuffix", "--separator", "|", "--units", "b", "-o", "vg_size,vg_free")
OPTION = "[libvirt] images_volume_group"


def probe_group(group: VolumeGroup) -> DiskSpace:
    """
    Return size and free space of a volume group.

    Raises:
        DiscoveryError: there is none of this name, or LVM cannot be asked.
    """
    try:
        answer = output_of([*VGS, group.name], PATIENCE_S)
    except CommandFailed as error:
        raise DiscoveryError(
            f"cannot read the size of the volume group {group.name} ({OPTION}): {error}: check the name with vgs, and "
            f"that this user may read the disks of the group"
        ) from error
    size, _, free = answer.strip().partition("|")
    if not (size.isdecimal() and free.isdecimal()):
        raise DiscoveryError(
            f"vgs answers {answer.strip()[:60]!r} for the volume group {group.name} ({OPTION}), and not its size and "
            f"its free space: run vgs {group.name} as this user"
        )
    return DiskSpace(total_bytes=int(size), free_bytes=int(free), volume_group=group.name)
