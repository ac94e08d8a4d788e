"""
The service: takes a pass at each period and after events of the host, until it is stopped.

The main thread takes all passes and notifies systemd's watchdog; other threads only wake it. A failed pass changes
nothing and is tried again, with longer and longer waits in between.
"""

import logging
import os
import sys
import time

from agent.audit.heal import HealPolicy, read_policy
from agent.connect.choice import Choice, settings_for
from agent.connect.tokens import forget_tokens
from agent.errors import ConfigError, StateError
from agent.service.pace import Pace, WakeUps
from agent.service.pass_result import RoundResult
from agent.service.reporting import Reporter
from agent.service.rounds import Rounds
from agent.service.status import ServiceStatus
from agent.service.systemd import Notifier, handled
from agent.settings.log import set_up_log
from agent.settings.read import Settings
from agent.settings.slips import slips_of_the_pen, types_left_out
from agent.settings.values import Values
from agent.state.locks import serving
from agent.sync.outcome import Status
from drivers.base import Event
from drivers.errors import DiscoveryError

LOG = logging.getLogger(__name__)


class Daemon:
    """One service under one command line; any thread or signal handler may call ``stop`` and ``reload``."""

    def __init__(self, choice: Choice, notifier: Notifier | None = None) -> None:
        self._choice = choice
        self._wake_ups = WakeUps()
        self.settings, policy = _read(choice)
        self._reporter = Reporter(self.settings, notifier or Notifier())
        self._pace = Pace(self.settings, lambda: self._pass((), regular=True))
        self._passes = self._new_passes(self.settings, policy)
        self._stopping = self._reloading = False

    def stop(self) -> None:
        """End the service when the current pass is over."""
        self._stopping = True
        self._wake_ups.interrupt()

    def reload(self) -> None:
        """Begin anew with the configuration as it is now when the current pass is over; first see that it is right."""
        self._reloading = True
        self._wake_ups.interrupt()

    @property
    def status(self) -> ServiceStatus:
        """The status as of the last pass."""
        return self._reporter.status

    def run(self) -> bool:
        """
        Take passes until ``stop`` is called, or ``reload``; return whether the service begins anew.

        Raises:
            ConfigError: the configuration is wrong at the start. StateError: another service uses the state directory.
        """
        self._passes.open()
        with serving(self.settings.folders.state):
            self._reporter.serve_metrics()
            _warn_of_slips(self.settings)
            self._reporter.notifier.ready("starting")
            self._reporter.publish(self.settings.service.start_spread_s)
            try:
                self._loop()
            finally:
                self._passes.close_host()
            if not self._stopping:
                LOG.info("the configuration is read again")
                return True
            self._reporter.notifier.stopping()
            LOG.info("stopped passes=%d", self.status.passes)
            return False

    def _loop(self) -> None:
        LOG.info("the first pass comes in %.0f s", max(0.0, self._pace.rhythm.due - time.monotonic()))
        while True:
            events = self._wake_ups.wait(self._pace.wait_s(self._reporter.notifier.watchdog_s))
            self._reporter.progress()
            self._pace.notice(events)
            if self._stopping:
                return
            if self._reloading and self._can_begin_anew():
                return
            if self._pace.held_back_s:
                continue
            if time.monotonic() >= self._pace.rhythm.due:
                self._pace.rhythm.tick()
            elif self._pace.is_due(events):
                self._pass(events)

    def _new_passes(self, settings: Settings, policy: HealPolicy | None) -> Rounds:
        return Rounds(
            self._choice,
            settings,
            policy,
            wake=self._wake_ups.wake,
            metered=self._reporter.meter,
            told=self._reporter.operated,
        )

    def _pass(self, events: tuple[Event, ...], *, regular: bool = False) -> None:
        """Take one pass over all nodes of this agent; report any error, and keep the service running."""
        began = time.monotonic()
        for event in events:
            LOG.debug("woken source=%s what=%s", event.source, event.what)
        taken = self._try_pass(counts=regular or self._pace.looks_again)
        if isinstance(taken, RoundResult):
            refused = Status.UNSAFE.value in taken.outcomes.values()
            again = self._pace.done(taken.hardware, refused=refused)
            self._reporter.done(taken, time.monotonic() - began, again=again)
        else:
            self._pace.failed(taken)
            self._reporter.failed(taken)
            if type(taken) is DiscoveryError:  # its subclasses, and a wrong policy, need no new connection to the host
                self._passes.close_host()
        self._reporter.publish(self._pace.held_back_s)

    def _try_pass(self, *, counts: bool) -> RoundResult | Exception:
        try:
            return self._passes.take(deep=self._pace.deep, counts=counts)
        except Exception as error:  # also our own faults: the service goes on, and the log has their traceback
            return error  # outside this block, so that oslo.log does not append the traceback a second time

    def _can_begin_anew(self) -> bool:
        """Return whether configuration and heal policy can be read; if not, report why, and go on with the old ones."""
        self._reloading = False
        self._reporter.notifier.reloading()
        reason = ""
        try:
            self._new_passes(*_read(self._choice)).open()
        except (ConfigError, StateError) as error:
            reason = " ".join(str(error).split())
        if not reason:
            forget_tokens()
            return True
        LOG.error("the configuration cannot be read again, the old one stays reason=%s", reason)
        self._reporter.stays(f"the old one stays: {reason}")
        self._reporter.notifier.ready(self.status.sentence())
        return False


def _read(choice: Choice) -> tuple[Settings, HealPolicy | None]:
    """
    Read the configuration, and the heal policy that it names (None: nothing is repaired).

    Raises:
        ConfigError: one of them cannot be read, or has a value that makes no sense.
    """
    settings = settings_for(choice)
    if settings.service.heal_policy is None:
        return settings, None

    return settings, read_policy(settings.service.heal_policy)


def _warn_of_slips(settings: Settings) -> None:
    values = Values(settings.apis.source)
    for slip in (*slips_of_the_pen(values), *types_left_out(values, settings.policy.devices.mdevs)):
        LOG.warning("%s", slip)


def run_service(choice: Choice, verbose: int) -> None:
    """
    Run the service until a signal stops it: the verb ``run``. At SIGHUP the process executes itself anew.

    Raises:
        ConfigError: the configuration is wrong at the start. StateError: another service uses the state directory.
    """
    daemon = Daemon(choice)
    set_up_log(daemon.settings.apis.source, verbose)
    with handled(daemon.stop, daemon.reload, daemon.settings.service.stop_timeout_s):
        if daemon.run():  # inside the block: a signal that comes meanwhile waits for the new process
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
