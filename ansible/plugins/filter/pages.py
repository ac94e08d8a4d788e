"""Draws pages on the controller from what hosts printed: each text is a text there, and nothing else."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

DOCUMENTATION = """
name: page
short_description: Draw a page
description: Draws a page of HTML from data, with all texts escaped.
positional: name
options:
  _input:
    description: The data, as the JSON of this name in the folder has it.
    type: raw
    required: true
  name:
    description: Which page it is.
    type: str
    required: true
"""
EXAMPLES = """
page: "{{ summary | compute_node_agent.fleet.page('index') }}"
"""
RETURN = """
_value:
  description: The page.
  type: str
"""

PAGES = Path(__file__).parents[2] / "roles/fleet/templates/pages"
LARGEST = 10**15  # of an amount; placement's own are below 2**31


def page(data: Any, name: str) -> str:
    """Return the page of this name, whose policy allows its own style and script alone, by their hashes."""
    # Ansible's own templates do not escape, with ansible-core 2.19 not even in {% autoescape true %}.
    pages = Environment(
        loader=FileSystemLoader(PAGES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        extensions=["jinja2.ext.do"],
        trim_blocks=True,
    )
    style, script = (Markup((PAGES / file).read_text(encoding="utf-8")) for file in ("style.css", "script.js"))
    return pages.get_template(f"{name}.html.j2").render(
        data=data, style=style, script=script, style_hash=_hash(style), script_hash=_hash(script)
    )


def amounts(capacity: Any) -> dict[str, Any]:
    """
    Return the sums of a plan before and after it, as they are if they are amounts.

    Raises:
        ValueError: another value, which would break the sums of the whole fleet.
    """
    sides, sums = ("before", "after"), ("total", "capacity", "used")
    return {
        str(name): {side: {one: _amount(told[side][one]) for one in sums} for side in sides}
        for name, told in capacity.items()
    }


def _amount(told: Any) -> int:
    if not isinstance(told, int) or abs(told) > LARGEST:
        raise ValueError("the capacity of this plan has a value that is no amount: look at the host")
    return told


def _printable(value: Any) -> Any:
    """Return a value without characters that a person cannot see, such as those that turn the direction of a line."""
    if isinstance(value, Markup):
        return value
    return "".join(one if one.isprintable() or one == "\n" else "�" for one in str(value))


def _hash(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


class FilterModule:
    """The filters of this collection."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"page": page, "amounts": amounts}
