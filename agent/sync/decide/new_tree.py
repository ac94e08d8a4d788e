"""Tell whether a draft makes a tree that placement has nothing of, and nothing else; and part its steps. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from agent.sync.decide.draft import Draft
from reportclient.names import ONE_TIME
from reportclient.plan import (
    Create,
    EnsureClasses,
    EnsureTraits,
    Plan,
    Reshape,
    SetAggregates,
    SetInventories,
    SetTraits,
)
from reportclient.reserve import is_reserved_by_us


@dataclass(frozen=True, slots=True)
class NewTree:
    """The steps of a plan that makes a whole tree, by when they can be carried out."""

    names: Plan  # makes classes and traits, which many trees share
    providers: Plan  # makes the providers, with traits and aggregates
    stock: tuple[SetInventories, ...]  # at least one


def new_tree(draft: Draft) -> NewTree | None:
    """Return the parted plan; None: the draft does more than to make a tree, or must read back what it wrote."""
    if not _is_plain(draft):
        return None
    names: list[EnsureClasses | EnsureTraits] = []
    providers: list[Create | SetTraits | SetAggregates] = []
    stock: list[SetInventories] = []
    for step in draft.plan.operations:
        match step:
            case EnsureClasses() | EnsureTraits():
                names.append(step)
            case Create() | SetTraits() | SetAggregates():
                providers.append(step)
            case SetInventories():
                stock.append(step)
            case Reshape(inventories, ()):
                stock += inventories
            case _:
                return None
    return NewTree(Plan(tuple(names)), Plan(tuple(providers)), tuple(stock)) if stock else None


def _is_plain(draft: Draft) -> bool:
    """Return whether a draft concerns a host that placement has nothing of, and no storage of others."""
    before = draft.observed.providers or draft.went_back or draft.contest or draft.allocations or draft.beside
    storage = draft.pool or draft.former or draft.forgotten
    devices = draft.held or draft.awaited or draft.away
    marked = any(ONE_TIME in one.traits or is_reserved_by_us(one.traits) for one in draft.desired)
    return draft.identified and not (before or storage or devices or marked or draft.unplaceable or draft.plan.moves)


def names_of(trees: Iterable[NewTree]) -> Plan:
    """Return one plan that makes the names of all these trees, each once."""
    steps = [step for one in trees for step in one.names.operations]
    classes = sorted({name for step in steps if isinstance(step, EnsureClasses) for name in step.names})
    traits = sorted({name for step in steps if isinstance(step, EnsureTraits) for name in step.names})
    made = [EnsureClasses(tuple(classes))] if classes else []
    return Plan((*made, *([EnsureTraits(tuple(traits))] if traits else [])))
