"""The result of a verb, and what its options name: the host, the placement, and the wishes of a person."""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from agent.command.exits import Exit
from agent.command.picture.subjects import Subject
from agent.connect.choice import Choice, node_of, open_client, open_driver, settings_for
from agent.settings.read import Settings
from agent.sync.decide.view import Wishes
from agent.sync.node import ComputeNode
from agent.sync.outcome import Status
from reportclient.client import PlacementClient
from reportclient.errors import printable

ENDINGS = {
    **dict.fromkeys((Status.UNCHANGED, Status.CREATED, Status.CHANGED, Status.DELETED), Exit.DONE),
    **dict.fromkeys((Status.GOING, Status.LEFT), Exit.DONE),
    **dict.fromkeys((Status.RESHAPE_NEEDED, Status.MISFIT, Status.HELD, Status.STRAY), Exit.DIFFERENCES),
    **dict.fromkeys((Status.UNSAFE, Status.OTHER_PLAN, Status.AUDIT_ONLY), Exit.REFUSED),
    **dict.fromkeys((Status.CONTESTED, Status.REFUSED), Exit.REFUSED),
    **dict.fromkeys((Status.FAILED, Status.UNFINISHED), Exit.ERROR),
}
"""The exit code for one root that ended with this status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Result of a verb: data for programs, lines for people, and the exit code."""

    data: Mapping[str, object]  # values by the keys of their JSON, as ``encode`` makes it
    lines: Iterable[str]  # what a person reads instead; gone through once
    exit: int = Exit.DONE  # one of Exit, or of the verb's own codes
    remarks: Sequence[str] = ()  # lines for people, on standard error
    subjects: Sequence[Subject] = ()  # what --picture draws; empty: nothing


Act = Callable[[argparse.Namespace], Report | None]  # function of a verb; None: it printed its result itself


def whole(options: argparse.Namespace) -> bool:
    """Return whether a person wants all of a tree: nothing is left out of the lines, and nothing folded."""
    return getattr(options, "all", False) or getattr(options, "picture", None) is not None


def can_ask() -> bool:
    """Return whether somebody is there to be asked: a terminal for the question, and one for the answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def asks(options: argparse.Namespace) -> bool:
    """Return whether a verb asks before it takes something away: on a terminal, without --yes."""
    return can_ask() and not options.yes


def agreed(lines: Iterable[str], question: str) -> bool:
    """Show what it is about and ask, and return whether the answer begins with y; without a terminal nobody agrees."""
    if not can_ask():
        return False
    print("\033[K", end="", file=sys.stderr)  # in place of the line that shows what is done
    print(*map(printable, lines), f"{printable(question)} [y/N] ", sep="\n", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower().startswith("y")


def choice_of(options: argparse.Namespace) -> Choice:
    """Return the host and the placement that the command line names."""
    return Choice(
        config_files=tuple(options.config_file),
        config_dirs=tuple(options.config_dir),
        embedded=getattr(options, "embedded", False) or getattr(options, "embedded_dir", None) is not None,
        embedded_dir=getattr(options, "embedded_dir", None),
        host=getattr(options, "host", None),
        layout=getattr(options, "to", None),
        database=getattr(options, "database", None),
        recorder=getattr(options, "recorder", None),
        case=getattr(options, "case", None),
        service=getattr(options, "verb", "") == "check",  # which finds what the service would not start with
        **({"trace": options.trace} if hasattr(options, "trace") else {}),
    )


def wishes_of(options: argparse.Namespace) -> Wishes:
    """Return what the command line asks of a pass; options that the verb does not have count as not given."""
    return Wishes(
        force=getattr(options, "force", False),
        take_over=getattr(options, "take_over", False),
        rename_from=getattr(options, "rename_from", None),
        deep=getattr(options, "deep", None),
        confirm_by_s=getattr(options, "confirm_within", None) or 0.0,
        undone=getattr(options, "undone", None),
        configured=getattr(options, "configured", None),
    )


def settings_of(options: argparse.Namespace) -> Settings:
    """
    Return the settings of a run; the files are read once, at the first call.

    Raises:
        ConfigError: as ``settings_for``.
    """
    if getattr(options, "settings", None) is None:
        options.settings = settings_for(choice_of(options))
    settings: Settings = options.settings
    return settings


def configured_layout(options: argparse.Namespace) -> str:
    """Return the layout of the configuration, which --to does not change; errors as ``settings_for``."""
    choice = choice_of(options)
    return (settings_for(replace(choice, layout=None)) if choice.layout else settings_of(options)).policy.layout


def placement_of(options: argparse.Namespace, *, writes: bool = False) -> tuple[PlacementClient, str]:
    """Return the client of a run and the name of its placement, opened at the first call; errors as ``open_client``."""
    if getattr(options, "opened", None) is None:
        options.opened = open_client(settings_of(options), choice_of(options), writes=writes)
    opened: tuple[PlacementClient, str] = options.opened
    return opened


@contextmanager
def open_host(options: argparse.Namespace, *, writes: bool = False) -> Iterator[ComputeNode]:
    """
    Open the node that the driver reports, and before it placement, which needs no look at the host.

    Raises:
        ConfigError, StateError, DiscoveryError: as ``open_client`` and ``open_driver``.
    """
    choice = choice_of(options)
    settings = settings_of(options)
    if (patience := getattr(options, "patience", None)) is not None:
        settings = replace(settings, changes=replace(settings.changes, reshape_timeout_s=patience))
    client, where = placement_of(options, writes=writes)
    with open_driver(settings, choice) as driver:
        yield node_of(driver, client, settings, where, choice)
