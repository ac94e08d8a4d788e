"""Plans: operations in the order in which they are carried out, and their digest."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import filterfalse

from reportclient.allocations import AllocationRequest, Consumer, Move, Slots
from reportclient.tree import Inventory


@dataclass(frozen=True, slots=True)
class EnsureClasses:
    """Make custom resource classes that may not exist yet."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EnsureTraits:
    """Make custom traits that do not exist yet."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Create:
    """Make an empty provider; ``parent_uuid`` None makes a root."""

    uuid: str
    name: str
    parent_uuid: str | None


@dataclass(frozen=True, slots=True)
class Rename:
    """Give a provider that is ours another name."""

    uuid: str
    name: str
    old_name: str


@dataclass(frozen=True, slots=True)
class Reparent:
    """Put a provider that is ours under another parent of the same tree; needs microversion 1.37."""

    uuid: str
    name: str
    parent_uuid: str
    parent: str  # name
    old_parent: str  # name


@dataclass(frozen=True, slots=True)
class SetTraits:
    """Replace a provider's traits with this whole set; ``added`` and ``removed`` say what that changes."""

    uuid: str
    name: str
    traits: frozenset[str]
    added: frozenset[str]
    removed: frozenset[str]


@dataclass(frozen=True, slots=True)
class SetAggregates:
    """Replace a provider's aggregates with this whole set."""

    uuid: str
    name: str
    aggregates: frozenset[str]


@dataclass(frozen=True, slots=True)
class SetInventories:
    """Replace a provider's inventories with this whole set; empty takes all stock away."""

    uuid: str
    name: str
    inventories: Mapping[str, Inventory]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """All allocations of one consumer before and after the write, on every provider, ours or not."""

    consumer: str
    generation: int | None  # as it was read; None: the consumer does not exist yet
    project: str
    user: str
    kind: str | None  # consumer type; None: unknown, and it stays as it is
    before: Slots
    after: Slots  # empty: the consumer is deleted

    @classmethod
    def of(cls, consumer: Consumer, after: Slots) -> "Rewrite":
        """Return the rewrite of a consumer to another set; its project, user and type stay."""
        return cls(
            consumer=consumer.uuid,
            generation=consumer.generation,
            project=consumer.project,
            user=consumer.user,
            kind=consumer.kind,
            before=consumer.slots,
            after=after,
        )


@dataclass(frozen=True, slots=True)
class Reshape:
    """Replace the inventories of several providers, and the allocations of consumers that move, in one transaction."""

    inventories: tuple[SetInventories, ...]
    rewrites: tuple[Rewrite, ...] = ()  # of the consumers that move; empty: only stock changes


@dataclass(frozen=True, slots=True)
class ReplaceAllocations:
    """Replace all allocations of several consumers in one transaction: all of them are written, or none."""

    rewrites: tuple[Rewrite, ...]
    offered: AllocationRequest | None = None  # the request with the amounts of one new consumer, sent as it is


@dataclass(frozen=True, slots=True)
class DropAllocations:
    """Delete all allocations of a consumer, whichever service wrote them last."""

    consumer: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an empty provider that is ours."""

    uuid: str
    name: str


Operation = (
    EnsureClasses
    | EnsureTraits
    | Create
    | Rename
    | Reparent
    | SetTraits
    | SetAggregates
    | SetInventories
    | Reshape
    | Delete
)
AllocationWrite = ReplaceAllocations | DropAllocations
"""Writes of consumers' sets alone: no plan has them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Operations in the order in which they must be carried out; empty when there is nothing to do."""

    operations: tuple[Operation, ...] = ()
    moves: tuple[Move, ...] = ()
    left_out: frozenset[str] = frozenset()  # standard traits that this placement does not know: it is too old

    @property
    def digest(self) -> str:
        """
        What a person agrees to by approving this plan: 12 hex digits.

        Covers the operations, the moves and the allocations they are based on, but no generations: a write of another
        service that changes none of these does not void a plan that a person has read. Nor does it cover the classes
        and traits that are to be made: other steps name them, and the first host of a fleet makes them for all.
        """
        return digest_of((*filterfalse(_makes_names, self.operations), *self.moves))

    @property
    def outline(self) -> "Outline":
        """Short form of this plan, to recognise the rest of it later."""
        steps = (
            replace(step, added=frozenset(), removed=frozenset()) if isinstance(step, SetTraits) else step
            for step in filterfalse(_makes_names, self.operations)
        )
        return Outline(steps=frozenset(digest_of((step,)) for step in steps), moves=digest_of(self.moves))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """Short form of a plan: enough to tell whether another plan is the rest of it."""

    steps: frozenset[str]  # digest of each operation; of a write of traits that of the whole set, not of the change
    moves: str  # digest of all moves

    def covers(self, plan: Plan) -> bool:
        """Return whether a plan contains only steps of this outline, and either all of its moves or none."""
        rest = plan.outline
        return rest.steps <= self.steps and (not plan.moves or rest.moves == self.moves)


def _makes_names(step: Operation) -> bool:
    return isinstance(step, EnsureClasses | EnsureTraits)


def digest_of(steps: Iterable[Operation | AllocationWrite | Move]) -> str:
    """Return 12 hex digits that cover these steps, but no generations of consumers and no reasons of moves."""
    text = json.dumps([[type(step).__name__, _settled(step)] for step in steps], sort_keys=True, default=sorted)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _settled(step: Operation | AllocationWrite | Move) -> dict[str, object]:
    """Return the fields of a step without generations of consumers, the form of an offer, and a move's reason."""
    fields = {name: value for name, value in asdict(step).items() if name not in ("because", "offered")}
    for rewrite in fields.get("rewrites", ()):
        del rewrite["generation"]
    return fields
