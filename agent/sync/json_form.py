"""Trees, plans and outcomes as the JSON that other programs read; the form is part of the command's interface."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, assert_never

from reportclient.allocations import Allocation, Move, instructions, usages
from reportclient.forecast import forecast
from reportclient.payload import decode_inventory, encode_inventory, requests_of
from reportclient.plan import (
    Claim,
    Create,
    Delete,
    DropAllocations,
    EnsureClasses,
    EnsureTraits,
    Operation,
    Plan,
    Rename,
    Reparent,
    ReplaceAllocations,
    Reshape,
    SetAggregates,
    SetInventories,
    SetTraits,
)
from reportclient.tree import Inventory, ObservedTree, Provider, ProviderTree

_Json = dict[str, Any]


def encode_tree(tree: ProviderTree) -> _Json:
    """A desired tree: ``{"providers": {NAME: {"parent", "inventories", "traits", "aggregates"}}}``."""
    return {"providers": {provider.name: encode_provider(provider) for provider in tree}}


def encode_observed_tree(tree: ObservedTree, allocations: Iterable[Allocation]) -> _Json:
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
            observed.name: encode_provider(observed.provider)
            | {"uuid": observed.uuid, "generation": observed.generation, "usages": used.get(observed.name, {})}
            for observed in tree
        },
        "allocations": consumers,
    }


def encode_plan(plan: Plan, observed: ObservedTree) -> _Json:
    """``{"digest", "operations", "moves"}``; ``observed`` tells what stands before an inventory is set."""
    before = {seen.uuid: seen.provider.inventories for seen in observed}
    return {
        "digest": plan.digest,
        "operations": [encode_operation(operation, before) for operation in plan.operations],
        "moves": [encode_move(move) for move in plan.moves],
    }


def encode_kept(plan: Plan, observed: ObservedTree) -> _Json:
    """A plan as it is kept once it was shown: as ``encode_plan``, with the providers before it and after it."""
    return {
        **encode_plan(plan, observed),
        "before": encode_observed_tree(observed, ())["providers"],
        "after": encode_after(plan, observed, ())["providers"],
    }


def encode_after(plan: Plan, observed: ObservedTree, allocations: Iterable[Allocation]) -> _Json:
    """Encode what placement holds after a plan, as ``encode_observed_tree``; ``allocations`` are those after it."""
    return encode_observed_tree(forecast(plan, observed), allocations)


def encode_conversion(
    plan: Plan, observed: ObservedTree, before: Iterable[Allocation], after: Iterable[Allocation]
) -> _Json:
    """
    A plan with what a person needs to agree to it: the trees, capacity by class, and the requests, all in order.

    ``instructions`` are its moves by source and target, each with the consumers that its parts belong to.
    """
    stands, stays = encode_observed_tree(observed, before), encode_after(plan, observed, after)
    return {
        **encode_plan(plan, observed),
        "instructions": [
            {
                "from_resource_provider": one.from_resource_provider,
                "to_resource_provider": one.to_resource_provider,
                "moved_resources": dict(one.moved_resources),
                **({"to_resources": dict(one.to_resources)} if one.to_resources != one.moved_resources else {}),
                "consumers": {part.consumer: dict(part.moved_resources) for part in one.parts},
            }
            for one in instructions(plan.moves)
        ],
        "before": stands,
        "after": stays,
        "capacity": _encode_capacity(stands, stays),
        "requests": [f"{method} {path}" for operation in plan.operations for method, path in requests_of(operation)],
    }


def _encode_capacity(before: _Json, after: _Json) -> _Json:
    """By class what all providers offer, can give and give, before and after."""
    found: _Json = {}
    for when, tree in (("before", before), ("after", after)):
        for provider in tree["providers"].values():
            for name, stock in provider["inventories"].items():
                sums = found.setdefault(name, {}).setdefault(when, {"total": 0, "capacity": 0, "used": 0})
                sums["total"] += stock["total"]
                sums["capacity"] += decode_inventory(stock).capacity
                sums["used"] += provider["usages"].get(name, 0)
    nothing = {"total": 0, "capacity": 0, "used": 0}
    return {name: {"before": nothing, "after": nothing} | sums for name, sums in sorted(found.items())}


def encode_move(move: Move) -> _Json:
    """One move instruction, in the words of the seed."""
    return {
        "consumer": move.consumer,
        "from_resource_provider": move.from_provider,
        "to_resource_provider": move.to_provider,
        "moved_resources": dict(move.moved_resources),
        **({"to_resources": dict(move.to_resources)} if move.to_resources else {}),
        "because": move.because,
    }


def encode_operation(operation: Operation, before: Mapping[str, Mapping[str, Inventory]]) -> _Json:
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
        case Reshape(several, rewrites):
            return {
                "operation": "reshape",
                "inventories": [encode_operation(one, before) for one in several],
                "allocations": {one.consumer: _encode_slots(one.after) for one in rewrites},
            }
        case Claim():
            return {"operation": "claim", "consumer": operation.consumer, **json.loads(operation.request.text)}
        case ReplaceAllocations(rewrites):
            held = {one.consumer: _encode_slots(one.after) for one in rewrites}
            return {"operation": "replace-allocations", "allocations": held}
        case DropAllocations(consumer):
            return {"operation": "drop-allocations", "consumer": consumer}
        case Delete(uuid, name):
            return {"operation": "delete", "provider": name, "uuid": uuid}
        case _:
            assert_never(operation)


def encode_provider(provider: Provider) -> _Json:
    return {
        "parent": provider.parent,
        "inventories": _encode_inventories(provider.inventories),
        "traits": sorted(provider.traits),
        "aggregates": sorted(provider.aggregates),
    }


def _encode_slots(slots: Mapping[str, Mapping[str, int]]) -> _Json:
    return {uuid: dict(resources) for uuid, resources in slots.items()}


def _encode_inventories(inventories: Mapping[str, Inventory]) -> _Json:
    return {name: encode_inventory(stock) for name, stock in sorted(inventories.items())}
