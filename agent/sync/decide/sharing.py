"""
Report a storage pool once for all hosts that share it: on a provider of its own, outside this host's tree. Pure.

The decision is made as if that provider were a child of this host's root, with the stock that it has: so the planner of
moves finds it. Nothing of it is part of the plan for the tree; what is to be written on it is a plan of its own.
"""

from collections.abc import Iterable
from dataclasses import replace

from agent.sync.decide.pool import DISK, Pool
from agent.sync.decide.view import Shaper, View
from drivers.base import Survey
from drivers.policy import Policy
from reportclient.allocations import Consumer, Holdings, Move
from reportclient.ownership import Names
from reportclient.tree import ObservedProvider, ObservedTree, ProviderTree


class _WithPool:
    """The pure half of a driver, with the pool's provider below the root."""

    def __init__(self, whole: Shaper, pool: Pool, *, stands: bool) -> None:
        """Make the half; ``stands`` is whether this host has a root of its name, below which the pool can be."""
        self._whole = whole
        self._pool = pool
        self._stands = stands

    @property
    def emitted(self) -> Names:
        return self._whole.emitted

    def shape(self, survey: Survey, policy: Policy, observed: ObservedTree | None) -> tuple[ProviderTree, Holdings]:
        seen = without_pool(observed, self._pool.uuid) if observed else None
        tree, holdings = self._whole.shape(survey, policy, seen)
        root = tree.root
        if self._pool.shared:
            root = replace(root, aggregates=root.aggregates | {self._pool.aggregate})
        more = (below(self._pool.seen, root.name).provider,) if self._stands else ()
        return ProviderTree((root, *tree.providers[1:], *more)), holdings

    def present(self, survey: Survey) -> frozenset[str]:
        return self._whole.present(survey)


def with_pool(view: View, shaper: Shaper) -> tuple[View, Shaper]:
    """
    Return view and shaper with the pool's provider below the root, where there is one.

    While the root is renamed it is left out: it would be renamed with the children, and nothing moves then.
    """
    pool, observed = view.pool, view.observed
    if pool is None:
        return view, shaper
    stands = observed.root is not None and observed.root.name == view.node
    if stands:
        observed = replace(observed, providers=(*observed.providers, below(pool.seen, view.node)))
    readings = replace(view.readings, allocations={**view.readings.allocations, pool.uuid: ()})
    return replace(view, observed=observed, readings=readings), _WithPool(shaper, pool, stands=stands)


def below(seen: ObservedProvider, root: str) -> ObservedProvider:
    """Return a provider as a child of this root, with a name as its children have."""
    return replace(seen, provider=replace(seen.provider, name=_below(root, seen.name), parent=root))


def by_real_names(moves: Iterable[Move], pool: Pool, root: str) -> tuple[Move, ...]:
    """Return moves with the real name of the pool's provider."""
    names = {_below(root, pool.seen.name): pool.seen.name}
    return tuple(
        replace(
            one,
            from_provider=names.get(one.from_provider, one.from_provider),
            to_provider=names.get(one.to_provider, one.to_provider),
        )
        for one in moves
    )


def _below(root: str, name: str) -> str:
    return f"{root}_{name}"


def without_pool(tree: ObservedTree, uuid: str) -> ObservedTree:
    """Return a tree without the pool's provider."""
    return replace(tree, providers=tuple(seen for seen in tree if seen.uuid != uuid))


def coming_back(pool: Pool | None, observed: ObservedTree, consumers: Iterable[Consumer]) -> tuple[Move, ...]:
    """Return the moves that bring the disks of this host's consumers from a pool that it leaves to its root."""
    root = observed.root
    if pool is None or pool.shared or root is None:
        return ()
    amounts = {one.uuid: one.slots.get(pool.uuid, {}).get(DISK, 0) for one in consumers}
    return tuple(
        Move(
            consumer=consumer,
            from_provider=_below(root.name, pool.seen.name),
            to_provider=root.name,
            moved_resources={DISK: amount},
            because="[agent] shared_disk = own",
        )
        for consumer, amount in sorted(amounts.items())
        if amount
    )
