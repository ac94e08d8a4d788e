"""
Translates between nova's values and ours: provider trees, allocations, and plans.

nova's values are a ``nova.compute.provider_tree.ProviderTree``, which is changed in place, and a dict of allocations
in the form of placement's ``GET /allocations/{consumer}``, by consumer.
"""

from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, Protocol, assert_never

from reportclient.allocations import Allocation, Consumer
from reportclient.errors import TreeMismatch
from reportclient.ownership import OWNER_NOVA
from reportclient.payload import decode_inventory, encode_inventory
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
    Rewrite,
    SetAggregates,
    SetInventories,
    SetTraits,
)
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider

COMPUTE_NODE = "$COMPUTE_NODE"  # as nova's provider configuration files call the root of each compute node
Allocations = MutableMapping[str, dict[str, Any]]
"""nova's allocations by consumer: ``{"allocations": {PROVIDER UUID: {"resources": {CLASS: AMOUNT}}}, ...}``."""


class NovaProvider(Protocol):
    """nova's ``ProviderData``: a copy of one provider."""

    @property
    def uuid(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def generation(self) -> int | None: ...
    @property
    def parent_uuid(self) -> str | None: ...
    @property
    def inventory(self) -> Mapping[str, Mapping[str, Any]]: ...
    @property
    def traits(self) -> Iterable[str]: ...
    @property
    def aggregates(self) -> Iterable[str]: ...


class NovaTree(Protocol):
    """Methods of nova's ``ProviderTree`` that are used here; sharing providers are further roots in it."""

    def get_provider_uuids_in_tree(self, name_or_uuid: str) -> list[str]: ...
    def data(self, name_or_uuid: str) -> NovaProvider: ...
    def new_child(self, name: str, parent: str, uuid: str | None = None) -> str: ...
    def remove(self, name_or_uuid: str) -> None: ...
    def update_inventory(self, name_or_uuid: str, inventory: Mapping[str, Mapping[str, Any]]) -> bool: ...
    def update_traits(self, name_or_uuid: str, traits: Iterable[str]) -> bool: ...
    def update_aggregates(self, name_or_uuid: str, aggregates: Iterable[str]) -> bool: ...


def decode_tree(source: NovaTree, node: str) -> ObservedTree:
    """Return the tree with the root ``node``, parents first; a provider that nova just made has generation 0."""
    rows = [source.data(uuid) for uuid in source.get_provider_uuids_in_tree(node)]
    names = {row.uuid: row.name for row in rows}
    return ObservedTree(tuple(_decode_provider(row, names) for row in rows))


def take_away(source: NovaTree, node: str, added: Mapping[str, frozenset[str]]) -> None:
    """
    Take stock that nova's provider configuration files add out of the tree of ``node``.

    nova adds it again after the driver, and refuses a class that it finds there. ``added`` has the classes by what the
    files call a provider: its name or uuid, or ``COMPUTE_NODE`` for the root.
    """
    for uuid in source.get_provider_uuids_in_tree(node):
        row = source.data(uuid)
        called = (row.uuid, row.name) if row.parent_uuid else (row.uuid, row.name, COMPUTE_NODE)
        theirs = frozenset[str]().union(*(added.get(name, frozenset()) for name in called))
        if theirs & row.inventory.keys():
            left = {name: record for name, record in row.inventory.items() if name not in theirs}
            source.update_inventory(uuid, left)


def decode_consumers(allocations: Mapping[str, Mapping[str, Any]]) -> tuple[Consumer, ...]:
    """Return the consumers with all their allocations, also those outside the tree; empty: nobody has any."""
    return tuple(
        Consumer(
            uuid=uuid,
            generation=record.get("consumer_generation") or 0,
            project=record.get("project_id", ""),
            user=record.get("user_id", ""),
            kind=None,
            slots={provider: dict(one["resources"]) for provider, one in record["allocations"].items()},
        )
        for uuid, record in allocations.items()
    )


def rows_of(consumers: Iterable[Consumer], tree: ObservedTree) -> tuple[Allocation, ...]:
    """Return what the consumers have on the providers of a tree."""
    names = {seen.uuid: seen.name for seen in tree}
    return tuple(
        Allocation(consumer.uuid, names[provider], name, amount)
        for consumer in consumers
        for provider, resources in consumer.slots.items()
        if provider in names
        for name, amount in resources.items()
    )


def apply_plan(plan: Plan, tree: NovaTree, allocations: Allocations | None) -> None:
    """
    Carry out a plan on nova's values; nova writes them to placement later. Nothing is changed if an error is raised.

    ``allocations`` None: nova gave none, and the plan moves none.

    Raises:
        TreeMismatch: the plan has an operation that nova cannot write.
    """
    for operation in plan.operations:
        _check(operation)
    for operation in plan.operations:
        _apply(operation, tree, allocations)


def _decode_provider(row: NovaProvider, names: Mapping[str, str]) -> ObservedProvider:
    return ObservedProvider(
        uuid=row.uuid,
        generation=row.generation or 0,
        provider=Provider(
            name=row.name,
            parent=names[row.parent_uuid] if row.parent_uuid else None,
            inventories={name: decode_inventory(record) for name, record in row.inventory.items()},
            traits=frozenset(row.traits),
            aggregates=frozenset(row.aggregates),
        ),
    )


def _check(operation: Operation) -> None:
    """
    Refuse an operation that nova's tree does not have.

    Raises:
        TreeMismatch: it does not have it.
    """
    match operation:
        case Reparent(_, name, _, parent, old_parent):
            raise TreeMismatch(
                f"provider {name} is below {old_parent} and would have to be below {parent}, and nova-compute cannot "
                f"move a provider: start it once with [compute] layout = flat, and then with the layout that you want"
            )
        case Rename(_, name, old_name):
            raise TreeMismatch(
                f"provider {old_name} would have to be named {name}, and nova-compute cannot rename a provider: "
                f"see docs/inside-nova.md"
            )
        case _:
            pass


def _apply(operation: Operation, tree: NovaTree, allocations: Allocations | None) -> None:
    match operation:
        case EnsureClasses() | EnsureTraits():
            pass  # nova makes them when it writes
        case Create(uuid, name, parent_uuid) if parent_uuid:
            tree.new_child(name, parent_uuid, uuid=uuid)
        case SetTraits(uuid, _, traits):
            tree.update_traits(uuid, traits | {OWNER_NOVA})  # as on all providers that nova writes
        case SetAggregates(uuid, _, aggregates):
            tree.update_aggregates(uuid, aggregates)
        case SetInventories(uuid, _, inventories):
            tree.update_inventory(uuid, _encode(inventories))
        case Reshape(several, rewrites):
            for one in several:
                tree.update_inventory(one.uuid, _encode(one.inventories))
            for rewrite in rewrites:
                _rewrite(rewrite, allocations)
        case Delete(uuid, _):
            tree.remove(uuid)
        case Create() | Rename() | Reparent():
            raise AssertionError(f"no plan for nova's tree has this operation: {operation}")
        case _:
            assert_never(operation)


def _encode(inventories: Mapping[str, Inventory]) -> dict[str, Mapping[str, Any]]:
    return {name: encode_inventory(stock) for name, stock in inventories.items()}


def _rewrite(rewrite: Rewrite, allocations: Allocations | None) -> None:
    """Replace what a consumer has; what nova notes about a provider beside the amounts stays."""
    if allocations is None:
        raise AssertionError(f"a plan without allocations moves those of {rewrite.consumer}")
    record = allocations[rewrite.consumer]
    before = record["allocations"]
    record["allocations"] = {
        provider: {**before.get(provider, {}), "resources": dict(resources)}
        for provider, resources in rewrite.after.items()
    }
