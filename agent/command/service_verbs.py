"""The verbs about the service on this host: run it, its status, and whether the host is ready for it, or for more."""

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from enum import IntEnum

from agent import VERSION
from agent.command.check import Check, check_host
from agent.command.exits import Exit
from agent.command.novas_start import CHANGE, foretell
from agent.command.result import Report, choice_of, settings_of
from agent.command.wording import columns
from agent.errors import ConfigError, StateError
from agent.service.cases import case_files
from agent.service.loop import run_service
from agent.service.status import WELL, ServiceStatus, ago, read_status, record_of
from agent.sync.approvals import tell_approvals
from agent.sync.outcome import Status


class Code(IntEnum):
    """Result of a check, and exit code of ``upgrade``: the highest of all (nova, doc/source/cli/nova-status.rst)."""

    SUCCESS = 0
    WARNING = 1  # the service runs, and a person should look
    FAILURE = 2  # the service would not pass


_MILD = frozenset({CHANGE, "clock", "nova", "service", "approval", "devices", "memory", "storage", "provider_config"})


def run(options: argparse.Namespace) -> None:
    """Run the service until a signal ends it; errors as ``run_service``."""
    run_service(replace(choice_of(options), service=True), options.verbose)


def status(options: argparse.Namespace) -> Report:
    """Report the status that the service wrote last, with cases and approvals."""
    directory = settings_of(options).folders.state
    found = read_status(directory)
    refused = set(found.outcomes.values()) - WELL
    well = found.is_ready and found.is_running and not found.is_late and not refused
    well = well and not (options.strict and any(found.findings.values()))
    told = tell_approvals(directory)
    cases = case_files(directory)
    about = {"cases": cases, "approvals": told, "running": found.is_running, "late": found.is_late}
    about["ready"] = found.is_ready and found.is_running
    named = (f"case: {case} (plan --replay repeats it)" for case in cases)
    return Report(
        data={**record_of(found), **about},
        lines=[*_status_lines(found), *named, *told],
        exit=Exit.DONE if well else Exit.DIFFERENCES,
    )


def _status_lines(status: ServiceStatus) -> Iterator[str]:
    """Yield what the service last wrote about itself: a sentence, sources with their age, outcomes, its last pass."""
    sentence, set_by_s = status.sentence(), status.set_by_s
    ahead_s = status.written_s + set_by_s - time.time()
    if not status.is_running:
        sentence = f"not running; its last status: {sentence}"
    elif abs(set_by_s) > status.interval_s and not status.is_late:
        sentence = (
            f"the clock of this host was set by {set_by_s:+.0f} s since the last status, and is or was wrong: set it, "
            f"for instance by NTP; the last status: {sentence}"
        )
    elif status.is_late and ahead_s > 0:
        sentence = (
            f"the clock is wrong, or was: status.json was written {ahead_s:.0f} s ahead of it: set it, for instance by "
            f"NTP; the last status: {sentence}"
        )
    elif status.is_late:
        sentence = (
            f"late: status.json is {status.age_s:.0f} s old, as the service hangs or cannot write it: look at its log; "
            f"its last status: {sentence}"
        )
    yield sentence
    rows = [
        (name, ago(one.ok_s + set_by_s) if one.ok_s else "never", one.error or "ok")
        for name, one in status.sources.items()
    ]
    yield from columns(rows, heads=("source", "last answered", "now"))
    yield from (f"{node}: {outcome}" for node, outcome in status.outcomes.items())
    yield from (f"  {note}" for note in status.notes)
    if status.last_pass_s:
        yield f"last pass {ago(status.last_pass_s + set_by_s)}, in {status.took_s:.2f} s"
    yield f"pid {status.process.pid}, version {status.process.version}"


def upgrade(options: argparse.Namespace) -> Report:
    """Report what a pass of this version would meet on this host; writes nothing."""
    checks = [*check_host(options), *_running(options), *(foretell(options) if options.nova else ())]
    graded = [(one, _grade(one, options)) for one in checks]
    rows = [(one.check, code.name.lower(), one.detail) for one, code in graded]
    return Report(
        data={
            "version": VERSION,
            "checks": [dict(zip(("check", "result", "detail"), row, strict=True)) for row in rows],
        },
        lines=columns(rows, heads=("check", "result", "what was found")),
        exit=max((code for _, code in graded), default=Code.SUCCESS),
    )


def _grade(check: Check, options: argparse.Namespace) -> Code:
    if check.ok:
        return Code.WARNING if check.doubt and check.check == "memory" else Code.SUCCESS  # guests pay for that
    slips = check.check == "configuration" and getattr(options, "settings", None) is not None  # it could be read
    waits = check.check == "tree" and Status.RESHAPE_NEEDED.value in check.detail
    return Code.WARNING if slips or waits or check.check in _MILD else Code.FAILURE


def _running(options: argparse.Namespace) -> list[Check]:
    """Return whether the service that runs is of this version."""
    try:
        found = read_status(settings_of(options).folders.state)
    except ConfigError:
        return []  # which is told
    except StateError as error:
        never_ran = isinstance(error.__cause__, FileNotFoundError)
        return [] if never_ran else [Check("service", False, str(error))]
    if not found.is_running or found.process.version == VERSION:
        return [Check("service", True, f"no service of another version than {VERSION} runs")]
    return [
        Check("service", False, f"the service that runs is {found.process.version}, and this is {VERSION}: restart it")
    ]
