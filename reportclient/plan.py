"""Plans: operations in the order in which they are carried out, their digest, and what makes them unsafe."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import filterfalse
from typing import assert_never

from reportclient.allocations import Allocation, AllocationRequest, Consumer, Move, Slots, usages
from reportclient.errors import UnsafePlan, few
from reportclient.names import NO_DEVICES
from reportclient.tree import Inventory, ObservedTree, total_of


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
class Claim:
    """Write a new consumer with an allocation request, exactly as it was offered; the rewrite has its amounts."""

    rewrite: Rewrite
    request: AllocationRequest


@dataclass(frozen=True, slots=True)
class ReplaceAllocations:
    """Replace all allocations of several consumers in one transaction: all of them are written, or none."""

    rewrites: tuple[Rewrite, ...]


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
AllocationWrite = Claim | ReplaceAllocations | DropAllocations
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
        return Outline(
            steps=frozenset(digest_of((step,)) for step in filterfalse(_makes_names, self.operations)),
            traits=frozenset((step.uuid, step.traits) for step in self.operations if isinstance(step, SetTraits)),
            moves=digest_of(self.moves),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """Short form of a plan: enough to tell whether another plan is the rest of it."""

    steps: frozenset[str]  # digest of each operation
    traits: frozenset[tuple[str, frozenset[str]]]  # (provider uuid, whole set) of each write of traits
    moves: str  # digest of all moves

    def covers(self, plan: Plan) -> bool:
        """Return whether a plan contains only steps of this outline, and either all of its moves or none."""
        return (not plan.moves or digest_of(plan.moves) == self.moves) and all(map(self._has, plan.operations))

    def _has(self, step: Operation) -> bool:
        match step:
            case EnsureClasses() | EnsureTraits():
                return True
            case SetTraits(uuid, _, traits):
                return (uuid, traits) in self.traits
            case _:
                return digest_of((step,)) in self.steps


def _makes_names(step: Operation) -> bool:
    return isinstance(step, EnsureClasses | EnsureTraits)


def digest_of(steps: Iterable[Operation | AllocationWrite | Move]) -> str:
    """Return 12 hex digits that cover these steps, but no generations of consumers and no reasons of moves."""
    text = json.dumps([[type(step).__name__, _settled(step)] for step in steps], sort_keys=True, default=sorted)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _settled(step: Operation | AllocationWrite | Move) -> dict[str, object]:
    """Return the fields of a step without the generations of consumers, and of a move without its reason."""
    fields = asdict(step)
    fields.pop("because", None)
    for rewrite in fields.get("rewrites", ()):
        del rewrite["generation"]
    return fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much one pass may take away without a person's approval."""

    fraction: float = 0.3  # of a class's total over the tree
    providers: int = 4  # deleted ones
    withdrawn: Mapping[str, frozenset[str]] = field(default_factory=dict)  # by an operator: classes, by provider name
    present: frozenset[str] = frozenset()  # names of providers whose device the survey saw


def stock_writes(operations: Iterable[Operation]) -> dict[str, Mapping[str, Inventory]]:
    """Return the final inventories that a plan sets, by provider uuid; those of a deleted provider are empty."""
    final: dict[str, Mapping[str, Inventory]] = {}
    for operation in operations:
        match operation:
            case SetInventories(uuid, _, inventories):
                final[uuid] = inventories
            case Reshape(several):
                final |= {one.uuid: one.inventories for one in several}
            case Delete(uuid, _):
                final[uuid] = {}
            case EnsureClasses() | EnsureTraits() | Create() | Rename() | Reparent() | SetTraits() | SetAggregates():
                pass
            case _:
                assert_never(operation)
    return final


def lessened(plan: Plan, observed: ObservedTree) -> frozenset[str]:
    """
    Return the uuids of providers of which guests may lose something: to judge the plan, their allocations must be read.

    These are the providers that lose stock, and those with stock that get a class they did not have, or more dedicated
    CPUs: guests may have it by another name.
    """
    final = stock_writes(plan.operations)
    return frozenset(
        seen.uuid for seen in observed if seen.uuid in final and _may_lose(seen.provider.inventories, final[seen.uuid])
    )


def _may_lose(before: Mapping[str, Inventory], after: Mapping[str, Inventory]) -> bool:
    comes = after.keys() - before.keys() or total_of(after, "PCPU") > total_of(before, "PCPU")
    return bool(before and comes) or any(_is_less(after.get(name), stock) for name, stock in before.items())


def _is_less(after: Inventory | None, before: Inventory) -> bool:
    """
    Return whether the total or the capacity of a class shrinks.

    The capacity alone does not show it: stock that is all reserved has none, and can still be removed.
    """
    return after is None or after.total < before.total or after.capacity < before.capacity


def shrinkage(plan: Plan, observed: ObservedTree, limits: Limits) -> tuple[str, ...]:
    """
    Return a sentence for each way in which a plan takes away more than ``limits`` allow in one pass; empty: none.

    A provider's loss counts unless its class was withdrawn or its device was seen; gains elsewhere make up for it.
    """
    final = stock_writes(plan.operations)
    before: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    excused: Counter[str] = Counter()
    gained: Counter[str] = Counter()
    stood = {provider.uuid: provider.provider.inventories for provider in observed}
    names = {provider.uuid: provider.name for provider in observed}
    for uuid in stood.keys() | final.keys():
        stands = _totals(stood.get(uuid, {}))
        stays = _totals(final.get(uuid, stood.get(uuid, {})))
        before += stands
        gained += stays - stands
        for name, amount in (stands - stays).items():
            withdrawn = name in limits.withdrawn.get(names[uuid], frozenset())
            side = excused if withdrawn or names[uuid] in limits.present else lost
            side[name] += amount
    # Gains make up first for stock that was removed on purpose, and only then for stock that may be a real loss.
    loss = {name: lost[name] - max(0, gained[name] - excused[name]) for name in before}
    after = {name: before[name] - lost[name] - excused[name] + gained[name] for name in before}
    sentences = [
        f"{name} would shrink from {before[name]} to {after[name]}, more than {limits.fraction:.0%}"
        for name in sorted(loss)
        if loss[name] > before[name] * limits.fraction
    ]
    gone = [one for one in plan.operations if isinstance(one, Delete) and one.name not in limits.present]
    losing = [one for one in gone if any(loss[name] > 0 for name in _totals(stood[one.uuid]))]
    if len(losing) > limits.providers:
        sentences.append(f"{len(losing)} providers would be deleted, more than {limits.providers}")
    return tuple(sentences)


def losses(plan: Plan, observed: ObservedTree) -> tuple[str, ...]:
    """Return what a plan takes away: provider, class, and the number of units."""
    final = stock_writes(plan.operations)
    return tuple(
        f"{seen.name} {name} {lost}"
        for seen in sorted(observed, key=lambda one: one.name)
        for name, stock in sorted(seen.provider.inventories.items())
        if (lost := stock.total - total_of(final.get(seen.uuid, seen.provider.inventories), name)) > 0
    )


def _totals(inventories: Mapping[str, Inventory]) -> Counter[str]:
    """Return totals by class; PCPU counts as VCPU, as a CPU that becomes dedicated is not lost."""
    totals: Counter[str] = Counter()
    for name, stock in inventories.items():
        totals["VCPU" if name == "PCPU" else name] += stock.total
    return totals


def check_use(plan: Plan, observed: ObservedTree, allocations: Iterable[Allocation], *, force: bool) -> None:
    """
    Refuse a plan that takes away what guests hold.

    ``allocations`` are those on the providers that ``lessened`` returns.

    Raises:
        UnsafePlan: a class would have less capacity than is used (``force`` allows that), or a class or a provider
            with allocations would be removed (never allowed).
    """
    final = stock_writes(plan.operations)
    by_name, held = observed.by_name, tuple(allocations)
    for (name, resource_class), used in sorted(usages(held).items()):
        provider = by_name.get(name)
        if provider is None or provider.uuid not in final:
            continue
        stands = provider.provider.inventories.get(resource_class)
        after = final[provider.uuid].get(resource_class)
        if after is None:
            raise UnsafePlan(
                f"{used} {resource_class} on {name} are allocated{_to(held, (name, resource_class))}, and the "
                f"plan would remove that stock: move the guests away first; of consumers without a guest "
                f"compute-node-agent audit says what to do"
            )
        # A reservation of devices that guests hold keeps them from other guests; it takes nothing away.
        of_devices = resource_class not in NO_DEVICES
        kept = of_devices and after.total >= used
        # Stock that was all reserved has no capacity to lose; a lower total can still remove units that guests hold.
        fewer = stands is None or after.capacity < stands.capacity or (of_devices and after.total < stands.total)
        if not force and after.capacity < used and not kept and fewer:
            raise UnsafePlan(
                f"{used} {resource_class} on {name} are allocated, and the plan would leave room for "
                f"{after.capacity}: move guests away, correct the configuration, or say --force"
            )


def _to(allocations: Iterable[Allocation], slot: tuple[str, str]) -> str:
    """Return to which consumers a class of a provider is allocated, as words."""
    found = sorted({one.consumer for one in allocations if (one.provider, one.resource_class) == slot})
    return f" to {few(found)}"
