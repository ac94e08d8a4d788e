"""What a log record says, with its traceback, acts on no terminal, forges no line, and has no login."""

import io
import logging
import sys

import pytest

from agent.records import clean
from reportclient.errors import mask, shorten

EVIL = "http://user:secret@there/ \x1b[2J\x9b\u202e\nERROR forged"


@pytest.mark.parametrize("how", ["traceback", "kept traceback", "stack"])
def test_a_record_with_a_traceback_has_only_its_own_lines(how: str) -> None:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.addFilter(clean)
    try:
        raise ValueError(EVIL)
    except ValueError:
        record = logging.LogRecord("library", logging.ERROR, __file__, 1, "failed: %s", (EVIL,), sys.exc_info())
    if how == "kept traceback":
        record.exc_text = f"Traceback\nValueError: {EVIL}"
    if how == "stack":
        record.exc_info, record.stack_info = None, f'Stack\n  File "{EVIL}"'
    handler.handle(record)

    told = out.getvalue()
    first, *rest = told.split("\n")[:-1]
    assert first == r"failed: http://***@there/ \x1b[2J\x9b\u202e\nERROR forged"
    assert "  ERROR forged" in "".join(rest)
    assert all(line.startswith("  ") for line in rest)
    assert not {"\x1b", "\x9b", "\u202e"} & {*told}
    assert "secret" not in told


def test_a_long_text_of_beginnings_of_urls_is_masked_whole_and_at_once() -> None:
    hostile = "://" * 1_000_000

    assert mask(f"before {hostile}x@host after") == "before *** after"
    assert mask("see http://user:pass@host/a and 'http://u:p@other'") == "see http://***@host/a and 'http://***@other'"
    assert [mask("http://a/" * number) for number in (16, 17)] == ["http://a/" * 16, "***"]


def test_a_long_text_is_shortened_to_its_ends() -> None:
    head, tail = "a" * 90, "b" * 70

    assert shorten(f"  {head}{tail}\n") == head + tail
    assert shorten(f"{head}-{tail}") == f"{head} ... {tail}"
