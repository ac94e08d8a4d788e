"""Forecast a tree after a plan, except for its generations, which only placement assigns."""

from dataclasses import replace
from typing import assert_never

from reportclient.plan import (
    Create,
    Delete,
    EnsureClasses,
    EnsureTraits,
    Operation,
    Plan,
    Rename,
    Reparent,
    Reshape,
    SetAggregates,
    SetInventories,
    SetTraits,
)
from reportclient.tree import ObservedProvider, ObservedTree, Provider


def forecast(plan: Plan, observed: ObservedTree) -> ObservedTree:
    """
    Return the tree after all operations, parents before children; providers that the plan creates have generation 0.

    Raises:
        KeyError: an operation names a provider that does not exist at that point of the plan.
    """
    stands = observed.by_uuid
    for operation in plan.operations:
        apply(operation, stands)
    return ObservedTree(_parents_first(tuple(stands.values())), observed.last_modified)


def apply(operation: Operation, stands: dict[str, ObservedProvider]) -> None:
    """Carry out one operation on what stands, by uuid; generations stay, and a new provider has 0."""
    match operation:
        case EnsureClasses() | EnsureTraits():
            pass
        case Create(uuid, name, parent):
            above = stands[parent].name if parent else None
            stands[uuid] = ObservedProvider(uuid=uuid, generation=0, provider=Provider(name=name, parent=above))
        case Rename(uuid, name, old):
            stands[uuid] = _changed(stands[uuid], name=name)
            for key, seen in stands.items():
                if seen.provider.parent == old:
                    stands[key] = _changed(seen, parent=name)
        case Reparent(uuid, _, parent_uuid):
            stands[uuid] = _changed(stands[uuid], parent=stands[parent_uuid].name)
        case SetTraits(uuid, _, traits):
            stands[uuid] = _changed(stands[uuid], traits=traits)
        case SetAggregates(uuid, _, aggregates):
            stands[uuid] = _changed(stands[uuid], aggregates=aggregates)
        case SetInventories(uuid, _, inventories):
            stands[uuid] = _changed(stands[uuid], inventories=inventories)
        case Reshape(several):
            for one in several:
                apply(one, stands)
        case Delete(uuid):
            del stands[uuid]
        case _:
            assert_never(operation)


def _changed(seen: ObservedProvider, **changes: object) -> ObservedProvider:
    return replace(seen, provider=replace(seen.provider, **changes))  # type: ignore[arg-type]


def _parents_first(providers: tuple[ObservedProvider, ...]) -> tuple[ObservedProvider, ...]:
    ordered: list[ObservedProvider] = []
    waiting = list(providers)
    while waiting:
        placed = {seen.name for seen in ordered}
        ready = [seen for seen in waiting if seen.provider.parent is None or seen.provider.parent in placed]
        ordered += ready or waiting
        waiting = [seen for seen in waiting if seen not in ordered]
    return tuple(ordered)
