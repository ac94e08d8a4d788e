"""Carries a verb out: about this host or about bare-metal nodes, and prints what it found."""

import argparse
import json
import sys
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pkgutil import resolve_name

from agent.command.exits import Exit
from agent.command.result import Act, Printer, Report
from agent.command.verbs import VERBS, Verb
from agent.connect.choice import BareMetal
from agent.errors import ConfigError


def carry_out(verb: Verb, options: argparse.Namespace) -> Exit:
    """
    Carry out one verb and print what it found.

    Raises:
        ConfigError, StateError, DiscoveryError, PolicyError, PlacementError: each a message for the user.
    """
    if getattr(options, "replay", None):
        from agent.command.cases import replay

        return replay(options, carry_out)
    with _working(verb):
        if getattr(options, "save", None):
            from agent.command.cases import save

            report = save(verb, options, partial(_report, verb))
        else:
            report = _report(verb, options)
    if report is None:
        return Exit.DONE
    _print(options.format, report)
    if report.remark:
        print(report.remark, file=sys.stderr)
    return report.exit


def _report(verb: Verb, options: argparse.Namespace) -> Report | None:
    """What a verb found, about this host or about bare-metal nodes; None if it printed that itself."""
    act: Act = resolve_name(verb.function)
    try:
        return act(options)
    except BareMetal:
        return _of_nodes(verb, options)(options)


def _of_nodes(verb: Verb, options: argparse.Namespace) -> Act:
    """A verb as it is for bare-metal nodes."""
    if not verb.nodes:
        raise ConfigError(
            f"{verb.name} looks at a hypervisor, and [DEFAULT] compute_driver is of bare metal: for that there are "
            f"{', '.join(one.name for one in VERBS.values() if one.nodes)}"
        )
    for name in ("host", "rename_from"):
        if getattr(options, name, None):
            raise ConfigError(f"--{name.replace('_', '-')} is of a hypervisor, and compute_driver is of bare metal")
    act: Act = resolve_name(verb.nodes)
    return act


def _working(verb: Verb) -> AbstractContextManager[object]:
    """Inside, a terminal shows that something is being done; a pipe or a log sees nothing of it."""
    if not verb.doing or not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(verb.doing)


def _print(form: str, report: Report) -> None:
    """Data for programs, or a table for people."""
    if form == "json":
        print(json.dumps(report.data, indent=1, sort_keys=True))
    elif form == "yaml":
        import yaml

        yaml.safe_dump(report.data, sys.stdout, sort_keys=True)
    else:
        _print_table(report)


def _print_table(report: Report) -> None:
    from agent.command.host_tables import console

    table: Printer = resolve_name(report.table)
    out = console()
    for data in (report.data,) if report.each is None else report.each:
        table(out, data)
