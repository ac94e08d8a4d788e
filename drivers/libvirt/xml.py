"""Reads libvirt's XML strictly: a missing or malformed part is an error, which ``located`` gives its source."""

from collections.abc import Iterator
from contextlib import contextmanager
from xml.etree.ElementTree import Element, ParseError, fromstring
from xml.sax.saxutils import escape

from drivers.errors import MalformedFact
from drivers.host.archive import Document

UNREAD = "unread"
MOST_PARTS = 1 << 18  # tags and attributes of a document, which take up to 400 bytes each; 4,096 CPUs have 40,000
UNITS_BYTES = {"b": 1, "bytes": 1, "KiB": 1024, "k": 1024, "MiB": 1024**2, "M": 1024**2, "GiB": 1024**3, "G": 1024**3}
_DIGITS = 20  # digits of the largest number that libvirt writes


def parse_xml(document: Document, tag: str) -> Element:
    """
    Parse a document and return its root element, which must be a ``tag``.

    Raises:
        MalformedFact: malformed XML, another root element, or a document type: libvirt writes none, and its entities
            could expand without end.
    """
    if "<!DOCTYPE" in document.text:
        raise MalformedFact(f"{document.source} declares a document type, which libvirt never does")
    if document.text.count("<") + document.text.count("=") > MOST_PARTS:
        raise MalformedFact(f"{document.source} has more than {MOST_PARTS} tags and attributes")
    try:
        root = fromstring(document.text)
    except ParseError as error:
        raise MalformedFact(f"{document.source} is not well-formed XML: {error}") from error
    if root.tag == UNREAD:
        raise MalformedFact(root.text or f"{document.source} was not read")
    if root.tag != tag:
        raise MalformedFact(f"{document.source} begins with <{root.tag}> where libvirt writes <{tag}>")
    return root


def unread(why: str) -> str:
    """Return a text that stands for XML that libvirt did not give, also in a host archive; ``parse_xml`` raises it."""
    return f"<{UNREAD}>{escape(why)}</{UNREAD}>"


@contextmanager
def located(source: str) -> Iterator[None]:
    """Let errors of the values inside the block name their source: each becomes a MalformedFact."""
    try:
        yield
    except (ValueError, RecursionError) as error:
        why = "has elements that are nested too deeply" if isinstance(error, RecursionError) else error
        raise MalformedFact(f"{source} {why}") from error


@contextmanager
def parsed(document: Document, tag: str) -> Iterator[Element]:
    """Yield the root element as ``parse_xml`` returns it; errors inside the block name the document's source."""
    root = parse_xml(document, tag)
    with located(document.source):
        yield root


def require(element: Element, path: str) -> Element:
    """Return a required element below ``element``; ValueError where it is missing."""
    found = element.find(path)
    if found is None:
        raise ValueError(f"has no <{path}> in its <{element.tag}>")
    return found


def text_of(element: Element, path: str) -> str:
    """Return the text of a required element below ``element``; ValueError where it is missing or empty."""
    text = require(element, path).findtext(".", "").strip()
    if not text:
        raise ValueError(f"has an empty <{path}>")
    return text


def attribute(element: Element, name: str) -> str:
    """Return a required attribute; ValueError where it is missing."""
    value = element.get(name)
    if value is None:
        raise ValueError(f"has a <{element.tag}> without the attribute {name}")
    return value


def is_number(text: str) -> bool:
    """Return whether a text is a whole number, not negative, of no more digits than libvirt's numbers have."""
    return text.strip().isdecimal() and len(text.strip()) <= _DIGITS


def number(text: str | None) -> int:
    """Parse a whole number, not negative; ValueError where the text is something else, or None."""
    shown = text or ""
    if not is_number(shown):
        raise ValueError(f"has {shown[:40]!r} where a whole number belongs")
    return int(shown)


def bytes_of(text: str | None, unit: str | None) -> int:
    """Parse an amount of memory, which is in KiB where no unit is named; ValueError where it is no such amount."""
    if (unit or "KiB") not in UNITS_BYTES:
        raise ValueError(f"has memory in the unit {str(unit)[:20]!r}, which libvirt does not have")
    return number(text) * UNITS_BYTES[unit or "KiB"]
