"""Decide what a pass would do, from what was seen of host and placement. Pure: reads and writes nothing."""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from agent.errors import ConfigError
from agent.nova.answers import NovaRecord
from agent.state.memory import NodeState, Waiting
from agent.sync.decide.additions import Addition, add, check_names, now_named, still_named, without
from agent.sync.decide.awaited import Sides, told, wait
from agent.sync.decide.beside import Side, own_side
from agent.sync.decide.one_time import Uses, find_uses, one_time, to_ask
from agent.sync.decide.owner import signs_of_nova
from agent.sync.decide.pool import Pool, leaves
from agent.sync.decide.sharing import by_real_names, child_name, coming_back, with_pool, without_pool
from agent.sync.decide.unmatched import lost_entries, unmatched
from agent.sync.decide.view import Needs, Shaper, View
from drivers.base import Survey
from drivers.facts import ServiceSigns
from drivers.moves import displaced, exchanged, plan_moves
from drivers.strangers import find_stand_ins
from reportclient.allocations import Allocation, Consumer, Holdings, Move, Observed, apply_moves
from reportclient.diff import adopted, diff
from reportclient.errors import Unplaceable
from reportclient.hold import hold, keep_whole
from reportclient.names import spelled, unknown_standard
from reportclient.ownership import OWNERS, Contest, Names, Ownership, contest
from reportclient.plan import Delete, Plan, lessened, recast
from reportclient.renaming import as_called, called, former_name, new_names
from reportclient.reserve import Reservations, set_by_operator, used_up, with_reservations
from reportclient.tree import ObservedTree, Provider, ProviderTree


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Contents of a pass before it writes: what is wanted, what stands, and the way from one to the other."""

    root_uuid: str
    desired: ProviderTree
    observed: ObservedTree
    said: ObservedTree  # observed, without what the operator's files add, and with what operators reserved meanwhile
    ours: Ownership
    plan: Plan
    unplaceable: str  # why the wanted tree has no place for what guests hold; empty: it has, or no consumer must move
    contest: Contest | None  # None: no sign of a second writer
    went_back: bool  # True: placement is in an older state than the one that the last pass left
    survey: Survey
    hardware: frozenset[str]  # PCI addresses of all devices that count in the offered stock
    present: frozenset[str]  # names of providers whose hardware the survey found
    allocations: tuple[Allocation, ...]  # on the whole tree if consumers hold stock that shrinks, else empty
    elsewhere: frozenset[str]  # names of providers whose hardware, if they stand, is on offer in another form
    away: frozenset[str]  # classes that the root has, partly reserved, while no device has them now
    held: tuple[str, ...]  # a sentence on each device that is held, reserved as used, or awaited
    awaited: tuple[str, ...]  # the sentences on the awaited ones
    strays: tuple[Addition, ...]  # entries of the operator's files that match no provider of this host
    memory: NodeState  # as the last pass left it, by the wanted names
    refused: NodeState  # to remember if nothing is written, by the standing names
    meanwhile: NodeState  # to remember while the plan is carried out: what was ours, and what will be
    lasting: NodeState  # to remember once the plan is carried out
    identified: bool  # False: root_uuid is a stand-in for the one that sync will make
    nova: Mapping[str, str] = field(default_factory=dict)  # signs that nova reports the root; empty: none, or not asked
    beside: bool = False  # True: nova reports the root, and only children that nova does not make are wanted
    novas: frozenset[str] = frozenset()  # beside nova: uuids of the children that are left to nova
    pool: Pool | None = None  # as in ``View``; no provider of ``desired`` and ``observed``
    forgotten: str = ""  # as in ``View``

    @property
    def allocations_after(self) -> tuple[Allocation, ...]:
        """The allocations once the plan's moves are carried out."""
        return apply_moves(self.allocations, self.plan.moves)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Standing:
    """Standing tree and memory, by the wanted names."""

    formerly: str | None  # the root's name before a renaming; None: it is not renamed
    observed: ObservedTree
    memory: NodeState
    named: Mapping[str, Names]  # what the operator's files put on each provider

    def with_reservations(self, reserved: Reservations) -> ObservedTree:
        return with_reservations(self.observed, reserved)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shaped:
    """What the host gives, before the operator's files are applied."""

    tree: ProviderTree
    holdings: Holdings
    ours: Ownership  # as it was before this pass
    contest: Contest | None
    reserved: Reservations
    uses: Uses = field(default_factory=Uses)
    waiting: Waiting = field(default_factory=Waiting)
    awaited: tuple[str, ...] = ()  # a sentence on each stock that is awaited after a boot


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """The wanted tree, and the source of each part of it."""

    tree: ProviderTree
    added: Mapping[str, Names]  # what the operator's files add, by provider name
    reported: Mapping[str, Names]  # what devices and rules add beyond the driver's fixed names, by provider name
    strays: tuple[Addition, ...]  # entries of the operator's files that match no provider of this host
    ours: Ownership


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """The way from the standing tree to the wanted one, with what must move and what must stay."""

    tree: ProviderTree  # the wanted providers, and the held ones
    plan: Plan
    allocations: tuple[Allocation, ...]
    held: tuple[str, ...]  # one sentence for each held provider
    unplaceable: str  # as in ``Draft``


def draft(view: View, shaper: Shaper) -> Draft | Needs:
    """
    Decide what a pass would do, or name what must be read first; the same view gives the same answer.

    Raises:
        PolicyError: the policy names something that this node does not have.
        ConfigError: an operator's file adds what it may not, or has a typing error in the name of a provider.
        TreeMismatch: placement has another host's tree under this name.
        Absent: nova is to report the root, and has not.
    """
    if not view.beside:
        found = _decide(*with_pool(view, shaper))
        return _without_pool(found, view.pool) if view.pool and isinstance(found, Draft) else found
    side = own_side(view, shaper)
    found = _decide(side.view, side.shaper)
    return found if isinstance(found, Needs) else _with_novas(found, view, side)


def _with_novas(found: Draft, view: View, side: Side) -> Draft:
    """Return the draft of our part, with all that stands, which is to be remembered."""
    left = view.memory.observed
    return replace(
        found,
        observed=view.observed,
        novas=side.novas,
        held=(*found.held, *side.notes),
        memory=replace(found.memory, observed=left),
        refused=replace(found.refused, observed=view.observed),
        meanwhile=replace(found.meanwhile, observed=left),
        lasting=replace(found.lasting, observed=left),
    )


def _without_pool(found: Draft, pool: Pool) -> Draft:
    """Return the draft of this host's tree alone."""
    root, refused = found.desired.root.name, found.refused.observed
    child = child_name(pool, root)
    return replace(
        found,
        unplaceable=found.unplaceable.replace(child, pool.seen.name),
        plan=replace(found.plan, moves=by_real_names(found.plan.moves, pool, root)),
        desired=ProviderTree(tuple(one for one in found.desired if one.name != child)),
        observed=without_pool(found.observed, pool.uuid),
        said=without_pool(found.said, pool.uuid),
        refused=replace(found.refused, observed=without_pool(refused, pool.uuid) if refused else None),
        pool=pool,
    )


def _decide(view: View, shaper: Shaper) -> Draft | Needs:
    standing = _standing(view, shaper)
    shaped = _shape(view, shaper, standing)
    if needs := _unread_uses(view, standing, shaped):
        return needs
    shaped = _with_awaited(view, shaper, standing, _with_used(view, standing, shaped))
    check_names(view.additions, view.observed, standing.observed, standing.formerly)
    wanted = _wanted(view, shaper, standing, shaped)
    suspects = lost_entries(wanted.strays, standing.memory.configured, standing.observed, view.additions)
    if unknown := suspects.keys() - view.readings.providers.keys():
        return Needs(providers=frozenset(unknown))
    for name, why in suspects.items():
        if not view.readings.providers[name]:
            raise ConfigError(why)
    unseen = _unseen_traits(view, standing, wanted)
    if unread := unseen - view.readings.traits.keys():
        return Needs(traits=unread)
    known = frozenset(name for name in unseen if view.readings.traits[name])
    way = _way(view, shaper, standing, shaped, wanted, known)
    if isinstance(way, Needs):
        return way
    if needs := _unread_signs(view, shaped, way):
        return needs
    lacked = _lacked(view, standing) | unknown_standard(unseen, known)
    return _draft(view, shaper, standing, shaped, wanted, way, lacked)


def _way(
    view: View, shaper: Shaper, standing: _Standing, shaped: _Shaped, wanted: _Wanted, known: frozenset[str]
) -> _Way | Needs:
    """Return the way to the wanted tree; ``known`` are traits that placement has and no provider here carries."""
    carried = frozenset().union(*(seen.provider.traits for seen in standing.observed))
    root, formerly = view.observed.root, standing.formerly
    make = partial(
        diff,
        view.observed,
        ours=wanted.ours,
        root_uuid=view.root_uuid,
        known_traits=carried | known,
        rename=root is not None and root.name == view.wishes.rename_from,
        formerly=formerly,
    )
    plan = make(wanted.tree)
    recast_as = exchanged(standing.memory.kinds, shaped.holdings.kinds)
    allocations = _allocations(view, plan, standing.observed, anyhow=bool(recast_as))
    if isinstance(allocations, Needs):
        return allocations
    moved = _moves(view, Observed(standing.observed, allocations), wanted, shaped.holdings, recast_as)
    if isinstance(moved, Needs):
        return moved
    moves, consumers, unplaceable = moved
    stands = _with_uses(standing.with_reservations(shaped.reserved), shaped.uses)
    after = Observed(stands, apply_moves(allocations, moves))
    tree, held = _hold(view, shaper, standing, shaped, wanted, after)
    back = _coming_back(view, standing.observed)
    if isinstance(back, Needs):
        return back
    if held or moves or back:
        several = {one.uuid: one for one in (*consumers, *back.consumers)}
        plan = make(tree, moves=(*moves, *back.moves), consumers=several.values())
        allocations = back.rows or allocations
    return _Way(tree=tree, plan=plan, allocations=allocations, held=held, unplaceable=unplaceable)


def _draft(
    view: View,
    shaper: Shaper,
    standing: _Standing,
    shaped: _Shaped,
    wanted: _Wanted,
    way: _Way,
    lacked: frozenset[str],
) -> Draft:
    """Put the draft together, with the memory to keep; ``lacked`` are standard traits that placement does not have."""
    memory = replace(standing.memory, used=shaped.uses.uuids, reserved=shaped.reserved, waiting=shaped.waiting)
    return Draft(
        root_uuid=view.root_uuid,
        desired=way.tree,
        observed=standing.observed,
        said=without(standing.with_reservations(shaped.reserved), standing.named),
        ours=wanted.ours,
        plan=way.plan,
        unplaceable=way.unplaceable,
        survey=view.survey,
        hardware=shaped.holdings.hardware,
        present=shaper.present(view.survey),
        allocations=way.allocations,
        elsewhere=shaped.holdings.elsewhere,
        away=shaped.holdings.away,
        strays=wanted.strays,
        held=(*shaped.uses.notes, *shaped.awaited, *way.held),
        awaited=shaped.awaited,
        contest=shaped.contest,
        went_back=view.went_back,
        identified=view.identified,
        nova=_signs(view),
        forgotten=view.forgotten,
        beside=view.beside,
        memory=memory,
        refused=replace(view.memory, observed=view.observed, used=shaped.uses.uuids),
        meanwhile=_meanwhile(view, memory, wanted),
        lasting=_lasting(view, standing, shaped, wanted, replace(memory, lacked_traits=lacked), way.plan),
    )


def _standing(view: View, shaper: Shaper) -> _Standing:
    """Return standing tree and memory by the wanted names: they differ while the host, or a child, is renamed."""
    names = (name.removeprefix(view.node) for name in shaper.present(view.survey))
    own_parts = sorted(names, key=lambda part: (-len(part), part))
    formerly = view.wishes.rename_from or former_name(view.observed, own_parts)
    observed, memory = _as_called(view, formerly)
    return _Standing(
        formerly=formerly,
        observed=observed,
        memory=memory,
        named=_named(observed, memory, view.additions),
    )


def _as_called(view: View, formerly: str | None) -> tuple[ObservedTree, NodeState]:
    root, node = view.observed.root, view.node
    if root is None or (root.name != node and root.name != formerly):
        return view.observed, view.memory  # another host's root, or one that is not to be renamed: ``diff`` raises
    before = {root.name, node, formerly or node}
    standing = new_names(view.observed, node, formerly)

    def new_name(name: str) -> str:
        return standing.get(name) or spelled(called(name, node, before))

    def by_new_name(names: Mapping[str, Names]) -> dict[str, Names]:
        found: dict[str, Names] = {}
        for name, each in names.items():
            found = joined(found, {new_name(name): each})
        return found

    waiting = view.memory.waiting
    left = view.memory.observed
    remembered = replace(
        view.memory,
        observed=as_called(left, node, formerly) if left else None,
        configured=by_new_name(view.memory.configured),
        reported=by_new_name(view.memory.reported),
        kinds={spelled(device): classes for device, classes in view.memory.kinds.items()},
        waiting=replace(waiting, stock={(new_name(name), one): total for (name, one), total in waiting.stock.items()}),
    )
    return as_called(view.observed, node, formerly), remembered


def _shape(view: View, shaper: Shaper, standing: _Standing) -> _Shaped:
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
        tree, holdings = shaper.shape(view.survey, view.policy, without(as_left, standing.named))
    return _Shaped(tree=tree, holdings=holdings, ours=ours, contest=found, reserved=reserved)


def _signs(view: View) -> dict[str, str]:
    """Return the signs that nova reports the root; none of a recorded host, which nobody runs a service on."""
    read = view.readings
    if view.recorded:
        return {}
    found, record = read.nova_compute or ServiceSigns(), read.nova_record or NovaRecord()
    return signs_of_nova(view.observed.root, found, record, remembered=view.memory.wrote)


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


def _unread_uses(view: View, standing: _Standing, shaped: _Shaped) -> Needs | None:
    """Return the need to read the allocations of one-time devices that may be used; None where they were read."""
    asked = to_ask(one_time(shaped.tree, standing.observed, shaped.ours), standing.memory)
    unread = {seen.uuid for seen in asked} - view.readings.allocations.keys()
    return Needs(allocations=frozenset(unread)) if unread else None


def _unread_signs(view: View, shaped: _Shaped, way: _Way) -> Needs | None:
    """Return the need to look for nova-compute on a live host: before something is written, or taken over."""
    asked = way.plan.operations or shaped.contest or view.wishes.take_over or leaves(view.pool)
    unread = view.readings.nova_compute is None and not view.recorded and not view.beside
    return Needs(nova_compute=True) if asked and unread else None


def _with_used(view: View, standing: _Standing, shaped: _Shaped) -> _Shaped:
    """Return the shape with all used one-time devices reserved, whatever the hypervisor shows of them now."""
    devices = one_time(shaped.tree, standing.observed, shaped.ours)
    asked = to_ask(devices, standing.memory)
    holding = {seen.name for seen in asked if view.readings.allocations[seen.uuid]}
    uses = find_uses(devices, holding, shaped.tree, standing.memory)
    tree = ProviderTree(tuple(used_up(one) if one.name in uses.names else one for one in shaped.tree))
    return replace(shaped, tree=tree, uses=uses)


def _with_awaited(view: View, shaper: Shaper, standing: _Standing, shaped: _Shaped) -> _Shaped:
    """Return the shape with the stock that a boot of the host took away, reserved, while it is expected back."""
    before, boot = standing.memory.waiting, view.survey.facts.boot
    if not before.stock and (boot or "") == before.boot and not shaped.holdings.expected:
        return replace(shaped, waiting=before)
    sides = Sides(
        observed=_with_uses(standing.with_reservations(shaped.reserved), shaped.uses),
        wanted=shaped.tree,
        ours=shaped.ours,
        lost=_lost(view, shaper, shaped),
        expected=shaped.holdings.expected,
        elsewhere=shaped.holdings.elsewhere,
        besides={name: each.classes for name, each in standing.named.items()},
    )
    waiting = wait(before, boot, view.uptime_s, view.expect_s, sides)
    if not waiting.stock:
        return replace(shaped, waiting=waiting)
    tree = keep_whole(shaped.tree, sides.observed, waiting.stock, sides.besides)
    there = {one.name for one in shaped.tree}
    kept = ProviderTree(tuple(one if one.name in there else _without_added(one, standing.named) for one in tree))
    return replace(shaped, tree=kept, waiting=waiting, awaited=told(waiting, shaped.tree))


def _without_added(provider: Provider, named: Mapping[str, Names]) -> Provider:
    """Return a provider without the traits of the operator's files, which add them themselves."""
    return replace(provider, traits=provider.traits - named.get(provider.name, Names()).traits)


def _lost(view: View, shaper: Shaper, shaped: _Shaped) -> Callable[[str], bool]:
    """Return what tells whether the hardware of a provider is away, or shows none of its parts."""
    here = shaper.present(view.survey)
    return lambda name: name not in here or name in shaped.holdings.silent


def _wanted(view: View, shaper: Shaper, standing: _Standing, shaped: _Shaped) -> _Wanted:
    tree, added = add(shaped.tree, view.root_uuid, view.additions, observed=standing.observed)
    strays = unmatched(view.additions, view.root_uuid, tree, (view.observed, standing.observed))
    reported = _beyond(shaped.tree, shaper.emitted)
    configured = joined(joined(shaped.ours.configured, reported), added)
    return _Wanted(
        tree=tree, added=added, reported=reported, strays=strays, ours=replace(shaped.ours, configured=configured)
    )


def _unseen_traits(view: View, standing: _Standing, wanted: _Wanted) -> frozenset[str]:
    """
    Return the wanted traits that no provider here carries.

    Standard traits that placement lacked are left out as long as nothing in the tree changed.
    """
    names = frozenset[str]().union(*(provider.traits for provider in wanted.tree))
    carried = frozenset[str]().union(*(seen.provider.traits for seen in standing.observed))
    return names - carried - _lacked(view, standing)


def _lacked(view: View, standing: _Standing) -> frozenset[str]:
    memory = standing.memory
    return memory.lacked_traits if standing.observed == memory.observed else frozenset()


def _allocations(view: View, plan: Plan, observed: ObservedTree, *, anyhow: bool) -> tuple[Allocation, ...] | Needs:
    """
    Return the allocations of the whole tree if consumers hold something on a provider that loses stock, else none.

    With ``anyhow`` the root counts as such a provider, whatever the plan does with its stock.
    """
    losing = lessened(plan, observed) | recast(plan, observed)
    losing |= {observed.root.uuid} if anyhow and observed.root else set()
    first = _rows(view, (seen.uuid for seen in observed if seen.uuid in losing), observed)
    if isinstance(first, Needs) or not first:
        return first
    others = (seen.uuid for seen in observed if seen.uuid not in losing and seen.provider.inventories)
    rest = _rows(view, others, observed)
    return rest if isinstance(rest, Needs) else (*first, *rest)


def _rows(view: View, uuids: Iterable[str], observed: ObservedTree) -> tuple[Allocation, ...] | Needs:
    """Return what is allocated on these providers, by the wanted names."""
    asked, read = tuple(uuids), view.readings.allocations
    if unread := frozenset(asked) - read.keys():
        return Needs(allocations=unread)
    return tuple(replace(row, provider=observed.by_uuid[uuid].name) for uuid in asked for row in read[uuid])


def _moves(
    view: View, observed: Observed, wanted: _Wanted, holdings: Holdings, recast_as: frozenset[tuple[str, str]]
) -> tuple[tuple[Move, ...], tuple[Consumer, ...], str] | Needs:
    """
    Return the moves, the consumers read for them, and why one has no place.

    Nothing moves while the root is being renamed, nor beside nova, whose allocations these are.
    """
    root, rows, desired = observed.tree.root, observed.allocations, wanted.tree
    if view.beside or not rows or root is None or root.name != desired.root.name:
        return (), (), ""
    here = {one.consumer for one in rows}
    absent = holdings.guests - here  # guests whose rows a migration may have, as long as they migrate
    strangers = (here if absent else displaced(observed, desired, wanted.ours)) - holdings.guests
    known = _consumers(view, strangers | absent) if strangers else ()
    if isinstance(known, Needs):
        return known
    unknown = [one for one in known if one.uuid in strangers]
    stand_ins = find_stand_ins(unknown, known, holdings, rows)
    try:
        moves = plan_moves(observed, desired, holdings, wanted.ours, stand_ins=stand_ins, recast_as=recast_as)
    except Unplaceable as error:
        return (), (), str(error)
    moving = _consumers(view, {move.consumer for move in moves} - {one.uuid for one in known})
    return moving if isinstance(moving, Needs) else (moves, (*known, *moving), "")


@dataclass(frozen=True, slots=True)
class _Back:
    """Disks that come back from a pool which this host leaves, with the consumers that have them."""

    moves: tuple[Move, ...] = ()
    consumers: tuple[Consumer, ...] = ()
    rows: tuple[Allocation, ...] = ()  # all that consumers have here, and these disks

    def __bool__(self) -> bool:
        return bool(self.moves)


def _coming_back(view: View, observed: ObservedTree) -> _Back | Needs:
    """Return the disks of this host's consumers that are on a pool which this host leaves."""
    if view.pool is None or view.pool.shared or observed.root is None:
        return _Back()
    uuids = [seen.uuid for seen in observed if seen.provider.inventories and seen.uuid != view.pool.uuid]
    rows = _rows(view, uuids, observed)
    if isinstance(rows, Needs):
        return rows
    known = _consumers(view, {one.consumer for one in rows})
    if isinstance(known, Needs):
        return known
    moves = coming_back(view.pool, observed, known)
    disks = (Allocation(one.consumer, view.pool.seen.name, *each) for one in moves for each in one.arriving.items())
    return _Back(moves, known, (*rows, *disks))


def _consumers(view: View, uuids: Iterable[str]) -> tuple[Consumer, ...] | Needs:
    """Return these consumers, without those to which nothing is allocated."""
    asked = frozenset(uuids)
    if unread := asked - view.readings.consumers.keys():
        return Needs(consumers=unread)
    return tuple(filter(None, (view.readings.consumers[uuid] for uuid in sorted(asked))))


def _hold(
    view: View, shaper: Shaper, standing: _Standing, shaped: _Shaped, wanted: _Wanted, after: Observed
) -> tuple[ProviderTree, tuple[str, ...]]:
    """Return the wanted tree with what guests hold or an operator reserved of lost devices, and a sentence on each."""
    return hold(
        wanted.tree,
        ObservedTree(tuple(seen for seen in after.tree if wanted.ours.writes(seen))),
        after.allocations,
        elsewhere=() if view.beside else shaped.holdings.elsewhere,  # nothing moves there beside nova
        lost=_lost(view, shaper, shaped),
        besides={name: each.classes for name, each in standing.named.items()},
    )


def _meanwhile(view: View, memory: NodeState, wanted: _Wanted) -> NodeState:
    """Return what to remember while the plan is carried out: by both names, as a renaming may be taken back."""
    kept = view.memory
    return replace(
        memory,
        configured=joined(joined(kept.configured, memory.configured), wanted.added),
        reported=joined(joined(kept.reported, memory.reported), wanted.reported),
    )


def _lasting(
    view: View, standing: _Standing, shaped: _Shaped, wanted: _Wanted, memory: NodeState, plan: Plan
) -> NodeState:
    """Return what to remember once the plan is carried out."""
    stay = _left_standing(standing.observed, wanted.tree, plan)
    return replace(
        memory,
        configured=joined(still_named(memory.configured, standing.observed, view.additions), wanted.added),
        reported=joined(_traits_on(stay, shaped.ours.configured), wanted.reported),
        reserved={},
        kinds={**memory.kinds, **shaped.holdings.kinds} if shaped.holdings.kinds else {},
        used=frozenset(),
        taken_over=_taken_over(view),
    )


def _taken_over(view: View) -> frozenset[str]:
    """Return the signs of nova that a person overruled, as far as they still stand."""
    if view.readings.nova_compute is None:
        return view.memory.taken_over
    signs = frozenset(_signs(view)) - {"root"}
    return signs if view.wishes.take_over else signs & view.memory.taken_over


def _as_left(left: ObservedTree | None, found: ObservedTree, changed: Container[str]) -> ObservedTree:
    """Return the tree as found, but with the providers that another writer changed (by uuid) as we left them."""
    before = {seen.uuid: seen for seen in left or () if seen.uuid in changed}
    return ObservedTree(tuple(before.get(seen.uuid, seen) for seen in found))


def _with_uses(observed: ObservedTree, uses: Uses) -> ObservedTree:
    """Return the tree with all used one-time devices reserved, so that they are kept while they are out of sight."""
    return ObservedTree(
        tuple(replace(seen, provider=used_up(seen.provider)) if seen.name in uses.names else seen for seen in observed),
        observed.last_modified,
    )


def _beyond(shaped: ProviderTree, emitted: Names) -> dict[str, Names]:
    """Return what a shape puts on each provider beyond the driver's fixed names: it stays ours once unwanted."""
    below = emitted.traits | (emitted.below or Names()).traits
    found = {
        provider.name: Names(
            frozenset(provider.inventories) - emitted.classes,
            provider.traits - (below if provider.parent else emitted.traits),
        )
        for provider in shaped
    }
    return {name: names for name, names in found.items() if names.classes or names.traits}


def _named(observed: ObservedTree, memory: NodeState, additions: Iterable[Addition]) -> dict[str, Names]:
    """Return what the operator's files put on the standing providers, and the owner's marks that rules gave them."""
    found = dict(memory.configured)
    for name, now in now_named(observed, additions).items():
        ours = memory.reported.get(name, Names())
        found = joined(found, {name: Names(now.classes - ours.classes, now.traits - ours.traits)})
    owners = {
        name: Names(traits=frozenset(trait for trait in names.traits if trait.startswith(OWNERS)))
        for name, names in memory.reported.items()
    }
    return joined(found, owners)


def _left_standing(observed: ObservedTree, desired: ProviderTree, plan: Plan) -> frozenset[str]:
    """Return the names of standing providers that are not wanted and stay: held, or another service's now."""
    gone = {step.uuid for step in plan.operations if isinstance(step, Delete)}
    wanted = {provider.name for provider in desired}
    return frozenset(seen.name for seen in observed if seen.uuid not in gone and seen.name not in wanted)


def _traits_on(providers: Container[str], names: Mapping[str, Names]) -> dict[str, Names]:
    """Return the traits that rules and files gave these providers: the agent may still take them back."""
    return {name: Names(traits=each.traits) for name, each in names.items() if name in providers and each.traits}


def joined(one: Mapping[str, Names], other: Mapping[str, Names]) -> dict[str, Names]:
    """Return the union of both mappings, by provider."""
    return {
        provider: Names(
            one.get(provider, Names()).classes | other.get(provider, Names()).classes,
            one.get(provider, Names()).traits | other.get(provider, Names()).traits,
        )
        for provider in one.keys() | other.keys()
    }
