"""Draws placed boxes as SVG: no script, no font and no file from elsewhere; colours come from the style sheet."""

from collections.abc import Iterable
from xml.etree.ElementTree import Element, SubElement, tostring

from agent.command.picture.boxes import LINE, PAD, Box, Chip, corners, place_boxes
from agent.command.picture.subjects import Subject

WIDTH = 1340.0
COLOURS = 12
_PAGE = 2 * WIDTH  # height of what is still read easily on one sheet
_BETWEEN = 90.0  # for the links between two trees
_TOP = 26.0  # for the titles of the trees
_MARKS = {" ": "", "+": "made", "-": "gone", "~": "changed", ">": "put", "!": "wrong"}
_SVG = "http://www.w3.org/2000/svg"


def draw(subject: Subject, guests: dict[str, int], *, style: str = "") -> str:
    """
    Return the trees of a subject as SVG.

    ``guests`` numbers the guests of the whole picture; new ones are added. With ``style`` the drawing stands alone.
    """
    each = (WIDTH - _BETWEEN * (len(subject.trees) - 1)) / len(subject.trees)
    placed = {
        title: place_boxes(root, number * (each + _BETWEEN), _TOP, each)
        for number, (title, root) in enumerate(subject.trees)
    }
    height = max(box.y + box.height for box in placed.values()) + PAD
    names = f"drawing{' tall' if height > WIDTH else ''}{' long' if height > _PAGE else ''}"
    attributes = {"viewBox": f"-2 0 {WIDTH + 4:g} {height:.0f}", "class": names, "role": "group"}
    svg = Element("svg", {**attributes, "aria-label": clean_text(f"provider tree of {subject.node}")})
    if style:
        svg.set("xmlns", _SVG)
        SubElement(svg, "style").text = style
    for title, box in placed.items():
        _text(svg, box.x + PAD, _TOP - PAD, f"{subject.node}, {title}", "title")
    for box in placed.values():
        for one in box.every():
            _draw_box(svg, one)
    if len(placed) == 2:
        before, after = placed.values()
        _draw_links(svg, subject, before, after, guests)
    for box in placed.values():
        for one in box.every():
            for chip in one.chips:
                _draw_chip(svg, chip, one, subject, guests)
    return tostring(svg, encoding="unicode")


def _draw_box(svg: Element, box: Box) -> None:
    group = SubElement(svg, "g", {"class": f"box {_MARKS[box.mark]}".strip()})
    SubElement(group, "title").text = clean_text(box.name)
    place_ = {"x": _n(box.x), "y": _n(box.y), "width": _n(box.width), "height": _n(box.height), "rx": "5"}
    SubElement(group, "rect", place_)
    down = box.y + PAD + LINE - 5
    for line in box.head:
        _text(group, box.x + PAD, down, line, "name")
        down += LINE
    for line in box.lines:
        _text(group, box.x + PAD, down, line, "stock")
        down += LINE


def _draw_chip(svg: Element, chip: Chip, box: Box, subject: Subject, guests: dict[str, int]) -> None:
    number = guests.setdefault(chip.guest, len(guests))
    names = f"chip g{number} c{number % COLOURS}{' moves' if chip.moves else ''}{' wrong' if chip.wrong else ''}"
    whose = f"{subject.names.get(chip.guest, 'consumer')} {chip.guest}"
    told = clean_text(f"{whose} on {box.name}: {chip.text.partition(': ')[2]}")
    group = SubElement(svg, "g", {"class": names, "tabindex": "0", "role": "img", "aria-label": told})
    SubElement(group, "title").text = told
    size = {"x": _n(chip.x), "y": _n(chip.y), "width": _n(chip.width), "height": "19", "rx": "4"}
    SubElement(group, "rect", size)
    SubElement(group, "rect", {**size, "width": "5", "class": "mark", "rx": "2"})
    _text(group, chip.x + 11, chip.y + 14, chip.shown or chip.text, "")


def _draw_links(svg: Element, subject: Subject, before: Box, after: Box, guests: dict[str, int]) -> None:
    """Join each guest's chip on the left with those on the right to which its amounts go."""
    left, right = corners(before), corners(after)
    for guest, source, target in dict.fromkeys(subject.links):
        start, end = left.get((source, guest)), right.get((target, guest))
        if start is None or end is None:
            continue
        number = guests.setdefault(guest, len(guests))
        x, y, to_x, to_y = start.x + start.width, start.y + 9.5, end.x, end.y + 9.5
        bend = max(40.0, (to_x - x) / 2)
        path = f"M{_n(x)} {_n(y)}C{_n(x + bend)} {_n(y)} {_n(to_x - bend)} {_n(to_y)} {_n(to_x)} {_n(to_y)}"
        SubElement(svg, "path", {"d": path, "class": f"link g{number} c{number % COLOURS}"})


def _text(parent: Element, x: float, y: float, text: str, kind: str) -> None:
    SubElement(parent, "text", {"x": _n(x), "y": _n(y), **({"class": kind} if kind else {})}).text = clean_text(text)


def clean_text(text: str) -> str:
    """Return a text without characters that XML cannot have."""
    return "".join(one if one.isprintable() else "�" for one in text)


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def guest_rules(numbers: Iterable[int]) -> str:
    """Return the style by which pointing at one chip of a guest lights all that is of this guest."""
    rules = []
    for one in numbers:
        near = f":has(.g{one}:is(:hover,:focus))"
        rules.append(f".drawing{near} .g{one}{{opacity:1;--lit:1;stroke-width:2.5}}")
    return "\n".join(rules)
