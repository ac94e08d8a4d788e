"""Encode values as the JSON that other programs read; the keys are part of the command's interface."""

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import singledispatch
from pathlib import PurePath
from typing import Any, TypedDict, assert_never

from agent.sync.forms import (
    Amounts,
    CapacityForm,
    ClaimForm,
    ConversionForm,
    CreateForm,
    DeleteForm,
    DropAllocationsForm,
    EnsureForm,
    Held,
    InstructionForm,
    KeptPlanForm,
    MoveForm,
    ObservedProviderForm,
    ObservedTreeForm,
    OperationForm,
    PlanForm,
    ProviderForm,
    Renamed,
    RenameForm,
    ReparentForm,
    ReplaceAllocationsForm,
    ReshapeForm,
    SetAggregatesForm,
    SetInventoriesForm,
    SetTraitsForm,
    SumsForm,
    TreeForm,
)
from reportclient.allocations import Allocation, Instruction, Move, Slots, instructions, usages
from reportclient.forecast import forecast
from reportclient.payload import InventoryForm, decode_inventory, encode_inventory, requests_of
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
    Rewrite,
    SetAggregates,
    SetInventories,
    SetTraits,
)
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree

Before = Mapping[str, Mapping[str, Inventory]]  # inventories in placement, by provider uuid


@singledispatch
def encode(value: object) -> Any:
    """
    Return a value as JSON has it: of a dataclass its fields by their names, of a set its members in order.

    A field that has None, and has None as its default, is left out. A type whose JSON has other keys registers its own.
    """
    match value:
        case Enum():
            return value.value
        case PurePath():
            return str(value)
        case Mapping():
            return {key: encode(one) for key, one in value.items()}
        case Set():
            return sorted(map(encode, value))
        case str():
            return value
        case Sequence():
            return [encode(one) for one in value]
        case _ if is_dataclass(value):
            found = [(one, getattr(value, one.name)) for one in fields(value)]
            return {one.name: encode(part) for one, part in found if part is not None or one.default is not None}
        case _:
            return value


@encode.register
def encode_provider(provider: Provider) -> ProviderForm:
    """Encode one provider as the agent wants it, without its name."""
    return {
        "parent": provider.parent,
        "inventories": _encode_inventories(provider.inventories),
        "traits": sorted(provider.traits),
        "aggregates": sorted(provider.aggregates),
    }


def encode_tree(tree: ProviderTree) -> TreeForm:
    """Encode a desired tree, by provider name."""
    return {"providers": {provider.name: encode_provider(provider) for provider in tree}}


def encode_observed_tree(tree: ObservedTree, allocations: Iterable[Allocation]) -> ObservedTreeForm:
    """Encode a tree as placement holds it; ``allocations`` name their providers."""
    held = tuple(allocations)
    used: dict[str, Amounts] = {}
    for (provider, resource_class), amount in sorted(usages(held).items()):
        used.setdefault(provider, {})[resource_class] = amount
    consumers: Held = {}
    for allocation in sorted(held):
        slots = consumers.setdefault(allocation.consumer, {}).setdefault(allocation.provider, {})
        slots[allocation.resource_class] = allocation.amount
    return {
        "providers": {observed.name: _encode_observed(observed, used.get(observed.name, {})) for observed in tree},
        "allocations": consumers,
    }


def encode_plan(plan: Plan, observed: ObservedTree) -> PlanForm:
    """Encode a plan; ``observed`` is the tree before it, which gives the inventories that each operation replaces."""
    before = {seen.uuid: seen.provider.inventories for seen in observed}
    return {
        "digest": plan.digest,
        "operations": [encode_operation(operation, before) for operation in plan.operations],
        "moves": [encode_move(move) for move in plan.moves],
    }


def encode_kept(plan: Plan, observed: ObservedTree) -> KeptPlanForm:
    """Encode a plan as the agent keeps it once a person saw it, with the providers before it and after it."""
    return {
        **encode_plan(plan, observed),
        "before": encode_observed_tree(observed, ())["providers"],
        "after": encode_after(plan, observed, ())["providers"],
    }


def encode_after(plan: Plan, observed: ObservedTree, allocations: Iterable[Allocation]) -> ObservedTreeForm:
    """Encode what placement holds after a plan, as ``encode_observed_tree``; ``allocations`` are those after it."""
    return encode_observed_tree(forecast(plan, observed), allocations)


def encode_conversion(
    plan: Plan, observed: ObservedTree, before: Iterable[Allocation], after: Iterable[Allocation]
) -> ConversionForm:
    """
    Encode a plan with what a person needs in order to agree to it: trees, capacity by class, and requests in order.

    ``instructions`` are its moves summed by source and target, each with the share of each consumer.
    """
    old, new = encode_observed_tree(observed, before), encode_after(plan, observed, after)
    return {
        **encode_plan(plan, observed),
        "instructions": [_encode_instruction(one) for one in instructions(plan.moves)],
        "before": old,
        "after": new,
        "capacity": _encode_capacity(old, new),
        "requests": [f"{method} {path}" for operation in plan.operations for method, path in requests_of(operation)],
    }


def _encode_instruction(one: Instruction) -> InstructionForm:
    renamed: Renamed = {"to_resources": dict(one.to_resources)} if one.to_resources != one.moved_resources else {}
    return {
        "from_resource_provider": one.from_resource_provider,
        "to_resource_provider": one.to_resource_provider,
        "moved_resources": dict(one.moved_resources),
        **renamed,
        "consumers": {part.consumer: dict(part.moved_resources) for part in one.parts},
    }


def _encode_capacity(before: ObservedTreeForm, after: ObservedTreeForm) -> dict[str, CapacityForm]:
    """Sum each class over all providers, before and after."""
    old, new = _sums(before), _sums(after)
    nothing = SumsForm(total=0, capacity=0, used=0)
    return {
        name: {"before": old.get(name, nothing), "after": new.get(name, nothing)}
        for name in sorted(old.keys() | new.keys())
    }


def _sums(tree: ObservedTreeForm) -> dict[str, SumsForm]:
    found: dict[str, SumsForm] = {}
    for provider in tree["providers"].values():
        for name, stock in provider["inventories"].items():
            sums = found.setdefault(name, {"total": 0, "capacity": 0, "used": 0})
            sums["total"] += stock["total"]
            sums["capacity"] += decode_inventory(stock).capacity
            sums["used"] += provider["usages"].get(name, 0)
    return found


def encode_move(move: Move) -> MoveForm:
    """Encode one move of one consumer."""
    renamed: Renamed = {"to_resources": dict(move.to_resources)} if move.to_resources else {}
    return {
        "consumer": move.consumer,
        "from_resource_provider": move.from_provider,
        "to_resource_provider": move.to_provider,
        "moved_resources": dict(move.moved_resources),
        **renamed,
        "because": move.because,
    }


def encode_operation(operation: Operation, before: Before) -> OperationForm:
    """Encode one operation; its key ``operation`` names its kind."""
    match operation:
        case EnsureClasses(names):
            return EnsureForm(operation="ensure-resource-classes", names=list(names))
        case EnsureTraits(names):
            return EnsureForm(operation="ensure-traits", names=list(names))
        case Create(uuid, name, parent):
            return CreateForm(operation="create", provider=name, uuid=uuid, parent_uuid=parent)
        case Rename(uuid, name, old):
            return RenameForm(operation="rename", provider=name, uuid=uuid, old_name=old)
        case Reparent():
            return _encode_reparent(operation)
        case SetTraits():
            return _encode_set_traits(operation)
        case SetAggregates(uuid, name, aggregates):
            return SetAggregatesForm(
                operation="set-aggregates", provider=name, uuid=uuid, aggregates=sorted(aggregates)
            )
        case SetInventories():
            return _encode_set_inventories(operation, before)
        case Reshape():
            return _encode_reshape(operation, before)
        case Claim():
            return _encode_claim(operation)
        case ReplaceAllocations(rewrites):
            return ReplaceAllocationsForm(operation="replace-allocations", allocations=_encode_rewrites(rewrites))
        case DropAllocations(consumer):
            return DropAllocationsForm(operation="drop-allocations", consumer=consumer)
        case Delete(uuid, name):
            return DeleteForm(operation="delete", provider=name, uuid=uuid)
        case _:
            assert_never(operation)


def _encode_reparent(operation: Reparent) -> ReparentForm:
    return {
        "operation": "reparent",
        "provider": operation.name,
        "uuid": operation.uuid,
        "parent_uuid": operation.parent_uuid,
        "parent": operation.parent,
        "old_parent": operation.old_parent,
    }


def _encode_set_traits(operation: SetTraits) -> SetTraitsForm:
    return {
        "operation": "set-traits",
        "provider": operation.name,
        "uuid": operation.uuid,
        "traits": sorted(operation.traits),
        "added": sorted(operation.added),
        "removed": sorted(operation.removed),
    }


def _encode_set_inventories(operation: SetInventories, before: Before) -> SetInventoriesForm:
    return {
        "operation": "set-inventories",
        "provider": operation.name,
        "uuid": operation.uuid,
        "inventories": _encode_inventories(operation.inventories),
        "before": _encode_inventories(before.get(operation.uuid, {})),
    }


def _encode_reshape(operation: Reshape, before: Before) -> ReshapeForm:
    return {
        "operation": "reshape",
        "inventories": [_encode_set_inventories(one, before) for one in operation.inventories],
        "allocations": _encode_rewrites(operation.rewrites),
    }


class _Request(TypedDict, total=False):
    """An allocation request as placement offers it."""

    allocations: dict[str, dict[str, Amounts]]
    mappings: dict[str, list[str]]


def _encode_claim(operation: Claim) -> ClaimForm:
    request: _Request = json.loads(operation.request.text)
    return {"operation": "claim", "consumer": operation.consumer, **request}


def _encode_observed(observed: ObservedProvider, used: Amounts) -> ObservedProviderForm:
    return {
        **encode_provider(observed.provider),
        "uuid": observed.uuid,
        "generation": observed.generation,
        "usages": used,
    }


def _encode_rewrites(rewrites: Iterable[Rewrite]) -> Held:
    """Encode the allocations of each consumer after a write, by provider uuid."""
    return {one.consumer: _encode_slots(one.after) for one in rewrites}


def _encode_slots(slots: Slots) -> dict[str, Amounts]:
    return {uuid: dict(resources) for uuid, resources in slots.items()}


def _encode_inventories(inventories: Mapping[str, Inventory]) -> dict[str, InventoryForm]:
    return {name: encode_inventory(stock) for name, stock in sorted(inventories.items())}
