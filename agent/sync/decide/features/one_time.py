"""
Keep one-time devices reserved once they were used. Pure.

A guest has one, had it at a refused pass, or claimed and released it between two passes.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent.state.memory import NodeState
from agent.sync.decide.feature import Draft, Feature, PassEnd
from agent.sync.decide.shaped import Shaped
from agent.sync.decide.view import Shaper, View
from agent.sync.outcome import Condition
from reportclient.hold import device_classes, is_used_up
from reportclient.names import ONE_TIME
from reportclient.ownership import Names, Ownership
from reportclient.reserve import reserved_again, used_up, with_reservations, without_classes
from reportclient.tree import NO_GENERATION, ObservedProvider, ObservedTree, ProviderTree, same_stock

_BODY = "used"  # uuids of devices that were used and are not reserved yet, sorted


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """One-time devices that are to be reserved for good."""

    names: frozenset[str] = frozenset()
    uuids: frozenset[str] = frozenset()  # devices to remember as used until the reservation is written
    unheld: tuple[Condition, ...] = ()  # one on each device that no consumer holds now


@dataclass(frozen=True, slots=True, kw_only=True)
class OneTime(Feature):
    """Used one-time devices are reserved for good, whatever the hypervisor shows of them now."""

    uses: Uses = Uses()

    @classmethod
    def after_restored(cls, memory: NodeState) -> Mapping[str, Any]:
        return {_BODY: sorted(_used(memory).union(seen.uuid for seen in _used_up_ones(memory)))}

    def shape(self, view: View, shaper: Shaper, shaped: Shaped) -> tuple["OneTime", Shaped]:
        memory, stands = shaped.standing.memory, shaped.standing.observed
        devices = _one_time(shaped.tree, stands, shaped.ours)
        rows = view.rows_on((seen.uuid for seen in _to_ask(devices, memory)), stands)
        holding = {row.provider for row in rows}
        uses = find_uses(devices, holding, shaped.tree, memory)
        before = _used_up_ones(memory.elsewhere or memory)
        names = uses.names.union(seen.name for seen in before if seen.name not in stands.by_name)  # they are made anew
        tree = shaped.tree if stands.root else _as_remembered(shaped.tree, memory)
        return OneTime(uses=uses), replace(
            shaped,
            tree=ProviderTree(tuple(used_up(one) if one.name in names else one for one in tree)),
            stands=_with_uses(shaped.stands, uses),
            memory=shaped.memory.with_bodies({_BODY: sorted(uses.uuids)}),
        )

    def conditions(self, draft: Draft) -> tuple[Condition, ...]:
        return self.uses.unheld

    def remember(self, end: PassEnd) -> Mapping[str, Any]:
        return {_BODY: []} if end.done else {}

    def read_back(self, draft: Draft) -> frozenset[str]:
        return frozenset(one.name for one in draft.desired if ONE_TIME in one.traits)


def _used(memory: NodeState) -> frozenset[str]:
    return frozenset(memory.bodies.get(_BODY, ()))


def _as_remembered(tree: ProviderTree, memory: NodeState) -> ProviderTree:
    """Return a tree that is made anew with what operators had reserved of devices in the one that is lost."""
    before = memory.elsewhere or memory
    files = {name: names.classes for name, names in before.configured.items()}
    left = with_reservations(before.observed, files).by_name if before.observed else {}
    said = {name: without_classes(seen.provider, files.get(name, ())) for name, seen in left.items()}
    return ProviderTree(tuple(reserved_again(one, said[one.name]) if one.name in said else one for one in tree))


def _with_uses(observed: ObservedTree, uses: Uses) -> ObservedTree:
    """Return the tree with all used one-time devices reserved, so that they are kept while they are out of sight."""
    return ObservedTree(
        tuple(replace(seen, provider=used_up(seen.provider)) if seen.name in uses.names else seen for seen in observed),
        observed.last_modified,
    )


def _one_time(shaped: ProviderTree, observed: ObservedTree, ours: Ownership) -> tuple[ObservedProvider, ...]:
    """Return the standing one-time devices: by what is wanted, or by their traits while they are out of sight."""
    wanted = {one.name: one.traits for one in shaped}
    return tuple(
        seen
        for seen in observed
        if ONE_TIME in wanted.get(seen.name, seen.provider.traits) and (seen.name in wanted or ours.writes(seen))
    )


def _to_ask(standing: Iterable[ObservedProvider], memory: NodeState) -> tuple[ObservedProvider, ...]:
    """Return the devices that may have been claimed since the last pass: a claim changes the generation."""
    known = memory.observed.by_uuid if memory.observed else {}
    return tuple(
        seen
        for seen in standing
        if seen.uuid in _used(memory)
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
        if seen.name in holding or seen.uuid in _used(memory) or (left and _came_and_went(left, seen, besides)):
            used.append(seen)
        elif is_used_up(seen, besides) and device_classes(wanted.get(seen.name, ())) - seen.provider.inventories.keys():
            carried.append(seen)  # used before, and its class has another name now
    return Uses(
        names=frozenset(seen.name for seen in (*used, *carried)),
        uuids=frozenset(seen.uuid for seen in used),
        unheld=tuple(_unheld(seen) for seen in used if seen.name not in holding),
    )


def _used_up_ones(memory: NodeState) -> tuple[ObservedProvider, ...]:
    """Return the one-time devices that the last pass left used up."""
    return tuple(
        seen
        for seen in memory.observed or ()
        if ONE_TIME in seen.provider.traits and is_used_up(seen, memory.configured.get(seen.name, Names()).classes)
    )


def _came_and_went(left: ObservedProvider, now: ObservedProvider, besides: Collection[str]) -> bool:
    """
    Return whether a consumer may have claimed and released a device since a pass left it.

    A claim changes the generation and nothing else that can be read; its deletion does not change that back. Where the
    pass did not learn the generation, nothing tells.
    """
    was, stands = left.provider, now.provider
    same = same_stock(was.inventories, stands.inventories) and was.traits == stands.traits
    moved = left.generation not in (now.generation, NO_GENERATION) and same and was.aggregates == stands.aggregates
    free = any(was.inventories[name].capacity for name in device_classes(was.inventories, besides))
    return moved and free and ONE_TIME in was.traits


def _unheld(seen: ObservedProvider) -> Condition:
    name = min(device_classes(seen.provider.inventories), default="CLASS")
    text = (
        f"{seen.name} is a one-time device. Since the last pass it was claimed, or another writer wrote to it, so the "
        f"agent treats it as used and reserves it. If no guest had it, offer it again after this pass (openstack "
        f"resource provider inventory set {seen.uuid} --amend --resource {name}:reserved=0)"
    )
    return Condition(kind="used", text=text, provider=seen.name)
