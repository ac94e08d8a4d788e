"""Decide what nova-compute writes: the plan for its tree, or that it must give allocations first. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from agent.sync.decide.feature import Draft
from agent.sync.decide.view import Shaper
from drivers.base import Survey
from drivers.moves.question import Change
from drivers.policy import Policy
from inside_nova.pci import WithoutPci, without_pci
from inside_nova.provider_tree import plan_provider_tree
from inside_nova.trees import rows_of
from reportclient.allocations import Allocation, Consumer, Observed
from reportclient.diff import diff
from reportclient.forecast import check_use, lessened
from reportclient.hold import hold, is_of_the_host
from reportclient.ownership import Names
from reportclient.plan import Plan
from reportclient.reserve import with_left
from reportclient.tree import Inventory, ObservedTree, Provider, ProviderTree

_ANYONE = "unknown"  # stands for whoever may hold stock whose allocations are not known


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
    kept: tuple[str, ...] = ()  # for each provider whose vanished stock stays: the classes, and its name


def decide(call: Call, survey: Survey, policy: Policy, shaper: Shaper) -> Answer:
    """
    Return the plan for nova's tree.

    Without allocations, stock that would vanish stays, as guests may hold it; on children it is reserved whole, so that
    no other guest gets it. In all layouts but devices, the PCI devices that nova's tracker reports are left to it.

    Raises:
        AllocationsNeeded: nova must call again with the allocations.
        PolicyError, TreeMismatch, Unplaceable: as ``plan_provider_tree``.
        UnsafePlan: stock would vanish although a consumer has it.
    """
    if policy.devices.report and policy.layout != "devices":
        call, shaper = replace(call, tree=without_pci(call.tree)), WithoutPci(shaper, call.tree)
    consumers = {one.uuid: one for one in call.consumers or ()}
    observed = Observed(call.tree, rows_of(consumers.values(), call.tree))
    reported = offered_below(survey, policy, shaper, call.tree)
    found = plan_provider_tree(shaper, policy, survey, observed, call.node, reported, consumers)
    if call.consumers is not None:
        check_use(found.plan, call.tree, found.allocations_after, force=True)
        return Answer(plan=found.plan)
    if _needs_allocations(found, call):
        raise AllocationsNeeded
    return _without_loss(found, call.tree)


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
    losing = lessened(found.plan, call.tree)
    if call.starting or not losing:
        return bool(losing)
    change = Change(call.tree, found.desired)
    arriving = {_kind(name) for slot in change.stock if slot not in change.before for name in slot[1:]}
    names = {seen.name for seen in call.tree if seen.uuid in losing}
    return any(slot[0] in names and change.leaving(slot) and _kind(slot[1]) in arriving for slot in change.before)


def _kind(resource_class: str) -> str:
    """Return the class that a slot is compared by: dedicated CPUs can come from shared ones, and become shared."""
    return "VCPU" if resource_class == "PCPU" else resource_class


def _without_loss(found: Draft, tree: ObservedTree) -> Answer:
    """
    Return the plan of a draft with all stock kept that would vanish.

    On children it is kept as ``hold`` keeps what guests hold: reserved, with its trait. Stock of cells and of pools of
    pages is reserved without it, as no operator reserves of these. On the root it stays as it is.
    """
    wanted = {one.name: one.inventories.keys() for one in found.desired}
    ours = tuple(seen for seen in tree if found.wanted.ours.writes(seen))
    lost = {
        seen.name: {
            name: seen.provider.inventories[name]
            for name in (found.wanted.ours.classes(seen) & seen.provider.inventories.keys())
            - wanted.get(seen.name, set())
        }
        for seen in ours
    }
    rows = [Allocation(_ANYONE, name, each, one.total) for name, stock in lost.items() for each, one in stock.items()]
    desired = _with_stock(found.desired, lost[found.desired.root.name])
    for seen in ours:
        if seen.provider.parent and is_of_the_host(seen.provider) and lost[seen.name]:
            desired = _with_reserved(desired, seen.provider, lost[seen.name])
    desired, _ = hold(desired, ObservedTree(ours), rows, elsewhere=found.shaped.holdings.backing.elsewhere)
    kept = tuple(f"{', '.join(sorted(stock))} of {name}" for name, stock in lost.items() if stock)
    if not kept:
        return Answer(plan=found.plan)
    desired = ProviderTree(tuple(map(with_left, desired)))
    return Answer(plan=diff(tree, desired, found.wanted.ours, root_uuid=found.root_uuid), kept=kept)


def _with_reserved(tree: ProviderTree, stood: Provider, stock: Mapping[str, Inventory]) -> ProviderTree:
    """Return the tree with stock of a cell or of a pool of pages as it stood, all reserved."""
    kept = {name: replace(one, reserved=one.total) for name, one in stock.items()}
    names = {one.name for one in tree}
    if stood.name not in names:
        parent = stood.parent if stood.parent in names else tree.root.name
        return ProviderTree((*tree.providers, replace(stood, parent=parent, inventories=kept)))
    return ProviderTree(
        tuple(replace(one, inventories={**one.inventories, **kept}) if one.name == stood.name else one for one in tree)
    )


def _with_stock(tree: ProviderTree, stock: Mapping[str, Inventory]) -> ProviderTree:
    """Return the tree with more stock on its root."""
    root = replace(tree.root, inventories={**tree.root.inventories, **stock})
    return ProviderTree((root, *tree.providers[1:]))
