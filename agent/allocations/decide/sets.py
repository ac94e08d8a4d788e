"""
Make each consumer's whole new allocation set at each step of a guest's life, from what was read and requested.

Sets are provider's uuid -> class -> amount. A provider that is shared (storage, ``sharing``) belongs to no host: the
guest keeps what it has there, unless its new set requests the same class elsewhere.
"""

from collections.abc import Container

from reportclient.allocations import Slots
from reportclient.errors import UnsafePlan
from reportclient.plan import Rewrite

INSTANCE = "INSTANCE"  # the consumer type of a guest
MIGRATION = "MIGRATION"  # the consumer type of a migration, which keeps a guest's allocations at the source of a move


def replace_set(held: Slots, request: Slots, sharing: Container[str]) -> Slots:
    """Return the request, plus what the guest has of shared providers in classes that the request does not name."""
    asked = {name for resources in request.values() for name in resources}
    kept = {
        uuid: {name: amount for name, amount in resources.items() if name not in asked}
        for uuid, resources in held.items()
        if uuid in sharing
    }
    return added(kept, request)


def merge_set(held: Slots, before: Slots, request: Slots) -> Slots:
    """
    Return what the consumer holds, less the caller's part before, plus the request: the parts of others stay.

    Raises:
        ValueError: the consumer has less than ``before``.
    """
    for uuid, resources in before.items():
        for name, amount in resources.items():
            if held.get(uuid, {}).get(name, 0) < amount:
                raise ValueError(f"it has less than {amount} {name} on provider {uuid}")
    less = {uuid: {name: -amount for name, amount in resources.items()} for uuid, resources in before.items()}
    return added(added(held, less), request)


def evacuated_set(held: Slots, request: Slots, sharing: Container[str]) -> Slots:
    """Return what the guest has on the host that is down, plus its new set: shared storage is not counted twice."""
    down = {uuid: resources for uuid, resources in held.items() if uuid not in sharing}
    return added(down, replace_set(held, request, sharing))


def moved_sets(held: Slots, request: Slots, sharing: Container[str]) -> tuple[Slots, Slots]:
    """
    Return (the migration's set, the guest's set) of a move: ``reverted_set`` makes ``held`` of the two again.

    The guest alone has the shared storage that it keeps, so that it is not counted twice. Only where a revert could
    not restore ``held`` from that, the migration has all of ``held``.

    Raises:
        UnsafePlan: the request takes a class of shared storage that the guest had nowhere before.
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
        "the request adds a class of shared storage that the guest does not have yet. A revert of the move would "
        "leave that class with the guest. Move the guest without that class, confirm the move, then claim the class "
        "with compute-node-agent claim --merge"
    )


def reverted_set(guest: Slots, migration: Slots, sharing: Container[str]) -> Slots:
    """Return what the migration kept, plus the guest's shared storage in classes that the migration does not have."""
    return replace_set(guest, migration, sharing)


def begin(consumer: str, project: str, user: str, kind: str | None, after: Slots) -> Rewrite:
    """Return the rewrite that makes a consumer; ``kind`` None: without a type."""
    return Rewrite(consumer=consumer, generation=None, project=project, user=user, kind=kind, before={}, after=after)


def added(one: Slots, other: Slots) -> Slots:
    """Return the sum of two sets."""
    sums: dict[str, dict[str, int]] = {}
    for slots in (one, other):
        for uuid, resources in slots.items():
            for name, amount in resources.items():
                mine = sums.setdefault(uuid, {})
                mine[name] = mine.get(name, 0) + amount
    return settled(sums)


def settled(slots: Slots) -> dict[str, dict[str, int]]:
    """Return the set without zero amounts, sorted by uuid and class."""
    kept = {
        uuid: {name: amount for name, amount in sorted(resources.items()) if amount}
        for uuid, resources in sorted(slots.items())
    }
    return {uuid: resources for uuid, resources in kept.items() if resources}
