"""Decide what a pass would do, from what was seen of host and placement. Pure: reads and writes nothing."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace

from agent.errors import ConfigError
from agent.state.memory import NodeState
from agent.sync.decide.additions import still_named, without_taken
from agent.sync.decide.beside import Side, own_side
from agent.sync.decide.feature import Draft, Feature, Way
from agent.sync.decide.features import FEATURES, Features
from agent.sync.decide.hardware import Host
from agent.sync.decide.laws import Breach, Given, breaches
from agent.sync.decide.layout import layout_of
from agent.sync.decide.reserving import reserved_tree, with_root_traits
from agent.sync.decide.shaped import Shaped, Standing, shape_host, stand
from agent.sync.decide.view import Shaper, Unread, View
from agent.sync.decide.wanted import Wanted, lacked_traits, lost_entries, unseen_traits, want
from agent.sync.decide.way import find_way
from agent.sync.outcome import Condition
from drivers.errors import MalformedFact, PolicyError
from drivers.policy import Layout
from reportclient.diff import diff
from reportclient.names import unknown_standard
from reportclient.ownership import Names, Ownership, joined
from reportclient.plan import Delete, Plan


def draft(view: View, shaper: Shaper, features: Features = FEATURES) -> Draft:
    """
    Decide what a pass would do; the same view gives the same answer.

    ``features`` act in their order.

    Raises:
        Unread: something must be read first.
        PolicyError: the policy names something that this node does not have.
        ConfigError: an operator's file adds what it may not, or has a typing error in the name of a provider.
        TreeMismatch: placement has another host's tree under this name.
        Absent: nova is to report the root, and has not.
    """
    view = _without_taken(view, shaper.emitted)
    found = _draft_in_role(view, shaper, features)
    unreserved = _breaches(found, found.reserving, view, shaper.emitted, reserves=True)
    found = replace(found, reserving=Plan() if unreserved else found.reserving, unreserved=unreserved)
    return replace(found, breaches=_breaches(found, found.plan, view, shaper.emitted))


def _without_taken(view: View, emitted: Names) -> View:
    """Return the view with a memory in which nothing is of the files that owners of providers wrote anew since."""
    memory = view.memory
    ours = Ownership(emitted=emitted, configured=joined(memory.configured, memory.reported))
    others = [seen for seen in view.observed if not ours.writes(seen)]
    left = (memory.observed, *view.seen.tried) if memory.observed else ()
    return replace(view, memory=replace(memory, configured=without_taken(memory.configured, others, left)))


def _draft_in_role(view: View, shaper: Shaper, kinds: Features) -> Draft:
    if not view.beside:
        return _decide(view, shaper, kinds)
    side = own_side(view, shaper)
    return _with_novas(_decide(side.view, side.shaper, kinds), view, side)


def _breaches(found: Draft, plan: Plan, view: View, emitted: Names, *, reserves: bool = False) -> tuple[Breach, ...]:
    """Return the laws that the plan for a tree breaks; ``reserves``: it is of reserved amounts alone."""
    if not plan.operations:
        return ()
    policy, root, outside = view.policy, view.observed.root, [one.outside() for one in found.features]
    novas = found.novas | ({root.uuid} if root and view.beside else frozenset())
    given = Given(
        observed=view.observed,
        emitted=emitted,
        files=found.meanwhile.configured,
        reported=found.meanwhile.reported,
        foreign=novas,
        rows=view.readings.allocations,
        consumers=view.readings.consumers,
        pools=frozenset[str]().union(*(one.known for one in outside)),
        aggregates=frozenset[str]().union(*(one.aggregates for one in outside)),
        forced=view.wishes.force,
        reserves=reserves,
        host=Host(
            facts=view.survey.facts,
            dedicated=policy.cpus.dedicated or frozenset(),
            off=policy.cpus.off(view.survey.facts.cpu_map.online),
            formerly=view.memory.dedicated,
            file_backed_mib=policy.file_backed_mib,
            offered=found.shaped.holdings.backing.offered,
            in_total=found.shaped.holdings.backing.kinds,
        ),
    )
    return breaches(plan, given)


def _with_novas(found: Draft, view: View, side: Side) -> Draft:
    """Return the draft of our part, with all that stands, which is to be remembered."""
    left = view.memory.observed
    return replace(
        found,
        view=replace(found.view, seen=view.seen),
        shaped=replace(
            found.shaped,
            standing=replace(found.shaped.standing, observed=view.observed),
            memory=replace(found.memory, observed=left),
        ),
        novas=side.novas,
        held=(*found.held, *(Condition(kind="beside", text=text) for text in side.notes)),
    )


def _decide(view: View, shaper: Shaper, kinds: Features) -> Draft:
    standing, read = stand(view), view
    features, view = _look(view, standing, kinds)
    features, shaped = _shape(features, view, shaper, standing)
    wanted = want(view, shaper, shaped)
    _check_strays(view, standing, wanted)
    unseen = unseen_traits(standing, wanted)
    if unread := unseen - view.readings.traits.keys():
        raise Unread(traits=unread)
    known = frozenset(name for name in unseen if view.readings.traits[name])
    stands_in = layout_of(standing.observed, standing.memory, shaper.emitted, view.policy.layout)
    way = find_way(view, shaped, wanted, known, features)
    reserving = Plan()
    if way.plan.operations:
        reserving = _reserving(features, view, shaper, shaped, known, stands_in)
    said = {"choice": shaped.holdings.notes, "lacking": shaped.holdings.lacking}
    choices = [] if view.beside else [Condition(kind=kind, text=text) for kind, texts in said.items() for text in texts]
    choices += [Condition(kind="guest", text=text) for text in shaped.holdings.of_guests]
    choices += [Condition(kind="twice", text=text) for text in shaped.holdings.twice]
    without_effect = (Condition(kind="file", text=text) for text in wanted.notes)
    lacked = lacked_traits(standing) | unknown_standard(unseen, known)
    meanwhile, lasting = _memories(view, shaped, wanted, way, lacked)
    return Draft(
        view=read,
        shaped=shaped,
        wanted=wanted,
        way=way,
        stands_in=stands_in,
        held=(*choices, *way.held, *without_effect),
        meanwhile=meanwhile,
        lasting=lasting,
        features=tuple(one.ask(view, way.plan) for one in features),
        reserving=reserving,
    )


def _check_strays(view: View, standing: Standing, wanted: Wanted) -> None:
    """
    Refuse entries of the operator's files that match nothing, where what they add would be withdrawn by that.

    A name that a provider here has until this pass renames it is no other host's.
    """
    strays = {entry.provider: Names(frozenset(entry.inventories), entry.traits) for entry in wanted.strays}
    # An entry with a former name added to that provider what it names, also where the memory of that is lost.
    formerly = {
        standing.observed.by_uuid[seen.uuid].name: strays[seen.name] for seen in view.observed if seen.name in strays
    }
    before = joined(standing.memory.configured, formerly)
    suspects = lost_entries(wanted.strays, before, standing.observed, view.additions)
    others = suspects.keys() - view.observed.by_name.keys()
    if unknown := others - view.readings.providers.keys():
        raise Unread(providers=frozenset(unknown))
    for name, why in suspects.items():
        if name not in others or not view.readings.providers[name]:
            raise ConfigError(why)


def _reserving(
    features: Sequence[Feature],
    view: View,
    shaper: Shaper,
    shaped: Shaped,
    known: frozenset[str],
    stands_in: Layout,
) -> Plan:
    """
    Return the plan of what features take off offer alone, in the layout in which the tree stands.

    ``shaped`` is as configured; ``known`` as in ``find_way``.
    """
    root, standing = view.observed.root, shaped.standing
    renamed = [seen.name for seen in view.observed] != [seen.name for seen in standing.observed]
    if root is None or renamed or root.name != view.node:
        return Plan()
    if stands_in != view.policy.layout and not view.beside:
        view = replace(view, policy=replace(view.policy, layout=stands_in))
        try:
            _, shaped = _shape(features, view, shaper, standing)
        except (MalformedFact, PolicyError):  # this host has no such layout any more
            return Plan()
    desired = reserved_tree(view, shaped, features)
    if desired is None:
        return Plan()
    carried = frozenset[str]().union(*(seen.provider.traits for seen in standing.observed))
    return diff(view.observed, desired, shaped.ours, root_uuid=view.root_uuid, known_traits=carried | known)


def _look(view: View, standing: Standing, kinds: Features) -> tuple[tuple[Feature, ...], View]:
    """Let the features look at the host, one after the other."""
    features: list[Feature] = []
    for one in kinds:
        feature, view = one().look(view, standing)
        features.append(feature)
    return tuple(features), view


def _shape(
    features: Iterable[Feature], view: View, shaper: Shaper, standing: Standing
) -> tuple[tuple[Feature, ...], Shaped]:
    """Let the host be shaped, and the features change that, one after the other."""
    shaped, found = shape_host(view, shaper, standing, standing.observed), list[Feature]()
    for one in features:
        feature, shaped = one.shape(view, shaper, shaped)
        found.append(feature)
    if view.beside:
        return tuple(found), shaped
    return tuple(found), replace(shaped, tree=with_root_traits(shaped.tree, found, standing.observed.root))


def _memories(
    view: View, shaped: Shaped, wanted: Wanted, way: Way, lacked: frozenset[str]
) -> tuple[NodeState, NodeState]:
    """
    Return what to remember while the plan is carried out, and after that.

    ``lacked`` are standard traits that placement does not have. The former is by both names, as a renaming may be
    taken back.
    """
    kept, memory, observed = view.memory, shaped.memory, shaped.standing.observed
    gone = {step.uuid for step in way.plan.operations if isinstance(step, Delete)}
    present = {one.name for one in wanted.tree}
    stay = {seen.name for seen in observed if seen.uuid not in gone and seen.name not in present}
    meanwhile = replace(
        memory,
        configured=joined(kept.configured, memory.configured, wanted.added),
        reported=joined(kept.reported, memory.reported, wanted.reported),
    )
    return meanwhile, replace(
        memory,
        stood=True,
        smaller="",
        smaller_seen=0,
        configured=joined(still_named(memory.configured, observed, view.additions), wanted.added),
        reported=joined(_traits_on(stay, shaped.ours.configured), wanted.reported),
        lacked_traits=lacked,
        kinds={**memory.kinds, **shaped.holdings.backing.kinds} if view.policy.layout == "flat" else {},
        dedicated=view.policy.cpus.dedicated or frozenset(),
    )


def _traits_on(providers: Container[str], names: Mapping[str, Names]) -> dict[str, Names]:
    """Return the traits that rules and files gave these providers: the agent may still take them back."""
    return {name: Names(traits=each.traits) for name, each in names.items() if name in providers and each.traits}
