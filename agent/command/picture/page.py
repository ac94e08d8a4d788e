"""Writes a picture: one page of HTML that needs nothing from elsewhere, or the drawing of one node alone as SVG."""

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from agent import VERSION
from agent.command.picture.drawing import clean_text, draw, guest_rules
from agent.command.picture.subjects import Subject
from agent.errors import ConfigError
from agent.state.files import replace_named

HTML, SVG = ".html", ".svg"


def write_picture(path: Path, title: str, subjects: Sequence[Subject], told: str = "") -> None:
    """
    Write a picture of these nodes, whole or not at all; the suffix of ``path`` says which kind.

    A page has below the drawings what the verb printed, ``told``.

    Raises:
        ConfigError: it cannot be written, or is of several nodes as SVG.
    """
    if path.suffix == SVG and len(subjects) != 1:
        raise ConfigError(f"{path}: a drawing alone shows one node, and there are {len(subjects)}: name a file {HTML}")
    text = page(title, subjects, told) if path.suffix == HTML else alone(subjects[0])
    try:
        replace_named(path, text)
    except OSError as error:
        raise ConfigError(f"cannot write the picture {path}: {error.strerror}") from error


def page(title: str, subjects: Sequence[Subject], told: str = "") -> str:
    """Return a page with the drawings of all subjects, and what the verb printed."""
    guests: dict[str, int] = {}
    drawn = [(subject, Markup(draw(subject, guests))) for subject in subjects]
    style = _style(guests)
    template = Environment(autoescape=True, undefined=StrictUndefined, finalize=_finalized).from_string(
        _file("page.html.j2")
    )
    return template.render(
        title=title,
        subjects=drawn,
        style=Markup(style),
        guests=bool(guests),
        hash=f"sha256-{b64encode(hashlib.sha256(style.encode()).digest()).decode()}",
        version=VERSION,
        told=told.splitlines(),
        made=datetime.now(UTC).isoformat(sep=" ", timespec="minutes"),
    )


def _finalized(value: object) -> object:
    """Return a value as the page shows it: of text from elsewhere only what can be printed."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else clean_text(value)


def alone(subject: Subject) -> str:
    """Return the drawing of one node with its own style."""
    guests: dict[str, int] = {}
    draw(subject, guests)  # numbers the guests, of which the style speaks
    return draw(subject, guests, style=_style(guests))


def _style(guests: dict[str, int]) -> str:
    return f"{_file('style.css')}{guest_rules(guests.values())}\n"


def _file(name: str) -> str:
    return files("agent.command.picture").joinpath(name).read_text(encoding="utf-8")
