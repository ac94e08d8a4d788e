"""What the service reports about itself: log lines, ``status.json``, metrics, and messages to systemd."""

import logging
import os
import socket
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from agent import VERSION
from agent.errors import USER_ERRORS, ConfigError, StateError
from agent.service.metrics import Metrics, serve
from agent.service.rounds import RoundResult
from agent.service.status import STUCK_S, WELL, ServiceProcess, ServiceStatus, write_status
from agent.settings.read import Settings
from agent.state.clock import probe_clock
from agent.sync.outcome import Status
from drivers.errors import DiscoveryError, PolicyError
from reportclient.errors import PlacementError, printable

LOG = logging.getLogger(__name__)
OFTEN_S = 1.0  # shortest time between two messages to the watchdog
_PATIENCE_S = 1.0  # for systemd to take a message
_NAMED = 5  # unwell bare-metal nodes whose reasons the status shows
HOST, PLACEMENT, OWN, CONFIGURATION, STORAGE = "host", "placement", "own files", "configuration", "storage"


class Notifier:
    """Sends to ``$NOTIFY_SOCKET``; call ``alive`` at least every ``watchdog_s`` seconds (None: no watchdog is set)."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        usec = environment.get("WATCHDOG_USEC", "")
        self._alive_s = 0.0
        mine = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.watchdog_s = int(usec) / 1e6 if usec.isdecimal() and mine else None

    def tell(self, **variables: str | int) -> None:
        """Send variables of sd_notify(3), such as READY, and STATUS with a line that ``systemctl status`` shows."""
        self._send("\n".join(f"{name}={printable(str(value))}" for name, value in variables.items()))

    def alive(self) -> None:
        """Send to the watchdog that the service makes progress; at most once in ``OFTEN_S``, however often called."""
        if time.monotonic() - self._alive_s > OFTEN_S:
            self._alive_s = time.monotonic()
            self._send("WATCHDOG=1")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        # The service works also while systemd does not take messages.
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to_systemd:
            to_systemd.settimeout(_PATIENCE_S)
            to_systemd.sendto(text.encode(errors="replace"), self._address)


class Reporter:
    """Collects what passes did and how long it took, and reports it."""

    def __init__(self, settings: Settings, notifier: Notifier) -> None:
        self._settings = settings
        self.notifier = notifier
        self._metrics = Metrics(lambda: self.status)
        self.status = ServiceStatus(
            process=ServiceProcess(VERSION, os.getpid(), time.time()), interval_s=settings.service.interval_s
        )
        self._moved = time.monotonic()  # when the service last made any progress
        self._told: set[tuple[str, str, str]] = set()  # source, error class and text logged since the last good pass
        self._untold = ""  # why the status cannot be written; empty: it can

    def progress(self) -> None:
        """Note that the service made progress, for systemd's watchdog and for /healthz."""
        self._moved = time.monotonic()
        self.notifier.alive()

    def requested(self, method: str, _path: str, code: int, seconds: float) -> None:
        """Count and time a request to placement."""
        self._metrics.requested(method, code, seconds)
        self.progress()

    def done(self, taken: RoundResult, seconds: float, *, again: bool) -> None:
        """Report a pass over all nodes; ``again``: the next is at once."""
        before = self.status
        failed = {node for node, outcome in taken.outcomes.items() if outcome == Status.FAILED.value}
        stay = {node: each for node, each in before.conditions.items() if node in failed}
        if before.passes == 0:
            LOG.info("the first pass is done seconds=%.1f outcomes=%s", seconds, ", ".join(taken.outcomes.values()))
        if self._told:
            LOG.info("recovered from=%s", next(iter(before.failed.values()), ""))
        self._told.clear()
        for source in (HOST, PLACEMENT, OWN):
            self._asked(source, "")
        if taken.storage is not None:
            self._tell_storage(taken.storage)
            self._asked(STORAGE, taken.storage)
        self.status = replace(
            self.status,
            passes=self.status.passes + 1,
            last_pass_s=time.time(),
            took_s=round(seconds, 3),
            outcomes=taken.outcomes,
            notes=tuple(note for several in islice(taken.notes.values(), _NAMED) for note in several),
            conditions={**stay, **taken.conditions},
            findings={kind: count for kind, count in taken.findings.items() if count},
        )
        self._metrics.passed(taken, seconds)
        for node, outcome in taken.outcomes.items():
            if before.outcomes.get(node) != outcome and outcome not in WELL and not again:
                notes = "; ".join(taken.notes.get(node, ()))
                LOG.warning("pass node=%s outcome=%s notes=%s", node, outcome, notes)
        then, now = _said(before), _said(self.status)
        ended = (key for key in then if key not in now and taken.outcomes.get(key[0]) in WELL)  # others may say less
        for node, kind, text in dict.fromkeys((*key[:2], now[key]) for key in now if key not in then):
            LOG.info("condition node=%s kind=%s text=%s", node, kind, text)
        for node, kind, text in dict.fromkeys((*key[:2], then[key]) for key in ended):
            LOG.info("condition is over node=%s kind=%s text=%s", node, kind, text)

    def failed(self, error: Exception) -> None:
        """Report a failed pass; the same failure is logged once until a pass succeeds."""
        source = HOST if isinstance(error, DiscoveryError | PolicyError) else OWN
        source = PLACEMENT if isinstance(error, PlacementError) else source
        text = " ".join(str(error).split())
        if not isinstance(error, USER_ERRORS):
            text = f"this is a bug in compute-node-agent, please report it: {type(error).__name__}: {text}"
        self._log_failure(source, error, text)
        if source == PLACEMENT:  # the host was read before placement was asked
            self._asked(HOST, "")
        self._asked(source, text)
        self._metrics.passed(RoundResult(outcomes={source: Status.FAILED.value}), 0.0)

    def _asked(self, source: str, error: str) -> None:
        """Note the last try of a source; ``error`` is why it failed, empty if it served."""
        self.status = self.status.seen(source, error, time.time())

    def _log_failure(self, source: str, error: Exception, text: str) -> None:
        what = text.partition(" answered ")[0].partition(" (")[0]  # without the request that happened to fail
        kind = source, type(error).__name__  # another class of error asks another action of a person
        if (*kind, what) not in self._told:
            # The traceback is part of the message, so that the log's mask for secrets covers it too.
            place = "" if isinstance(error, USER_ERRORS) else "\n" + "".join(traceback.format_exception(error))
            if not place and kind in {before[:2] for before in self._told}:  # one outage is one warning
                LOG.info("still degraded reason=%s source=%s", text, source)
            else:
                LOG.warning("degraded source=%s reason=%s%s", source, text, place)
            self._told.add((*kind, what))

    def _tell_storage(self, silence: str) -> None:
        """Log once that the cluster with the guests' disks does not answer, and once that it does again."""
        before = self.status.sources.get(STORAGE)
        if silence and not (before and before.error):
            LOG.warning("DISK_GB stays as it is in placement, and all else is reported reason=%s", silence)
        elif not silence and before and before.error:
            LOG.warning("the Ceph cluster answers again: DISK_GB is reported anew")

    def reloaded(self, settings: Settings, reason: str) -> None:
        """Report that the configuration was read again; ``reason``: why the old one stays, empty: it does not."""
        self._settings = settings
        self._asked(CONFIGURATION, reason)
        # The storage may be no cluster any more: the next pass tells.
        sources = {name: one for name, one in self.status.sources.items() if reason or name != STORAGE}
        self.status = replace(self.status, interval_s=settings.service.interval_s, sources=sources)

    def serve_metrics(self) -> None:
        """
        Serve metrics and health in threads, if ``[agent] metrics_port`` is set.

        Raises:
            ConfigError: the port is in use, or not allowed.
        """
        address, wanted = self._settings.service.bind_address, self._settings.service.metrics_port
        if wanted is None:
            return

        try:
            port = serve(self._metrics, address, wanted, self._is_lively)
        except OSError as error:
            raise ConfigError(
                f"[agent] metrics_port: cannot listen on port {wanted} of {address}: "
                f"{error.strerror}: choose another port, 0 for a free one, or another bind_address"
            ) from error
        where = f"[{address}]" if ":" in address else address
        LOG.info("metrics and health at http://%s:%d/metrics /healthz /readyz", where, port)

    def _is_lively(self) -> bool:
        return time.monotonic() - self._moved < max(STUCK_S, 3 * self._settings.service.interval_s)

    def publish(self, waits_s: float = 0.0) -> None:
        """
        Write ``status.json``, and tell systemd; a failure is logged once.

        No pass begins in the next ``waits_s`` seconds.
        """
        with suppress(OSError):
            self.status = replace(self.status, process=replace(self.status.process, clock=probe_clock()))
        self.status = replace(self.status, written_s=time.time(), waits_s=waits_s)
        self.notifier.tell(STATUS=self.status.sentence())
        try:
            write_status(self._settings.folders.state, self.status)
            self._untold = ""
        except StateError as error:
            if str(error) != self._untold:
                LOG.warning("the status of the service cannot be written reason=%s", error)
            self._untold = str(error)


def _said(status: ServiceStatus) -> dict[tuple[str, str, str], str]:
    """Return the text of each condition by node, kind and provider, but for those that say why a pass was refused."""
    return {
        (node, one.kind, one.provider or one.text): one.text
        for node, each in status.conditions.items()
        for one in each
        if one.kind != status.outcomes.get(node)
    }
