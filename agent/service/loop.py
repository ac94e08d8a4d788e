"""
The service: takes a pass at each period and after events of the host, until it is stopped.

The main thread takes all passes and notifies systemd's watchdog; other threads only wake it. A failed pass changes
nothing and is tried again, with longer and longer waits in between.
"""

import faulthandler
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from agent.connect.choice import Choice, settings_for
from agent.connect.tokens import forget_tokens
from agent.errors import ConfigError, StateError
from agent.service.pace import Pace, WakeUps
from agent.service.reporting import Notifier, Reporter
from agent.service.rounds import RoundResult, Rounds
from agent.settings.log import set_up_log
from agent.settings.read import Settings
from agent.settings.slips import slips_of_the_pen
from agent.settings.values import Values
from agent.state.locks import serving
from agent.sync.outcome import Status
from drivers.base import Event
from drivers.errors import DiscoveryError

LOG = logging.getLogger(__name__)
STOPPING_S = 15  # for the pass that is under way at a signal; systemd and Kubernetes wait for 30


class Daemon:
    """One service under one command line; any thread or signal handler may call ``stop`` and ``reload``."""

    def __init__(self, choice: Choice, notifier: Notifier | None = None) -> None:
        self._choice = choice
        self._wake_ups = WakeUps()
        self._settings = settings_for(choice)
        self._reporter = Reporter(self._settings, notifier or Notifier())
        self._pace = Pace(self._settings)
        self._passes = self._new_passes(self._settings)
        self._verbose = 0
        self._stopping = self._reloading = False

    def set_up_log(self, verbose: int) -> None:
        """
        Open the log as the configuration says; ``verbose`` counts the options ``-v``.

        Raises:
            ConfigError: as the function.
        """
        self._verbose = verbose
        set_up_log(self._settings.apis.source, verbose)

    def stop(self) -> None:
        """End the service when the current pass is over."""
        self._stopping = True
        self._wake_ups.interrupt()

    def reload(self) -> None:
        """Read configuration and heal policy again, and reopen the log, when the current pass is over."""
        self._reloading = True
        self._wake_ups.interrupt()

    def run(self) -> None:
        """
        Take passes until ``stop`` is called.

        Raises:
            ConfigError: the port for metrics is in use. StateError: another service uses the state directory.
        """
        with serving(self._settings.folders.state):
            self._reporter.serve_metrics()
            _warn_of_slips(self._settings)
            self._reporter.notifier.tell(READY=1, STATUS="starting")
            self._reporter.publish(self._settings.service.start_spread_s)
            try:
                self._loop()
            finally:
                self._passes.close_host()
            self._reporter.notifier.tell(STOPPING=1, STATUS="stopping")
            LOG.info("stopped passes=%d", self._reporter.status.passes)

    def _loop(self) -> None:
        LOG.info("the first pass comes in %.0f s", max(0.0, self._pace.due - time.monotonic()))
        while True:
            events = self._wake_ups.wait(self._pace.wait_s(self._reporter.notifier.watchdog_s))
            self._reporter.progress()
            self._pace.notice(events)
            if self._stopping:
                return
            if self._reloading:
                self._reload()
            if self._pace.held_back_s:
                continue
            if time.monotonic() >= self._pace.due:
                if self._pace.tick():
                    self._pass((), regular=True)
                    self._pace.rest()
            elif self._pace.is_due(events):
                self._pass(events)

    def _new_passes(self, settings: Settings) -> Rounds:
        told = self._reporter.progress
        return Rounds(self._choice, settings, wake=self._wake_ups.wake, requested=self._reporter.requested, told=told)

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

    def _reload(self) -> None:
        """Read configuration and heal policy again, and reopen logs; what cannot be read leaves the old in place."""
        self._reloading = False
        self._reporter.notifier.tell(RELOADING=1, MONOTONIC_USEC=time.monotonic_ns() // 1000)  # READY must follow
        if reason := _why_not(self._read_again):
            LOG.error("the configuration cannot be read again, the old one stays reason=%s", reason)
        self._reporter.reloaded(self._settings, reason and f"the old one stays: {reason}")
        self._pace.restart(self._settings)
        if reason := _why_not(lambda: self.set_up_log(self._verbose)):
            LOG.error("the log cannot be reopened reason=%s", reason)
        self._reporter.notifier.tell(READY=1, STATUS=self._reporter.status.sentence())

    def _read_again(self) -> None:
        """Take passes under the configuration of now; ConfigError, StateError: it cannot be read, or not be applied."""
        settings = settings_for(self._choice)
        both = self._settings, settings
        before, now = ((one.folders.state, one.service.metrics_port, one.service.bind_address) for one in both)
        if before != now:
            raise ConfigError(
                "[agent] state_directory, metrics_port or bind_address has changed: restart the service to apply it"
            )
        forget_tokens()
        passes = self._new_passes(settings)
        self._passes.close_host()
        self._settings, self._passes = settings, passes
        LOG.info("configuration read again")
        _warn_of_slips(self._settings)


def _warn_of_slips(settings: Settings) -> None:
    for slip in slips_of_the_pen(Values(settings.apis.source)):
        LOG.warning("%s", slip)


def _why_not(do: Callable[[], object]) -> str:
    """
    Return why something cannot be done, as one line; empty: it was done.

    So the error is logged outside of its handler, where oslo.log does not append it a second time.
    """
    try:
        do()
    except (ConfigError, StateError) as error:
        return " ".join(str(error).split())
    return ""


@contextmanager
def handled(stop: Callable[[], object], reload: Callable[[], object]) -> Iterator[None]:
    """
    Inside the context, a thread calls ``stop`` at SIGTERM and SIGINT, and ``reload`` at SIGHUP.

    SIGUSR2 prints where each thread is on standard error, also while all of them hang.

    Python runs its own signal handlers in the main thread only, which may hang in a call of a library. So all threads
    block these signals but the one that waits for them; call it before others are started. A process that has not
    stopped ``STOPPING_S`` after the signal prints where its threads are, and ends with 1: a pass may end anywhere
    without harm, as each write to placement is complete in itself.
    """

    def end() -> None:
        doing.update({signal.SIGTERM: stop, signal.SIGINT: stop})  # who says it again does not put off the end
        stop()
        if sys.stderr:
            faulthandler.dump_traceback_later(STOPPING_S, exit=True)
        LOG.info("stopping within %d s; a pass that takes longer is cut off, and its threads are shown", STOPPING_S)

    doing: dict[int, Callable[[], object]] = {signal.SIGTERM: end, signal.SIGINT: end, signal.SIGHUP: reload}

    def receive() -> None:
        while True:
            doing[signal.sigwait(doing)]()

    if sys.stderr:  # None where the descriptor is closed
        faulthandler.register(signal.SIGUSR2)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, doing)
    threading.Thread(target=receive, name="signals", daemon=True).start()
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run_service(choice: Choice, verbose: int) -> None:
    """
    Run the service until a signal stops it: the verb ``run``.

    Raises:
        ConfigError: the configuration is wrong at the start. StateError: another service uses the state directory.
    """
    daemon = Daemon(choice)
    daemon.set_up_log(verbose)
    with handled(daemon.stop, daemon.reload):
        daemon.run()
