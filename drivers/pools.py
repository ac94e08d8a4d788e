"""A pool of a Ceph cluster as stock: how much of it is reported, and the provider by which many hosts share it."""

from dataclasses import replace
from uuid import UUID, uuid5

from drivers.errors import MalformedFact
from drivers.facts import PoolSpace
from drivers.policy import Policy
from reportclient.names import SHARES
from reportclient.ownership import MARKER
from reportclient.tree import Inventory, Provider

GIB = 1024**3
STEP = 100  # a pool's amount differs at each look: it is reported anew if it differs by more than 1/100
POOLS = "ceph_"  # begins the names of such providers
SHARER = f"{MARKER}_SHARES_DISK"  # on the root of a host whose guests' disks are counted on a provider that shares them


def pool_gib(disk: PoolSpace, policy: Policy, before: Inventory | None) -> tuple[int, str]:
    """Return the GiB to report, and a text with the cluster's and the pool's; ``before`` is what placement has."""
    cluster_gib = disk.cluster_bytes // GIB
    both = f"the Ceph cluster has {cluster_gib} GiB, of which its pool {disk.pool} can hold {disk.pool_gib}"
    if not policy.disk_by_pool:
        return cluster_gib, f"{both}; the cluster counts ([agent] rbd_capacity)"
    if before and 0 < abs(before.total - disk.pool_gib) * STEP <= before.total:
        return before.total, f"{both}; the pool counts ([agent] rbd_capacity), anew at a difference of 1/{STEP}"
    return disk.pool_gib, f"{both}; the pool counts ([agent] rbd_capacity)"


def pool_uuid(disk: PoolSpace) -> str:
    """Return the uuid of the pool's provider: the same on every host, by the cluster's fsid and the pool's name."""
    return str(uuid5(UUID(disk.fsid), disk.pool))


def pool_aggregate(disk: PoolSpace) -> str:
    """Return the uuid of the aggregate of all hosts that share the pool."""
    return aggregate_of(pool_uuid(disk))


def aggregate_of(pool: str) -> str:
    """Return the same for the uuid of a pool's provider, whatever its cluster says by now."""
    return str(uuid5(UUID(pool), "aggregate"))


def pool_provider(disk: PoolSpace, policy: Policy, stands: Provider | None) -> Provider:
    """
    Return the provider that all hosts of a pool share; ``stands`` is the one in placement.

    Its total is what the pool can hold, whatever a host's rbd_capacity says, and stays until that differs clearly. Its
    ratio and what is reserved of it are set when it is made, and are the operator's from then on: hosts that are
    configured otherwise must not write in turns.
    """
    before = stands.inventories.get("DISK_GB") if stands else None
    total, _ = pool_gib(disk, replace(policy, disk_by_pool=True), before)
    ratio = policy.disk_ratio.configured or policy.disk_ratio.initial
    if total == 0:  # less than 1 GiB, and placement takes no stock of nothing
        stock = Inventory(
            total=1, max_unit=1, reserved=1, allocation_ratio=before.allocation_ratio if before else ratio
        )
    else:
        try:
            stock = Inventory(
                total=total,
                max_unit=total,
                reserved=min(before.reserved, total) if before else 0,
                allocation_ratio=before.allocation_ratio if before else ratio,
            )
        except ValueError as error:
            raise MalformedFact(
                f"cannot report the Ceph pool {disk.pool}, which can hold {total} GiB: {error}"
            ) from error
    return Provider(
        name=f"{POOLS}{disk.fsid}_{disk.pool}",
        inventories={"DISK_GB": stock},
        traits=frozenset({SHARES, MARKER}),
        aggregates=frozenset({pool_aggregate(disk)}),
    )
