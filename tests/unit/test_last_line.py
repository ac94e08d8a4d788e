"""What a terminal shows while a verb works: the last thing done, without logins, and without harm to the work."""

import argparse
import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr

from agent.command.carry_out import _working
from agent.command.verbs import VERBS

LOG = logging.getLogger("agent.somewhere")


class Terminal(io.StringIO):
    gone = False

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self.gone:
            raise OSError(5, "Input/output error")
        return super().write(text)


@contextmanager
def working() -> Iterator[Terminal]:
    """A verb works on a terminal, on which warnings are logged too."""
    terminal, root = Terminal(), logging.getLogger()
    handlers, levels = root.handlers[:], {name: logging.getLogger(name).level for name in ("agent", "drivers")}
    root.handlers[:] = [logging.StreamHandler(terminal)]
    try:
        with redirect_stderr(terminal), _working(VERBS["sync"], argparse.Namespace(verbose=0)):
            yield terminal
    finally:
        root.handlers[:] = handlers
        for name, level in (*levels.items(), ("reportclient", levels["agent"])):
            logging.getLogger(name).setLevel(level)


def test_a_login_in_what_was_done_is_not_shown() -> None:
    with working() as terminal:
        LOG.info("asked %s", "https://nova:secret@placement.example/")

    assert "asked https://***@placement.example/" in terminal.getvalue()
    assert "secret" not in terminal.getvalue()


def test_a_warning_stands_in_a_line_of_its_own() -> None:
    with working() as terminal:
        LOG.info("created provider name=a-long-name")
        LOG.warning("short")

    assert "a-long-name\033[K\r\033[K\rshort\n" in terminal.getvalue()
    assert terminal.getvalue().count("short") == 1


def test_a_terminal_that_goes_away_stops_no_work() -> None:
    done = []
    with working() as terminal:
        terminal.gone = True
        LOG.info("created provider")
        done.append("the next request")
        terminal.gone = False

    assert done
