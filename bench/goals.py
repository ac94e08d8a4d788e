"""What the bench holds us to, and plain text tables."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Goal:
    """One figure beside what it should be."""

    what: str
    value: str
    goal: str
    held: bool


def print_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns as wide as they need to be, figures to the right."""
    lines = [list(map(str, row)) for row in (head, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    right = [all(_is_figure(line[column]) for line in lines[1:]) for column in range(len(head))]
    lines.insert(1, ["-" * width for width in widths])
    for line in lines:
        cells = (
            cell.rjust(width) if figures else cell.ljust(width)
            for cell, width, figures in zip(line, widths, right, strict=True)
        )
        print("  ".join(cells).rstrip())


def print_summary(goals: Iterable[Goal]) -> bool:
    """All goals; answers whether all are held."""
    rows = list(goals)
    print_table(
        ("goal", "wanted", "measured", ""),
        [(goal.what, goal.goal, goal.value, "held" if goal.held else "MISSED") for goal in rows],
    )
    missed = sum(not goal.held for goal in rows)
    print(f"\n{len(rows) - missed} of {len(rows)} goals held" + (f", {missed} MISSED" if missed else ""))
    return not missed


def _is_figure(cell: str) -> bool:
    return cell[:1].isdecimal() or cell in ("", "-")
