"""libvirt's XML, read strictly: what is missing or malformed is an error that names its source."""

from xml.etree.ElementTree import Element, ParseError, fromstring

from drivers.errors import MalformedFact
from drivers.host.archive import Document

_DIGITS = 20  # of the largest number that libvirt writes


def parse_xml(document: Document, tag: str) -> Element:
    """
    The root element, which must be a ``tag``.

    Raises:
        MalformedFact: no such XML, or one with a document type: libvirt writes none, and
            entities could expand without end.
    """
    if "<!DOCTYPE" in document.text:
        raise MalformedFact(f"{document.source} declares a document type, which libvirt never does")
    try:
        root = fromstring(document.text)
    except ParseError as error:
        raise MalformedFact(f"{document.source} is not well-formed XML: {error}") from error
    if root.tag != tag:
        raise MalformedFact(f"{document.source} holds <{root.tag}> where libvirt writes <{tag}>")
    return root


def require(element: Element, path: str, source: str) -> Element:
    """A required element below ``element``."""
    found = element.find(path)
    if found is None:
        raise MalformedFact(f"{source} has no <{path}> in its <{element.tag}>")
    return found


def text_of(element: Element, path: str, source: str) -> str:
    """The text of a required element below ``element``, never empty."""
    text = require(element, path, source).text
    if not text or not text.strip():
        raise MalformedFact(f"{source} has an empty <{path}>")
    return text.strip()


def attribute(element: Element, name: str, source: str) -> str:
    """A required attribute."""
    value = element.get(name)
    if value is None:
        raise MalformedFact(f"{source} has a <{element.tag}> without {name}")
    return value


def number(text: str, source: str) -> int:
    """A whole number, not negative."""
    if not (text.strip().isdecimal() and len(text.strip()) <= _DIGITS):
        raise MalformedFact(f"{source} has {text[:40]!r} where a whole number stands")
    return int(text)
