"""
The service: a pass at its time and at the host's word, for as long as it is let, and what is told of it.

One thread does the work, and tells systemd's watchdog that it goes on; others only wake it. A pass that fails changes
nothing, is tried again later and later, and what was known stays known. oslo.service's periodic tasks keep the time:
they need none of its launchers, which would bring eventlet, or fork.
"""

import gc
import hashlib
import logging
import math
import os
import random
import signal
import socket
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from oslo_service import periodic_task

from agent import VERSION
from agent.assembly import Choice, settings_for
from agent.config import Settings
from agent.errors import USER_ERRORS, ConfigError, StateError
from agent.findings import Kind
from agent.heal import HealPolicy, read_policy
from agent.log import set_up_log
from agent.metered import MeteredSender, operation, served
from agent.metrics import Metrics, serve
from agent.notify import Notifier
from agent.passes import Passes, Taken
from agent.state import serving
from agent.status import STUCK_S, WELL, ServiceStatus, write_status
from agent.sync import PATIENCE, Status
from agent.wake_ups import SOON_S, WakeUps, announces_loss
from drivers.errors import DiscoveryError, PolicyError
from drivers.events import Event
from reportclient.errors import PlacementError, Unavailable
from reportclient.transport import Sender

LOG = logging.getLogger(__name__)
FIRST_RETRY_S, RETRIES = 1.0, 8  # after a pass that failed: twice as long each time, so often
HOST, PLACEMENT, OWN, CONFIGURATION = "host", "placement", "own files", "configuration"


class Daemon:
    """One service under one command line; ``stop`` and ``reload`` may be called by any thread, or a signal."""

    def __init__(self, choice: Choice, notifier: Notifier | None = None) -> None:
        self._choice = choice
        self._notifier = notifier or Notifier()
        self._metrics = Metrics()
        self._wake_ups = WakeUps()
        self._asked_s = 0.0  # that all requests to placement took so far
        self._settings, self._policy = _read(choice)
        self._passes = self._new_passes()
        self._status = ServiceStatus(
            version=VERSION, pid=os.getpid(), started_s=time.time(), interval_s=self._settings.interval_s
        )
        self._failures = 0
        self._retry = 0.0  # when (monotonic) what failed is tried again; nobody is asked before
        self._moved = time.monotonic()  # when the loop last made any progress
        self._looks, self._soon = PATIENCE, math.inf  # at a host that lost something, and when the next one is
        self._frozen = False
        self._deep = True  # the next audits read everything
        self._told: set[tuple[str, str, str]] = set()  # what went wrong since the last good pass
        self._untold = ""  # why the status cannot be written
        self._verbose = 0
        self._stopping = self._reloading = False

    def set_up_log(self, verbose: int) -> None:
        """
        As the configuration says.

        Raises:
            ConfigError: a file to log to cannot be opened.
        """
        self._verbose = verbose
        try:
            set_up_log(self._settings.source, verbose)
        except ValueError as error:
            raise ConfigError(f"[DEFAULT] the options of the log: {error}") from error

    def stop(self) -> None:
        """End when the pass is over."""
        self._stopping = True
        self._wake_ups.interrupt()

    def reload(self) -> None:
        """Read configuration and policy anew when the pass is over, and open logs anew."""
        self._reloading = True
        self._wake_ups.interrupt()

    @property
    def status(self) -> ServiceStatus:
        return self._status

    @property
    def stop_timeout_s(self) -> int:
        return self._settings.stop_timeout_s

    def run(self) -> None:
        """
        Until it is told to stop.

        Raises:
            ConfigError: the configuration is wrong from the start. StateError: another service has our folder.
        """
        self._passes.open()
        with serving(self._settings.state_directory):
            self._serve_metrics()
            self._notifier.ready("starting")
            self._tell()
            try:
                self._loop()
            finally:
                self._passes.close_host()
            self._notifier.stopping()
            LOG.info("stopped passes=%d", self._status.passes)

    # -- the time ------------------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        self._begin()
        while True:
            events, _ = self._wake_ups.wait(self._patience_s())
            self._progress()
            if self._stopping:
                return
            if self._reloading:
                self._reload()
            if time.monotonic() < self._retry:
                continue  # what failed is left alone until then, whatever the time and the host say
            if time.monotonic() >= self._due:
                self._tick()
            elif events or self._failures or time.monotonic() >= self._soon:
                self._pass(events)

    def _begin(self) -> None:
        """The first pass is due soon: within ``start_spread``, so that a fleet that starts at once asks one by one."""
        self._began = time.monotonic()
        self._due = self._began + self._share() * self._settings.start_spread_s
        self._schedule: periodic_task.PeriodicTasks | None = None
        self._is_first = True

    def _tick(self) -> None:
        """The first pass; after half to one and a half periods the next, at a moment of this host's; then one each."""
        if self._is_first:
            self._is_first = False
            self._pass(())
            if not self._frozen:
                self._frozen = True
                gc.collect()
                gc.freeze()  # what is loaded by now stays: no later collection needs to look through it
            now, period_s = time.monotonic(), self._settings.interval_s
            self._due = self._began + self._share() * period_s
            self._due += period_s if self._due < now + period_s / 2 else 0
            return
        self._schedule = self._schedule or self._new_schedule()
        self._due = time.monotonic() + self._schedule.run_periodic_tasks(None, raise_on_error=True)

    def _new_schedule(self) -> periodic_task.PeriodicTasks:
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

    def _share(self) -> float:
        """This host's own place in every period, from 0 to 1: the same after each start, another for each host."""
        digest = hashlib.sha256(os.uname().nodename.encode() + str(self._settings.state_directory).encode()).digest()
        return int.from_bytes(digest[:4]) / 2**32

    def _patience_s(self) -> float:
        longest = self._notifier.watchdog_s / 3 if self._notifier.watchdog_s else float(self._settings.interval_s)
        due = self._retry if self._failures else min(self._due, self._soon)
        return float(max(0.0, min(due - time.monotonic(), longest)))

    def _progress(self) -> None:
        self._moved = time.monotonic()
        self._notifier.alive()

    # -- the work ------------------------------------------------------------------------------------------------------

    def _new_passes(self) -> Passes:
        return Passes(
            self._choice,
            self._settings,
            self._policy,
            wake=self._wake_ups.wake,
            metered=self._meter,
            told=self._operated,
            progress=self._progress,
        )

    def _meter(self, sender: Sender) -> Sender:
        def told(method: str, path: str, code: int, seconds: float) -> None:
            self._asked_s += seconds
            self._metrics.requested(method, code, seconds)
            self._metrics.operated(PLACEMENT, operation(method, path), seconds, served(code))
            self._progress()

        return MeteredSender(sender, told)

    def _operated(self, name: str, seconds: float, succeeded: bool) -> None:
        """Of an operation on the host; called by the thread of the passes."""
        self._metrics.operated(HOST, name, seconds, succeeded)
        self._progress()

    def _pass(self, events: tuple[Event, ...]) -> None:
        """One pass over all that is ours; whatever a user can cause is told, and the service goes on."""
        began, asked_s = time.monotonic(), self._asked_s
        for event in events:
            LOG.debug("woken source=%s what=%s", event.source, event.what)
        self._looks = 0 if any(map(announces_loss, events)) else self._looks
        taken = self._try_pass()
        if isinstance(taken, Taken):
            self._done(taken, time.monotonic() - began, self._asked_s - asked_s)
        else:
            self._failed(taken)
        self._tell()

    def _try_pass(self) -> Taken | Exception:
        try:
            return self._passes.take(deep=self._deep)
        except Exception as error:  # a fault of ours too: the service outlives it, and it is told with its place
            return error  # and where oslo.log does not find it as well, to say it twice

    def _done(self, taken: Taken, seconds: float, asked_s: float) -> None:
        """A pass went over all nodes; ``asked_s`` of its ``seconds`` placement took."""
        before, now = self._status, time.time()
        if self._told:
            LOG.info("recovered from=%s", "; ".join(before.errors[:1]))
        self._told.clear()
        self._failures, self._retry, self._deep = 0, 0.0, False
        for source, spent_s in ((HOST, seconds - asked_s), (PLACEMENT, asked_s), (OWN, 0.0)):
            self._status = self._status.seen(source, "", now)
            self._metrics.asked(source, spent_s, "")
        self._status = replace(
            self._status,
            passes=self._status.passes + 1,
            last_pass_s=now,
            took_s=round(seconds, 3),
            outcomes=taken.outcomes,
            notes=taken.notes,
            findings={kind: count for kind, count in taken.findings.items() if count},
        )
        if Status.FAILED.value not in taken.outcomes.values():  # else the sums would lack a node
            self._metrics.found({kind.value: taken.findings.get(kind.value, 0) for kind in Kind})
            self._metrics.stocked(desired=taken.desired, observed=taken.observed)
        self._metrics.done()
        refused = Status.UNSAFE.value in taken.outcomes.values()
        self._looks += refused
        again = refused and self._looks < PATIENCE  # a loss that was announced is looked at three times at once
        self._soon = time.monotonic() + SOON_S if again else math.inf
        for node, outcome in taken.outcomes.items():
            self._metrics.passed(outcome, seconds)
            if before.outcomes.get(node) != outcome and outcome not in WELL and not again:
                LOG.warning("pass node=%s outcome=%s notes=%s", node, outcome, "; ".join(taken.notes))

    def _failed(self, error: Exception) -> None:
        """What failed is told once, tried again later and later, and the host is opened anew if that may help."""
        source = HOST if isinstance(error, DiscoveryError | PolicyError) else OWN
        source = PLACEMENT if isinstance(error, PlacementError) else source
        text = " ".join(str(error).split())
        if not isinstance(error, USER_ERRORS):
            text = f"a fault of this agent, {type(error).__name__}: {text}"
        self._failures += 1
        longest: float = min(FIRST_RETRY_S * 2 ** min(self._failures - 1, RETRIES), self._settings.interval_s)
        asked_s = error.retry_after_s if isinstance(error, Unavailable) else 0.0
        self._retry = time.monotonic() + asked_s + longest * random.uniform(0.5, 1.0)
        what = text.partition(" answered ")[0].partition(" (")[0]  # without the request that happened to meet it
        kind = source, type(error).__name__  # what a person must do is another thing for another
        if (*kind, what) not in self._told:
            # As text, so that what is masked in a message is masked in it.
            place = "" if isinstance(error, USER_ERRORS) else "\n" + "".join(traceback.format_exception(error))
            if not place and kind in {before[:2] for before in self._told}:  # one outage is one warning
                LOG.info("still degraded reason=%s source=%s", text, source)
            else:
                LOG.warning("degraded source=%s reason=%s%s", source, text, place)
            self._told.add((*kind, what))
        if source == PLACEMENT:  # which is asked after the host was looked at
            self._status = self._status.seen(HOST, "", time.time())
            self._metrics.asked(HOST, 0.0, "")
        self._status = self._status.seen(source, text, time.time())
        self._metrics.asked(source, 0.0, text)
        self._metrics.passed("failed", 0.0)
        if type(error) is DiscoveryError:  # a wrong policy, or something that went away, needs no other connection
            self._passes.close_host()

    def _reload(self) -> None:
        """Configuration and policy anew, and logs, which may have been rotated; what cannot be read leaves the old."""
        self._reloading = False
        self._notifier.reloading()
        before = self._settings, self._policy, self._passes
        reason = ""
        try:
            self._settings, self._policy = _read(self._choice)
            self._check_lasting(before[0])
            self._passes = self._new_passes()
            self._passes.open()
        except (ConfigError, StateError) as error:
            self._settings, self._policy, self._passes = before
            reason = " ".join(str(error).split())
        if reason:
            LOG.error("the configuration is not read anew, and the old one stays reason=%s", reason)
            reason = f"the old one stays: {reason}"
        else:
            before[2].close_host()
            gc.unfreeze()  # what is replaced, with its connections, is to be freed at the next pass
            self._frozen = False
            LOG.info("configuration read anew")
        self._status = self._status.seen(CONFIGURATION, reason, time.time())
        self._status = replace(self._status, interval_s=self._settings.interval_s)
        self._metrics.asked(CONFIGURATION, 0.0, reason)
        self._failures, self._retry, self._deep = 0, 0.0, True
        due = max(self._due, time.monotonic())
        self._begin()
        self._due = min(self._due, due)  # who reloads again and again puts off no pass
        self._reopen_log()
        self._notifier.ready(self._status.sentence())

    def _check_lasting(self, before: Settings) -> None:
        """What a running service cannot take another of."""
        for name in ("state_directory", "metrics_port"):
            if getattr(self._settings, name) != getattr(before, name):
                raise ConfigError(f"[agent] {name} is another one: restart the service for it")

    # -- what is told --------------------------------------------------------------------------------------------------

    def _serve_metrics(self) -> None:
        if self._settings.metrics_port is None:
            return
        try:
            port = serve(self._metrics, self._settings.metrics_port, lambda: self._status, self._is_lively)
        except OSError as error:
            raise ConfigError(
                f"[agent] metrics_port: {self._settings.metrics_port} cannot be had on loopback: {error.strerror}"
            ) from error
        LOG.info("metrics and health at http://127.0.0.1:%d/metrics /healthz /readyz", port)

    def _is_lively(self) -> bool:
        return time.monotonic() - self._moved < max(STUCK_S, 3 * self._settings.interval_s)

    def _tell(self) -> None:
        self._notifier.status(self._status.sentence())
        untold, textfile = "", self._settings.metrics_textfile
        try:
            if textfile:
                self._metrics.write(textfile)
        except OSError as error:
            untold = f"[agent] metrics_textfile: {textfile} cannot be written: {error.strerror}"
            self._status = self._status.seen(OWN, untold, time.time())
        try:
            write_status(self._settings.state_directory, self._status)
        except StateError as error:
            untold = str(error)
        if untold and untold != self._untold:
            LOG.warning("what the service is doing cannot be told reason=%s", untold)
        self._untold = untold

    def _reopen_log(self) -> None:
        reason = ""
        try:
            self.set_up_log(self._verbose)
        except ConfigError as error:
            reason = str(error)
        if reason:
            LOG.error("the log is not opened anew reason=%s", reason)


@contextmanager
def _signals(daemon: Daemon) -> Iterator[None]:
    """
    Inside, SIGTERM and SIGINT stop the service, and SIGHUP has it read its configuration anew.

    A thread hears them, as Python's own handlers wait for the main thread, which may hang in a library's call. What
    hangs for longer than the configuration lets is abandoned, without harm.
    """
    heard, told = socket.socketpair()
    told.setblocking(False)

    def stop() -> None:
        daemon.stop()
        bound = threading.Timer(daemon.stop_timeout_s, _abandon)
        bound.daemon = True
        bound.start()

    doing = {signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: daemon.reload}

    def hear() -> None:
        with heard:
            while numbers := heard.recv(64):  # by signal.set_wakeup_fd
                for number in numbers:
                    doing.get(signal.Signals(number), _nothing)()

    threading.Thread(target=hear, name="signals", daemon=True).start()
    descriptor = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
    before = {number: signal.signal(number, _nothing) for number in doing}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(descriptor)
        told.close()


def _abandon() -> None:
    # A pass may hang in a request: all that it does stands without harm wherever it ends.
    LOG.warning("stopped in the middle of a pass, which did not end in time: the next one goes on from there")
    os._exit(0)


def _nothing(*_arguments: object) -> None:
    """What is done at a signal that a thread hears."""


def _read(choice: Choice) -> tuple[Settings, HealPolicy | None]:
    """
    What is configured, and what may be healed (None: nothing).

    Raises:
        ConfigError: one of them cannot be read, or cannot be meant.
    """
    settings = settings_for(choice)
    return settings, read_policy(settings.heal_policy) if settings.heal_policy else None


def run_service(choice: Choice, verbose: int) -> None:
    """
    The verb ``run``.

    Raises:
        ConfigError: the configuration is wrong from the start. StateError: another service has our folder.
    """
    daemon = Daemon(choice)
    daemon.set_up_log(verbose)
    with _signals(daemon):
        daemon.run()
