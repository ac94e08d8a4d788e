"""Find one-time devices that were used: a guest has one, had it at a refused pass, or claimed it between passes."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from agent.state.memory import NodeState
from reportclient.hold import device_classes, is_used_up
from reportclient.names import ONE_TIME
from reportclient.ownership import Names, Ownership
from reportclient.tree import ObservedProvider, ObservedTree, ProviderTree, same_stock


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """One-time devices that are to be reserved for good."""

    names: frozenset[str] = frozenset()
    uuids: frozenset[str] = frozenset()  # devices to remember as used until the reservation is written
    notes: tuple[str, ...] = ()  # a sentence on each device that no consumer holds now


def one_time(shaped: ProviderTree, observed: ObservedTree, ours: Ownership) -> tuple[ObservedProvider, ...]:
    """Return the standing one-time devices: by what is wanted, or by their traits while they are out of sight."""
    wanted = {one.name: one.traits for one in shaped}
    return tuple(
        seen
        for seen in observed
        if ONE_TIME in wanted.get(seen.name, seen.provider.traits) and (seen.name in wanted or ours.writes(seen))
    )


def to_ask(standing: Iterable[ObservedProvider], memory: NodeState) -> tuple[ObservedProvider, ...]:
    """Return the devices that may have been claimed since the last pass: a claim changes the generation."""
    known = memory.observed.by_uuid if memory.observed else {}
    return tuple(
        seen
        for seen in standing
        if seen.uuid in memory.used
        or ONE_TIME not in seen.provider.traits
        or seen.uuid not in known
        or known[seen.uuid].generation != seen.generation
    )


def find_uses(
    standing: Iterable[ObservedProvider], holding: Collection[str], shaped: ProviderTree, memory: NodeState
) -> Uses:
    """Find which standing one-time devices were used; ``holding`` are the names of those with allocations."""
    known = memory.observed.by_uuid if memory.observed else {}
    wanted = {one.name: one.inventories.keys() for one in shaped}
    used, carried = [], []
    for seen in standing:
        besides = memory.configured[seen.name].classes if seen.name in memory.configured else frozenset()
        left = known.get(seen.uuid)
        if seen.name in holding or seen.uuid in memory.used or (left and _came_and_went(left, seen, besides)):
            used.append(seen)
        elif is_used_up(seen, besides) and device_classes(wanted.get(seen.name, ())) - seen.provider.inventories.keys():
            carried.append(seen)  # used before, and its class has another name now
    return Uses(
        names=frozenset(seen.name for seen in (*used, *carried)),
        uuids=frozenset(seen.uuid for seen in used),
        notes=tuple(_unheld(seen) for seen in used if seen.name not in holding),
    )


def used_up_ones(memory: NodeState) -> tuple[ObservedProvider, ...]:
    """Return the one-time devices that the last pass left used up."""
    return tuple(
        seen
        for seen in memory.observed or ()
        if ONE_TIME in seen.provider.traits and is_used_up(seen, memory.configured.get(seen.name, Names()).classes)
    )


def _came_and_went(left: ObservedProvider, now: ObservedProvider, besides: Collection[str]) -> bool:
    """
    Return whether a consumer may have claimed and released a device since a pass left it.

    A claim changes the generation and nothing else that can be read; its deletion does not change that back.
    """
    was, stands = left.provider, now.provider
    same = same_stock(was.inventories, stands.inventories) and was.traits == stands.traits
    moved = now.generation != left.generation and same and was.aggregates == stands.aggregates
    free = any(was.inventories[name].capacity for name in device_classes(was.inventories, besides))
    return moved and free and ONE_TIME in was.traits


def _unheld(seen: ObservedProvider) -> str:
    name = min(device_classes(seen.provider.inventories), default="CLASS")
    return (
        f"{seen.name} is a one-time device. Since the last pass it was claimed, or another writer wrote to it, so the "
        f"agent treats it as used and reserves it. If no guest had it, offer it again after this pass (openstack "
        f"resource provider inventory set {seen.uuid} --amend --resource {name}:reserved=0)"
    )
