"""The verb ``upgrade check``: whether this host is ready for this version, with the codes of ``nova-status``."""

import argparse
from enum import IntEnum
from functools import partial

from agent import VERSION
from agent.command.check import check_host
from agent.command.host_tables import print_upgrade
from agent.command.result import Report, choice_of, settings_of
from agent.command.results import Check, Graded, Upgrade
from agent.errors import ConfigError, StateError
from agent.service.status import is_running, read_status
from agent.sync.outcome import Status


class Code(IntEnum):
    """Result of a check, and exit code of the verb: the highest of all (nova, doc/source/cli/nova-status.rst)."""

    SUCCESS = 0
    WARNING = 1  # the service runs, and a person should look
    FAILURE = 2  # the service would not pass


_MILD = frozenset({"clock", "nova", "service", "approval", "devices", "storage", "provider_config", "passwords"})


def upgrade(options: argparse.Namespace) -> Report:
    """Report what a pass of this version would meet on this host; writes nothing."""
    choice = choice_of(options)
    checks = [*check_host(choice, partial(settings_of, options)), *_running(options)]
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
    if not is_running(found) or found["version"] == VERSION:
        return [Check("service", True, f"no service of another version than {VERSION} runs")]
    return [Check("service", False, f"the service that runs is {found['version']}, and this is {VERSION}: restart it")]
