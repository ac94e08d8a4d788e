"""
The JSON of trees and plans, as plans and entries of the journal are kept in files.

``agent.sync.json_form`` makes it. Its keys are part of the command's interface.
"""

from typing import Any, NotRequired, TypedDict

from reportclient.payload import InventoryForm

Amounts = dict[str, int]  # by resource class
Held = dict[str, dict[str, Amounts]]  # consumer -> provider -> amounts
OperationForm = dict[str, Any]  # the fields of an operation, and its kind as ``operation``


class ProviderForm(TypedDict):
    """One provider as placement holds it."""

    parent: str | None  # name of the parent; None for a root
    inventories: dict[str, InventoryForm]  # by resource class
    traits: list[str]  # sorted
    aggregates: list[str]  # uuids, sorted
    uuid: str
    generation: int
    usages: Amounts  # sums of its allocations


class ObservedTreeForm(TypedDict):
    """A tree as placement holds it, by provider name, with its allocations."""

    providers: dict[str, ProviderForm]
    allocations: Held  # by provider name


class MoveForm(TypedDict):
    """Resources of one consumer that go from one provider to another; providers by name."""

    consumer: str
    from_resource_provider: str
    to_resource_provider: str
    moved_resources: Amounts  # on the source
    to_resources: NotRequired[Amounts]  # on the target; left out where the resources keep their class
    because: str


class PlanForm(TypedDict):
    """A plan: its operations in order, and its moves; kept once a person saw it, with the providers around it."""

    digest: str
    operations: list[OperationForm]
    moves: list[MoveForm]
    before: NotRequired[dict[str, ProviderForm]]  # an older release kept no providers
    after: NotRequired[dict[str, ProviderForm]]
