"""Decide what nova-compute writes: the plan for its tree, or that it must give allocations first. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from agent.sync.decide.draft import Draft, Shaper
from agent.sync.decide.provider_tree import plan_provider_tree
from drivers.base import Survey
from drivers.moves.slots import leaving_of, stock_of
from drivers.nova.trees import rows_of
from drivers.policy import Policy
from reportclient.allocations import Consumer, Observed
from reportclient.ownership import Names
from reportclient.plan import Delete, Operation, Plan, Reshape, SetInventories, lessened, recast, stock_writes
from reportclient.tree import Inventory, ObservedTree


class AllocationsNeeded(Exception):
    """Stock leaves its provider: the plan depends on the allocations, which nova gives at its start only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of nova for one node."""

    node: str
    tree: ObservedTree  # as nova knows it from placement
    consumers: tuple[Consumer, ...] | None  # everyone who has something in the tree; None: nova did not say
    starting: bool = False  # True: nova-compute starts, and answers ``AllocationsNeeded`` with the allocations


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What nova is to write."""

    plan: Plan
    kept: tuple[str, ...] = ()  # a sentence for each provider whose vanished stock stays, reserved whole


def decide(call: Call, survey: Survey, policy: Policy, shaper: Shaper) -> Answer:
    """
    Return the plan for nova's tree.

    Without allocations, stock that would vanish stays, reserved whole: guests may hold it, and no other guest gets it.

    Raises:
        AllocationsNeeded: nova must call again with the allocations.
        PolicyError, TreeMismatch, Unplaceable: as ``plan_provider_tree``.
    """
    consumers = {one.uuid: one for one in call.consumers or ()}
    observed = Observed(call.tree, rows_of(consumers.values(), call.tree))
    reported = offered_below(survey, policy, shaper, call.tree)
    found = plan_provider_tree(shaper, policy, survey, observed, call.node, reported, consumers)
    if call.consumers is not None:
        return Answer(plan=found.plan)
    if _needs_allocations(found, call):
        raise AllocationsNeeded
    return _without_loss(found.plan, call.tree)


def offered_below(survey: Survey, policy: Policy, shaper: Shaper, tree: ObservedTree) -> Names:
    """
    Return the classes that the root has and that its children are to have.

    They are ours on the root although the driver does not always emit them: an earlier layout put them there.
    """
    wanted, _ = shaper.shape(survey, policy, tree)
    below = {name for provider in wanted if provider.parent for name in provider.inventories}
    root = tree.root
    return Names(classes=frozenset(below & root.provider.inventories.keys())) if root else Names()


def _needs_allocations(found: Draft, call: Call) -> bool:
    """
    Return whether the plan cannot be made without allocations.

    At the start: any provider loses stock. Later nova cannot give them, so only if stock goes to another provider or
    class, which must not be done without its allocations.
    """
    losing = lessened(found.plan, call.tree) | recast(found.plan, call.tree)
    if call.starting or not losing:
        return bool(losing)
    leaves = leaving_of(call.tree, found.desired)
    standing = {(seen.name, name) for seen in call.tree for name in seen.provider.inventories}
    arriving = {_kind(name) for slot in stock_of(found.desired) if slot not in standing for name in slot[1:]}
    names = {seen.name for seen in call.tree if seen.uuid in losing}
    return any(slot[0] in names and leaves(slot) and _kind(slot[1]) in arriving for slot in standing)


def _kind(resource_class: str) -> str:
    """Return the class that a slot is compared by: dedicated CPUs can come from shared ones, and become shared."""
    return "VCPU" if resource_class == "PCPU" else resource_class


def _without_loss(plan: Plan, tree: ObservedTree) -> Answer:
    """Return the plan with each class that it takes away from a provider kept, reserved whole."""
    final = stock_writes(plan.operations)
    lost = {seen.uuid: _vanished(seen.provider.inventories, final[seen.uuid]) for seen in tree if seen.uuid in final}
    lost = {uuid: stock for uuid, stock in lost.items() if stock}
    if not lost:
        return Answer(plan=plan)
    steps = [_keeping(step, lost) for step in plan.operations if not isinstance(step, Delete)]
    written = stock_writes(steps).keys()
    names = {seen.uuid: seen.name for seen in tree}
    steps += [SetInventories(uuid, names[uuid], stock) for uuid, stock in lost.items() if uuid not in written]
    sentences = tuple(f"{', '.join(sorted(stock))} of {names[uuid]}" for uuid, stock in lost.items())
    return Answer(plan=replace(plan, operations=tuple(steps)), kept=sentences)


def _vanished(before: Mapping[str, Inventory], after: Mapping[str, Inventory]) -> dict[str, Inventory]:
    return {name: replace(stock, reserved=stock.total) for name, stock in before.items() if name not in after}


def _keeping(step: Operation, lost: Mapping[str, Mapping[str, Inventory]]) -> Operation:
    """Return a step that leaves in place what it would take away."""
    match step:
        case SetInventories(uuid, _, inventories):
            return replace(step, inventories={**inventories, **lost.get(uuid, {})})
        case Reshape(several):
            kept = (replace(one, inventories={**one.inventories, **lost.get(one.uuid, {})}) for one in several)
            return replace(step, inventories=tuple(kept))
        case _:
            return step
