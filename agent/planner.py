"""What a pass finds and would do: one look at host and placement, and the plan between them. Writes nothing."""

import logging
import time
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from agent.config import Settings
from agent.identity import parse_identity, planned_identity, read_identity
from agent.layout import standing_layout
from agent.one_time import Uses, find_uses, one_time, to_ask
from agent.provider_config import (
    Addition,
    add,
    check_names,
    now_named,
    read_additions,
    still_named,
    without,
)
from agent.state import NodeState, StateFile
from agent.unmatched import refuse_lost, unmatched
from drivers.base import Driver, Survey
from drivers.errors import Vanished
from drivers.moves import displaced, exchanged, plan_moves
from drivers.policy import Layout
from drivers.strangers import find_stand_ins
from reportclient.allocations import Allocation, Consumer, Holdings, Move, Observed, apply_moves
from reportclient.client import PlacementClient
from reportclient.diff import adopted, diff
from reportclient.errors import TreeMismatch, Unplaceable
from reportclient.hold import hold
from reportclient.names import is_custom
from reportclient.ownership import OWNERS, Contest, Names, Ownership, contest
from reportclient.plan import Delete, Plan, lessened, recast
from reportclient.renaming import as_called, called, former_name
from reportclient.reserve import set_by_operator, used_up, with_reservations
from reportclient.tree import ObservedTree, ProviderTree

T = TypeVar("T")

LOG = logging.getLogger(__name__)
LOOKS = 3  # at a host on which something went away meanwhile
PAUSE_S = 0.1  # between them, in which libvirt hears of it too


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a person said with this pass."""

    force: bool = False
    take_over: bool = False
    rename_from: str | None = None
    deep: bool | None = (
        None  # True: the service's pass that reads everything; False: one of those between; None: others
    )
    reshape: bool = False  # guests' allocations may be moved
    agreed: str | None = None  # the digest of the plan that a person read


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """What a pass has before it writes: what is wanted, what stands, and the way from one to the other."""

    root_uuid: str
    desired: ProviderTree
    observed: ObservedTree
    said: ObservedTree  # the same without what the operator's files add, and with what operators reserved meanwhile
    ours: Ownership
    plan: Plan
    unplaceable: str  # why what guests hold has no place in what is wanted; empty: all has, or nobody must move
    contest: Contest | None
    went_back: bool  # placement is in an older state than the one that the last pass left
    survey: Survey
    allocations: tuple[Allocation, ...]  # of the whole tree where guests hold what loses stock, else none
    elsewhere: frozenset[str]  # providers whose hardware, if they stand, is on offer in another form
    away: frozenset[str]  # classes that the root has, partly reserved, and no device to have them now
    held: tuple[str, ...]  # what is kept only because guests have it: a sentence each
    strays: tuple[Addition, ...]  # entries of the operator's files that match no provider of this host
    memory: NodeState  # as the last pass left it, by the names that are wanted
    refused: NodeState  # to remember where nothing is written: by the names that stand
    meanwhile: NodeState  # to remember while this plan is being carried out: what was ours, and what will be
    lasting: NodeState  # and once it is
    identified: bool  # False: root_uuid is a stand-in for the one that sync will make

    @property
    def allocations_after(self) -> tuple[Allocation, ...]:
        return apply_moves(self.allocations, self.plan.moves)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What stands of a node in placement, whatever is wanted there."""

    root_uuid: str
    observed: ObservedTree
    said: ObservedTree  # the same, with traits that say what operators reserved meanwhile
    memory: NodeState
    identified: bool  # as in ``Prospect``


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """Looks at one node and at what placement holds of it, under one configuration."""

    node: str
    driver: Driver
    client: PlacementClient
    settings: Settings
    where: str  # the placement's name

    def prospect(
        self,
        wishes: Wishes = Wishes(),
        *,
        identity: str | None = None,
        left: NodeState | None = None,
        survey: Survey | None = None,
        tried: tuple[ObservedTree, ...] = (),
    ) -> Prospect:
        """
        Look at host and placement and plan; writes nothing anywhere.

        ``identity`` is the root's uuid when it was just made; else it is read, or a stand-in where there is none.
        ``left`` is the memory to compare with, by default that on disk; ``survey`` what was just seen of the host, by
        default a new look. ``tried`` are the trees that cut-off attempts since then were to make.

        Raises:
            DiscoveryError, PolicyError: of the host. ConfigError, StateError: of our own files.
            PlacementError: placement cannot be read, or holds another host's tree under this name.
        """
        survey = survey or look(lambda: self.driver.survey(self.node))
        known = identity or self.known_uuid(survey)
        root_uuid = known or planned_identity(self.node)
        memory = left or self.state_file(root_uuid).read(self.where)
        self.client.microversion = memory.microversion or self.client.microversion
        memory, observed = self.look_at_tree(root_uuid, memory, deep=wishes.deep)
        return self._plan(survey, known, observed, memory, wishes, tried)

    def sight(self) -> Sight:
        """
        Look at placement alone, as a tree that is being taken down need not be one that can be planned.

        Raises:
            as ``prospect``.
        """
        known = self.known_uuid(look(lambda: self.driver.survey(self.node)))
        root_uuid = known or planned_identity(self.node)
        memory = self.state_file(root_uuid).read(self.where)
        self.client.microversion = memory.microversion or self.client.microversion
        observed = self.client.observe(root_uuid)
        reserved = set_by_operator(observed, memory.observed, memory.reserved)
        return Sight(
            root_uuid=root_uuid,
            observed=observed,
            said=with_reservations(observed, reserved),
            memory=replace(memory, reserved=reserved),
            identified=known is not None or self.settings.recorded,
        )

    def look_at_tree(
        self, root_uuid: str, memory: NodeState, *, deep: bool | None = None
    ) -> tuple[NodeState, ObservedTree]:
        """
        Read the tree in placement, and return it with the memory to compare it with.

        Where placement went back in time, the remembered tree is of a later state, and is left out.

        Every provider is read where that was not done for ``full_audit_interval``, as nothing in a listing tells stock
        of an old backup from what we left once claims have brought its generation up; the service does it ``deep``.

        Raises:
            as ``PlacementClient.observe``.
        """
        now_s, interval_s = time.time(), self.settings.full_audit_interval_s
        patience_s = interval_s / 2 if deep else interval_s  # periods vary, and a start anew reads what is old
        whole = deep is not False and not 0 <= now_s - memory.whole_s < patience_s
        observed = self.client.observe(root_uuid, memory.observed, whole=whole)
        if self.client.went_back and memory.observed:
            LOG.warning("placement went back in time, everything is read anew node=%s where=%s", self.node, self.where)
            memory = replace(memory, observed=None, reserved={})
        return replace(memory, whole_s=now_s) if whole or memory.observed is None else memory, observed

    def check_name(self, prospect: Prospect | Sight) -> None:
        """
        Look whether a root that is still to be made would find its name taken; a write finds that out by itself.

        Raises:
            TreeMismatch: it is taken.
        """
        if prospect.observed.root is None and (standing := self.client.find(self.node)):
            raise self.unlike(standing, prospect.root_uuid if prospect.identified else None)

    def unlike(self, standing: str, known: str | None) -> TreeMismatch:
        """What to say when placement has our name under another uuid than the one known here (None: none is)."""
        return TreeMismatch(
            f"placement has a provider {self.node} with uuid {standing}, and this host's compute_id is "
            f"{known or 'not made yet'}: if that provider is this host's, put its uuid into "
            f"{self.settings.identity_folders[0] / 'compute_id'}; else rename one of the two hosts"
        )

    def standing_layout(self, tree: ObservedTree, left: NodeState) -> Layout:
        """The layout to judge a tree by: its own, and the configured one where that cannot be told."""
        configured = self.settings.policy.layout
        root = tree.root.name if tree.root else ""
        known = left.observed or left.reported or left.configured
        reported = left.reported.get(root, Names()) if known else None
        added = left.configured.get(root, Names())
        return standing_layout(tree, self.driver.emitted, configured, reported=reported, added=added) or configured

    def state_file(self, root_uuid: str) -> StateFile:
        """Where this node's memory is kept."""
        return StateFile(self.settings.state_directory, root_uuid)

    def known_uuid(self, survey: Survey) -> str | None:
        """The uuid of this node; a recorded host without an identity is taken to be the root of its name."""
        if not self.settings.recorded:
            return read_identity(self.settings.identity_folders)
        if survey.compute_id is not None:
            return parse_identity(survey.compute_id, "compute_id of the host archive")
        return self.client.find(self.node)

    def _plan(
        self,
        survey: Survey,
        known: str | None,
        observed: ObservedTree,
        memory: NodeState,
        wishes: Wishes,
        tried: tuple[ObservedTree, ...],
    ) -> Prospect:
        root_uuid = known or planned_identity(self.node)
        policy = self.settings.policy
        found, kept = observed, memory
        formerly = wishes.rename_from or former_name(found, self._own_parts(survey))
        observed, memory = self._as_called(found, kept, formerly)
        required = self.settings.provider_config_named or bool(memory.configured)
        additions = read_additions(self.settings.provider_config, required=required)
        named = _named(observed, memory, additions)
        reserved = set_by_operator(observed, memory.observed, memory.reserved, tried=tried)
        standing = with_reservations(observed, reserved)
        said = without(standing, named)
        shaped, holdings = self.driver.shape(survey, policy, said)
        before = self.ownership(survey, shaped, observed, memory)
        foreign = contest(memory.observed, observed, shaped, before, policy.free_ratios)
        if foreign:  # ratios and reservations that somebody else wrote are no operator's: those that we left count
            reserved = set_by_operator(observed, memory.observed, memory.reserved, tried=tried, contested=foreign.uuids)
            standing = with_reservations(observed, reserved)
            said = without(standing, named)
            as_left = with_reservations(_as_left(memory.observed, observed, foreign.uuids), reserved)
            shaped, holdings = self.driver.shape(survey, policy, without(as_left, named))
        uses = self._used_once(shaped, observed, memory, before)
        memory = replace(memory, used=uses.uuids, reserved=reserved)
        shaped = _reserve_used(shaped, uses.names)
        check_names(additions, found, observed, formerly)
        desired, added = add(shaped, root_uuid, additions, observed=observed)
        strays = unmatched(additions, root_uuid, desired, (found, observed))
        refuse_lost(strays, memory.configured, observed, additions, self.client.exists)
        reported = _beyond(shaped, self.driver.emitted)
        ours = replace(before, configured=_joined(_joined(before.configured, reported), added))
        renamed = found.root is not None and found.root.name == wishes.rename_from
        known_traits, lacked = self._learn_traits(desired, observed, memory)
        make = partial(
            diff,
            found,
            ours=ours,
            root_uuid=root_uuid,
            known_traits=known_traits,
            rename=renamed,
            formerly=formerly,
        )
        plan = make(desired)
        recast_as = exchanged(memory.kinds, holdings.kinds)
        allocations = self._allocations(plan, observed, anyhow=bool(recast_as))
        moves, consumers, unplaceable = self._moves(Observed(observed, allocations), desired, holdings, ours, recast_as)
        after = Observed(_with_uses(standing, uses), apply_moves(allocations, moves))
        held_tree, held = self._held(survey, desired, after, holdings, ours, named)
        plan = make(held_tree, moves=moves, consumers=consumers) if held or moves else plan
        stay = _left_standing(observed, desired, plan)
        return Prospect(
            root_uuid=root_uuid,
            desired=held_tree,
            observed=observed,
            said=said,
            ours=ours,
            plan=plan,
            unplaceable=unplaceable,
            survey=survey,
            allocations=allocations,
            elsewhere=holdings.elsewhere,
            away=holdings.away,
            held=(*uses.notes, *held),
            strays=strays,
            contest=foreign,
            went_back=self.client.went_back,
            identified=known is not None or self.settings.recorded,
            memory=memory,
            refused=replace(kept, observed=found, used=uses.uuids),
            meanwhile=replace(  # a renaming that is cut off may be taken back: both names are known until it is done
                memory,
                configured=_joined(_joined(kept.configured, memory.configured), added),
                reported=_joined(_joined(kept.reported, memory.reported), reported),
            ),
            lasting=replace(
                memory,
                configured=_joined(still_named(memory.configured, observed, additions), added),
                reported=_joined(_traits_on(stay, before.configured), reported),
                reserved={},
                kinds={**memory.kinds, **holdings.kinds} if holdings.kinds else {},
                lacked_traits=lacked,
                used=frozenset(),
            ),
        )

    def _held(
        self,
        survey: Survey,
        desired: ProviderTree,
        observed: Observed,
        holdings: Holdings,
        ours: Ownership,
        named: Mapping[str, Names],
    ) -> tuple[ProviderTree, tuple[str, ...]]:
        """What is wanted, with what guests hold or an operator reserved of devices that are gone; a sentence each."""
        here = self.driver.present(survey)
        return hold(
            desired,
            ObservedTree(tuple(seen for seen in observed.tree if ours.writes(seen))),
            observed.allocations,
            elsewhere=holdings.elsewhere,
            lost=lambda name: name not in here or name in holdings.silent,
            besides={name: each.classes for name, each in named.items()},
        )

    def _own_parts(self, survey: Survey) -> list[str]:
        """The parts of providers' names that are the devices' own, longest first."""
        names = (name.removeprefix(self.node) for name in self.driver.present(survey))
        return sorted(names, key=lambda part: (-len(part), part))

    def _as_called(
        self, observed: ObservedTree, memory: NodeState, formerly: str | None
    ) -> tuple[ObservedTree, NodeState]:
        """What stands and what is remembered by the names that are wanted, while the host is being renamed."""
        root = observed.root
        if root is None or (root.name != self.node and root.name != formerly):
            return observed, memory  # another host's, or not to be renamed: ``diff`` says so
        before = {root.name, self.node, formerly or self.node}
        if len(before) == 1:
            return observed, memory

        def by_new_name(names: Mapping[str, Names]) -> dict[str, Names]:
            found: dict[str, Names] = {}
            for name, each in names.items():
                found = _joined(found, {called(name, self.node, before): each})
            return found

        left = as_called(memory.observed, self.node, formerly) if memory.observed else None
        remembered = replace(
            memory,
            observed=left,
            configured=by_new_name(memory.configured),
            reported=by_new_name(memory.reported),
        )
        return as_called(observed, self.node, formerly), remembered

    def _allocations(self, plan: Plan, observed: ObservedTree, *, anyhow: bool) -> tuple[Allocation, ...]:
        """
        Who holds what of the whole tree if anybody holds what loses stock; else it is of no concern.

        With ``anyhow`` the root's holders are of concern whatever the plan does with its stock.
        """
        losing = lessened(plan, observed) | recast(plan, observed)
        losing |= {observed.root.uuid} if anyhow and observed.root else set()
        first = self.client.allocations((seen for seen in observed if seen.uuid in losing), as_observed=True)
        if not first:
            return ()
        others = (seen for seen in observed if seen.uuid not in losing and seen.provider.inventories)
        return (*first, *self.client.allocations(others, as_observed=True))

    def _moves(
        self,
        observed: Observed,
        desired: ProviderTree,
        holdings: Holdings,
        ours: Ownership,
        recast_as: frozenset[tuple[str, str]],
    ) -> tuple[tuple[Move, ...], tuple[Consumer, ...], str]:
        """Who must move, those consumers whole, and why somebody cannot; nobody while the root is being renamed."""
        root = observed.tree.root
        if not observed.allocations or root is None or root.name != desired.root.name:
            return (), (), ""
        here = {one.consumer for one in observed.allocations}
        strangers = displaced(observed, desired, ours) - holdings.guests
        rows = observed.allocations
        known = self.client.consumers(strangers | (holdings.guests - here), rows) if strangers else ()
        unknown = [one for one in known if one.uuid in strangers]
        stand_ins = find_stand_ins(unknown, known, holdings, rows)
        try:
            moves = plan_moves(observed, desired, holdings, ours, stand_ins=stand_ins, recast_as=recast_as)
        except Unplaceable as error:
            return (), (), str(error)
        read = {one.uuid for one in known}
        moving = {move.consumer for move in moves}
        return moves, (*known, *self.client.consumers(moving - read, rows)), ""

    def ownership(self, survey: Survey, shaped: ProviderTree, observed: ObservedTree, memory: NodeState) -> Ownership:
        """What was ours before this pass, and what nova made for devices of this host."""
        names = self.driver.present(survey) | {provider.name for provider in shaped}
        return Ownership(
            emitted=self.driver.emitted,
            configured=_joined(memory.configured, memory.reported),
            adopted=adopted(observed, names),
        )

    def _used_once(self, shaped: ProviderTree, observed: ObservedTree, memory: NodeState, ours: Ownership) -> Uses:
        """The one-time devices that were used; asked where something changed since the last pass, as a claim does."""
        standing = one_time(shaped, observed, ours)
        holding = {one.provider for one in self.client.allocations(to_ask(standing, memory))}
        return find_uses(standing, holding, shaped, memory)

    def _learn_traits(
        self, desired: ProviderTree, observed: ObservedTree, memory: NodeState
    ) -> tuple[frozenset[str], frozenset[str]]:
        """
        Which desired traits placement has, asked only for those that no provider here carries; and which it lacks.

        Standard ones that it lacked are not asked for again as long as nothing in the tree changed.
        """
        wanted = frozenset().union(*(provider.traits for provider in desired))
        seen = frozenset().union(*(provider.provider.traits for provider in observed))
        lacked = memory.lacked_traits if observed == memory.observed else frozenset()
        unseen = wanted - seen - lacked
        known = self.client.known_traits(unseen) if unseen else frozenset()
        return seen | known, lacked | {name for name in unseen - known if not is_custom(name)}


def look(survey: Callable[[], T]) -> T:
    """
    What a survey tells; when something went away while it was read, what another tells.

    Raises:
        DiscoveryError: as ``survey``.
    """
    for _ in range(LOOKS - 1):
        try:
            return survey()
        except Vanished as error:
            LOG.info("surveying again reason=%s", error)
            time.sleep(PAUSE_S)
    return survey()


def _as_left(left: ObservedTree | None, found: ObservedTree, changed: Container[str]) -> ObservedTree:
    """What was found, with the providers that somebody changed (by uuid) as we left them."""
    before = {seen.uuid: seen for seen in left or () if seen.uuid in changed}
    return ObservedTree(tuple(before.get(seen.uuid, seen) for seen in found))


def _reserve_used(desired: ProviderTree, used: Container[str]) -> ProviderTree:
    """One-time devices that a guest has by placement's word are reserved too, whatever the hypervisor shows now."""
    return ProviderTree(tuple(used_up(one) if one.name in used else one for one in desired))


def _with_uses(observed: ObservedTree, uses: Uses) -> ObservedTree:
    """What stands, with the one-time devices that were used reserved: so they are kept while they are out of sight."""
    return ObservedTree(
        tuple(replace(seen, provider=used_up(seen.provider)) if seen.name in uses.names else seen for seen in observed),
        observed.last_modified,
    )


def _beyond(shaped: ProviderTree, emitted: Names) -> dict[str, Names]:
    """What a shape puts on each provider beyond the closed set, to be known as ours once it is not wanted any more."""
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
    """What the operator's files put on the providers that stand, and the marks of owners that rules gave them."""
    found = dict(memory.configured)
    for name, now in now_named(observed, additions).items():
        ours = memory.reported.get(name, Names())
        found = _joined(found, {name: Names(now.classes - ours.classes, now.traits - ours.traits)})
    owners = {
        name: Names(traits=frozenset(trait for trait in names.traits if trait.startswith(OWNERS)))
        for name, names in memory.reported.items()
    }
    return _joined(found, owners)


def _left_standing(observed: ObservedTree, desired: ProviderTree, plan: Plan) -> frozenset[str]:
    """The providers that the host and its configuration do not give and that stay: held, or another service's now."""
    gone = {step.uuid for step in plan.operations if isinstance(step, Delete)}
    wanted = {provider.name for provider in desired}
    return frozenset(seen.name for seen in observed if seen.uuid not in gone and seen.name not in wanted)


def _traits_on(providers: Container[str], names: Mapping[str, Names]) -> dict[str, Names]:
    """The traits that rules and files gave these providers: they are still ours to take back."""
    return {name: Names(traits=each.traits) for name, each in names.items() if name in providers and each.traits}


def _joined(one: Mapping[str, Names], other: Mapping[str, Names]) -> dict[str, Names]:
    return {
        provider: Names(
            one.get(provider, Names()).classes | other.get(provider, Names()).classes,
            one.get(provider, Names()).traits | other.get(provider, Names()).traits,
        )
        for provider in one.keys() | other.keys()
    }
