"""Keep the provider of a shared pool, leave it, and take it away once no other host shares it."""

import logging
from contextlib import suppress

from agent.sync.decide.pool import Pool, leaves_nothing
from agent.sync.node import ComputeNode
from drivers.pools import SHARER
from reportclient.errors import Conflict, Rejected
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
    held = node.client.allocations(seen for seen in tree if seen.provider.inventories)
    consumers = node.client.consumers(sorted({one.consumer for one in held}), held)
    if any(pool.uuid in one.slots for one in consumers):
        return False
    remove_pool_if_last(node, pool, root_uuid)
    # The mark first: in between, the aggregate still tells that this host shared the pool.
    mark = root.provider.traits & {SHARER}
    unmarked = SetTraits(root.uuid, root.name, root.provider.traits - mark, frozenset(), mark)
    left = SetAggregates(root.uuid, root.name, root.provider.aggregates - {pool.aggregate})
    node.client.execute(Plan((*((unmarked,) if mark else ()), *(() if pool.operators else (left,)))), tree)
    remove_pool_if_last(node, pool, root_uuid)  # of hosts that leave at the same time each saw the others before
    return True


def remove_pool_if_last(node: ComputeNode, pool: Pool, root_uuid: str) -> None:
    """Delete a pool's provider, if it is ours, no other root is in its aggregate, and no consumer has any of it."""
    seen = node.client.root(pool.uuid)
    if seen is None or pool.operators:
        return
    others = node.client.members(pool.aggregate).keys() - {root_uuid}
    if not leaves_nothing(pool.uuid, others, len(node.client.allocations((seen,)))):
        return
    with suppress(Conflict, Rejected):  # a host came to it meanwhile
        node.client.execute(Plan((Delete(seen.uuid, seen.name),)), ObservedTree((seen,)))
        LOG.info("no other host shares the pool, so its provider was deleted name=%s", seen.name)
