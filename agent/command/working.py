"""Shows on a terminal that a command works, and for how long."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


@contextmanager
def working(doing: str) -> Iterator[None]:
    """Show it inside the block, on standard error; nothing in a pipe or a log, or if ``doing`` is empty."""
    if not doing or not sys.stderr.isatty():
        yield
        return

    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        shown.add_task(doing, total=None)
        yield
