"""Trees, plans and outcomes as the JSON that other programs read; the form is part of the command's interface."""

from collections.abc import Iterable, Mapping
from typing import Any, assert_never

from reportclient.allocations import Allocation, Move, usages
from reportclient.payload import encode_inventory
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
from reportclient.tree import Inventory, ObservedTree, Provider, ProviderTree

Json = dict[str, Any]


def encode_tree(tree: ProviderTree) -> Json:
    """A desired tree: ``{"providers": {NAME: {"parent", "inventories", "traits", "aggregates"}}}``."""
    return {"providers": {provider.name: _encode_provider(provider) for provider in tree}}


def encode_observed(tree: ObservedTree, allocations: Iterable[Allocation]) -> Json:
    """An observed tree: as ``encode_tree``, with uuid, generation and use, and who holds what."""
    held = tuple(allocations)
    used: dict[str, dict[str, int]] = {}
    for (provider, resource_class), amount in sorted(usages(held).items()):
        used.setdefault(provider, {})[resource_class] = amount
    consumers: dict[str, dict[str, dict[str, int]]] = {}
    for allocation in sorted(held):
        slots = consumers.setdefault(allocation.consumer, {}).setdefault(allocation.provider, {})
        slots[allocation.resource_class] = allocation.amount
    return {
        "providers": {
            observed.name: _encode_provider(observed.provider)
            | {"uuid": observed.uuid, "generation": observed.generation, "usages": used.get(observed.name, {})}
            for observed in tree
        },
        "allocations": consumers,
    }


def encode_plan(plan: Plan, observed: ObservedTree) -> Json:
    """``{"digest", "operations", "moves"}``; ``observed`` tells what stands before an inventory is set."""
    before = {seen.uuid: seen.provider.inventories for seen in observed}
    return {
        "digest": plan.digest,
        "operations": [encode_operation(operation, before) for operation in plan.operations],
        "moves": [encode_move(move) for move in plan.moves],
    }


def encode_move(move: Move) -> Json:
    """One move instruction, in the words of the seed."""
    return {
        "consumer": move.consumer,
        "from_resource_provider": move.from_provider,
        "to_resource_provider": move.to_provider,
        "moved_resources": {move.resource_class: move.amount},
        "because": move.because,
    }


def encode_operation(operation: Operation, before: Mapping[str, Mapping[str, Inventory]]) -> Json:
    """One operation, named by its ``operation``; ``before`` has the standing inventories by provider uuid."""
    match operation:
        case EnsureClasses(names):
            return {"operation": "ensure-resource-classes", "names": list(names)}
        case EnsureTraits(names):
            return {"operation": "ensure-traits", "names": list(names)}
        case Create(uuid, name, parent):
            return {"operation": "create", "provider": name, "uuid": uuid, "parent_uuid": parent}
        case Rename(uuid, name, old):
            return {"operation": "rename", "provider": name, "uuid": uuid, "old_name": old}
        case Reparent(uuid, name, parent_uuid, parent, old):
            return {
                "operation": "reparent",
                "provider": name,
                "uuid": uuid,
                "parent_uuid": parent_uuid,
                "parent": parent,
                "old_parent": old,
            }
        case SetTraits(uuid, name, traits, added, removed):
            return {
                "operation": "set-traits",
                "provider": name,
                "uuid": uuid,
                "traits": sorted(traits),
                "added": sorted(added),
                "removed": sorted(removed),
            }
        case SetAggregates(uuid, name, aggregates):
            return {"operation": "set-aggregates", "provider": name, "uuid": uuid, "aggregates": sorted(aggregates)}
        case SetInventories(uuid, name, inventories):
            return {
                "operation": "set-inventories",
                "provider": name,
                "uuid": uuid,
                "inventories": _encode_inventories(inventories),
                "before": _encode_inventories(before.get(uuid, {})),
            }
        case Reshape(several):
            return {"operation": "reshape", "inventories": [encode_operation(one, before) for one in several]}
        case Delete(uuid, name):
            return {"operation": "delete", "provider": name, "uuid": uuid}
        case _:
            assert_never(operation)


def _encode_provider(provider: Provider) -> Json:
    return {
        "parent": provider.parent,
        "inventories": _encode_inventories(provider.inventories),
        "traits": sorted(provider.traits),
        "aggregates": sorted(provider.aggregates),
    }


def _encode_inventories(inventories: Mapping[str, Inventory]) -> Json:
    return {name: encode_inventory(stock) for name, stock in sorted(inventories.items())}
