"""
Encode values as the JSON that other programs read; the keys are part of the command's interface.

Plans and entries of the journal are kept in files in the same form.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from reportclient.allocations import Allocation, Move, Observed, usages
from reportclient.json_text import encode as encode
from reportclient.payload import encode_provider, encode_stock
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
from reportclient.tree import Inventory, ObservedTree, Provider

Amounts = dict[str, int]  # by resource class
Held = dict[str, dict[str, Amounts]]  # consumer -> provider -> amounts
Form = dict[str, Any]  # an object of JSON, by its keys
Before = Mapping[str, Mapping[str, Inventory]]  # inventories in placement, by provider uuid

KINDS: Mapping[type[Operation], str] = {
    EnsureClasses: "ensure-resource-classes",
    EnsureTraits: "ensure-traits",
    Create: "create",
    Rename: "rename",
    Reparent: "reparent",
    SetTraits: "set-traits",
    SetAggregates: "set-aggregates",
    SetInventories: "set-inventories",
    Reshape: "reshape",
    Delete: "delete",
}
"""The key ``operation`` of each operation."""


encode.register(Provider, encode_provider)


@encode.register
def _(one: Observed) -> Form:
    return encode_observed_tree(one.tree, one.allocations)


@encode.register
def _(move: Move) -> dict[str, object]:
    renamed = {"to_resources": dict(move.to_resources)} if move.to_resources else {}
    return {
        "consumer": move.consumer,
        "from_resource_provider": move.from_provider,
        "to_resource_provider": move.to_provider,
        "moved_resources": dict(move.moved_resources),
        **renamed,
        "because": move.because,
    }


def encode_observed_tree(tree: ObservedTree, allocations: Iterable[Allocation]) -> Form:
    """
    Encode a tree as placement holds it, with the ``allocations`` on it, which name their providers.

    ``providers`` has each provider by name, with the name of its parent and the sums of its allocations (``usages``).
    """
    held = tuple(allocations)
    used: dict[str, dict[str, int]] = {}
    for (provider, resource_class), amount in sorted(usages(held).items()):
        used.setdefault(provider, {})[resource_class] = amount
    providers: dict[str, Any] = {
        seen.name: {
            **encode(seen.provider),
            "uuid": seen.uuid,
            "generation": seen.generation,
            "usages": used.get(seen.name, {}),
        }
        for seen in tree
    }
    return {"providers": providers, "allocations": by_consumer(held)}


def by_consumer(allocations: Iterable[Allocation]) -> Held:
    """Return amounts by consumer, provider and class, in the order of their names."""
    found: Held = {}
    for one in sorted(allocations):
        found.setdefault(one.consumer, {}).setdefault(one.provider, {})[one.resource_class] = one.amount
    return found


def encode_plan(plan: Plan, observed: ObservedTree) -> Form:
    """Encode a plan; ``observed`` is the tree before it, which gives the inventories that each operation replaces."""
    before = {seen.uuid: seen.provider.inventories for seen in observed}
    return {
        "digest": plan.digest,
        "operations": [encode_operation(operation, before) for operation in plan.operations],
        "moves": [encode(move) for move in plan.moves],
    }


def encode_operation(operation: Operation, before: Before) -> Form:
    """Encode one operation by its fields; its key ``operation`` names its kind, ``provider`` its provider."""
    kind = {"operation": KINDS[type(operation)]}
    match operation:
        case Reshape(several, rewrites):
            stock = [encode_operation(one, before) for one in several]
            return {**kind, "inventories": stock, "allocations": {one.consumer: one.after for one in rewrites}}
        case EnsureClasses() | EnsureTraits():
            return {**kind, **encode(operation)}
        case SetInventories(uuid, name, inventories):
            now, was = encode_stock(inventories), encode_stock(before.get(uuid, {}))
            return {**kind, "provider": name, "uuid": uuid, "inventories": now, "before": was}
        case _:
            form = encode(operation)
            return {**kind, "provider": form.pop("name"), **form}
