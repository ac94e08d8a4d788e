"""The options of the verbs, as rows; those that several verbs share, as groups of rows."""

import argparse
import os.path
import re
import time
import uuid
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import NamedTuple


class Option(NamedTuple):  # a dataclass would load inspect, which --help waits for
    """One option, or an argument if its name has no dashes; without metavar and choices it is a switch."""

    name: str
    help: str
    metavar: str | None = None
    type: Callable[[str], object] = str
    choices: tuple[str, ...] | None = None
    required: bool = False
    repeated: bool = False  # may be given several times; the value is a list
    needs: tuple[str, ...] = ()  # one of these options must be given with it
    excludes: tuple[str, ...] = ()  # none of these may be given with it

    @property
    def is_switch(self) -> bool:
        """Whether the option takes no value."""
        return self.metavar is None and self.choices is None

    @property
    def attribute(self) -> str:
        """Name of the value in the parsed options."""
        return attribute_of(self.name)

    @property
    def default(self) -> object:
        """Value if the option is not given."""
        return False if self.is_switch else [] if self.repeated else None

    def accepts(self, value: object) -> bool:
        """Whether this can be the value of an option that is given once, as a saved case has it; None: not given."""
        if value is None or self.is_switch:
            return value is None or isinstance(value, bool)
        return isinstance(value, str) and (self.choices is None or value in self.choices)


def attribute_of(name: str) -> str:
    """Return the name of an option's value in the parsed options."""
    return name.lstrip("-").replace("-", "_")


def contradiction(options: argparse.Namespace, rows: Iterable[Option]) -> str:
    """Return the usage error of options that lack what they need, or exclude each other; empty: there is none."""
    given = [one for one in rows if _given(options, one.name)]
    for one in given:
        if other := next((other for other in one.excludes if _given(options, other)), ""):
            return f"{one.name} does not go with {other}: leave {other} out"
    for one in given:
        if one.needs and not any(_given(options, other) for other in one.needs):
            name = one.name if one.name.startswith("-") else one.name.upper()
            return f"{name} needs {' or '.join(one.needs)}"
    return ""


def _given(options: argparse.Namespace, name: str) -> bool:
    return getattr(options, attribute_of(name), None) not in (None, False, [])


def parse_uuid(text: str) -> str:
    """Parse the uuid of a consumer."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:60]!r} is not a uuid") from None


def parse_consumer_type(text: str) -> str:
    """Parse a consumer type as placement accepts it."""
    if not re.fullmatch("[A-Z0-9_]{1,255}", text):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a consumer type: use only A-Z, 0-9 and _")
    return text


def parse_digest(text: str) -> str:
    """Parse the digest of a plan."""
    if not re.fullmatch("[0-9a-f]{12}", text):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a digest: give the 12 hex digits that a dry run shows")
    return text


def parse_time(text: str) -> int:
    """Parse a moment, as a time or as minutes, hours or days from now, into seconds since the epoch."""
    try:
        if after := re.fullmatch("([0-9]{1,6})([mhd])", text):
            return int(time.time()) + int(after[1]) * {"m": 60, "h": 3600, "d": 86400}[after[2]]
        return int(datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is no time: give one as 2026-12-24T18:00, or 90m, 12h or 7d from now"
        ) from None


def parse_what(text: str) -> str:
    """Parse what is held: a script may give the empty value of a variable."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty: name a device by its address, or host")
    return text


def parse_new_file(text: str, example: str = "case.tar.gz") -> Path:
    """Parse the name of a file to write in a folder that is there: free, or of a regular file, which is replaced."""
    path = Path(text)
    taken = os.path.lexists(path) and (path.is_symlink() or not path.is_file())
    if text[-1:] in ("", "/") or taken or not os.path.isdir(path.parent):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the name of a regular file in a folder that exists: name a new file, for instance "
            f"{example}"
        )
    return path


def parse_picture(text: str) -> Path:
    """Parse the name of a picture to write."""
    if Path(text).suffix != ".html":
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a picture: name a file, for instance plan.html")
    return parse_new_file(text, "plan.html")


COMMON = (
    Option(
        "--config-file",
        "a configuration file, for instance /etc/nova/nova.conf; may be repeated, later files win (default "
        "/etc/compute-node-agent/compute-node-agent.conf)",
        metavar="FILE",
        type=Path,
        repeated=True,
    ),
    Option("--config-dir", "*.conf files, read after FILE; may be repeated", metavar="DIR", type=Path, repeated=True),
)
"""Options of every verb."""
PLACEMENT = (
    Option("--embedded", "use an embedded placement, which runs in this command and keeps its data in a file"),
    Option(
        "--embedded-dir",
        "folder of the embedded placement, compute_id and state (default ~/.local/share/compute-node-agent)",
        metavar="DIR",
        type=Path,
    ),
)
NOVA = "34"  # the release whose start ``upgrade check --nova`` foretells
HOST = Option(
    "--host", "read the host recorded in this folder (or .tar.gz) instead of the live host", metavar="DIR", type=Path
)
TAKE_OVER = Option(
    "--take-over", "write although another service reported this host, or may report it again; first stop that service"
)
RENAME = Option("--rename-from", "this host was called OLD: rename its providers", metavar="OLD")
PICTURE = Option(
    "--picture",
    "draw it too, in a page for a browser; replaces such a file",
    metavar="FILE.html",
    type=parse_picture,
)
ALL = Option("--all", "leave nothing out of the tables, and fold nothing that is alike")
DRY_RUN = Option("--dry-run", "only show what would be done")
WHAT = Option(
    "what",
    "a device, by the address of its card, or the word host: all of this host, which gets no new guests then",
    metavar="WHAT",
    type=parse_what,
)
YES = Option("--yes", "do it without the question that a terminal gets first")
CASE = Option(
    "--save",
    "save in this .tar.gz file all data that the verb reads, for a bug report or plan --replay: options, host, "
    "devices and CPUs of its guests, the agent's state, answers of placement; no logins, no other data of guests",
    metavar="FILE",
    type=parse_new_file,
    excludes=("--apply", "--approve", "--withdraw", "--database", "--heal", "--policy"),  # it only looks
)
DIGEST = Option(
    "--digest",
    "only the plan of this digest, as a dry run showed it",
    metavar="D",
    type=parse_digest,
    needs=("--apply", "--approve"),
)
CONSUMER = Option("consumer", "a guest's uuid", metavar="CONSUMER", type=parse_uuid, required=True)
MIGRATION = Option(
    "--migration",
    "uuid of the migration that keeps what the guest had before the move",
    metavar="UUID",
    type=parse_uuid,
    required=True,
)
REQUESTS = (
    Option(
        "--request",
        'file with one allocation request as allocation candidates give it: {"allocations": {...}}; sent unchanged',
        metavar="FILE",
        type=Path,
        required=True,
    ),
    Option(
        "--alternate",
        "file with another request, tried if there is no room for the request before; may be repeated",
        metavar="FILE",
        type=Path,
        repeated=True,
    ),
)
