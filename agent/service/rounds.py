"""
One pass of the service: brings the host, or all bare-metal nodes, up to date, and audits the host.

Connections stay open between passes. If the pool that this agent reports fails, the pass goes on with the host. If the
host or placement fails, the pass ends and changes nothing more.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from agent.audit.audit import AuditResult, witness
from agent.audit.decide.findings import Finding, counts
from agent.audit.heal import Healed, HealPolicy, RepairOutcome, heal, read_policy
from agent.bare_metal.node_pass import NodesOutcome, run_nodes
from agent.connect.choice import Choice, lists_nodes, open_bare_metal, open_client, open_driver, open_nova
from agent.connect.senders import Requested
from agent.errors import USER_ERRORS
from agent.service.cases import KeptCases
from agent.service.slots import Kinds, count_slots, read_kinds
from agent.service.status import WELL
from agent.settings.read import Settings
from agent.state.audit_memory import write_memory
from agent.state.locks import locked
from agent.sync.decide.view import Wishes
from agent.sync.node import ComputeNode
from agent.sync.outcome import Condition, Outcome, Status
from agent.sync.pool_node import pool_nodes
from agent.sync.run import run_pass
from agent.sync.trial import heed_trial
from drivers.base import Driver, Event, OnOperation, Survey
from drivers.facts import DiskUnread, PoolSpace
from drivers.host.services import probe_service
from drivers.pools import PoolDriver
from reportclient.allocations import Allocation
from reportclient.tree import ObservedProvider

LOG = logging.getLogger(__name__)
_WELL = (Status.CREATED, Status.CHANGED, Status.DELETED)  # of bare-metal nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundResult:
    """What a pass did and saw; of bare-metal nodes it names only the unwell ones."""

    outcomes: Mapping[str, str]  # by node
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by node
    conditions: Mapping[str, tuple[Condition, ...]] = field(default_factory=dict)  # by hypervisor
    findings: Mapping[str, int] = field(default_factory=dict)  # count by kind
    providers: tuple[ObservedProvider, ...] = ()  # by its audit
    allocations: tuple[Allocation, ...] = ()  # on these, as far as it knows them
    slots: Mapping[str, int] = field(default_factory=dict)  # how many more guests fit, by kind; not known: left out
    hardware: frozenset[str] = frozenset()  # PCI addresses of all devices that count in reported inventory
    broken: tuple[str, ...] = ()  # laws that plans break, of each breach; a fault of this agent
    storage: str | None = None  # why the cluster with the guests' disks did not answer; empty: it did; None: none asked


class Audits:
    """
    Audits nodes under one ``policy`` for repairs (None: nothing is repaired).

    What an audit finds, and what it cannot do, is logged once.
    """

    def __init__(self, policy: HealPolicy | None) -> None:
        self._policy = policy
        self._failures: dict[str, set[str]] = {}  # by node: what its last audit could not do, a sentence each

    def take(self, node: ComputeNode, outcome: Outcome, *, deep: bool) -> AuditResult | None:
        """
        Compare placement with the guests that run, and repair what the policy allows if the tree is up to date.

        ``outcome`` is that of the pass just made; a ``deep`` audit reads everything. None: there is no such tree.

        Raises:
            as ``witness``; StateError: the memory of the audit cannot be written.
        """
        may_heal = outcome.status.value in WELL
        if not may_heal and outcome.observed.root is None:
            return None
        unchanged = outcome.status is Status.UNCHANGED
        seen = (outcome.survey, outcome.observed) if unchanged and outcome.survey else None
        light = not (deep or node.client.went_back)
        result = witness(node, light=light, seen=seen)
        if result.memory != result.before:
            write_memory(node.settings.folders.state, result.root_uuid, result.memory)
        self._log(node.name, result, heal(node, result, self._policy) if may_heal and self._policy else ())
        return result

    def _log(self, node: str, result: AuditResult, repairs: Sequence[RepairOutcome]) -> None:
        new = [one for one in result.findings if result.memory.sightings[one.key].looks == 1]
        healed = [one.finding for one in repairs if one.healed is Healed.HEALED]
        failures = {f"{_named(one.finding)} not healed why={one.why}" for one in repairs if one.healed is Healed.FAILED}
        if result.silence:
            failures.add(f"no finding that needs nova's answer is repaired node={node} why={result.silence}")
        for text in dict.fromkeys(
            (
                *(f"{_named(one)} seen={one.seen}" for one in new),
                *(f"{_named(one)} healed" for one in healed),
                *sorted(failures - self._failures.get(node, set())),
            )
        ):
            LOG.warning("%s", text)
        self._failures[node] = failures


def _named(finding: Finding) -> str:
    return f"finding kind={finding.kind.value} where={finding.consumer or finding.provider or '-'}"


class Rounds:
    """
    Passes over the host, or over all nodes, under one configuration.

    ``wake`` is called at events of the host, ``told`` after each operation on the host, ``requested`` after each
    request to placement.
    """

    def __init__(
        self,
        choice: Choice,
        settings: Settings,
        *,
        wake: Callable[[Event], None],
        requested: Requested,
        told: OnOperation,
    ) -> None:
        """Read the files that options name, and open placement; ConfigError, StateError: one of them cannot be used."""
        # A pass over thousands of nodes reads too much to keep it.
        self._cases = KeptCases(settings, 0 if lists_nodes(settings) else settings.service.keep_cases)
        self._choice = replace(choice, recorder=self._cases.recorder, service=True)
        self._settings = settings
        self._wake = wake
        self._told = told
        self._host = ExitStack()
        self._driver: Driver | None = None
        self._started = False  # whether the first pass is done; only that one may convert the host
        self._nova = open_nova(settings, self._choice)  # None: none is configured
        policy = read_policy(settings.service.heal_policy) if settings.service.heal_policy else None
        self._audits = Audits(policy)
        self._kinds = read_kinds(settings)
        self._client, self._where = open_client(settings, self._choice, writes=True, told=requested)

    def take(self, *, deep: bool, counts: bool) -> RoundResult:
        """
        Take one pass.

        ``deep``: the audits read everything; else only providers whose generation moved. ``counts``: the pass is one of
        the three in a row that must want the same smaller host.

        Raises:
            ConfigError, StateError, DiscoveryError, PolicyError, PlacementError: what was written before stands.
        """
        self._choice.trace.begin()
        if lists_nodes(self._settings):
            with locked(self._settings.folders.state):
                bare_metal = open_bare_metal(self._client, self._settings, self._where, self._choice, told=self._told)
                return _of_nodes(run_nodes(bare_metal))
        # A conversion may meet conflicts, or get no answer: it fails the pass, and the loop tries it again later.
        convert = not self._started and self._settings.changes.allow_reshape
        wishes = Wishes(reshape=convert, deep=deep, counts=counts)
        host = self._node()
        taken: list[tuple[Outcome, AuditResult | None]] = []
        for node in (*pool_nodes(host), host):
            try:
                with locked(self._settings.folders.state):  # no other process writes between pass and audit
                    self._cases.keep_state()
                    said = heed_trial(node) if node is host else ()
                    outcome = run_pass(node, wishes, is_locked=True)
                    outcome = replace(outcome, conditions=(*outcome.conditions, *said))
                    taken.append((outcome, self._end(node, outcome, deep)))
            except USER_ERRORS as error:
                self._cases.keep(node.name, str(error), deep=deep)
                if node is host:
                    raise
                taken.append((Outcome(node=node.name, status=Status.FAILED, reasons=(str(error),)), None))
        self._started = True
        return result_of(taken, self._kinds)

    def close_host(self) -> None:
        """Close the connection to the host; the next pass opens it again, and watches for events again."""
        self._driver = None
        self._host.close()

    def _node(self) -> ComputeNode:
        """
        Return the node of the driver.

        Raises:
            StateError, DiscoveryError, PolicyError: the host cannot be opened, or its name cannot be read.
        """
        self._cases.begin()
        driver = self._driver
        if driver is None:
            opened = self._host.enter_context(open_driver(self._settings, self._choice, self._told))
            if not self._settings.recorded:
                self._host.enter_context(opened.watching(self._wake))
            driver = self._driver = opened
        return ComputeNode(
            name=driver.name(),
            driver=driver,
            client=self._client,
            settings=self._settings,
            where=self._where,
            probe=self._cases.recorder.probe if self._cases.recorder else probe_service,
            nova=lambda: self._nova,
        )

    def _end(self, node: ComputeNode, outcome: Outcome, deep: bool) -> AuditResult | None:
        """Log the outcome of a node's pass, and audit the node; return and errors as ``Audits.take``."""
        well = outcome.status.value in WELL
        if not well:
            self._cases.keep(node.name, f"{outcome.status.value} {outcome.plan.digest}", deep=deep)
        if outcome.status is Status.CHANGED:
            count, digest = len(outcome.plan.operations), outcome.plan.digest
            sent = self._choice.trace.request_id
            LOG.info(
                "pass node=%s outcome=changed operations=%d digest=%s request_id=%s", outcome.node, count, digest, sent
            )
        audited = None if isinstance(node.driver, PoolDriver) else self._audits.take(node, outcome, deep=deep)
        if well:
            self._cases.well()  # only after the audit, which may fail at each pass
        return audited


def result_of(passes: Sequence[tuple[Outcome, AuditResult | None]], kinds: Kinds) -> RoundResult:
    """Return the result of the passes over a host and its pool, each with its audit; None: there was none."""
    outcomes = [outcome for outcome, _ in passes]
    audits = [audited for _, audited in passes if audited]
    silences = map(_silence, (one.survey for one in outcomes))
    return RoundResult(
        outcomes={one.node: one.status.value for one in outcomes},
        notes={one.node: one.notes for one in outcomes},
        conditions={one.node: one.conditions for one in outcomes if one.survey},
        findings=counts(finding for one in audits for finding in one.findings),
        providers=tuple(seen for one in audits for seen in one.tree),
        allocations=tuple(row for one in audits for row in one.memory.allocations),
        slots=count_slots(kinds, audits),
        hardware=frozenset().union(*(one.hardware for one in outcomes)),
        broken=tuple(law for one in outcomes for law in one.broken),
        storage=next((silence for silence in silences if silence is not None), None),
    )


def _of_nodes(outcome: NodesOutcome) -> RoundResult:
    """Log a pass over bare-metal nodes if it changed something, and return its result."""
    unwell = [one for one in outcome.outcomes if one.status not in _WELL]
    changed = len(outcome.outcomes) - len(unwell)
    if changed:
        LOG.info("pass nodes=%d changed=%d other_outcomes=%d", outcome.unchanged + changed, changed, len(unwell))
    status = Status.CHANGED if changed else Status.UNCHANGED
    return RoundResult(
        outcomes={one.node: one.status.value for one in unwell} or {"nodes": status.value},
        notes={one.node: one.notes for one in unwell},
        broken=tuple(law for one in unwell for law in one.broken),
    )


def _silence(survey: Survey | None) -> str | None:
    """Return why the cluster that has the guests' disks did not answer, as ``RoundResult.storage``."""
    disk = survey.facts.disk if survey else None
    if isinstance(disk, DiskUnread):
        return disk.because
    return "" if isinstance(disk, PoolSpace) else None
