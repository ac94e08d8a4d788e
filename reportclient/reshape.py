"""Moves into whole allocation sets: placement replaces all of a consumer that a reshape names."""

from collections.abc import Iterable, Mapping

from reportclient.allocations import Consumer, Move
from reportclient.errors import Conflict
from reportclient.plan import Rewrite


def rewrites(moves: Iterable[Move], consumers: Iterable[Consumer], identity: Mapping[str, str]) -> tuple[Rewrite, ...]:
    """
    The final set of each consumer that moves: what it has elsewhere repeated, what a target has of it merged.

    ``identity`` gives the uuid of each provider that a move names.

    Raises:
        Conflict: a consumer has less than a move takes: it changed since its allocations were read.
    """
    known = {consumer.uuid: consumer for consumer in consumers}
    by_consumer: dict[str, list[Move]] = {}
    for move in moves:
        by_consumer.setdefault(move.consumer, []).append(move)
    return tuple(_rewrite(uuid, several, known.get(uuid), identity) for uuid, several in sorted(by_consumer.items()))


def _rewrite(uuid: str, moves: Iterable[Move], consumer: Consumer | None, identity: Mapping[str, str]) -> Rewrite:
    if consumer is None:
        raise Conflict(f"consumer {uuid} let go of all it had while this plan was made")
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
