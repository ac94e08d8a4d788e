"""When two names of a placement, or of an Ironic, are of the same place: a URL can be written in several ways."""

import re
from urllib.parse import urlsplit, urlunsplit

URL = re.compile(r"https?://\S+", re.IGNORECASE)
DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def same_place(one: str, other: str) -> bool:
    """Whether two names are alike but for how their URLs are written: case of the host, default port, last slashes."""
    return one == other or _plain(one) == _plain(other)


def _plain(name: str) -> str:
    return URL.sub(lambda found: _plain_url(found[0]), name)


def _plain_url(text: str) -> str:
    try:
        url = urlsplit(text)
    except ValueError:  # brackets that are no address: as it is written
        return text
    netloc = url.netloc.lower().removesuffix(DEFAULT_PORTS[url.scheme]).removesuffix(":")
    return urlunsplit(url._replace(netloc=netloc, path=url.path.rstrip("/")))
