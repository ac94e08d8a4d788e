"""What a verb answers, and what it was told about host and placement."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.command.exits import Exit
from agent.connect.choice import Choice

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a verb found: data for programs, how people see it, and how it ended."""

    data: dict[str, Any]
    table: str  # the Printer, as "module:function": rich is loaded when something is printed
    each: str = ""  # what of the data is a list of which each is printed; empty: the data is printed
    exit: Exit = Exit.DONE
    remark: str = ""  # for people, on standard error


Act = Callable[[argparse.Namespace], Report | None]  # a verb's function; None if it printed what it found itself
Printer = Callable[["Console", dict[str, Any]], None]


def choice_of(options: argparse.Namespace) -> Choice:
    """The host and the placement that the command line names."""
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
    )
