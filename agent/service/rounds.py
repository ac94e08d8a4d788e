"""
What one pass of the service does: every node is brought up to date and audited; what is open stays open between them.

A node that fails does not keep the others from theirs; a host or a placement that fails ends the pass, and was not
changed by it.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from agent.audit.decide.findings import Finding
from agent.audit.heal import Healed, HealPolicy, heal
from agent.audit.run import witness
from agent.bare_metal.compare import Fate, NodesPlanner
from agent.bare_metal.run import run_nodes
from agent.connect.choice import Choice, node_workers, open_driver, open_nodes, open_sender
from agent.errors import USER_ERRORS
from agent.service.cases import KeptCases
from agent.settings.read import Settings
from agent.state.audit import write_memory
from agent.state.locks import locked
from agent.sync.decide.view import Wishes
from agent.sync.node import ComputeNode
from agent.sync.outcome import Outcome, Status
from agent.sync.run import run_locked
from drivers import IRONIC
from drivers.base import Driver, Watchable
from drivers.errors import DiscoveryError, PolicyError
from drivers.events import Event, OnOperation
from reportclient.client import PlacementClient
from reportclient.forecast import forecast
from reportclient.recording import RecordingSender
from reportclient.transport import Sender, Transport
from reportclient.tree import Provider

LOG = logging.getLogger(__name__)
LENIENT = 2  # nodes that may fail before any other was well
_NAMED = 5  # bare-metal nodes that are not well, with their reasons
_WELL = (Fate.CREATED, Fate.CHANGED, Fate.DELETED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundResult:
    """What a pass did and saw; of bare-metal nodes only those that are not well are named."""

    outcomes: Mapping[str, str]  # by node
    notes: tuple[str, ...] = ()
    findings: Mapping[str, int] = field(default_factory=dict)  # by kind
    observed: Mapping[str, int] = field(default_factory=dict)  # total by class, as it stood before
    desired: Mapping[str, int] = field(default_factory=dict)
    hardware: frozenset[str] = frozenset()  # the PCI addresses of all that counts in what is offered


class Rounds:
    """
    Passes over all nodes under one configuration.

    ``metered`` stands before what sends requests to placement; ``told`` hears of operations on the host.
    """

    def __init__(
        self,
        choice: Choice,
        settings: Settings,
        policy: HealPolicy | None,
        *,
        wake: Callable[[Event], None],
        metered: Callable[[Sender], Sender],
        told: OnOperation,
        progress: Callable[[], None],
    ) -> None:
        self._choice = choice
        self._settings = settings
        self._policy = policy  # None: nothing is healed
        self._wake = wake
        self._metered = metered
        self._told = told
        self._progress = progress
        self._host = ExitStack()
        self._driver: Driver | None = None
        self._client: PlacementClient | None = None
        self._where = ""
        self._cases = KeptCases(settings)
        self._failed: dict[str, set[str]] = {}  # by node: why repairs of its last audit failed, told once
        self._started = False  # the first pass is done: it may convert the host

    def take(self, *, deep: bool, counts: bool) -> RoundResult:
        """
        One pass; ``deep`` audits read everything, the others what moved.

        One that ``counts`` is one of those in a row that must want the same smaller host.

        Raises:
            ConfigError, StateError, DiscoveryError, PolicyError, PlacementError: what was written before stands.
        """
        client = self.open()
        if self._settings.driver == IRONIC:
            return self._take_nodes(client)
        driver = self._open_driver()
        nodes = driver.nodes()
        if self._keeps_cases:
            self._cases.begin()
        taken: list[RoundResult] = []
        failures: list[Exception] = []
        for name in nodes:
            node = ComputeNode(
                name=name,
                driver=driver,
                client=client,
                settings=self._settings,
                where=self._where,
                probe=self._cases.recorder.probe,
            )
            try:
                with locked(self._settings.state_directory):  # nobody else of us writes between a pass and its audit
                    taken.append(self._take_one(node, deep, counts=counts))
            except (DiscoveryError, PolicyError) as error:
                self._keep_case(name, str(error), deep)
                raise  # what is wrong with the host is wrong with all
            except USER_ERRORS as error:
                self._keep_case(name, str(error), deep)
                failures.append(error)
                if len(failures) == len(nodes) or len(taken) == len(failures) - 1 >= LENIENT:
                    raise  # it does not concern this node alone
                failed = RoundResult(outcomes={name: Status.FAILED.value}, notes=(str(error),))
                taken.append(failed)
            self._progress()
        self._started = True
        return _together(taken)

    def open(self) -> PlacementClient:
        """
        The client, opened at the first call.

        Raises:
            ConfigError: no placement is chosen. StateError: an embedded one cannot be used.
        """
        if self._client is None:
            sender, self._where, name = open_sender(self._settings, self._choice, writes=True)
            sender = self._metered(sender)
            if self._keeps_cases:
                self._cases.recorder.called.update(placement=name, where=self._where)
                sender = RecordingSender(sender, self._cases.recorder.placement)
            self._client = PlacementClient(Transport(sender, where=name))
        return self._client

    def close_host(self) -> None:
        """The next pass opens the host anew, and hears of its events again."""
        self._driver = None
        self._host.close()

    def _open_driver(self) -> Driver:
        if self._driver is None:
            driver = self._host.enter_context(open_driver(self._settings, self._choice, self._told))
            if isinstance(driver, Watchable) and not self._settings.recorded:
                self._host.enter_context(driver.watching(self._wake))
            self._driver = self._cases.recorder.driver(driver) if self._keeps_cases else driver
        return self._driver

    @property
    def _keeps_cases(self) -> bool:
        """Whether cases are kept: of one hypervisor, as what a pass over thousands of nodes reads is too much."""
        settings = self._settings
        several = settings.driver == IRONIC or (settings.driver == "fake.FakeDriver" and settings.fleet.hosts > 1)
        return settings.keep_cases > 0 and not several

    def _keep_case(self, node: str, why: str, deep: bool) -> None:
        if self._keeps_cases:
            self._cases.keep(node, why, {"rename_from": None, "deep": deep})

    def _take_one(self, node: ComputeNode, deep: bool, *, counts: bool) -> RoundResult:
        # What others disturb, or placement does not answer, the loop tries again, and looks up in between.
        convert = not self._started and self._settings.allow_reshape
        outcome = run_locked(node, Wishes(reshape=convert, deep=deep, counts=counts))
        if outcome.status in (Status.UNCHANGED, Status.CHANGED):
            self._cases.well()
        else:
            self._keep_case(node.name, f"{outcome.status.value} {outcome.plan.digest}", deep)
        if outcome.status is Status.CHANGED:
            LOG.info(
                "pass node=%s outcome=changed operations=%d digest=%s",
                outcome.node,
                len(outcome.plan.operations),
                outcome.plan.digest,
            )
        self._progress()
        return RoundResult(
            outcomes={node.name: outcome.status.value},
            notes=outcome.notes,
            findings=self._audit(node, outcome, deep),
            observed=_totals(seen.provider for seen in outcome.observed),
            desired=_totals(seen.provider for seen in forecast(outcome.plan, outcome.observed)),
            hardware=outcome.hardware,
        )

    def _audit(self, node: ComputeNode, outcome: Outcome, deep: bool) -> Counter[str]:
        """What placement says against what runs; where the tree is as it should be the policy's repairs are done."""
        may_heal = outcome.status in (Status.UNCHANGED, Status.CHANGED)
        if not may_heal and outcome.observed.root is None:
            return Counter()
        quiet = outcome.status is Status.UNCHANGED
        seen = (outcome.survey, outcome.observed) if quiet and outcome.survey else None
        result = witness(node, light=not (deep or node.client.went_back), seen=seen)
        if result.memory != result.before:
            write_memory(self._settings.state_directory, result.root_uuid, result.memory, clock=result.clock)
        repairs = heal(node, result, self._policy) if self._policy and may_heal else ()
        new = [one for one in result.findings if result.memory.sightings[one.key].looks == 1]
        for kind, where, what in dict.fromkeys((one.kind.value, _place(one), one.seen) for one in new):
            LOG.warning("finding kind=%s where=%s seen=%s", kind, where, what)
        before = self._failed.get(node.name, set())
        healed = [repair.finding for repair in repairs if repair.healed is Healed.HEALED]
        for kind, where in dict.fromkeys((finding.kind.value, _place(finding)) for finding in healed):
            LOG.warning("finding kind=%s where=%s healed", kind, where)
        failed = [repair for repair in repairs if repair.healed is Healed.FAILED]
        for repair in failed:
            if repair.why not in before:
                kind, where = repair.finding.kind.value, _place(repair.finding)
                LOG.warning("finding kind=%s where=%s not healed why=%s", kind, where, repair.why)
        self._failed[node.name] = {repair.why for repair in failed}
        return Counter(one.kind.value for one in result.findings)

    def _take_nodes(self, client: PlacementClient) -> RoundResult:
        with (
            locked(self._settings.state_directory),
            open_nodes(self._settings, self._choice, writes=True, told=self._told) as driver,
        ):
            node = NodesPlanner(
                driver=driver,
                client=client,
                settings=self._settings,
                where=self._where,
                workers=node_workers(self._settings, self._choice),
            )
            outcome = run_nodes(node, progress=lambda _done, _of: self._progress())
        unwell = [one for one in outcome.outcomes if one.fate not in _WELL]
        changed = len(outcome.outcomes) - len(unwell)
        if changed:
            LOG.info("pass nodes=%d changed=%d unwell=%d", outcome.unchanged + changed, changed, len(unwell))
        status = Status.CHANGED if changed else Status.UNCHANGED
        return RoundResult(
            outcomes={one.node: one.fate.value for one in unwell} or {"nodes": status.value},
            notes=tuple(one.why for one in unwell[:_NAMED]),
        )


def _place(finding: Finding) -> str:
    return finding.consumer or finding.provider or "-"


def _totals(providers: Iterable[Provider]) -> Counter[str]:
    """What a tree has of each class."""
    sums: Counter[str] = Counter()
    for provider in providers:
        sums.update({name: stock.total for name, stock in provider.inventories.items()})
    return sums


def _together(taken: list[RoundResult]) -> RoundResult:
    """What a pass over several nodes did and saw."""
    return RoundResult(
        outcomes={node: outcome for one in taken for node, outcome in one.outcomes.items()},
        notes=tuple(note for one in taken for note in one.notes),
        findings=sum((Counter(one.findings) for one in taken), Counter()),
        observed=sum((Counter(one.observed) for one in taken), Counter()),
        desired=sum((Counter(one.desired) for one in taken), Counter()),
        hardware=frozenset().union(*(one.hardware for one in taken)),
    )
