"""Asks the person at the terminal."""

import sys
from collections.abc import Callable

from agent.command.screen import Screen


def agreed(show: Callable[[Screen], None], question: str) -> bool:
    """Show what it is about and ask, and return whether the answer begins with y; without a terminal nobody agrees."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    show(Screen(stderr=True))
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower().startswith("y")
