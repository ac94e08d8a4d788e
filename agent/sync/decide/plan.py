"""Decide what a pass would do, from what was seen of host and placement. Pure: reads and writes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agent.errors import ConfigError
from agent.state.memory import NodeState
from agent.sync.decide.additions import Addition, check_names, without, without_taken
from agent.sync.decide.beside import Side, own_side
from agent.sync.decide.hardware import Host
from agent.sync.decide.laws import Breach, Given, breaches
from agent.sync.decide.layout import layout_of
from agent.sync.decide.remembered import lasting, meanwhile, signs_on
from agent.sync.decide.shaped import Shaped, shape_host, unread_uses, with_awaited, with_undecided, with_used
from agent.sync.decide.shared_disk import Place, find_place
from agent.sync.decide.standing import Standing, stand
from agent.sync.decide.unmatched import lost_entries
from agent.sync.decide.view import Needs, Shaper, View
from agent.sync.decide.wanted import Wanted, lacked_traits, unseen_traits, want
from agent.sync.decide.way import Way, find_way
from drivers.base import Survey
from drivers.policy import Layout
from drivers.pools import aggregate_of
from reportclient.allocations import Allocation, Holdings, apply_moves
from reportclient.names import unknown_standard
from reportclient.ownership import Contest, Names, Ownership, joined
from reportclient.plan import Plan
from reportclient.tree import ObservedTree, ProviderTree


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
    # a sentence on each open choice, and on each device that is held, reserved as used, undecided, or awaited
    held: tuple[str, ...]
    awaited: tuple[str, ...]  # the sentences on the awaited ones
    stands_in: Layout  # the layout of the standing tree
    layout: Layout  # the wanted one
    strays: tuple[Addition, ...]  # entries of the operator's files that match no provider of this host
    memory: NodeState  # as the last pass left it, by the wanted names
    refused: NodeState  # to remember if nothing is written, by the standing names
    meanwhile: NodeState  # to remember while the plan is carried out: what was ours, and what will be
    lasting: NodeState  # to remember once the plan is carried out
    identified: bool  # False: root_uuid is a stand-in for the one that sync will make
    nova: Mapping[str, str] = field(default_factory=dict)  # signs that nova reports the root; empty: none, or not asked
    beside: bool = False  # True: nova reports the root, and only children that nova does not make are wanted
    novas: frozenset[str] = frozenset()  # beside nova: uuids of the children that are left to nova
    storages: frozenset[str] = frozenset()  # uuids of providers of no host, to which disks move, or from which
    holdings: Holdings = field(default_factory=Holdings)  # what guests hold, and what each provider offers
    breaches: tuple[Breach, ...] = ()  # laws that the plan breaks: a fault of this agent

    @property
    def allocations_after(self) -> tuple[Allocation, ...]:
        """The allocations once the plan's moves are carried out."""
        return apply_moves(self.allocations, self.plan.moves)


def draft(view: View, shaper: Shaper) -> Draft | Needs:
    """
    Decide what a pass would do, or name what must be read first; the same view gives the same answer.

    Raises:
        PolicyError: the policy names something that this node does not have.
        ConfigError: an operator's file adds what it may not, or has a typing error in the name of a provider.
        TreeMismatch: placement has another host's tree under this name.
        Absent: nova is to report the root, and has not.
    """
    view = _without_taken(view, shaper.emitted)
    found = _draft_in_role(view, shaper)
    return found if isinstance(found, Needs) else replace(found, breaches=_breaches(found, view, shaper.emitted))


def _without_taken(view: View, emitted: Names) -> View:
    """Return the view with a memory in which nothing is of the files that owners of providers wrote anew since."""
    memory = view.memory
    ours = Ownership(emitted=emitted, configured=joined(memory.configured, memory.reported))
    others = [seen for seen in view.observed if not ours.writes(seen)]
    left = (memory.observed, *view.tried) if memory.observed else ()
    return replace(view, memory=replace(memory, configured=without_taken(memory.configured, others, left)))


def _draft_in_role(view: View, shaper: Shaper) -> Draft | Needs:
    if not view.beside:
        return _decide(view, shaper)
    side = own_side(view, shaper)
    found = _decide(side.view, side.shaper)
    return found if isinstance(found, Needs) else _with_novas(found, view, side)


def _breaches(found: Draft, view: View, emitted: Names) -> tuple[Breach, ...]:
    """Return the laws that the plan for a tree breaks."""
    if not found.plan.operations:
        return ()
    policy, root = view.policy, view.observed.root
    novas = found.novas | ({root.uuid} if root and view.beside else frozenset())
    given = Given(
        observed=view.observed,
        emitted=emitted,
        files=found.meanwhile.configured,
        reported=found.meanwhile.reported,
        foreign=novas,
        rows=view.readings.allocations,
        consumers=view.readings.consumers,
        pools=found.storages,
        aggregates=frozenset(map(aggregate_of, found.storages)),
        forced=view.wishes.force,
        host=Host(
            facts=view.survey.facts,
            dedicated=policy.cpus.dedicated or frozenset(),
            formerly=view.memory.dedicated,
            file_backed_mib=policy.file_backed_mib,
            offered=found.holdings.offered,
            in_total=found.holdings.kinds,
        ),
    )
    return breaches(found.plan, given)


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


def _decide(view: View, shaper: Shaper) -> Draft | Needs:
    standing = stand(view, shaper)
    place = find_place(view, standing.observed)
    if isinstance(place, Needs):
        return place
    survey, view = view.survey, place.seen_from(view)
    shaped = place.on(shape_host(view, shaper, standing))
    if needs := unread_uses(view, standing, shaped):
        return needs
    shaped = with_undecided(view, standing, with_used(view, standing, shaped))
    shaped = with_awaited(view, shaper, standing, shaped)
    check_names(view.additions, view.observed, standing.observed, standing.formerly)
    wanted = want(view, shaper, standing, shaped)
    suspects = lost_entries(wanted.strays, standing.memory.configured, standing.observed, view.additions)
    if unknown := suspects.keys() - view.readings.providers.keys():
        return Needs(providers=frozenset(unknown))
    for name, why in suspects.items():
        if not view.readings.providers[name]:
            raise ConfigError(why)
    unseen = unseen_traits(standing, wanted)
    if unread := unseen - view.readings.traits.keys():
        return Needs(traits=unread)
    known = frozenset(name for name in unseen if view.readings.traits[name])
    way = find_way(view, shaper, standing, shaped, wanted, known, place)
    if isinstance(way, Needs):
        return way
    if needs := _unread_signs(view, shaped, way):
        return needs
    lacked = lacked_traits(standing) | unknown_standard(unseen, known)
    found = _draft(view, shaper, standing, shaped, wanted, way, lacked, place)
    return replace(found, survey=survey)


def _unread_signs(view: View, shaped: Shaped, way: Way) -> Needs | None:
    """Return the need to look for nova-compute on a live host: before something is written, or taken over."""
    asked = way.plan.operations or shaped.contest or view.wishes.take_over
    unread = view.readings.nova_compute is None and not view.recorded and not view.beside
    return Needs(nova_compute=True) if asked and unread else None


def _draft(
    view: View,
    shaper: Shaper,
    standing: Standing,
    shaped: Shaped,
    wanted: Wanted,
    way: Way,
    lacked: frozenset[str],
    place: Place,
) -> Draft:
    """Put the draft together, with the memory to keep; ``lacked`` are standard traits that placement does not have."""
    choices = () if view.beside else shaped.holdings.notes
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
        held=(
            *place.notes,
            *choices,
            *shaped.uses.notes,
            *shaped.holdings.odd.values(),
            *shaped.awaited,
            *way.held,
            *wanted.notes,
        ),
        awaited=shaped.awaited,
        stands_in=layout_of(standing.observed, standing.memory, shaper.emitted, view.policy.layout),
        layout=view.policy.layout,
        contest=shaped.contest,
        went_back=view.went_back,
        identified=view.identified,
        nova=signs_on(view),
        storages=place.gone.union(place.uuids.values()),
        holdings=shaped.holdings,
        beside=view.beside,
        memory=memory,
        refused=replace(view.memory, observed=view.observed, used=shaped.uses.uuids),
        meanwhile=meanwhile(view, memory, wanted),
        lasting=lasting(
            view, standing, shaped, wanted, replace(memory, lacked_traits=lacked, shares=place.shares), way.plan
        ),
    )
