"""Writes a picture: one page of HTML that needs nothing from elsewhere; the browser places the boxes."""

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from agent import VERSION
from agent.command.picture.subjects import Subject
from agent.errors import ConfigError
from agent.state.files import replace_file

COLOURS = 12
_MARKS = {" ": "", "+": "made", "-": "gone", "~": "changed", ">": "put", "!": "wrong"}


def write_picture(path: Path, title: str, subjects: Sequence[Subject], told: Sequence[str] = ()) -> None:
    """
    Write a picture of these nodes, whole or not at all, with what the verb printed, ``told``.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        replace_file(path, page(title, subjects, told), named=True)
    except OSError as error:
        raise ConfigError(f"cannot write the picture {path}: {error.strerror}") from error


def page(title: str, subjects: Sequence[Subject], told: Sequence[str] = ()) -> str:
    """Return a page with the trees of all subjects, and what the verb printed."""
    boxes = (box for subject in subjects for _, root in subject.trees for box in root.every())
    named = dict.fromkeys(chip.guest for box in boxes for chip in box.chips)
    guests = {guest: number for number, guest in enumerate(named)}
    # Pointing at one chip of a guest lights all that is of this guest.
    lit = (f"body:has(.g{guest}:is(:hover,:focus)) .g{guest}{{opacity:1}}\n" for guest in guests.values())
    style = f"{_file('style.css')}{''.join(lit)}"
    template = Environment(autoescape=True, undefined=StrictUndefined, finalize=_finalized).from_string(
        _file("page.html.j2")
    )
    return template.render(
        title=title,
        subjects=subjects,
        guests=guests,
        marks=_MARKS,
        colours=COLOURS,
        told=told,
        changes=any(len(one.trees) > 1 for one in subjects),
        style=Markup(style),
        hash=f"sha256-{b64encode(hashlib.sha256(style.encode()).digest()).decode()}",
        version=VERSION,
        made=datetime.now(UTC).isoformat(sep=" ", timespec="minutes"),
    )


def _finalized(value: object) -> object:
    """Return a value as the page shows it: of text from elsewhere only what can be printed."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return "".join(one if one.isprintable() else "�" for one in value)


def _file(name: str) -> str:
    return files("agent.command.picture").joinpath(name).read_text(encoding="utf-8")
