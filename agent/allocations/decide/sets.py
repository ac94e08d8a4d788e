"""
What each consumer holds at each step of a guest's life: whole new allocation sets, from what was read and asked for.

Sets are provider's uuid -> class -> amount. What a provider shares with others (storage, ``sharing``) is of no host:
it stays with the guest as long as the guest's new set does not ask for the like elsewhere.
"""

from collections.abc import Container

from reportclient.allocations import Consumer, Slots
from reportclient.errors import UnsafePlan
from reportclient.plan import Rewrite

INSTANCE = "INSTANCE"  # the consumer type of a guest
MIGRATION = "MIGRATION"  # the consumer type of what a move keeps at its source


def replace_set(held: Slots, request: Slots, sharing: Container[str]) -> Slots:
    """The request, and what the guest has of shared providers in classes that the request does not ask for."""
    asked = {name for resources in request.values() for name in resources}
    kept = {
        uuid: {name: amount for name, amount in resources.items() if name not in asked}
        for uuid, resources in held.items()
        if uuid in sharing
    }
    return added(kept, request)


def merge_set(held: Slots, before: Slots, request: Slots) -> Slots:
    """
    What the consumer holds, less what the caller had before, and the request: what others own of it stays.

    Raises:
        ValueError: the consumer has less than what the caller says it had.
    """
    rest = {(uuid, name): amount for uuid, resources in held.items() for name, amount in resources.items()}
    for uuid, resources in before.items():
        for name, amount in resources.items():
            rest[uuid, name] = rest.get((uuid, name), 0) - amount
            if rest[uuid, name] < 0:
                raise ValueError(f"it has less than {amount} {name} on {uuid}")
    kept: dict[str, dict[str, int]] = {}
    for (uuid, name), amount in rest.items():
        kept.setdefault(uuid, {})[name] = amount
    return added(kept, request)


def evacuated_set(held: Slots, request: Slots, sharing: Container[str]) -> Slots:
    """What the guest has on the host that is down, and the request; what is shared is not taken twice."""
    asked = {name for resources in request.values() for name in resources}
    down = {
        uuid: {name: amount for name, amount in resources.items() if uuid not in sharing or name not in asked}
        for uuid, resources in held.items()
    }
    return added(down, request)


def moved_sets(held: Slots, request: Slots, sharing: Container[str]) -> tuple[Slots, Slots]:
    """
    (the migration's set, the guest's) of a move: from the two of them ``reverted_set`` makes ``held`` again.

    A row of shared storage that the guest keeps is held by the guest alone, so it is never taken twice, unless nobody
    could tell on the way back whose it was.

    Raises:
        UnsafePlan: the request takes of shared storage a class of which the guest had nothing anywhere.
    """
    guest = replace_set(held, request, sharing)
    migration = settled(
        {
            uuid: {
                name: amount
                for name, amount in resources.items()
                if uuid not in sharing or guest.get(uuid, {}).get(name) != amount
            }
            for uuid, resources in held.items()
        }
    )
    for kept in (migration, held):
        if kept and reverted_set(guest, kept, sharing) == held:
            return kept, guest
    raise UnsafePlan(
        "the request takes of shared storage what the guest had nothing of, and when the move is reverted nobody could "
        "tell that it was not there before: confirm the move without it, then claim it with --merge"
    )


def reverted_set(guest: Slots, migration: Slots, sharing: Container[str]) -> Slots:
    """What the migration kept, and what the guest has of shared providers in classes that the migration has none of."""
    return replace_set(guest, migration, sharing)


def rewrite(consumer: Consumer, after: Slots) -> Rewrite:
    """One consumer with another set, everything else of it kept."""
    return Rewrite(
        consumer=consumer.uuid,
        generation=consumer.generation,
        project=consumer.project,
        user=consumer.user,
        kind=consumer.kind,
        before=consumer.slots,
        after=after,
    )


def begin_migration(guest: Consumer, migration: str, kept: Slots) -> Rewrite:
    """The new consumer of a migration, of the guest's project and user; of a type where the guest has one."""
    return Rewrite(
        consumer=migration,
        generation=None,
        project=guest.project,
        user=guest.user,
        kind=MIGRATION if guest.kind else None,
        before={},
        after=kept,
    )


def added(one: Slots, other: Slots) -> Slots:
    """The sums of two sets."""
    sums: dict[str, dict[str, int]] = {}
    for slots in (one, other):
        for uuid, resources in slots.items():
            for name, amount in resources.items():
                mine = sums.setdefault(uuid, {})
                mine[name] = mine.get(name, 0) + amount
    return settled(sums)


def settled(slots: Slots) -> dict[str, dict[str, int]]:
    """Without amounts of nothing, in the order in which sets are told."""
    kept = {
        uuid: {name: amount for name, amount in sorted(resources.items()) if amount}
        for uuid, resources in sorted(slots.items())
    }
    return {uuid: resources for uuid, resources in kept.items() if resources}
