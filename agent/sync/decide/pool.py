"""
The provider of a storage pool, by which many hosts share it: as it stands, and as it is wanted. Pure.

The provider of a Ceph pool is the agents' own. That of any other storage is an operator's, who puts hosts into its
aggregate; agents only move the disks of guests to it, and back.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeGuard

from drivers.errors import PolicyError
from drivers.facts import DiskFacts, DiskSpace, DiskUnread, PoolSpace
from drivers.policy import Policy
from drivers.pools import SHARER, pool_aggregate, pool_provider, pool_uuid
from reportclient.diff import diff
from reportclient.names import SHARES
from reportclient.ownership import MARKER, Names, Ownership
from reportclient.plan import Plan
from reportclient.tree import ObservedProvider, ObservedTree, Provider, ProviderTree

DISK = "DISK_GB"
_OURS = Ownership(emitted=Names(classes=frozenset({DISK})))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The provider of the pool that has the disks of this host's guests."""

    stands: ObservedProvider | None  # None: nobody has made it yet
    wanted: Provider
    uuid: str
    aggregate: str  # of all hosts that share it
    shared: bool  # whether this host shares it; False: it did, and its DISK_GB comes back to its root
    used: int = 0  # of DISK_GB, by the guests of all hosts; 0 where nothing is to move there
    operators: bool = False  # True: an operator keeps the provider and its aggregate, and no agent writes them
    kept: int = 0  # total that the host sees, and that is not written as it is much less; 0: it is written

    @property
    def seen(self) -> ObservedProvider:
        """The provider as this host's guests will find it: it is written before anything moves there."""
        found = self.stands or ObservedProvider(uuid=self.uuid, generation=0, provider=self.wanted)
        return replace(found, provider=replace(self.wanted, parent=None)) if self.shared else found

    @property
    def plan(self) -> Plan:
        """What is to be written on the provider itself; nothing where this host leaves it."""
        if not self.shared or self.operators:
            return Plan()
        observed = ObservedTree((self.stands,) if self.stands else ())
        return diff(observed, ProviderTree((self.wanted,)), _OURS, root_uuid=self.uuid)


def may_share(disk: DiskFacts, policy: Policy, root: ObservedProvider | None) -> TypeGuard[PoolSpace]:
    """Return whether the pool's provider matters to this host: it is to share it, or it did so far."""
    if not isinstance(disk, PoolSpace) or not disk.fsid:
        return False
    signs = (root.provider.aggregates & {pool_aggregate(disk)}) | (root.provider.traits & {SHARER}) if root else ()
    return policy.disk_shared or bool(signs)


def pool_of(disk: PoolSpace, policy: Policy, stands: ObservedProvider | None, limit: float) -> Pool:
    """
    Return the pool; ``stands`` is its provider in placement.

    A total that is smaller by more than the fraction ``limit`` is not written: a fault that one host sees would take
    the stock from all.
    """
    wanted = pool_provider(disk, policy, stands.provider if stands else None)
    before, now = (one.inventories.get(DISK) if one else None for one in (stands and stands.provider, wanted))
    kept = now.total if before and now and now.total < before.total * (1 - limit) else 0
    return Pool(
        stands=stands,
        wanted=replace(wanted, inventories={DISK: before}) if before and kept else wanted,
        uuid=pool_uuid(disk),
        aggregate=pool_aggregate(disk),
        shared=policy.disk_shared,
        kept=kept,
    )


def may_be_operators(disk: DiskFacts, policy: Policy, root: ObservedProvider | None) -> bool:
    """Return whether an operator's storage matters to this host: it is to share one, or it did so far."""
    if not isinstance(disk, DiskSpace) or disk.volume_group:
        return False
    return policy.disk_shared or bool(root and SHARER in root.provider.traits)


def operators_pool(
    node: str, root: ObservedProvider | None, found: Iterable[ObservedProvider], policy: Policy
) -> Pool | None:
    """
    Return the operator's storage among the providers ``found`` that share something with a root; None: there is none.

    Raises:
        PolicyError: this host is to share one, and there is none; or it cannot be told which.
    """
    storages = [one for one in found if DISK in one.provider.inventories and MARKER not in one.provider.traits]
    if root and len(storages) == 1:
        (seen,) = storages
        return Pool(
            stands=seen,
            wanted=seen.provider,
            uuid=seen.uuid,
            aggregate=min(seen.provider.aggregates & root.provider.aggregates),
            shared=policy.disk_shared,
            operators=True,
        )
    if storages:
        names = ", ".join(one.name for one in storages)
        raise PolicyError(f"{names} share {DISK} with {node}: take {node} out of all of their aggregates but one")
    if policy.disk_shared:
        raise PolicyError(
            f"[agent] shared_disk = sharing: no provider shares {DISK} with {node}. Give the storage's provider the "
            f"trait {SHARES} and an aggregate, and put {node} into it; for a new host, run a pass with own before"
        )
    return None


def may_forget(pool: Pool | None, disk: DiskFacts, root: ObservedProvider | None) -> bool:
    """Return whether a host may share a pool that its configuration no longer names: one of its aggregates tells."""
    if root is None or SHARER not in root.provider.traits or isinstance(disk, DiskUnread):
        return False
    return pool is None or pool.aggregate not in root.provider.aggregates


def leaves(pool: Pool | None) -> bool:
    """Return whether this host leaves a pool: then its root is written last of all, beside the plan."""
    return pool is not None and not pool.shared


def tell_pool(pool: Pool) -> tuple[str, ...]:
    """Return what a pass does with the pool's provider, a sentence each; empty at rest."""
    name = pool.wanted.name
    if not pool.shared:
        return (f"this host leaves the shared storage {name}: its guests' disks are counted on its root again",)
    if pool.kept:
        return (
            f"the shared storage {name} can hold {pool.kept} GiB by what this host sees, which is much less than "
            f"placement has, so nothing is written: if it is so, run sync --force",
        )
    if not pool.plan.operations:
        return ()
    return (f"the provider {name} of the shared storage is {'written' if pool.stands else 'made'} too",)


def leaves_nothing(uuid: str, members: Iterable[str], held: int) -> bool:
    """Return whether nobody shares a pool any more: only its own provider is in the aggregate, and nobody has of it."""
    return set(members) <= {uuid} and not held
