"""One pass: survey, shape, observe, plan, check, execute; and the loop around it for when somebody else wrote first."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeVar

from agent.config import Settings
from agent.identity import create_identity, parse_identity, planned_identity, read_identity
from agent.provider_config import add, read_additions
from agent.state import NodeState, StateFile, locked
from drivers.base import Driver, Survey
from drivers.errors import Vanished
from reportclient.client import PlacementClient
from reportclient.diff import diff
from reportclient.errors import Conflict, TreeMismatch
from reportclient.ownership import Contest, Names, Ownership, contest
from reportclient.plan import Limits, Plan, check_use, lessened, shrinkage
from reportclient.tree import ObservedTree, ProviderTree

T = TypeVar("T")

LOG = logging.getLogger(__name__)
ATTEMPTS = 5  # at planning again after somebody else wrote first
LOOKS = 3  # at a host on which something went away meanwhile
PATIENCE = 3  # passes in a row that must want the same smaller host


class Status(Enum):
    """How a pass ended."""

    UNCHANGED = "unchanged"
    CHANGED = "changed"
    UNSAFE = "unsafe"
    CONTESTED = "contested"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a person said with this pass."""

    force: bool = False
    take_over: bool = False
    rename_from: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """What a pass has before it writes: what is wanted, what stands, and the way from one to the other."""

    root_uuid: str
    desired: ProviderTree
    observed: ObservedTree
    ours: Ownership
    added: dict[str, Names]  # by the operator's files, by provider
    plan: Plan
    contest: Contest | None
    memory: NodeState


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a pass over one node ended, and why when it did not write."""

    node: str
    status: Status
    plan: Plan
    observed: ObservedTree
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One node's passes: who looks, who writes, and under which settings."""

    node: str
    driver: Driver
    client: PlacementClient
    settings: Settings
    where: str  # the placement's name

    def prospect(self, wishes: Wishes = Wishes(), *, identity: str | None = None) -> Prospect:
        """
        Look at host and placement and plan; writes nothing anywhere.

        ``identity`` is the root's uuid when it was just made; else it is read, or a stand-in where there is none.

        Raises:
            DiscoveryError, PolicyError: of the host. ConfigError, StateError: of our own files.
            PlacementError: placement cannot be read, or holds another host's tree under this name.
        """
        survey = look(lambda: self.driver.survey(self.node))
        recorded = parse_identity(survey.compute_id, "compute_id of the host archive") if survey.compute_id else None
        known = identity or recorded or read_identity(self.settings.identity_folders)
        root_uuid = known or self._standing_uuid(survey) or planned_identity(self.node)
        memory = self.state_file(root_uuid).read(self.where)
        self.client.microversion = memory.microversion or self.client.microversion
        observed = self.client.observe(root_uuid, memory.observed)
        if observed.root is None and (row := self.client.find(self.node)):
            raise TreeMismatch(
                f"placement has a provider {self.node} with uuid {row.uuid}, and this host's compute_id "
                f"is {known or 'not made yet'}: if that provider is this host's, put its uuid into "
                f"{self.settings.identity_folders[0] / 'compute_id'}; else rename one of the two hosts"
            )
        return self._plan(survey, root_uuid, observed, memory, wishes)

    def run(self, wishes: Wishes = Wishes()) -> Outcome:
        """
        One whole pass. Nothing is written to placement unless it can be remembered here.

        Raises:
            as ``prospect``; Conflict: others wrote first at each of several attempts.
        """
        with locked(self.settings.state_directory):
            identity = self._own_identity()
            for attempt in range(ATTEMPTS):
                prospect = self.prospect(wishes, identity=identity)
                try:
                    return self._carry_out(prospect, wishes)
                except Conflict as error:
                    LOG.info("somebody else wrote first, planning again node=%s attempt=%d", self.node, attempt + 1)
                    last = error
        raise Conflict(f"{last}; {ATTEMPTS} attempts in a row: find out who writes on {self.node}")

    def state_file(self, root_uuid: str) -> StateFile:
        """Where this node's memory is kept."""
        return StateFile(self.settings.state_directory, root_uuid)

    def _own_identity(self) -> str | None:
        """This live host's identity, made now if there is none; None for a recorded host."""
        if self.settings.recorded:
            return None
        identity = read_identity(self.settings.identity_folders)
        if identity is None and (row := self.client.find(self.node)):
            raise TreeMismatch(
                f"placement has a provider {self.node} (uuid {row.uuid}), and this host has no "
                f"compute_id: if that provider is this host's, write its uuid into "
                f"{self.settings.identity_folders[0] / 'compute_id'}; else rename one of the two hosts"
            )
        return identity or create_identity(self.settings.identity_folders[0])

    def _standing_uuid(self, survey: Survey) -> str | None:
        """A recorded host without an identity is taken to be the root of its name."""
        if not self.settings.recorded:
            return None
        row = self.client.find(survey.facts.hostname)
        return row.uuid if row else None

    def _plan(
        self, survey: Survey, root_uuid: str, observed: ObservedTree, memory: NodeState, wishes: Wishes
    ) -> Prospect:
        shaped, _ = self.driver.shape(survey, self.settings.policy, observed)
        additions = read_additions(self.settings.provider_config, required=self.settings.provider_config_named)
        desired, added = add(shaped, root_uuid, additions)
        ours = Ownership(emitted=self.driver.emitted, configured=_joined(memory.configured, added))
        renamed = (
            wishes.rename_from is not None and observed.root is not None and (observed.root.name == wishes.rename_from)
        )
        memory = self._learn_traits(desired, observed, memory)
        keep_ratio = frozenset(
            name
            for name, ratio in (
                ("VCPU", self.settings.policy.cpu_ratio),
                ("MEMORY_MB", self.settings.policy.ram_ratio),
                ("DISK_GB", self.settings.policy.disk_ratio),
            )
            if ratio.configured is None
        )
        return Prospect(
            root_uuid=root_uuid,
            desired=desired,
            observed=observed,
            ours=ours,
            added=added,
            plan=diff(observed, desired, ours, root_uuid=root_uuid, known_traits=memory.known_traits, rename=renamed),
            contest=contest(memory.observed, observed, ours, keep_ratio) if memory.observed else None,
            memory=memory,
        )

    def _learn_traits(self, desired: ProviderTree, observed: ObservedTree, memory: NodeState) -> NodeState:
        """Find out which desired traits placement has, asking only for those never seen there or asked for."""
        wanted = frozenset().union(*(provider.traits for provider in desired))
        seen = frozenset().union(*(provider.provider.traits for provider in observed))
        unseen = wanted - seen - memory.asked_traits
        known = self.client.known_traits(unseen) if unseen else frozenset()
        return replace(
            memory,
            asked_traits=memory.asked_traits | unseen,
            known_traits=memory.known_traits | known | (seen & wanted),
        )

    def _carry_out(self, prospect: Prospect, wishes: Wishes) -> Outcome:
        memory, plan = prospect.memory, prospect.plan
        if refusal := _contested(prospect, wishes):
            return self._stop(prospect, Status.CONTESTED, refusal, replace(memory, contested=refusal))
        strikes = memory.strikes + 1 if prospect.contest and not wishes.take_over else 0
        memory = replace(memory, strikes=strikes, contested=())
        allocations = self.client.allocations(
            observed for observed in prospect.observed if observed.uuid in lessened(plan, prospect.observed)
        )
        check_use(plan, prospect.observed, allocations, force=wishes.force)
        shrinking = shrinkage(plan, prospect.observed, self._limits(prospect))
        seen = memory.smaller_seen + 1 if memory.smaller == plan.digest else 1
        if shrinking and not wishes.force and seen < PATIENCE:
            refusal = (*shrinking, f"seen {seen} of {PATIENCE} times in a row: --force, or wait for the third")
            waiting = replace(memory, smaller=plan.digest, smaller_seen=seen)
            return self._stop(prospect, Status.UNSAFE, refusal, waiting)
        return self._write(prospect, replace(memory, smaller="", smaller_seen=0))

    def _write(self, prospect: Prospect, memory: NodeState) -> Outcome:
        state, plan = self.state_file(prospect.root_uuid), prospect.plan
        observed = prospect.observed
        if plan.operations:
            state.begin(replace(memory, configured=prospect.ours.configured))
            observed = self.client.execute(plan, observed)
        after = replace(memory, observed=observed, configured=prospect.added, microversion=self.client.microversion)
        if after != state.read(self.where):
            state.write(after)
        status = Status.CHANGED if plan.operations else Status.UNCHANGED
        return Outcome(node=self.node, status=status, plan=plan, observed=observed, notes=_notes(prospect))

    def _stop(self, prospect: Prospect, status: Status, notes: tuple[str, ...], memory: NodeState) -> Outcome:
        self.state_file(prospect.root_uuid).write(memory)
        return Outcome(node=self.node, status=status, plan=prospect.plan, observed=prospect.observed, notes=notes)

    def _limits(self, prospect: Prospect) -> Limits:
        withdrawn = {
            provider: names.classes - prospect.added.get(provider, Names()).classes
            for provider, names in prospect.memory.configured.items()
        }
        return Limits(fraction=self.settings.shrink_fraction, withdrawn=withdrawn)


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
    return survey()


def _contested(prospect: Prospect, wishes: Wishes) -> tuple[str, ...]:
    """Why we must not write because somebody else does; empty when nobody does, or a person said to take over."""
    if wishes.take_over:
        return ()
    if prospect.memory.contested:
        return prospect.memory.contested
    found = prospect.contest
    if found is None or not (found.nova or prospect.memory.strikes):
        return ()
    who = "nova-compute (the root carries OWNER_NOVA)" if found.nova else "another service"
    return (
        f"{who} writes on {found.provider} too: " + "; ".join(found.changes),
        "nothing is written any more: stop that service on this host, then run sync --take-over",
    )


def _notes(prospect: Prospect) -> tuple[str, ...]:
    notes = []
    if prospect.contest:
        notes.append(
            f"somebody changed {prospect.contest.provider} since the last pass: " + "; ".join(prospect.contest.changes)
        )
    if prospect.plan.left_out:
        notes.append("this placement is too old to know the traits " + ", ".join(sorted(prospect.plan.left_out)))
    return tuple(notes)


def _joined(one: Mapping[str, Names], other: Mapping[str, Names]) -> dict[str, Names]:
    return {
        provider: Names(
            one.get(provider, Names()).classes | other.get(provider, Names()).classes,
            one.get(provider, Names()).traits | other.get(provider, Names()).traits,
        )
        for provider in one.keys() | other.keys()
    }
