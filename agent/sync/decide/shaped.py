"""Second step of a draft: what the host gives, with the devices that are used, awaited or lost."""

from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass, field, replace

from agent.state.memory import NodeState, Waiting
from agent.sync.decide.additions import without
from agent.sync.decide.awaited import Sides, Slot, missing_of, told, wait
from agent.sync.decide.one_time import Uses, find_uses, one_time, to_ask, used_up_ones
from agent.sync.decide.standing import Standing
from agent.sync.decide.view import Needs, Shaper, View
from drivers.base import Survey
from reportclient.allocations import Holdings
from reportclient.diff import adopted
from reportclient.hold import keep_whole
from reportclient.names import BANDWIDTH
from reportclient.ownership import Contest, Names, Ownership, contest, joined
from reportclient.reserve import (
    Reservations,
    reserved_again,
    set_by_operator,
    used_up,
    with_reservations,
    without_classes,
)
from reportclient.settings import with_limits
from reportclient.tree import ObservedTree, Provider, ProviderTree


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaped:
    """What the host gives, before the operator's files are applied."""

    tree: ProviderTree
    holdings: Holdings
    ours: Ownership  # as it was before this pass
    contest: Contest | None
    reserved: Reservations
    uses: Uses = field(default_factory=Uses)
    waiting: Waiting = field(default_factory=Waiting)
    awaited: tuple[str, ...] = ()  # a sentence on each stock that is awaited after a boot


def shape_host(view: View, shaper: Shaper, standing: Standing) -> Shaped:
    """Return the tree that the host gives; ratios and reservations of a second writer do not count."""
    observed, memory = standing.observed, standing.memory
    reserved = set_by_operator(observed, memory.observed, memory.reserved, tried=view.tried)
    said = without(standing.with_reservations(reserved), standing.named)
    tree, holdings = shaper.shape(view.survey, view.policy, said)
    ours = ownership(shaper, view.survey, tree, observed, memory)
    found = contest(memory.observed, observed, tree, ours, view.policy.free_ratios, tried=view.tried)
    if found:
        reserved = set_by_operator(observed, memory.observed, memory.reserved, tried=view.tried, contested=found.uuids)
        as_left = with_reservations(_as_left(memory.observed, observed, found.uuids), reserved)
        said = without(as_left, standing.named)
        tree, holdings = shaper.shape(view.survey, view.policy, said)
    return Shaped(tree=with_limits(tree, said), holdings=holdings, ours=ours, contest=found, reserved=reserved)


def ownership(
    shaper: Shaper, survey: Survey, shaped: ProviderTree, observed: ObservedTree, memory: NodeState
) -> Ownership:
    """Return what was ours before this pass, and what nova made for devices of this host."""
    names = shaper.present(survey) | {provider.name for provider in shaped}
    return Ownership(
        emitted=shaper.emitted,
        configured=joined(memory.configured, memory.reported),
        adopted=adopted(observed, names),
    )


def _as_left(left: ObservedTree | None, found: ObservedTree, changed: Container[str]) -> ObservedTree:
    """Return the tree as found, but with the providers that another writer changed (by uuid) as we left them."""
    before = {seen.uuid: seen for seen in left or () if seen.uuid in changed}
    return ObservedTree(tuple(before.get(seen.uuid, seen) for seen in found))


def unread_uses(view: View, standing: Standing, shaped: Shaped) -> Needs | None:
    """Return the need to read the allocations of one-time devices that may be used; None where they were read."""
    asked = to_ask(one_time(shaped.tree, standing.observed, shaped.ours), standing.memory)
    unread = {seen.uuid for seen in asked} - view.readings.allocations.keys()
    return Needs(allocations=frozenset(unread)) if unread else None


def with_used(view: View, standing: Standing, shaped: Shaped) -> Shaped:
    """Return the shape with all used one-time devices reserved, whatever the hypervisor shows of them now."""
    devices = one_time(shaped.tree, standing.observed, shaped.ours)
    asked = to_ask(devices, standing.memory)
    holding = {seen.name for seen in asked if view.readings.allocations[seen.uuid]}
    uses = find_uses(devices, holding, shaped.tree, standing.memory)
    before, stands = used_up_ones(standing.memory.elsewhere or standing.memory), standing.observed.by_name
    names = uses.names.union(seen.name for seen in before if seen.name not in stands)  # they are made anew
    tree = shaped.tree if standing.observed.root else _as_remembered(shaped.tree, standing.memory)
    tree = ProviderTree(tuple(used_up(one) if one.name in names else one for one in tree))
    return replace(shaped, tree=tree, uses=uses)


def _as_remembered(tree: ProviderTree, memory: NodeState) -> ProviderTree:
    """Return a tree that is made anew with what operators had reserved of devices in the one that is lost."""
    before = memory.elsewhere or memory
    left = with_reservations(before.observed, before.reserved).by_name if before.observed else {}
    files = before.configured
    said = {
        name: without_classes(seen.provider, files[name].classes if name in files else ())
        for name, seen in left.items()
    }
    return ProviderTree(tuple(reserved_again(one, said[one.name]) if one.name in said else one for one in tree))


def with_uses(observed: ObservedTree, uses: Uses) -> ObservedTree:
    """Return the tree with all used one-time devices reserved, so that they are kept while they are out of sight."""
    return ObservedTree(
        tuple(replace(seen, provider=used_up(seen.provider)) if seen.name in uses.names else seen for seen in observed),
        observed.last_modified,
    )


def with_undecided(view: View, standing: Standing, shaped: Shaped) -> Shaped:
    """Return the shape with what stands of odd devices, reserved: nothing tells whether it is still there."""
    units, slots = shaped.holdings.undecided_units, shaped.holdings.undecided_stock
    if not slots or view.wishes.force:
        return shaped
    lost = units.keys() | {view.node}
    sides = replace(_sides(view, standing, shaped, lost=lambda name: name in lost, expected=slots), once=True)
    gave = frozenset[str]().union(*(sides.kinds.get(name, ()) for name in units))
    most = {**units, view.node: sum(units.values())}
    wanted = {one.name: one.inventories for one in shaped.tree}
    stock = {}
    for slot, total in missing_of(sides):
        name, resource_class = slot
        now = wanted.get(name, {}).get(resource_class)
        if slot in slots and (name != view.node or not sides.kinds or resource_class in gave):
            there = now.total if now else 0
            stock[slot] = total if resource_class in BANDWIDTH else min(total, there + most[name])
    return replace(shaped, tree=_with_stock(shaped, standing, sides, stock)) if stock else shaped


def with_awaited(view: View, shaper: Shaper, standing: Standing, shaped: Shaped) -> Shaped:
    """Return the shape with the stock that a boot of the host took away, reserved, while it is expected back."""
    before, boot = standing.memory.waiting, view.survey.facts.boot
    if not (before.stock or before.seen) and (boot or "") == before.boot and not shaped.holdings.expected:
        return replace(shaped, waiting=before)
    lost = lost_by(view, shaper, shaped)
    sides = replace(
        _sides(
            view,
            standing,
            shaped,
            lost=lambda name: lost(name) or name in shaped.holdings.untyped,
            expected=shaped.holdings.expected,
        ),
        shown=shaped.holdings.shown,
        forced=view.wishes.force,
    )
    waiting = wait(before, boot, view.uptime_s, view.expect_s, sides)
    if not waiting.stock:
        return replace(shaped, waiting=waiting)
    tree = _with_stock(shaped, standing, sides, waiting.stock)
    return replace(shaped, tree=tree, waiting=waiting, awaited=told(waiting, shaped.tree))


def _sides(
    view: View, standing: Standing, shaped: Shaped, *, lost: Callable[[str], bool], expected: Collection[Slot]
) -> Sides:
    return Sides(
        observed=with_uses(standing.with_reservations(shaped.reserved), shaped.uses),
        wanted=shaped.tree,
        ours=shaped.ours,
        lost=lost,
        expected=expected,
        kinds={f"{view.node}_{suffix}": classes for suffix, classes in standing.memory.kinds.items()},
        elsewhere=shaped.holdings.elsewhere,
        besides={name: each.classes for name, each in standing.named.items()},
    )


def _with_stock(shaped: Shaped, standing: Standing, sides: Sides, stock: Mapping[Slot, int]) -> ProviderTree:
    """Return the tree with at least this stock, as ``keep_whole``."""
    tree = keep_whole(shaped.tree, sides.observed, stock, sides.besides)
    there = {one.name for one in shaped.tree}
    return ProviderTree(tuple(one if one.name in there else _without_added(one, standing.named) for one in tree))


def _without_added(provider: Provider, named: Mapping[str, Names]) -> Provider:
    """Return a provider without the traits of the operator's files, which add them themselves."""
    return replace(provider, traits=provider.traits - named.get(provider.name, Names()).traits)


def lost_by(view: View, shaper: Shaper, shaped: Shaped) -> Callable[[str], bool]:
    """Return what tells whether the hardware of a provider is away, or shows none of its parts."""
    here = shaper.present(view.survey)
    return lambda name: name not in here or name in shaped.holdings.silent
