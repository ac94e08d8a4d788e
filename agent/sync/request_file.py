"""Files with a request for allocation candidates."""

from pathlib import Path

from agent.errors import ConfigError
from agent.state.files import read_named
from reportclient.errors import mask, shorten
from reportclient.request import Wish, parse_request


def read_request(path: Path, option: str = "--request") -> tuple[Wish, ...]:
    """
    Read the query of a request from a file: alone, in a URL, or in a line of a log. Lines that begin with # are left.

    ``option`` is what names the file, for messages.

    Raises:
        ConfigError: the file cannot be read, or has no query.
    """
    try:
        lines = [one.strip() for one in read_named(path).splitlines()]
        told = [one for one in lines if one and not one.startswith("#")]
        if len(told) != 1:
            raise ValueError(f"it must have one request, and has {len(told)} lines")
        return parse_request(told[0])
    except OSError as error:
        raise ConfigError(
            f"{option} {path} cannot be read: {error.strerror or error}: give a file with the query in one line"
        ) from error
    except ValueError as error:
        safe = "".join(one if one.isprintable() else "?" for one in mask(str(error)))
        raise ConfigError(f"{option} {path}: {shorten(safe, head=400)}") from error
