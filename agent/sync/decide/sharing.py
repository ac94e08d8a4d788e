"""
Report a storage pool once for all hosts that share it: on a provider of its own, outside this host's tree. Pure.

The decision is made as if that provider were a child of this host's root, with the stock that it has: so the planner of
moves finds it. Nothing of it is part of the plan for the tree; what is to be written on it is a plan of its own.
"""

from collections.abc import Iterable
from dataclasses import replace
from math import ceil

from agent.sync.decide.pool import DISK, Pool
from agent.sync.decide.view import Shaper, View
from drivers.base import Survey
from drivers.facts import DiskUnread
from drivers.policy import Policy
from drivers.pools import SHARER
from reportclient.allocations import Consumer, Holdings, Move
from reportclient.names import SHARES
from reportclient.ownership import MARKER, Names
from reportclient.tree import ObservedProvider, ObservedTree, Provider, ProviderTree


class _WithPool:
    """The pure half of a driver, with the mark of a host that shares a pool, and the pool's provider below the root."""

    def __init__(self, whole: Shaper, pool: Pool | None, *, stands: bool) -> None:
        """Make the half; ``stands`` is whether this host has a root of its name, below which the pool can be."""
        self._whole = whole
        self._pool = pool
        self._stands = stands

    @property
    def emitted(self) -> Names:
        return self._whole.emitted

    def shape(self, survey: Survey, policy: Policy, observed: ObservedTree | None) -> tuple[ProviderTree, Holdings]:
        pool = self._pool
        seen = without_pool(observed, pool.uuid) if observed and pool else observed
        tree, holdings = self._whole.shape(survey, policy, seen)
        root = replace(tree.root, traits=tree.root.traits | {SHARER})
        if pool and pool.shared and not pool.operators:
            root = replace(root, aggregates=root.aggregates | {pool.aggregate})
        more = (below(pool, root.name).provider,) if pool and self._stands else ()
        return ProviderTree((root, *tree.providers[1:], *more)), holdings

    def present(self, survey: Survey) -> frozenset[str]:
        return self._whole.present(survey)


def with_pool(view: View, shaper: Shaper) -> tuple[View, Shaper]:
    """
    Return view and shaper with the pool's provider below the root, where there is one.

    While the root is renamed it is left out: it would be renamed with the children, and nothing moves then. The mark of
    a host that shares stays until it has left, also while it is not known what it shares.
    """
    pool, observed = view.pool, view.observed
    if pool is None:
        unsure = view.forgotten or isinstance(view.survey.facts.disk, DiskUnread)
        marked = observed.root is not None and SHARER in observed.root.provider.traits
        return view, _WithPool(shaper, None, stands=False) if marked and unsure else shaper
    stands = observed.root is not None and observed.root.name == view.node and DISK in pool.seen.provider.inventories
    if stands:
        observed = replace(observed, providers=(*observed.providers, below(pool, view.node)))
    readings = replace(view.readings, allocations={**view.readings.allocations, pool.uuid: ()})
    return replace(view, observed=observed, readings=readings), _WithPool(shaper, pool, stands=stands)


def below(pool: Pool, root: str) -> ObservedProvider:
    """
    Return the pool's provider as a child of this root, named as its children are; what is used of it is reserved.

    It has our mark, an operator's storage too, as disks may move there, and of its stock only what disks use.
    """
    seen = pool.seen
    disk = seen.provider.inventories[DISK]
    free = replace(disk, reserved=min(disk.total, disk.reserved + ceil(pool.used / disk.allocation_ratio)))
    child = Provider(
        name=child_name(pool, root), parent=root, inventories={DISK: free}, traits=frozenset({SHARES, MARKER})
    )
    return replace(seen, provider=child)


def child_name(pool: Pool, root: str) -> str:
    """Return the name of the pool's provider below this root."""
    return f"{root}_{pool.seen.name}"


def by_real_names(moves: Iterable[Move], pool: Pool, root: str) -> tuple[Move, ...]:
    """Return moves with the real name of the pool's provider."""
    names = {child_name(pool, root): pool.seen.name}
    return tuple(
        replace(
            one,
            from_provider=names.get(one.from_provider, one.from_provider),
            to_provider=names.get(one.to_provider, one.to_provider),
        )
        for one in moves
    )


def without_pool(tree: ObservedTree, uuid: str) -> ObservedTree:
    """Return a tree without the pool's provider."""
    return replace(tree, providers=tuple(seen for seen in tree if seen.uuid != uuid))


def coming_back(pool: Pool | None, observed: ObservedTree, consumers: Iterable[Consumer]) -> tuple[Move, ...]:
    """
    Return the moves that bring the disks of this host's consumers from a pool that it leaves to its root.

    A consumer that has something of another host too, as after an evacuation, may have its disk there: it stays.
    """
    root = observed.root
    if pool is None or pool.shared or root is None:
        return ()
    here = {*observed.by_uuid, pool.uuid}
    amounts = {one.uuid: one.slots.get(pool.uuid, {}).get(DISK, 0) for one in consumers if one.slots.keys() <= here}
    return tuple(
        Move(
            consumer=consumer,
            from_provider=child_name(pool, root.name),
            to_provider=root.name,
            moved_resources={DISK: amount},
            because="[agent] shared_disk = own",
        )
        for consumer, amount in sorted(amounts.items())
        if amount
    )
