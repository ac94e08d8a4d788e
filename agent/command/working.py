"""Shows on a terminal that a command works; after two seconds also what it has done so far."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task
from rich.progress_bar import ProgressBar
from rich.text import Text

from agent.connect.counts import Counts

SHORT_S = 2  # nothing is counted for a person who waits no longer
WIDE = 120  # columns of a terminal in which all fits


@contextmanager
def working(doing: str, counts: Counts) -> Iterator[None]:
    """Show it inside the block, on standard error; nothing in a pipe or a log, or if ``doing`` is empty."""
    if not doing or not sys.stderr.isatty():
        yield
        return

    console = Console(stderr=True)

    class Doing(ProgressColumn):
        """What is done; its first part alone where all would not fit beside the counts."""

        def render(self, task: Task) -> Text:
            short = (task.elapsed or 0.0) >= SHORT_S and console.width < WIDE
            return Text(doing.partition(",")[0] if short else doing)

    class Done(ProgressColumn):
        """The counts."""

        def render(self, task: Task) -> Text:
            seconds = task.elapsed or 0.0
            return Text(counts.told(seconds) if seconds >= SHORT_S else "")

    class Bar(ProgressColumn):
        """A bar where it is known how many requests come."""

        def render(self, task: Task) -> ProgressBar | Text:
            if (task.elapsed or 0.0) < SHORT_S or counts.expected <= counts.requests:
                return Text("")
            return ProgressBar(total=counts.expected, completed=counts.requests, width=16)

    with Progress(SpinnerColumn(), Doing(), Bar(), Done(), console=console, transient=True) as shown:
        shown.add_task(doing, total=None)
        yield
