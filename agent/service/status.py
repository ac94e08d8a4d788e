"""The service's status, in a file that every user of the host can read, for the verb ``status`` and for probes."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agent.connect.senders import PASS_S
from agent.errors import StateError
from agent.state.clock import Clock, probe_clock
from agent.state.files import read_state, write_state
from agent.sync.outcome import Condition, Status
from reportclient.json_text import decode_as, decode_json, encode

_NAME = "status.json"
STUCK_S = 300  # the loop hangs if it made no progress for this time and for three periods, after its next pass was due
_NOTHING_TO_DO = (Status.UNCHANGED, Status.CHANGED, Status.AUDIT_ONLY)
WELL = frozenset(status.value for status in _NOTHING_TO_DO)  # outcomes that need no action of a person
_FORMAT = 1
_READABLE = 0o644  # probes of other users read the file, whatever our umask is


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """How one source serves: the host, placement, the agent's own files, or the configuration."""

    ok_s: float | None  # when it last served (seconds since the epoch); None: never
    error: str  # why it failed at the last try; empty: it served


@dataclass(frozen=True, slots=True)
class ServiceProcess:
    """The process of the service."""

    version: str  # of the agent
    pid: int
    started_s: float  # when it began
    clock: Clock | None = None  # of the host, when the status was written; None: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatus:
    """Contents of status.json, in which the process has no group of its own; times are seconds since the epoch."""

    process: ServiceProcess
    passes: int = 0  # completed ones since the start
    last_pass_s: float | None = None  # end of the last completed pass; None: there was none
    took_s: float = 0.0  # duration of that pass
    interval_s: int = 60
    written_s: float = 0.0  # when this was written
    waits_s: float = 0.0  # seconds from then in which no pass begins: after a failed one, or until the first one
    outcomes: Mapping[str, str] = field(default_factory=dict)  # by node; of bare-metal nodes only the unwell ones
    notes: tuple[str, ...] = ()
    conditions: Mapping[str, tuple[Condition, ...]] = field(default_factory=dict)  # of the last pass, by hypervisor
    findings: Mapping[str, int] = field(default_factory=dict)  # count by kind, of the last audit; none is 0
    sources: Mapping[str, SourceStatus] = field(default_factory=dict)  # by name of the source

    @property
    def failed(self) -> dict[str, str]:
        """Why sources failed at the last try, by name, the newest first; empty if all served."""
        return {name: one.error for name, one in self.sources.items() if one.error}

    @property
    def is_ready(self) -> bool:
        """Whether a pass was completed (maybe refused), and all sources served at the last try."""
        return self.last_pass_s is not None and not self.failed and Status.FAILED.value not in self.outcomes.values()

    @property
    def is_running(self) -> bool:
        """Whether the process that wrote this still exists."""
        return Path(f"/proc/{self.process.pid}").exists()

    @property
    def set_by_s(self) -> float:
        """By how many seconds this host's clock was set since this was written; 0 too where that is not known."""
        try:
            now, then = probe_clock(), self.process.clock
        except OSError:
            return 0.0
        return now.set_since(then) if then else 0.0

    @property
    def age_s(self) -> float:
        """Seconds since this was written; what is of the future was written before the clock was set back."""
        return abs(time.time() - self.set_by_s - self.written_s)

    @property
    def is_late(self) -> bool:
        """Whether the service wrote nothing for so long that its loop must hang, or cannot write."""
        longest_s = max(STUCK_S, 3 * self.interval_s) + self.waits_s
        return self.age_s > longest_s + (0 if self.is_ready else PASS_S)  # its first pass, or a slow one, may take long

    def sentence(self) -> str:
        """Return one line for people, as ``systemctl status`` shows it."""
        if error := next(iter(self.failed.values()), ""):
            kind = "good" if WELL.issuperset(self.outcomes.values()) else "completed"
            past = self.last_pass_s and f"last {kind} pass {ago(self.last_pass_s + self.set_by_s)}"
            return f"degraded: {error}; {past or 'no pass was done yet'}"
        if self.last_pass_s is None:
            return "starting"
        found = ", ".join(f"{count} {name}" for name, count in sorted(self.findings.items()))
        ill = sorted(set(self.outcomes.values()) - WELL)
        passes = f"{self.passes} pass{'es' if self.passes != 1 else ''}"
        return f"{', '.join(ill) or 'up to date'}, {passes}{f'; findings: {found}' if found else ''}"

    def seen(self, name: str, error: str, now_s: float) -> "ServiceStatus":
        """Return a copy that notes the last try of a source: ``error`` is why it failed, empty if it served."""
        before_s = self.sources[name].ok_s if name in self.sources else None
        after = SourceStatus(before_s if error else now_s, error)
        others = {other: source for other, source in self.sources.items() if other != name}
        # The newest error comes first: ``sentence`` shows it rather than an older one, which may be outdated.
        return replace(self, sources={name: after, **others} if error else {**others, name: after})


def ago(then_s: float) -> str:
    """Return how long ago a moment was, for people; the clock may have been set back since."""
    past_s = round(time.time() - then_s)
    return f"{max(past_s, 0)} s ago" if past_s > -2 else f"{-past_s} s ahead of this clock"


def record_of(status: ServiceStatus) -> dict[str, Any]:
    """Return the contents of status.json, and what the verb ``status`` prints of them."""
    told = {"format": _FORMAT, **encode(status), "sentence": status.sentence(), "ready": status.is_ready}
    told |= told.pop("process")
    told.setdefault("last_pass_s", None)  # ``encode`` leaves out what is None by default
    return told


def write_status(directory: Path, status: ServiceStatus) -> None:
    """
    Replace status.json, whole or not at all; without fsync, as the file need not outlast a power cut.

    Raises:
        StateError: it cannot be written.
    """
    write_state(directory / _NAME, f"{json.dumps(record_of(status))}\n", _READABLE, lasting=False)


def read_status(directory: Path) -> ServiceStatus:
    """
    Read the status that the service wrote last.

    Raises:
        StateError: the file does not exist, cannot be read, or is not of this version.
    """
    path = directory / _NAME
    try:
        record = decode_json(read_state(path).decode())
        if record["format"] != _FORMAT:
            raise ValueError("another format")
        return decode_as(ServiceStatus, {**record, "process": record})
    except FileNotFoundError as error:
        raise StateError(
            f"there is no {path}: the service never ran with this state directory: start the service, or name its "
            f"configuration with --config-file"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StateError(f"{path} is not a status file of this version: restart the service") from error
