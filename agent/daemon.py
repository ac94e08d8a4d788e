"""
The service: a pass at its time and at the host's word, audits, and what is told of them, for as long as it is let.

One thread does the work, and tells systemd's watchdog that it goes on; others only wake it. A pass that fails changes
nothing, is tried again later and later, and what was known stays known. oslo.service's periodic tasks keep the time:
they need none of its launchers, which would bring eventlet, or fork.
"""

import hashlib
import logging
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import FrameType

from oslo_service import periodic_task

from agent import VERSION
from agent.assembly import Choice, node_workers, open_driver, open_nodes, open_sender, settings_for
from agent.audit_memory import write_memory
from agent.config import Settings
from agent.errors import USER_ERRORS, ConfigError, StateError
from agent.findings import Kind
from agent.heal import HealPolicy, heal, read_policy
from agent.log import set_up_log
from agent.metrics import MeteredSender, Metrics, serve
from agent.nodes import run_nodes
from agent.nodes_look import Fate, NodesPlanner
from agent.notify import Notifier
from agent.planner import Planner
from agent.state import locked
from agent.status import ServiceStatus, write_status
from agent.sync import Outcome, Status, run_pass
from agent.upgrade import at_start
from agent.wake_ups import WakeUps
from agent.witness import Testimony, witness
from drivers import IRONIC
from drivers.base import Driver, Watchable
from drivers.errors import DiscoveryError, PolicyError
from drivers.events import Event
from reportclient.client import PlacementClient
from reportclient.errors import PlacementError
from reportclient.forecast import forecast
from reportclient.transport import Transport

LOG = logging.getLogger(__name__)
FIRST_RETRY_S, RETRIES = 1.0, 8  # after a pass that failed: twice as long each time, so often
HOST, PLACEMENT, OWN = "host", "placement", "own files"


class Daemon:
    """One service under one command line; ``run`` does it all."""

    def __init__(self, choice: Choice, notifier: Notifier | None = None) -> None:
        self._choice = choice
        self._notifier = notifier or Notifier()
        self._settings = settings_for(choice)
        self._policy = _read_policy(self._settings)
        self._metrics = Metrics()
        self._wake_ups = WakeUps()
        self._status = ServiceStatus(
            version=VERSION, pid=os.getpid(), started_s=time.time(), interval_s=self._settings.interval_s
        )
        self._stack = ExitStack()
        self._driver: Driver | None = None
        self._client: PlacementClient | None = None
        self._sender: MeteredSender | None = None
        self._where = ""
        self._failures = 0
        self._deep = True  # the next audit reads everything
        self._stopping = self._reloading = False

    def set_up_log(self, verbose: int) -> None:
        """
        As the configuration says.

        Raises:
            ConfigError: a file to log to cannot be opened.
        """
        try:
            set_up_log(self._settings.source, verbose)
        except ValueError as error:
            raise ConfigError(f"[DEFAULT] log_file: {error}") from error

    def run(self) -> None:
        """
        Until a signal ends it.

        Raises:
            ConfigError: the configuration is wrong from the start.
        """
        with self._signals(), self._stack:
            self._serve_metrics()
            self._open_client()
            schedule = self._schedule()
            self._notifier.ready("starting")
            due = time.monotonic() + self._spread_s()
            while not self._stopping:
                events, _ = self._wake_ups.wait(self._patience_s(due))
                self._notifier.alive()
                if self._stopping:
                    break
                if self._reloading:
                    self._reload()
                    schedule, due = self._schedule(), 0.0
                if events:
                    self._pass(events)
                elif time.monotonic() >= due:
                    due = time.monotonic() + schedule.run_periodic_tasks(None, raise_on_error=True)
                if self._failures:
                    due = min(due, time.monotonic() + self._retry_s())
                    schedule = self._schedule()
            self._notifier.stopping()
            LOG.info("stopped passes=%d", self._status.passes)

    # -- the time ------------------------------------------------------------------------------------------------------

    def _schedule(self) -> periodic_task.PeriodicTasks:
        """The pass, and the audit that reads everything, each with its own period; the pass is due at once."""

        def take_pass(_tasks: object, _context: object) -> None:
            self._pass(())

        def read_everything(_tasks: object, _context: object) -> None:
            self._deep = True

        often = periodic_task.periodic_task(spacing=self._settings.interval_s, run_immediately=True)
        seldom = periodic_task.periodic_task(spacing=self._settings.full_audit_interval_s)
        tasks = {"take_pass": often(take_pass), "read_everything": seldom(read_everything)}
        made: periodic_task.PeriodicTasks = type("Schedule", (periodic_task.PeriodicTasks,), tasks)(
            self._settings.source
        )
        return made

    def _spread_s(self) -> float:
        """Some seconds that are this host's own, so that a fleet which starts at once does not ask at once."""
        digest = hashlib.sha256(os.uname().nodename.encode() + str(self._settings.state_directory).encode()).digest()
        return int.from_bytes(digest[:4]) / 2**32 * self._settings.start_spread_s

    def _patience_s(self, due: float) -> float:
        longest = self._notifier.watchdog_s / 3 if self._notifier.watchdog_s else float(self._settings.interval_s)
        return float(max(0.0, min(due - time.monotonic(), longest)))

    def _retry_s(self) -> float:
        longest: float = min(FIRST_RETRY_S * 2 ** min(self._failures - 1, RETRIES), self._settings.interval_s)
        return longest * random.uniform(0.5, 1.0)

    # -- the work ------------------------------------------------------------------------------------------------------

    def _pass(self, events: tuple[Event, ...]) -> None:
        """One pass over all that is ours; whatever a user can cause is told, and the service goes on."""
        began, before = time.monotonic(), self._status
        asked_s = self._sender.spent_s if self._sender else 0.0
        for event in events:
            LOG.debug("woken source=%s what=%s", event.source, event.what)
        try:
            outcomes, notes = self._work()
        except USER_ERRORS as error:
            self._failed(error, before)
            return
        now = time.time()
        spent_s = (self._sender.spent_s if self._sender else 0.0) - asked_s
        for source, seconds in ((HOST, time.monotonic() - began - spent_s), (PLACEMENT, spent_s), (OWN, 0.0)):
            self._status = self._status.seen(source, "", now)
            self._metrics.asked(source, seconds, "")
        self._failures = 0
        self._status = replace(
            self._status, passes=self._status.passes + 1, last_pass_s=now, outcomes=outcomes, notes=notes
        )
        self._metrics.done()
        if before.errors:
            LOG.info("recovered from=%s", before.errors[0])
        for node, outcome in outcomes.items():
            self._metrics.passed(outcome, time.monotonic() - began)
            if before.outcomes.get(node) != outcome and outcome not in ("unchanged", "changed"):
                LOG.warning("pass node=%s outcome=%s notes=%s", node, outcome, "; ".join(notes))
        self._tell()

    def _work(self) -> tuple[dict[str, str], tuple[str, ...]]:
        client = self._open_client()
        if self._settings.driver == IRONIC:
            return self._pass_nodes(client)
        driver = self._open_driver()
        outcomes: dict[str, str] = {}
        notes: list[str] = []
        findings: Counter[str] = Counter()
        for node in driver.nodes():
            planner = Planner(node=node, driver=driver, client=client, settings=self._settings, where=self._where)
            outcome = run_pass(planner) if self._status.passes else at_start(planner)
            outcomes[node] = outcome.status.value
            notes += outcome.notes
            self._count(outcome)
            findings += self._audit(planner, outcome)
            self._notifier.alive()
        self._deep = False
        counts = {kind.value: findings[kind.value] for kind in Kind}
        self._metrics.found(counts)
        self._status = replace(self._status, findings={kind: count for kind, count in counts.items() if count})
        return outcomes, tuple(notes)

    def _audit(self, planner: Planner, outcome: Outcome) -> Counter[str]:
        """What placement says against what runs; with a policy what it lets is put right."""
        with locked(self._settings.state_directory):
            seen = outcome.observed if outcome.status is Status.UNCHANGED else None
            testimony: Testimony = witness(planner, light=not self._deep, seen=seen)
            write_memory(self._settings.state_directory, testimony.root_uuid, testimony.memory)
            cares = heal(planner, testimony, self._policy) if self._policy else ()
        new = [one for one in testimony.findings if testimony.memory.sightings[one.key].looks == 1]
        for finding in new:
            where = finding.consumer or finding.provider
            LOG.warning("finding kind=%s where=%s seen=%s", finding.kind.value, where, finding.seen)
        for care in cares:
            if care.healed.value != "reported":
                LOG.warning("finding kind=%s %s why=%s", care.finding.kind.value, care.healed.value, care.why)
        return Counter(one.kind.value for one in testimony.findings)

    def _pass_nodes(self, client: PlacementClient) -> tuple[dict[str, str], tuple[str, ...]]:
        with locked(self._settings.state_directory), open_nodes(self._settings, writes=True) as driver:
            planner = NodesPlanner(
                driver=driver,
                client=client,
                settings=self._settings,
                where=self._where,
                workers=node_workers(self._settings, self._choice),
            )
            outcome = run_nodes(planner, progress=lambda _done, _of: self._notifier.alive())
        unwell = [one for one in outcome.outcomes if one.fate not in (Fate.CREATED, Fate.CHANGED, Fate.DELETED)]
        changed = len(outcome.outcomes) - len(unwell)
        if changed:
            LOG.info("pass nodes=%d changed=%d unwell=%d", outcome.unchanged + changed, changed, len(unwell))
        told = {one.node: one.fate.value for one in unwell}
        return told or {"nodes": "changed" if changed else "unchanged"}, tuple(one.why for one in unwell[:5])

    def _count(self, outcome: Outcome) -> None:
        self._metrics.stocked("observed", (seen.provider for seen in outcome.observed))
        after = forecast(outcome.plan, outcome.observed)
        self._metrics.stocked("desired", (seen.provider for seen in after))
        if outcome.plan.operations and outcome.status.value == "changed":
            LOG.info(
                "pass node=%s outcome=%s operations=%d digest=%s",
                outcome.node,
                outcome.status.value,
                len(outcome.plan.operations),
                outcome.plan.digest,
            )

    def _failed(self, error: Exception, before: ServiceStatus) -> None:
        """Nothing was changed by what failed; it is told once, and looked at anew with everything opened again."""
        source = HOST if isinstance(error, DiscoveryError | PolicyError) else OWN
        source = PLACEMENT if isinstance(error, PlacementError) else source
        text = " ".join(str(error).split())
        self._failures += 1
        self._status = self._status.seen(source, text, time.time())
        self._metrics.asked(source, 0.0, text)
        self._metrics.passed("failed", 0.0)
        if text not in before.errors:
            LOG.warning("degraded source=%s reason=%s", source, text)
        if source == HOST:
            self._close()
        self._tell()

    # -- what is open --------------------------------------------------------------------------------------------------

    def _open_client(self) -> PlacementClient:
        if self._client is None:
            sender, self._where, name = open_sender(self._settings, self._choice, writes=True)
            self._sender = MeteredSender(sender, self._metrics, self._notifier.alive)
            self._client = PlacementClient(Transport(self._sender, where=name))
        return self._client

    def _open_driver(self) -> Driver:
        """The driver, and its events where it has any; opened again after it failed."""
        if self._driver is None:
            driver = self._stack.enter_context(open_driver(self._settings, self._choice))
            if isinstance(driver, Watchable) and not self._settings.recorded:
                self._stack.enter_context(driver.watching(self._wake_ups.wake))
            self._driver = driver
        return self._driver

    def _close(self) -> None:
        self._driver = None
        self._stack.close()

    def _reload(self) -> None:
        """Configuration and policy anew; what cannot be read leaves the old ones."""
        self._reloading = False
        self._notifier.reloading()
        try:
            settings = settings_for(self._choice)
            policy = _read_policy(settings)
        except ConfigError as error:
            LOG.error("the configuration is not read anew, and the old one stays reason=%s", " ".join(error.problems))
        else:
            self._settings, self._policy = settings, policy
            self._status = replace(self._status, interval_s=settings.interval_s)
            self._client = None
            self._close()
            LOG.info("configuration read anew")
        self._notifier.ready(self._status.sentence())

    # -- what is told --------------------------------------------------------------------------------------------------

    def _serve_metrics(self) -> None:
        if self._settings.metrics_port is None:
            return
        try:
            port = serve(self._metrics, self._settings.metrics_port, lambda: self._status)
        except OSError as error:
            raise ConfigError(
                f"[agent] metrics_port: {self._settings.metrics_port} cannot be had on loopback: {error.strerror}"
            ) from error
        LOG.info("metrics and health at http://127.0.0.1:%d/metrics /healthz /readyz", port)

    def _tell(self) -> None:
        self._notifier.status(self._status.sentence())
        try:
            write_status(self._settings.state_directory, self._status)
            if self._settings.metrics_textfile:
                self._metrics.write(self._settings.metrics_textfile)
        except (StateError, OSError) as error:
            LOG.warning("what the service is doing cannot be told reason=%s", error)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Inside, signals end the service or have it read its configuration anew, when the pass is over."""

        def stop(_number: int, _frame: FrameType | None) -> None:
            self._stopping = True
            # A pass may hang in a request: all that it does stands without harm wherever it ends.
            bound = threading.Timer(self._settings.stop_timeout_s, os._exit, (0,))
            bound.daemon = True
            bound.start()
            self._wake_ups.interrupt()

        def reload(_number: int, _frame: FrameType | None) -> None:
            self._reloading = True
            self._wake_ups.interrupt()

        handlers: dict[signal.Signals, Callable[[int, FrameType | None], None]] = {
            signal.SIGTERM: stop,
            signal.SIGINT: stop,
            signal.SIGHUP: reload,
        }
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _read_policy(settings: Settings) -> HealPolicy | None:
    return read_policy(settings.heal_policy) if settings.heal_policy else None


def run_service(choice: Choice, verbose: int) -> None:
    """
    The verb ``run``.

    Raises:
        ConfigError: the configuration is wrong from the start.
    """
    daemon = Daemon(choice)
    daemon.set_up_log(verbose)
    daemon.run()
