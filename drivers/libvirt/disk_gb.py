"""Makes DISK_GB of the root out of what has the disks of guests, with its reason."""

from drivers.by_suffix import BySuffix
from drivers.facts import DiskUnread, HostFacts, PoolSpace
from drivers.libvirt.host_inventories import Entry, kept_text, one_class, present_only
from drivers.policy import Policy
from drivers.pools import GIB, pool_gib
from drivers.reasons import Reason


def disk_stock(facts: HostFacts, policy: Policy, standing: BySuffix) -> dict[str, Entry]:
    """
    Return DISK_GB in whole GiB, rounded down; each reserved amount is rounded up. Empty where there is nothing.

    What did not answer has what it has in placement. A storage that is shared has a provider of its own.
    """
    disk = facts.disk
    if policy.shared_disk:
        return {}
    before = standing.root.provider.inventories.get("DISK_GB") if standing.root else None
    if isinstance(disk, DiskUnread):
        return {"DISK_GB": (before, Reason(disk.because, "what placement has stays"))} if before else {}
    reserved_gib, rule = -(-policy.reserved_disk_mib // 1024), kept_text(policy.reserved_disk_mib, "disk_mb")
    if isinstance(disk, PoolSpace):
        total_gib, fact = pool_gib(disk, policy, before)
    else:
        place = f"the volume group {disk.volume_group}" if disk.volume_group else "the file system of the instances"
        total_gib, fact = disk.total_bytes // GIB, f"{place} has {disk.total_bytes} bytes"
        if disk.image_cache_bytes:
            reserved_gib += -(-disk.image_cache_bytes // GIB)
            rule += f", and {disk.image_cache_bytes} bytes for nova's image cache"
    stock = one_class("DISK_GB", total_gib, reserved_gib, policy.disk_ratio, standing, "")
    return present_only({"DISK_GB": (stock, Reason(fact, rule))})
