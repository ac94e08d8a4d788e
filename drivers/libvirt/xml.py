"""Reads libvirt's XML strictly: a missing or malformed part is a MalformedFact that names its source."""

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


def require(element: Element, path: str, source: str) -> Element:
    """Return a required element below ``element``; MalformedFact where it is missing."""
    found = element.find(path)
    if found is None:
        raise MalformedFact(f"{source} has no <{path}> in its <{element.tag}>")
    return found


def text_of(element: Element, path: str, source: str) -> str:
    """Return the text of a required element below ``element``; MalformedFact where it is missing or empty."""
    text = require(element, path, source).findtext(".", "").strip()
    if not text:
        raise MalformedFact(f"{source} has an empty <{path}>")
    return text


def attribute(element: Element, name: str, source: str) -> str:
    """Return a required attribute; MalformedFact where it is missing."""
    value = element.get(name)
    if value is None:
        raise MalformedFact(f"{source} has a <{element.tag}> without the attribute {name}")
    return value


def is_number(text: str) -> bool:
    """Return whether a text is a whole number, not negative, of no more digits than libvirt's numbers have."""
    return text.strip().isdecimal() and len(text.strip()) <= _DIGITS


def number(text: str | None, source: str) -> int:
    """Parse a whole number, not negative; MalformedFact where the text is something else, or None."""
    shown = text or ""
    if not is_number(shown):
        raise MalformedFact(f"{source} has {shown[:40]!r} where a whole number belongs")
    return int(shown)


def bytes_of(text: str | None, unit: str | None, source: str) -> int:
    """Parse an amount of memory, which is in KiB where no unit is named; MalformedFact where it is no such amount."""
    if (unit or "KiB") not in UNITS_BYTES:
        raise MalformedFact(f"{source} has memory in the unit {str(unit)[:20]!r}, which libvirt does not have")
    return number(text, source) * UNITS_BYTES[unit or "KiB"]
