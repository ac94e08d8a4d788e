"""Keep the provider of a shared pool, leave it, or a former one, and take it away once no other host shares it."""

import logging
from contextlib import suppress

from agent.sync.decide.laws import Given, lawful
from agent.sync.decide.pool import Pool, leaves_nothing
from agent.sync.node import ComputeNode, count_takers
from drivers.pools import SHARER, aggregate_of
from reportclient.errors import Conflict, Rejected
from reportclient.ownership import MARKER, Names
from reportclient.plan import Delete, Plan, SetAggregates, SetTraits
from reportclient.tree import ObservedTree

LOG = logging.getLogger(__name__)


def keep_pool(node: ComputeNode, pool: Pool) -> bool:
    """
    Write what is to be written on the provider of a shared pool; return whether there was anything.

    Raises:
        Conflict: another host was first: it wrote, or made, the same.
    """
    if not pool.plan.operations:
        return False
    try:
        node.client.execute(pool.plan, ObservedTree((pool.stands,) if pool.stands else ()))
    except Rejected as error:
        if node.client.root(pool.uuid) == pool.stands:
            raise
        raise Conflict(f"another host wrote the provider of the pool {pool.wanted.name} first: {error}") from error
    return True


def leave_pool(node: ComputeNode, pool: Pool, root_uuid: str) -> bool:
    """
    Take a root out of the aggregate of a pool, once none of its consumers has a disk there; return whether it is out.

    The aggregate of an operator's storage is left as it is.

    A scheduler may have chosen the pool for a new consumer meanwhile: then the next pass moves that disk first. One
    that comes between this look and the write stays on the pool; so does one whose server has something of another
    host, until nova has cleaned up.

    Raises:
        PlacementError: placement cannot be read, or refuses the write.
    """
    tree = node.client.observe(root_uuid)
    root = tree.root
    if root is None:
        return False
    if count_takers(node.client, tree, pool.uuid):
        return False
    remove_pool_if_last(node, pool.uuid, root_uuid)
    # The mark first: in between, the aggregate still tells that this host shared the pool.
    mark = root.provider.traits & {SHARER}
    unmarked = SetTraits(root.uuid, root.name, root.provider.traits - mark, frozenset(), mark)
    left = SetAggregates(root.uuid, root.name, root.provider.aggregates - {pool.aggregate})
    plan = Plan((*((unmarked,) if mark else ()), *(() if pool.operators else (left,))))
    node.client.execute(lawful(plan, _given(tree, pool.aggregate)), tree)
    remove_pool_if_last(node, pool.uuid, root_uuid)  # of hosts that leave at the same time each saw the others before
    return True


def leave_former(node: ComputeNode, former: str, root_uuid: str) -> bool:
    """
    Take a root out of the aggregate of the pool that it shared before; return whether there was anything to do.

    ``former`` is the uuid of the pool's provider. The aggregate of an operator's storage is left as it is.

    Raises:
        Conflict: a consumer of this host has a disk there by now. PlacementError: as ``leave_pool``.
    """
    seen = node.client.root(former)
    root = node.client.root(root_uuid)
    if seen is None or root is None or MARKER not in seen.provider.traits:
        return False
    if held := count_takers(node.client, node.client.observe(root_uuid), former):
        raise Conflict(f"{held} got disks of {seen.name} while {root.name} was leaving it")
    remove_pool_if_last(node, former, root_uuid)
    aggregate = aggregate_of(former)
    if aggregate in root.provider.aggregates:
        left = SetAggregates(root.uuid, root.name, root.provider.aggregates - {aggregate})
        alone = ObservedTree((root,))
        node.client.execute(lawful(Plan((left,)), _given(alone, aggregate)), alone)
    remove_pool_if_last(node, former, root_uuid)
    return True


def remove_pool_if_last(node: ComputeNode, pool: str, root_uuid: str) -> None:
    """Delete a pool's provider, if it is ours, no other root is in its aggregate, and no consumer has any of it."""
    seen = node.client.root(pool)
    if seen is None or MARKER not in seen.provider.traits:  # an operator keeps a storage without our mark
        return
    others = node.client.members(aggregate_of(pool)).keys() - {root_uuid}
    if not leaves_nothing(pool, others, len(node.client.allocations((seen,)))):
        return
    with suppress(Conflict, Rejected):  # a host came to it meanwhile
        alone = ObservedTree((seen,))
        node.client.execute(lawful(Plan((Delete(seen.uuid, seen.name),)), _given(alone)), alone)
        LOG.info("no other host shares the pool, so its provider was deleted name=%s", seen.name)


def _given(tree: ObservedTree, *left: str) -> Given:
    """Return what a plan beside that of the tree is held against: a root leaves the aggregates ``left``, or ends."""
    return Given(observed=tree, emitted=Names(traits=frozenset({SHARER})), aggregates=frozenset(left), ends=True)
