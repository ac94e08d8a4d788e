"""Places a tree as nested boxes, the way a diagram of hardware has it. Pure; lengths are CSS pixels."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

LETTER = 6.95  # width of a letter at the size of the text
LINE = 17.0
PAD = 8.0
GAP = 8.0
_CHIP = 19.0
_CHIP_GAP = 4.0
_BESIDES = 18.0  # of a chip, left and right of its text
_LEAST = 176.0  # width of a box without children
_LEAST_HELD = 280.0  # of one with chips
_LEAST_CELL = 300.0  # and of one with children


@dataclass(frozen=True, slots=True)
class Chip:
    """What one guest has on a provider; placed by its left upper corner."""

    guest: str  # uuid of the consumer
    text: str
    moves: bool  # whether it is counted elsewhere before or after
    wrong: bool = False  # whether an audit found something about it
    shown: str = ""  # as much of the text as there is room for; empty: all
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        return len(self.shown or self.text) * LETTER + _BESIDES


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A provider, or several alike, with its lines of text, the chips of its guests and what is below it."""

    name: str
    label: str  # the name as it is written: without that of the root, or those of several alike
    head: tuple[str, ...] = ()  # the label in lines, once it is placed
    mark: str  # as ``agent.command.changes.Mark``
    lines: tuple[str, ...] = ()
    chips: tuple[Chip, ...] = ()
    below: tuple["Box", ...] = ()
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0
    height: float = 0.0

    def every(self) -> Iterable["Box"]:
        """Iterate over this box and all below it, outer ones first."""
        yield self
        for box in self.below:
            yield from box.every()


def place_boxes(box: Box, x: float, y: float, width: float) -> Box:
    """Return the box and all in it with their places; it is as high as it must be."""
    inner = width - 2 * PAD
    head = tuple(_wrapped(box.label, inner))
    lines = tuple(part for line in box.lines for part in _wrapped(line, inner))
    chips, down = _place_chips(box.chips, x + PAD, y + PAD + LINE * len(head + lines) + 4, inner)
    below, down = _place_below(box.below, x + PAD, down, inner)
    placed = replace(box, head=head, lines=lines, chips=chips, below=below)
    return replace(placed, x=x, y=y, width=width, height=down - y + PAD / 2)


def _place_chips(chips: Sequence[Chip], x: float, y: float, width: float) -> tuple[tuple[Chip, ...], float]:
    found: list[Chip] = []
    right = x
    for chip in chips:
        fitting = _shortened(chip, width)
        if right + fitting.width > x + width:
            right, y = x, y + _CHIP + _CHIP_GAP
        found.append(replace(fitting, x=right, y=y))
        right += fitting.width + _CHIP_GAP
    return tuple(found), y + (_CHIP + PAD if found else 0)


def _shortened(chip: Chip, width: float) -> Chip:
    most = int((width - _BESIDES) / LETTER)
    return chip if len(chip.text) <= most else replace(chip, shown=f"{chip.text[: most - 1]}…")


def _place_below(boxes: Sequence[Box], x: float, y: float, width: float) -> tuple[tuple[Box, ...], float]:
    """Place boxes in columns of equal width, row by row."""
    if not boxes:
        return (), y
    least = max(_LEAST_CELL if box.below else _LEAST_HELD if box.chips else _LEAST for box in boxes)
    columns = max(1, min(len(boxes), int((width + GAP) / (least + GAP))))
    each = (width - GAP * (columns - 1)) / columns
    found: list[Box] = []
    for start in range(0, len(boxes), columns):
        row = [
            place_boxes(box, x + number * (each + GAP), y, each)
            for number, box in enumerate(boxes[start : start + columns])
        ]
        found += row
        y += max(box.height for box in row) + GAP
    return tuple(found), y


def _wrapped(text: str, width: float) -> list[str]:
    """Return a text in lines of at most this width, broken between words, and inside a word that is too long."""
    most = max(8, int(width / LETTER))
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > most:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
        while len(lines[-1]) > most:
            lines[-1:] = [lines[-1][:most], lines[-1][most:]]
    return lines


def corners(box: Box) -> Mapping[tuple[str, str], Chip]:
    """Return the chips of a placed tree by (provider, guest)."""
    return {(one.name, chip.guest): chip for one in box.every() for chip in one.chips}
