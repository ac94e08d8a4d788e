"""Carry out a verb for this host or for bare-metal nodes, and print its result, or why it failed."""

import argparse
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from agent.command import (
    adopt_verb,
    allocation_verbs,
    audit_verb,
    bundle_verb,
    host_verbs,
    node_verbs,
    record,
    service_verbs,
    undo_verb,
)
from agent.command.data import about, print_data, print_failure
from agent.command.doubts import doubtful_names
from agent.command.exits import Exit
from agent.command.picture.page import write_picture
from agent.command.result import Act, Report, settings_of
from agent.command.saved_cases import replay, save
from agent.command.screen import Screen, plain_screen, screen, working
from agent.command.verbs import Verb
from agent.connect.choice import HypervisorNeeded, lists_nodes
from agent.connect.senders import Trace
from agent.errors import USER_ERRORS, ConfigError, StateError
from agent.sync.case import check_folder
from agent.sync.json_form import encode
from drivers.errors import PolicyError
from reportclient.errors import printable

ACTS: Mapping[str, Act] = {
    "discover": host_verbs.discover,
    "show": host_verbs.show,
    "plan": host_verbs.plan,
    "sync": host_verbs.sync,
    "reshape": host_verbs.reshape,
    "undo": undo_verb.undo,
    "record": record.record,
    "upgrade": service_verbs.upgrade,
    "adopt": adopt_verb.adopt,
    "bundle": bundle_verb.bundle,
    "explain": host_verbs.explain,
    "claim": allocation_verbs.claim,
    "move": allocation_verbs.move,
    "confirm": allocation_verbs.confirm,
    "revert": allocation_verbs.revert,
    "release": allocation_verbs.release,
    "audit": audit_verb.audit,
    "run": service_verbs.run,
    "status": service_verbs.status,
    "retire": host_verbs.retire,
    "hand-over": host_verbs.hand_over,
    "check": host_verbs.check,
}
OF_NODES: Mapping[str, Act] = {
    "discover": node_verbs.discover_nodes,
    "show": node_verbs.show_nodes,
    "plan": node_verbs.plan_nodes,
    "sync": node_verbs.sync_nodes,
    "check": node_verbs.check_nodes,
}
"""The function for bare-metal nodes; a verb without one is only for a hypervisor."""


def run_command(verb: Verb, options: argparse.Namespace) -> int:
    """Run the verb; print an error that a user can cause as a message, and for programs as data; no traceback."""
    try:
        result = carry_out(verb, options)
        sys.stdout.flush()
        return result
    except USER_ERRORS as error:
        lines = (*getattr(error, "problems", (str(error),)), *getattr(error, "__notes__", ()))
        print(*map(printable, lines), sep="\n", file=sys.stderr)
        print_failure(options, error, Exit.ERROR)
        return Exit.ERROR
    except KeyboardInterrupt as interrupt:
        print_failure(options, interrupt, Exit.INTERRUPTED)
        raise


def carry_out(verb: Verb, options: argparse.Namespace) -> int:
    """
    Carry out one verb, print its result, and return the exit code.

    Raises:
        ConfigError, StateError, DiscoveryError, PolicyError, PlacementError: each a message for the user.
    """
    if getattr(options, "replay", None):
        return replay(options, carry_out)
    picture: Path | None = getattr(options, "picture", None)
    if picture:
        check_folder(picture, "picture")
    options.trace = Trace()
    with working("" if verb.asks or verb.logs else verb.name), _explained(verb, options):
        act: Act = (OF_NODES if verb.name in OF_NODES and _is_bare_metal(options) else ACTS)[verb.name]
        report = save(verb, options, act) if getattr(options, "save", None) else act(options)
    if report is None:
        return Exit.DONE
    if picture:
        report = _drawn(picture, verb, report)
    _print(options, report)
    for remark in report.remarks:
        print(printable(remark), file=sys.stderr)
    return report.exit


def _drawn(path: Path, verb: Verb, report: Report) -> Report:
    """Write the picture of a report, and return the report; where there is no picture, it says why: the rest stands."""
    try:
        if not report.subjects:
            raise ConfigError(f"--picture {path}: there is nothing to draw")
        title = f"{verb.name} of {', '.join(one.node for one in report.subjects)}"
        write_picture(path, title, report.subjects, _told(report, plain_screen()))
    except (ConfigError, StateError) as error:
        return replace(report, exit=Exit.ERROR, remarks=(*report.remarks, str(error)))
    return report


@contextmanager
def _explained(verb: Verb, options: argparse.Namespace) -> Iterator[None]:
    """
    Add to the errors of a verb what a person should know of them.

    Raises:
        ConfigError: the verb needs a hypervisor, and the configured driver reports bare-metal nodes. As ``carry_out``.
            A PolicyError also notes what is doubtful in the files: a rule often matches too much by such a mistake.
    """
    try:
        yield
    except HypervisorNeeded as error:
        raise ConfigError(
            f"{verb.name} works only on a hypervisor, and [DEFAULT] compute_driver is for bare metal: use one of "
            f"{', '.join(OF_NODES)}"
        ) from error
    except PolicyError as error:
        for text in doubtful_names(settings_of(options)):
            error.add_note(f"configuration: {text}")
        raise


def _is_bare_metal(options: argparse.Namespace) -> bool:
    """Return whether the configured driver lists bare-metal nodes; False if the configuration is wrong."""
    try:
        return lists_nodes(settings_of(options))
    except ConfigError:
        return False  # the verb reads the same files and reports what is wrong in them


def _print(options: argparse.Namespace, report: Report) -> None:
    """Print the data for programs, or a table for people."""
    if options.format == "table":
        _print_table(report, whole=getattr(options, "all", False))
        return

    print_data(options.format, {**encode(report.data), "about": about(options), "remarks": report.remarks})


def _print_table(report: Report, *, whole: bool) -> None:
    out = screen(whole=whole)
    if out.is_terminal:
        _show(report, out)
    else:
        print(_told(report, out), end="")


def _told(report: Report, out: Screen) -> str:
    """Return what a screen shows, without blanks at the ends of lines."""
    with out.capture() as captured:
        _show(report, out)
    return "\n".join(line.rstrip() for line in captured.get().split("\n"))


def _show(report: Report, out: Screen) -> None:
    for data in (report.data,) if report.each is None else report.each:
        out.show(report.table, data)
