"""
The types of the JSON for other programs: trees, plans and their parts.

``agent.sync.json_form`` makes these values. Their keys are part of the command's interface.
"""

from typing import Literal, NotRequired, TypedDict, final

from reportclient.payload import InventoryForm

Amounts = dict[str, int]  # by resource class
Held = dict[str, dict[str, Amounts]]  # consumer -> provider -> amounts


class ProviderForm(TypedDict):
    """One provider as the agent wants it."""

    parent: str | None  # name of the parent; None for a root
    inventories: dict[str, InventoryForm]  # by resource class
    traits: list[str]  # sorted
    aggregates: list[str]  # uuids, sorted


class ObservedProviderForm(ProviderForm):
    """One provider as placement holds it."""

    uuid: str
    generation: int
    usages: Amounts  # sums of its allocations


class TreeForm(TypedDict):
    """A desired tree, by provider name."""

    providers: dict[str, ProviderForm]


class ObservedTreeForm(TypedDict):
    """A tree as placement holds it, by provider name, with its allocations."""

    providers: dict[str, ObservedProviderForm]
    allocations: Held  # by provider name


@final
class EnsureForm(TypedDict):
    """Custom resource classes or traits that placement must know."""

    operation: Literal["ensure-resource-classes", "ensure-traits"]
    names: list[str]


@final
class CreateForm(TypedDict):
    """A new provider."""

    operation: Literal["create"]
    provider: str
    uuid: str
    parent_uuid: str | None  # None for a root


@final
class RenameForm(TypedDict):
    """A provider that gets another name."""

    operation: Literal["rename"]
    provider: str  # the new name
    uuid: str
    old_name: str


@final
class ReparentForm(TypedDict):
    """A provider that gets another parent; parents by name where no uuid is said."""

    operation: Literal["reparent"]
    provider: str
    uuid: str
    parent_uuid: str
    parent: str
    old_parent: str


@final
class SetTraitsForm(TypedDict):
    """All traits of a provider after the write, and what changes; each list is sorted."""

    operation: Literal["set-traits"]
    provider: str
    uuid: str
    traits: list[str]
    added: list[str]
    removed: list[str]


@final
class SetAggregatesForm(TypedDict):
    """All aggregates of a provider after the write."""

    operation: Literal["set-aggregates"]
    provider: str
    uuid: str
    aggregates: list[str]  # sorted


@final
class SetInventoriesForm(TypedDict):
    """All inventories of a provider after the write and before it."""

    operation: Literal["set-inventories"]
    provider: str
    uuid: str
    inventories: dict[str, InventoryForm]
    before: dict[str, InventoryForm]  # empty for a provider that is new


@final
class ReshapeForm(TypedDict):
    """Inventories and allocations that placement writes in one transaction."""

    operation: Literal["reshape"]
    inventories: list[SetInventoriesForm]
    allocations: Held  # by provider uuid


@final
class ClaimForm(TypedDict):
    """All allocations of a consumer, as an allocation candidate offered them."""

    operation: Literal["claim"]
    consumer: str
    allocations: NotRequired[dict[str, dict[str, Amounts]]]  # provider uuid -> "resources" -> amounts
    mappings: NotRequired[dict[str, list[str]]]  # request group -> provider uuids


@final
class ReplaceAllocationsForm(TypedDict):
    """All allocations of several consumers, in one transaction."""

    operation: Literal["replace-allocations"]
    allocations: Held  # by provider uuid


@final
class DropAllocationsForm(TypedDict):
    """A consumer that loses all its allocations."""

    operation: Literal["drop-allocations"]
    consumer: str


@final
class DeleteForm(TypedDict):
    """A provider that goes."""

    operation: Literal["delete"]
    provider: str
    uuid: str


OperationForm = (
    EnsureForm
    | CreateForm
    | RenameForm
    | ReparentForm
    | SetTraitsForm
    | SetAggregatesForm
    | SetInventoriesForm
    | ReshapeForm
    | ClaimForm
    | ReplaceAllocationsForm
    | DropAllocationsForm
    | DeleteForm
)


class Renamed(TypedDict, total=False):
    """The key of a move or an instruction whose resources change their class; left out where they keep it."""

    to_resources: Amounts  # on the target


class MoveForm(Renamed):
    """Resources of one consumer that go from one provider to another; providers by name."""

    consumer: str
    from_resource_provider: str
    to_resource_provider: str
    moved_resources: Amounts  # on the source
    because: str


class InstructionForm(Renamed):
    """The moves of all consumers from one provider to another; providers by name."""

    from_resource_provider: str
    to_resource_provider: str
    moved_resources: Amounts  # on the source, of all consumers together
    consumers: dict[str, Amounts]


class PlanForm(TypedDict):
    """A plan: its operations in order, and its moves."""

    digest: str
    operations: list[OperationForm]
    moves: list[MoveForm]
    names: NotRequired[dict[str, str]]  # of guests, by consumer; left out where nobody asked the host


class KeptPlanForm(PlanForm):
    """A plan as the agent keeps it once a person saw it, with the providers before it and after it."""

    before: dict[str, ObservedProviderForm]
    after: dict[str, ObservedProviderForm]


class ReadPlanForm(PlanForm):
    """A kept plan as it is read from its file; an older release kept no providers."""

    before: NotRequired[dict[str, ObservedProviderForm]]
    after: NotRequired[dict[str, ObservedProviderForm]]


class SumsForm(TypedDict):
    """Sums of one resource class over all providers of a tree."""

    total: int
    capacity: int  # what placement can allocate: without reserved stock, times the allocation ratio
    used: int


class CapacityForm(TypedDict):
    """Sums of one resource class before a plan and after it; zeros where the tree lacks the class."""

    before: SumsForm
    after: SumsForm


class ConversionForm(PlanForm):
    """A plan with all that a person needs in order to agree to it."""

    instructions: list[InstructionForm]
    before: ObservedTreeForm
    after: ObservedTreeForm
    capacity: dict[str, CapacityForm]  # by resource class
    requests: list[str]  # "METHOD PATH", in order
