"""What a person sees: tables, in colour and as wide as the terminal, or plain in a pipe; that it works; questions."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from reportclient.errors import printable

PIPE_WIDTH = 150
LONG = 24  # providers: a tree of more is shortened, unless a person wants all of it
SHOWN_GUESTS = 20  # one by one; of more, those alike are summed


class Screen(Console):
    """Standard output; ``whole`` tells that nothing is to be left out or folded."""

    def __init__(self, *, whole: bool = False, **options: object) -> None:
        super().__init__(markup=False, highlight=False, **options)  # type: ignore[arg-type]
        self.whole = whole

    def show(self, table: Callable[["Screen", Any], None], data: object) -> None:
        """Print data by its printer; what other services wrote into it cannot act on the terminal."""
        table(self, _printable(data))


def screen(*, whole: bool = False) -> Screen:
    """Open standard output, as wide as the terminal or, in a pipe, wide enough for a line of a tree."""
    return Screen(whole=whole, width=None if sys.stdout.isatty() else PIPE_WIDTH)


def plain_screen() -> Screen:
    """Return a screen for a file: without colours, and it leaves nothing out."""
    return Screen(whole=True, width=PIPE_WIDTH, color_system=None, force_terminal=False)


@contextmanager
def working(verb: str) -> Iterator[None]:
    """Show inside the block that this verb works, on standard error; nothing in a pipe or a log, or for no verb."""
    if not verb or not sys.stderr.isatty():
        yield
        return

    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        shown.add_task(verb, total=None)
        yield


def agreed(table: Callable[[Screen, Any], None], data: object, question: str) -> bool:
    """Show what it is about and ask, and return whether the answer begins with y; without a terminal nobody agrees."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    Screen(stderr=True).show(table, data)
    print(f"{printable(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower().startswith("y")


def _printable(data: Any) -> Any:
    match data:
        case str():
            return printable(data)
        case PurePath():
            return type(data)(printable(str(data)))
        case Mapping():
            return {_printable(key): _printable(value) for key, value in data.items()}
        case list() | tuple() | frozenset():
            return type(data)(map(_printable, data))
        case _ if is_dataclass(data):
            shown = copy(data)  # without its checks: they were made of the texts as they are
            for one in fields(data):
                object.__setattr__(shown, one.name, _printable(getattr(data, one.name)))
            return shown
        case _:
            return data
