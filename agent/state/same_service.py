"""Compares the names of two placements, or of two Ironics: a URL can be written in several ways."""

import re
from urllib.parse import urlsplit, urlunsplit

URL = re.compile(r"https?://\S+", re.IGNORECASE)
DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def same_place(one: str, other: str) -> bool:
    """Whether two names differ at most in the spelling of URLs: case of the host, default port, slashes at the end."""
    return one == other or _plain(one) == _plain(other)


def _plain(name: str) -> str:
    return URL.sub(lambda found: _plain_url(found[0]), name)


def _plain_url(text: str) -> str:
    try:
        url = urlsplit(text)
    except ValueError:  # brackets that hold no address: compare the text as it is
        return text
    netloc = url.netloc.lower().removesuffix(DEFAULT_PORTS[url.scheme]).removesuffix(":")
    return urlunsplit(url._replace(netloc=netloc, path=url.path.rstrip("/")))
