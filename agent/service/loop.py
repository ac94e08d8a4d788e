"""
The service: a pass at its time and at the host's word, for as long as it is let, and what is told of it.

One thread does the work, and tells systemd's watchdog that it goes on; others only wake it. A pass that fails changes
nothing, is tried again later and later, and what was known stays known.
"""

import gc
import logging
import math
import os
import random
import time
import traceback
from dataclasses import replace

from agent import VERSION
from agent.audit.decide.findings import Kind
from agent.audit.heal import HealPolicy, read_policy
from agent.connect.choice import Choice, settings_for
from agent.connect.metering import MeteredSender, operation, served
from agent.errors import USER_ERRORS, ConfigError, StateError
from agent.service import signals
from agent.service.events import SOON_S, WakeUps, announce_loss
from agent.service.metrics import Metrics, serve
from agent.service.rounds import RoundResult, Rounds
from agent.service.status import STUCK_S, WELL, ServiceStatus, write_status
from agent.service.systemd import Notifier
from agent.service.timetable import Rhythm
from agent.settings.log import set_up_log
from agent.settings.read import Settings, slips_of_the_pen
from agent.state.locks import serving
from agent.sync.decide.judge import PATIENCE
from agent.sync.outcome import Status
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
        self._hardware: frozenset[str] = frozenset()  # whose loss, once announced, is looked at at once
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
            self._warn_of_slips()
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
        self._rhythm = self._new_rhythm()
        LOG.info("the first pass comes in %.0f s", self._rhythm.due - time.monotonic())
        while True:
            events, _ = self._wake_ups.wait(self._patience_s())
            self._progress()
            if announce_loss(events, self._hardware):
                self._looks = 0  # whichever pass comes next
            if self._stopping:
                return
            if self._reloading:
                self._reload()
            if time.monotonic() < self._retry:
                continue  # what failed is left alone until then, whatever the time and the host say
            if time.monotonic() >= self._rhythm.due:
                self._rhythm.tick()
            elif events or self._failures or time.monotonic() >= self._soon:
                self._pass(events)

    def _new_rhythm(self) -> Rhythm:
        def read_everything() -> None:
            self._deep = True

        return Rhythm(self._settings, take_pass=lambda: self._pass((), regular=True), read_everything=read_everything)

    def _patience_s(self) -> float:
        longest = self._notifier.watchdog_s / 3 if self._notifier.watchdog_s else float(self._settings.interval_s)
        due = self._retry if self._failures else min(self._rhythm.due, self._soon)
        return float(max(0.0, min(due - time.monotonic(), longest)))

    def _progress(self) -> None:
        self._moved = time.monotonic()
        self._notifier.alive()

    # -- the work ------------------------------------------------------------------------------------------------------

    def _new_passes(self) -> Rounds:
        return Rounds(
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

    def _pass(self, events: tuple[Event, ...], *, regular: bool = False) -> None:
        """One pass over all that is ours; whatever a user can cause is told, and the service goes on."""
        began, asked_s = time.monotonic(), self._asked_s
        for event in events:
            LOG.debug("woken source=%s what=%s", event.source, event.what)
        taken = self._try_pass(counts=regular or self._looks < PATIENCE)
        if isinstance(taken, RoundResult):
            self._done(taken, time.monotonic() - began, self._asked_s - asked_s)
        else:
            self._failed(taken)
        self._tell()
        if not self._frozen and not self._failures:  # one that failed has not loaded all, and left its traces
            self._frozen = True
            gc.collect()
            gc.freeze()  # what is loaded by now stays: no later collection needs to look through it

    def _try_pass(self, *, counts: bool) -> RoundResult | Exception:
        try:
            return self._passes.take(deep=self._deep, counts=counts)
        except Exception as error:  # a fault of ours too: the service outlives it, and it is told with its place
            return error  # and where oslo.log does not find it as well, to say it twice

    def _done(self, taken: RoundResult, seconds: float, asked_s: float) -> None:
        """A pass went over all nodes; ``asked_s`` of its ``seconds`` placement took."""
        before, now = self._status, time.time()
        if before.passes == 0:
            LOG.info("the first pass is done seconds=%.1f outcomes=%s", seconds, ", ".join(taken.outcomes.values()))
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
        self._hardware = self._hardware | taken.hardware if refused else taken.hardware
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
            gc.unfreeze()  # what is replaced, with its connections, is to be freed when the next pass is done
            self._frozen = False
            LOG.info("configuration read anew")
            self._warn_of_slips()
        self._status = self._status.seen(CONFIGURATION, reason, time.time())
        self._status = replace(self._status, interval_s=self._settings.interval_s)
        self._metrics.asked(CONFIGURATION, 0.0, reason)
        due = min(self._rhythm.due, self._retry if self._failures else math.inf)
        self._failures, self._retry, self._deep = 0, 0.0, True
        self._rhythm = self._new_rhythm()
        self._rhythm.hurry(due)  # who reloads again and again puts off no pass
        self._reopen_log()
        self._notifier.ready(self._status.sentence())

    def _check_lasting(self, before: Settings) -> None:
        """What a running service cannot take another of."""
        for name in ("state_directory", "metrics_port"):
            if getattr(self._settings, name) != getattr(before, name):
                raise ConfigError(f"[agent] {name} is another one: restart the service for it")

    # -- what is told --------------------------------------------------------------------------------------------------

    def _warn_of_slips(self) -> None:
        for slip in slips_of_the_pen(self._settings):
            LOG.warning("%s", slip)

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
    with signals.heard(daemon.stop, daemon.reload, lambda: daemon.stop_timeout_s):
        daemon.run()
