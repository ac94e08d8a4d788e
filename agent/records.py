"""Records of the log as they may be printed: what other services wrote cannot act there, and there is no login."""

import logging

from reportclient.errors import mask, printable


def clean(record: logging.LogRecord) -> bool:
    """Mask logins, escape control characters, and indent tracebacks, so that no line within looks like a record."""
    record.msg, record.args = printable(mask(record.getMessage())), None
    if record.exc_info and not record.exc_text:
        record.exc_text = logging.Formatter().formatException(record.exc_info)
    record.exc_text, record.stack_info = _indented(record.exc_text), _indented(record.stack_info)
    return True


def _indented(text: str | None) -> str | None:
    return text and "\n".join(f"  {printable(line.removeprefix('  '))}" for line in mask(text).split("\n"))
