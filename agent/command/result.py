"""The result of a verb, and the host and the placement that its options name."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from agent.command.exits import Exit
from agent.command.picture.subjects import Subject
from agent.command.screen import Screen
from agent.connect.choice import Choice, node_of, open_client, open_driver, settings_for
from agent.settings.read import Settings
from agent.sync.node import ComputeNode
from reportclient.client import PlacementClient

Printer = Callable[[Screen, Any], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Result of a verb: data for programs, the printer for people, and the exit code."""

    data: object  # a value, of agent.command.results for instance; --format json prints it as JSON
    table: Printer  # prints it for people
    each: Sequence[object] | None = None  # printed one by one instead of the data; None: the data is
    exit: int = Exit.DONE  # one of Exit, or of the verb's own codes
    remarks: Sequence[str] = ()  # lines for people, on standard error
    subjects: Sequence[Subject] = ()  # what --picture draws; empty: nothing


Act = Callable[[argparse.Namespace], Report | None]  # function of a verb; None: it printed its result itself


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
        **({"trace": options.trace} if hasattr(options, "trace") else {}),
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
