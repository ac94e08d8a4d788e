"""Turn moves into whole sets of allocations: a reshape replaces all allocations of each consumer that it names."""

from collections.abc import Iterable, Mapping

from reportclient.allocations import Consumer, Move
from reportclient.errors import Conflict
from reportclient.plan import Rewrite


def rewrites(moves: Iterable[Move], consumers: Iterable[Consumer], identity: Mapping[str, str]) -> tuple[Rewrite, ...]:
    """
    Return the final set of each consumer that moves: it repeats what stays, and adds up what is on a target already.

    ``identity`` has the uuid of each provider that a move names.

    Raises:
        Conflict: a consumer has less than its moves take, because it changed since its allocations were read.
    """
    known = {consumer.uuid: consumer for consumer in consumers}
    by_consumer: dict[str, list[Move]] = {}
    for move in moves:
        by_consumer.setdefault(move.consumer, []).append(move)
    return tuple(_rewrite(uuid, several, known.get(uuid), identity) for uuid, several in sorted(by_consumer.items()))


def _rewrite(uuid: str, moves: Iterable[Move], consumer: Consumer | None, identity: Mapping[str, str]) -> Rewrite:
    if consumer is None:
        raise Conflict(f"consumer {uuid} released all its allocations while this plan was made")
    after: dict[tuple[str, str], int] = {
        (provider, name): amount for provider, resources in consumer.slots.items() for name, amount in resources.items()
    }
    for move in moves:
        for name, amount in move.moved_resources.items():
            slot = identity[move.from_provider], name
            after[slot] = after.get(slot, 0) - amount
        for name, amount in move.arriving.items():
            slot = identity[move.to_provider], name
            after[slot] = after.get(slot, 0) + amount
    if any(amount < 0 for amount in after.values()):
        raise Conflict(f"consumer {uuid} changed while this plan was made")
    final: dict[str, dict[str, int]] = {}
    for (provider, name), amount in sorted(after.items()):
        if amount:
            final.setdefault(provider, {})[name] = amount
    return Rewrite(
        consumer=uuid,
        generation=consumer.generation,
        project=consumer.project,
        user=consumer.user,
        kind=consumer.kind,
        before=consumer.slots,
        after=final,
    )
