"""Asks the person at the terminal."""

import sys
from collections.abc import Callable
from typing import Any

from agent.command.screen import Screen
from reportclient.errors import printable


def agreed(table: Callable[[Screen, Any], None], data: object, question: str) -> bool:
    """Show what it is about and ask, and return whether the answer begins with y; without a terminal nobody agrees."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    Screen(stderr=True).show(table, data)
    print(f"{printable(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower().startswith("y")
