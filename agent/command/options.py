"""The options of the verbs, as rows; those that several verbs share, as groups of rows."""

import argparse
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple


class Option(NamedTuple):  # a dataclass would load inspect, which --help waits for
    """One option, or by a name without dashes an argument; it is a switch if it has no metavar and no choices."""

    name: str
    help: str
    metavar: str | None = None
    type: Callable[[str], object] = str
    choices: tuple[str, ...] | None = None
    required: bool = False
    repeated: bool = False  # the values are a list

    @property
    def is_switch(self) -> bool:
        return self.metavar is None and self.choices is None

    @property
    def attribute(self) -> str:
        """The name of the value among those that were parsed."""
        return self.name.lstrip("-").replace("-", "_")

    @property
    def default(self) -> object:
        return False if self.is_switch else [] if self.repeated else None


Row = Option | tuple[Option, ...]  # of the options of a tuple at most one may be given
Contradiction = tuple[Callable[[argparse.Namespace], object], str]  # true for wrong options, and the usage error


def parse_uuid(text: str) -> str:
    """Parse the uuid of a consumer."""
    import uuid

    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:60]!r} is no uuid") from None


def parse_consumer_type(text: str) -> str:
    """Parse a consumer type as placement accepts it."""
    if not re.fullmatch("[A-Z0-9_]{1,255}", text):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no consumer type: those are of A-Z, 0-9 and _")
    return text


def parse_digest(text: str) -> str:
    """Parse the digest of a plan."""
    if not re.fullmatch("[0-9a-f]{12}", text):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no digest: a dry run shows it, 12 hex digits")
    return text


def only_looking(*writing: str) -> tuple[Contradiction, ...]:
    """Contradictions of --save with each of these options."""
    return tuple(
        (partial(_both, "save", name), f"--save goes with a look alone, not with --{name}") for name in writing
    )


def _both(first: str, second: str, options: argparse.Namespace) -> bool:
    return bool(getattr(options, first) and getattr(options, second))


PLACEMENT = (
    Option("--embedded", "report to a placement of your own, kept in a file"),
    Option(
        "--embedded-dir",
        "where that is kept, with compute_id and state (default ~/.local/share/compute-node-agent)",
        metavar="DIR",
        type=Path,
    ),
)
HOST = (
    Option(
        "--host",
        "look at the host recorded in this folder (or .tar.gz) instead of the live one",
        metavar="DIR",
        type=Path,
    ),
)
RENAME = (Option("--rename-from", "this host was called OLD: rename its providers", metavar="OLD"),)
DRY_RUN = (Option("--dry-run", "only show what would be done"),)
CASE = (
    Option(
        "--save",
        "keep all that is read in this .tar.gz, without secrets, for a bug report or another look",
        metavar="FILE",
        type=Path,
    ),
)
CONSUMER = (Option("consumer", "a guest's uuid", metavar="CONSUMER", type=parse_uuid, required=True),)
MIGRATION_OPTION = (
    Option("--migration", "who keeps what the guest had, of the move", metavar="UUID", type=parse_uuid, required=True),
)
REQUESTS = (
    Option(
        "--request",
        'one allocation request as allocation candidates give it: {"allocations": {...}}, passed on as it is',
        metavar="FILE",
        type=Path,
        required=True,
    ),
    Option(
        "--alternate",
        "another one, for when that has no room; may be repeated",
        metavar="FILE",
        type=Path,
        repeated=True,
    ),
    Option("--fit", "ask only for what fits the cells and devices that this host really has"),
)
USER_ALONE: Contradiction = (lambda options: options.user and not options.project, "--user goes with --project")
