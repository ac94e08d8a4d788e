"""What the service knows of itself, in a file that anybody on the host can read: the verb ``status`` and probes do."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from agent.errors import StateError
from agent.sync.outcome import Status

_NAME = "status.json"
STUCK_S = 300  # without any progress, or three periods: then the loop hangs
WELL = frozenset({Status.UNCHANGED.value, Status.CHANGED.value})  # outcomes that nobody needs to look at
_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    """One of those that a pass reads or writes: the host, placement."""

    ok_s: float | None = None  # when (seconds since the epoch) it last served; None: never
    error: str = ""  # why it does not now; empty: it does


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatus:
    """The whole of it."""

    version: str
    pid: int
    started_s: float
    passes: int = 0
    last_pass_s: float | None = None  # the end of the last one that was done
    took_s: float = 0.0  # that one
    interval_s: int = 60
    outcomes: Mapping[str, str] = field(default_factory=dict)  # by node; of many only those that are not well
    notes: tuple[str, ...] = ()
    findings: Mapping[str, int] = field(default_factory=dict)  # by kind, of the last audit
    sources: Mapping[str, SourceStatus] = field(default_factory=dict)

    @property
    def errors(self) -> list[str]:
        return [one.error for one in self.sources.values() if one.error]

    @property
    def is_ready(self) -> bool:
        """Whether a pass was done, and all that it needs served at the last try; it may have been refused."""
        return self.last_pass_s is not None and not self.errors and Status.FAILED.value not in self.outcomes.values()

    def sentence(self) -> str:
        """One line, as ``systemctl status`` shows it."""
        if self.errors:
            since = f"; last good pass {_age(self.last_pass_s)}" if self.last_pass_s else "; no pass was done yet"
            return f"degraded: {self.errors[0]}{since}"
        if self.last_pass_s is None:
            return "starting"
        wrong = {name: count for name, count in self.findings.items() if count}
        found = ", ".join(f"{count} {name}" for name, count in sorted(wrong.items()))
        ill = sorted(set(self.outcomes.values()) - WELL)
        passes = f"{self.passes} pass{'es' if self.passes != 1 else ''}"
        return f"{', '.join(ill) or 'up to date'}, {passes}{f'; findings: {found}' if found else ''}"

    def seen(self, name: str, error: str, now_s: float) -> "ServiceStatus":
        """The same after a source was tried; without an error it served."""
        before = self.sources.get(name, SourceStatus())
        after = replace(before, error=error) if error else SourceStatus(ok_s=now_s)
        others = {other: source for other, source in self.sources.items() if other != name}
        # What is wrong now goes before what was wrong earlier, and is not known to be right yet.
        return replace(self, sources={name: after, **others} if error else {**others, name: after})


def write_status(directory: Path, status: ServiceStatus) -> None:
    """
    Replace the file, whole or not at all; it need not outlast a power cut, and is not waited for on the disk.

    Raises:
        StateError: it cannot be written.
    """
    path = directory / _NAME
    try:
        directory.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".json.new")
        draft.write_text(json.dumps(_encode(status)) + "\n", encoding="utf-8")
        draft.chmod(0o644)  # for probes of other users, whatever our umask is
        draft.rename(path)
    except OSError as error:
        raise StateError(f"cannot write {path}: {error.strerror}: set [agent] state_directory") from error


def _encode(status: ServiceStatus) -> dict[str, object]:
    told = {one.name: getattr(status, one.name) for one in fields(status)}
    told["sources"] = {name: {"ok_s": one.ok_s, "error": one.error} for name, one in status.sources.items()}
    return {"format": _FORMAT, **told, "sentence": status.sentence(), "ready": status.is_ready}


def read_status(directory: Path) -> dict[str, Any]:
    """
    What the service last said of itself.

    Raises:
        StateError: it never did, or the file is none of its.
    """
    path = directory / _NAME
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if record["format"] != _FORMAT:
            raise ValueError("another format")
    except FileNotFoundError as error:
        raise StateError(f"there is no {path}: the service never ran with this state directory") from error
    except OSError as error:
        raise StateError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StateError(f"{path} is no status of this version: restart the service") from error
    return record


def is_running(record: Mapping[str, Any]) -> bool:
    """Whether the process that wrote a status is there."""
    return Path(f"/proc/{record['pid']}").exists()


def is_late(record: Mapping[str, Any]) -> bool:
    """Whether a service that was well has made no pass for so long that its loop must hang."""
    longest_s = max(STUCK_S, 3 * record["interval_s"])
    return bool(record["ready"]) and time.time() - record["last_pass_s"] > longest_s


def _age(since_s: float | None) -> str:
    return f"{time.time() - since_s:.0f} s ago" if since_s else "never"
