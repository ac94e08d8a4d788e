"""Carry out a verb for this host or for bare-metal nodes, and print its result, or why it failed."""

import argparse
import json
import logging
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime

import yaml

from agent import VERSION
from agent.command import (
    adopt_verb,
    allocation_verbs,
    audit_verb,
    check,
    explain,
    hold_verbs,
    host_verbs,
    node_verbs,
    record,
    service_verbs,
)
from agent.command.exits import Exit
from agent.command.picture.page import write_picture
from agent.command.result import Act, Report, configured_layout, settings_of
from agent.command.saved_cases import replaying, saving
from agent.command.verbs import Verb
from agent.connect.choice import lists_nodes
from agent.connect.senders import Trace
from agent.errors import USER_ERRORS, ConfigError, StateError
from agent.records import clean
from agent.sync.json_form import encode
from drivers.errors import PolicyError
from reportclient.errors import printable

ACTS: Mapping[str, Act] = {
    "discover": host_verbs.discover,
    "show": host_verbs.show,
    "plan": host_verbs.plan,
    "sync": host_verbs.sync,
    "reshape": host_verbs.reshape,
    "undo": host_verbs.undo,
    "record": record.record,
    "upgrade": service_verbs.upgrade,
    "adopt": adopt_verb.adopt,
    "bundle": record.bundle,
    "explain": explain.explain,
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
    "hold": hold_verbs.start_hold,
    "release-hold": hold_verbs.end_hold,
    "check": check.check,
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
    """Run the verb, print its result, and return the exit code; of an error that a user can cause only the message."""
    with ExitStack() as opened:  # a case, until all is printed
        try:
            if getattr(options, "replay", None):
                verb = opened.enter_context(replaying(options))
            options.trace = Trace()
            act: Act = (OF_NODES if verb.name in OF_NODES and _is_bare_metal(options) else ACTS)[verb.name]
            with saving(verb, options) as unwritten, _working(verb, options):
                report = act(options)
            return _print(verb, options, report, unwritten) if report else Exit.DONE
        except USER_ERRORS as error:
            if isinstance(error, PolicyError):  # a rule often matches too much by such a mistake
                for text in check.doubtful_names(settings_of(options)):
                    error.add_note(f"configuration: {text}")
            lines = (*getattr(error, "problems", (str(error),)), *getattr(error, "__notes__", ()))
            print(*map(printable, lines), sep="\n", file=sys.stderr)
            _print_failure(options, type(error).__name__, "\n".join(lines), Exit.ERROR)
            return Exit.ERROR
        except KeyboardInterrupt as interrupt:
            _print_failure(options, type(interrupt).__name__, "interrupted", Exit.INTERRUPTED)
            raise


def _show(text: str) -> None:
    """Write to the terminal; one that went away ends no write to placement in its middle, and hides no error."""
    with suppress(OSError):
        print(text, end="", file=sys.stderr, flush=True)


class _LastLine(logging.Handler):
    """Shows the last record in a line that the next one replaces; one that is also logged ends that line."""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()[: shutil.get_terminal_size().columns - 1]
        _show(f"{'' if record.levelno >= logging.WARNING else text}\033[K\r")


@contextmanager
def _working(verb: Verb, options: argparse.Namespace) -> Iterator[None]:
    """Show inside the block, on a terminal, what was done last; nothing where it is logged."""
    if verb.logs or options.verbose or not sys.stderr.isatty():
        yield
        return
    root, shown = logging.getLogger(), _LastLine()
    for handler in root.handlers:
        handler.setLevel(logging.WARNING)
    for package in ("agent", "drivers", "reportclient"):
        logging.getLogger(package).setLevel(logging.INFO)
    shown.addFilter(clean)
    root.handlers.insert(0, shown)
    try:
        _show(f"{verb.name} is under way\r")
        yield
    finally:
        root.removeHandler(shown)
        _show("\033[K")


def _print(verb: Verb, options: argparse.Namespace, report: Report, unwritten: list[str]) -> int:
    """Print a report, and write its picture; with a file that is ``unwritten``, for these reasons, it is an error."""
    lines = [printable(line) for line in report.lines]
    if picture := getattr(options, "picture", None):
        try:
            if not report.subjects:
                raise ConfigError(f"--picture {picture}: there is nothing to draw")
            title = f"{verb.name} of {', '.join(one.node for one in report.subjects)}"
            write_picture(picture, title, report.subjects, lines)
        except (ConfigError, StateError) as error:
            unwritten.append(str(error))
    remarks = [*report.remarks, *unwritten]
    if options.format == "table":
        print(*lines, sep="\n", end="\n" if lines else "")
    else:
        _print_data(options, {**report.data, "remarks": remarks})
    sys.stdout.flush()
    print(*map(printable, remarks), sep="\n", end="\n" if remarks else "", file=sys.stderr)
    return Exit.ERROR if unwritten else report.exit


def _is_bare_metal(options: argparse.Namespace) -> bool:
    """Return whether the configured driver lists bare-metal nodes; False if the configuration is wrong."""
    try:
        return lists_nodes(settings_of(options))
    except ConfigError:
        return False  # the verb reads the same files and reports what is wrong in them


def _print_failure(options: argparse.Namespace, kind: str, message: str, ending: Exit) -> None:
    """Print for programs why a verb failed, if they asked for data."""
    if options.format != "table":
        _print_data(options, {"error": {"kind": kind, "message": message, "exit": int(ending)}})
        with suppress(OSError):
            sys.stdout.flush()


def _print_data(options: argparse.Namespace, data: Mapping[str, object]) -> None:
    """Print values by their keys, with what the run is about, as ``json`` or ``yaml``."""
    told = encode({**data, "about": _about(options)})
    if options.format == "yaml":
        print(yaml.safe_dump(told, sort_keys=True), end="")
    else:
        print(json.dumps(told, indent=1, sort_keys=True))


def _about(options: argparse.Namespace) -> dict[str, object]:
    """
    Return what a run is about, as far as it came.

    ``time`` is when it is printed, ``layout`` the configured one, ``target`` the one that the run plans, by --to or as
    configured (None: bare metal, or the configuration cannot be read), ``request_id`` that of all requests of the run.
    """
    trace: Trace = getattr(options, "trace", None) or Trace()
    layout = target = None
    with suppress(ConfigError):
        if not lists_nodes(settings_of(options)):
            layout, target = configured_layout(options), settings_of(options).policy.layout
    return {
        "verb": options.verb,
        "version": VERSION,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "nodes": trace.nodes,
        "placement": trace.placement or None,
        "layout": layout,
        "target": target,
        "request_id": trace.request_id,
    }
