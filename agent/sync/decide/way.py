"""Fourth step of a draft: the way from the standing tree to the wanted one, with what moves and what is held."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from agent.allocations.decide.sets import INSTANCE
from agent.sync.decide.feature import Feature, Reservation, Way
from agent.sync.decide.shaped import Shaped, recast
from agent.sync.decide.view import View
from agent.sync.decide.wanted import Wanted
from agent.sync.outcome import Condition
from drivers.host.parse import format_cpu_set
from drivers.moves import displaced, plan_moves
from drivers.moves.question import find_stand_ins, without_host_classes
from reportclient.allocations import Allocation, Consumer, Holdings, Move, Observed, apply_moves, usages
from reportclient.diff import diff
from reportclient.errors import Unplaceable
from reportclient.forecast import lessened
from reportclient.hold import hold
from reportclient.names import NO_DEVICES
from reportclient.ownership import joined
from reportclient.plan import Plan
from reportclient.reserve import with_least, with_left
from reportclient.tree import ObservedTree, ProviderTree, total_of


def find_way(
    view: View,
    shaped: Shaped,
    wanted: Wanted,
    known: frozenset[str],
    features: Sequence[Feature],
) -> Way:
    """Return the way to the wanted tree; ``known`` are traits that placement has and no provider here carries."""
    standing = shaped.standing
    carried = frozenset().union(*(seen.provider.traits for seen in standing.observed))
    outside = [one.outside() for one in features]
    root, formerly = view.observed.root, standing.formerly
    make = partial(
        diff,
        view.observed,
        ours=wanted.ours,
        root_uuid=view.root_uuid,
        known_traits=carried | known,
        rename=root is not None and root.name == view.wishes.rename_from,
        formerly=formerly,
        others=wanted.others,
        outside={name: uuid for one in outside for name, uuid in one.uuids.items()},
    )
    plan = make(wanted.tree)
    recast_as = recast(shaped)
    anew, elsewhere = _pinned_anew(view), _pinned_elsewhere(view)
    dedicates = bool(anew or elsewhere) or _dedicates(standing.observed, wanted.tree, shaped.holdings)
    allocations = _allocations(
        view,
        plan,
        standing.observed,
        anyhow=bool(recast_as),
        whole=dedicates or bool(reservations(wanted.tree, features)),
    )
    crossing = [move for one in outside for move in one.moves]
    leaving = {Allocation(one.consumer, one.from_provider, *each) for one in crossing for each in one.arriving.items()}
    before = Observed(standing.observed, tuple(row for row in allocations if row not in leaving))
    moved = _moves(view, before, wanted, shaped.holdings, recast_as, anew) if allocations or dedicates else ((), (), "")
    pinned = "" if view.beside else _still_pinned(elsewhere, allocations, shaped.holdings)
    pinned = pinned or _perhaps_pinned(view, standing.observed, wanted.tree)
    moves, consumers = (*moved[0], *crossing), (*moved[1], *(each for one in outside for each in one.consumers))
    if crossing:
        allocations = tuple(dict.fromkeys((*allocations, *(row for one in outside for row in one.rows))))
    after = Observed(shaped.stands, apply_moves(allocations, moves))
    tree, held = _hold(view, shaped, wanted, after, features)
    plan = make(tree, moves=moves, consumers={one.uuid: one for one in consumers}.values())
    refusal = next(filter(None, (pinned, moved[2], *(one.unplaceable for one in outside))), "")
    return Way(tree=tree, plan=plan, allocations=allocations, held=held, unplaceable=refusal)


def _pinned_anew(view: View) -> frozenset[str]:
    """Return the guests that are pinned to CPUs of which PCPU did not consist yet; none where that is not known."""
    before = view.memory.dedicated
    gained = (view.policy.cpus.dedicated or frozenset()) - (before or frozenset())
    return frozenset(
        guest.uuid
        for guest in view.survey.facts.guests
        if before is not None and any(len(one) == 1 and one <= gained for one in (*guest.vcpus, guest.emulator_cpus))
    )


def _pinned_elsewhere(view: View) -> Mapping[str, frozenset[int]]:
    """
    Return the single CPUs to which guests are pinned and which are not dedicated, by guest.

    The threads of its emulator count too. A guest that may run on all shared CPUs is not pinned, even if that is one.
    A guest that is shut off gets the same CPUs when it starts.
    """
    cpus = view.policy.cpus
    dedicated, shared = cpus.dedicated or frozenset(), cpus.shared or frozenset()
    if not any(total_of(seen.provider.inventories, "PCPU") for seen in view.observed):
        return {}
    found = {
        guest.uuid: frozenset[int]().union(
            *(one for one in (*guest.vcpus, guest.emulator_cpus) if len(one) == 1 and one != shared)
        )
        - dedicated
        for guest in view.survey.facts.guests
    }
    return {uuid: cpus for uuid, cpus in found.items() if cpus}


def _still_pinned(elsewhere: Mapping[str, frozenset[int]], rows: Iterable[Allocation], holdings: Holdings) -> str:
    """
    Return which guest has PCPU in placement and is pinned to CPUs that are not dedicated any more; empty: none.

    Its CPUs would come on offer as VCPU, and CPUs that it does not use would count as its PCPU. In this case
    nova-compute refuses to start.
    """
    had, has = Counter[str](), Counter[str]()
    for row in rows:
        had[row.consumer] += row.amount if row.resource_class == "PCPU" else 0
    for unit in holdings.units:
        has[unit.consumer] += unit.amount if unit.resource_class == "PCPU" else 0
    return next(
        (
            f"guest {uuid} has {had[uuid]} PCPU in placement and is pinned to CPUs {format_cpu_set(cpus)}, which are "
            f"not in [compute] cpu_dedicated_set: put them back there until it has ended or has been moved"
            for uuid, cpus in sorted(elsewhere.items())
            if had[uuid] > has[uuid]
        ),
        "",
    )


def _perhaps_pinned(view: View, observed: ObservedTree, desired: ProviderTree) -> str:
    """Return which guest may be pinned to CPUs that count as PCPU now or did, where that changes; empty: none."""
    before, now = view.memory.dedicated, view.policy.cpus.dedicated or frozenset()
    stands = {seen.name: total for seen in observed if (total := total_of(seen.provider.inventories, "PCPU"))}
    wanted = {one.name: total for one in desired if (total := total_of(one.inventories, "PCPU"))}
    if view.beside or not observed.root or (stands == wanted if before is None else before == now):
        return ""
    return next(
        (
            f"guest {one.uuid} may be pinned to CPUs whose PCPU change, and it is not understood: {one.unread}. Leave "
            f"[compute] cpu_dedicated_set and layout as they were until that is corrected, or the guest has been moved"
            for one in view.survey.facts.guests
            if one.unread
        ),
        "",
    )


def _dedicates(observed: ObservedTree, desired: ProviderTree, holdings: Holdings) -> bool:
    """Return whether a provider gets more PCPU to which guests are pinned, whether or not they have allocations."""
    before = {seen.name: total_of(seen.provider.inventories, "PCPU") for seen in observed}
    grown = {one.name for one in desired if total_of(one.inventories, "PCPU") > before.get(one.name, 0)}
    return any(unit.resource_class == "PCPU" and unit.provider in grown for unit in holdings.units)


def _allocations(
    view: View, plan: Plan, observed: ObservedTree, *, anyhow: bool, whole: bool
) -> tuple[Allocation, ...]:
    """
    Return the allocations of the whole tree if consumers hold something on a provider that loses stock, else none.

    With ``anyhow`` the root counts as such a provider, whatever the plan does with its stock; with ``whole`` all are
    needed.
    """
    losing = lessened(plan, observed)
    losing |= {observed.root.uuid} if anyhow and observed.root else set()
    first = view.rows_on((seen.uuid for seen in observed if seen.uuid in losing), observed)
    if not (first or whole):
        return first
    others = (seen.uuid for seen in observed if seen.uuid not in losing and seen.provider.inventories)
    return (*first, *view.rows_on(others, observed))


def _moves(
    view: View,
    observed: Observed,
    wanted: Wanted,
    holdings: Holdings,
    recast_as: frozenset[tuple[str, str]],
    pinned_anew: frozenset[str],
) -> tuple[tuple[Move, ...], tuple[Consumer, ...], str]:
    """
    Return the moves, the consumers read for them, and why one has no place.

    Nothing moves while the root is being renamed, nor beside nova, whose allocations these are.
    """
    root, rows, desired = observed.tree.root, observed.allocations, wanted.tree
    if view.beside or root is None or root.name != desired.root.name:
        return (), (), ""
    here = {one.consumer for one in rows}
    absent = without_host_classes(holdings.guests, rows)  # a migration may have their rows, as long as they migrate
    strangers = (here if absent else displaced(observed, desired, wanted.ours)) - holdings.guests
    known = view.consumers(strangers | absent) if strangers else ()
    unknown = [one for one in known if one.uuid in strangers and one.kind != INSTANCE]
    stand_ins = find_stand_ins(unknown, known, holdings, rows)
    try:
        moves = plan_moves(
            observed,
            desired,
            holdings,
            wanted.ours,
            stand_ins=stand_ins,
            recast_as=recast_as,
            pinned_anew=pinned_anew,
            former=view.wishes.undone.former if view.wishes.undone else {},
        )
    except Unplaceable as error:
        return (), (), str(error)
    moving = view.consumers({move.consumer for move in moves} - {one.uuid for one in known})
    return moves, (*known, *moving), ""


def _hold(
    view: View,
    shaped: Shaped,
    wanted: Wanted,
    after: Observed,
    features: Sequence[Feature],
) -> tuple[ProviderTree, tuple[Condition, ...]]:
    """Return the wanted tree with what is held of lost devices, a condition for each, and what features reserve."""
    tree, notes = hold(
        wanted.tree,
        ObservedTree(tuple(seen for seen in after.tree if wanted.ours.writes(seen))),
        after.allocations,
        elsewhere=() if view.beside else shaped.holdings.backing.elsewhere,  # nothing moves there beside nova
        lost=shaped.is_lost,
        besides=shaped.standing.files,
    )
    files = {name: each.classes for name, each in joined(shaped.standing.named, wanted.added).items()}
    held = (Condition(kind="held", text=text, provider=name) for name, text in notes)
    reserved = with_reserved(tree, reservations(tree, features), files, after.allocations)
    return with_marks(reserved, features), tuple(held)


def reservations(tree: ProviderTree, features: Iterable[Feature]) -> tuple[Reservation, ...]:
    """Return what features take off offer of a finished tree."""
    return tuple(one for feature in features for one in feature.reserve(tree))


def with_marks(tree: ProviderTree, features: Iterable[Feature]) -> ProviderTree:
    """Return a finished tree with the marks of features, and without earlier ones."""
    several = tuple(features)
    found, prefixes = [one.marks(tree) for one in several], tuple(one.prefix for one in several if one.prefix)
    return ProviderTree(
        tuple(
            replace(
                one,
                traits=frozenset(name for name in one.traits if not name.startswith(prefixes)).union(
                    *(marks.get(one.name, ()) for marks in found)
                ),
            )
            for one in tree
        )
    )


def with_reserved(
    tree: ProviderTree,
    wished: Iterable[Reservation],
    files: Mapping[str, Collection[str]],
    allocations: Iterable[Allocation],
) -> ProviderTree:
    """
    Return a finished tree with these reservations, and the marks for them.

    ``allocations`` are all on this tree: of the host's own classes no capacity goes below what is used.
    ``files``: classes of the operator's files, by provider.
    """
    least: dict[tuple[str, str], int] = {}
    used, providers = usages(allocations), {one.name: one for one in tree}
    for one in wished:
        slot, stock = (one.provider, one.resource_class), providers[one.provider].inventories[one.resource_class]
        in_use = math.ceil(used.get(slot, 0) / stock.allocation_ratio) if stock.allocation_ratio else 0
        spares = one.spares_use or one.resource_class in NO_DEVICES
        least[slot] = max(least.get(slot, 0), min(one.least, stock.total - in_use) if spares else one.least)
    after = with_least(tree, least, files) if least else tree
    return ProviderTree(tuple(with_left(one, files.get(one.name, ())) for one in after))
