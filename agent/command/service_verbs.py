"""The verbs about the service on this host: run it, its status, and whether the host is ready for an upgrade."""

import argparse
from dataclasses import replace
from enum import IntEnum

from agent import VERSION
from agent.command.check import check_host
from agent.command.exits import Exit
from agent.command.host_tables import print_status, print_upgrade
from agent.command.result import Report, choice_of, settings_of
from agent.command.results import Check, Graded, ShownStatus, Upgrade
from agent.errors import ConfigError, StateError
from agent.service.cases import case_files
from agent.service.loop import run_service
from agent.service.status import WELL, read_status
from agent.sync.journal import tell_approvals
from agent.sync.outcome import Status


class Code(IntEnum):
    """Result of a check, and exit code of ``upgrade``: the highest of all (nova, doc/source/cli/nova-status.rst)."""

    SUCCESS = 0
    WARNING = 1  # the service runs, and a person should look
    FAILURE = 2  # the service would not pass


_MILD = frozenset({"clock", "nova", "service", "approval", "devices", "storage", "provider_config", "passwords"})


def run(options: argparse.Namespace) -> None:
    """Run the service until a signal ends it; errors as ``run_service``."""
    run_service(replace(choice_of(options), service=True), options.verbose)


def status(options: argparse.Namespace) -> Report:
    """Report the status that the service wrote last, with cases and approvals."""
    directory = settings_of(options).folders.state
    found = read_status(directory)
    refused = set(found.outcomes.values()) - WELL
    well = found.is_ready and found.is_running and not found.is_late and not refused
    data = ShownStatus(status=found, cases=tuple(case_files(directory)), approvals=tell_approvals(directory))
    ending = Exit.DONE if well else Exit.DIFFERENCES
    return Report(data=data, table=print_status, exit=ending)


def upgrade(options: argparse.Namespace) -> Report:
    """Report what a pass of this version would meet on this host; writes nothing."""
    checks = [*check_host(options), *_running(options)]
    graded = [(one, _grade(one, options)) for one in checks]
    data = Upgrade(VERSION, tuple(Graded(one.check, code.name.lower(), one.detail) for one, code in graded))
    worst = max((code for _, code in graded), default=Code.SUCCESS)
    return Report(data=data, table=print_upgrade, exit=worst)


def _grade(check: Check, options: argparse.Namespace) -> Code:
    if check.ok:
        return Code.SUCCESS
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
