"""What a verb answers, and what it was told about host and placement."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agent.command.exits import Exit
from agent.connect.choice import Choice

Printer = Callable[[Any, Any], None]  # (rich console, data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a verb found: data for programs, how people see it, and how it ended."""

    data: dict[str, Any]
    table: Printer
    exit: Exit = Exit.DONE
    remark: str = ""  # for people, on standard error


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
