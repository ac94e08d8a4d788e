"""How people read what the verbs found: columns, amounts, guests and traits. Pure."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from reportclient.allocations import Move

T = TypeVar("T")

FAMILIES = (
    "COMPUTE_GRAPHICS_MODEL_", "COMPUTE_IMAGE_TYPE_", "COMPUTE_NET_VIF_MODEL_", "COMPUTE_SECURITY_",
    "COMPUTE_SOUND_MODEL_", "COMPUTE_STORAGE_BUS_", "COMPUTE_VIOMMU_MODEL_", "COMPUTE_",
    "HW_CPU_X86_", "HW_", "CUSTOM_",
)  # fmt: skip
_NAMED = 3  # of things alike
LONG = 24  # providers: a tree of more is shortened, unless a person wants all of it
SHOWN_GUESTS = 20  # one by one; of more, those alike are told once


def columns(rows: Iterable[Sequence[str]], *, heads: Sequence[str] = (), indent: str = "") -> list[str]:
    """Return rows, below their headings, as lines whose cells begin below each other; none for no rows."""
    if not (every := [*rows]):
        return []
    if heads:
        every.insert(0, heads)
    widths = [max(map(len, column)) for column in zip(*every, strict=True)]
    padded = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in every)
    return [f"{indent}{line}".rstrip() for line in padded]


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, which gets an s unless it is one."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def grouped(keyed: Iterable[tuple[Hashable, T]]) -> list[list[T]]:
    """Return the things of one key together, in the order of the first of each; those of the key None stay alone."""
    groups: dict[Hashable, list[T]] = {}
    for number, (key, one) in enumerate(keyed):
        groups.setdefault((key, number if key is None else None), []).append(one)
    return [*groups.values()]


def alike(names: Sequence[str]) -> str:
    """Return the names of things that are alike: all of up to three, else the first two, the last, and how many."""
    if len(names) <= _NAMED:
        return ", ".join(names)
    return f"{names[0]}, {names[1]} … {names[-1]} ({len(names)} alike)"


def written_amounts(resources: Mapping[str, int]) -> str:
    """Return amounts by class as text."""
    return ", ".join(f"{amount} {name}" for name, amount in resources.items())


def moved(move: Move) -> str:
    """Return what a move moves, and the classes that it gets where these change."""
    became = f" as {written_amounts(move.to_resources)}" if move.to_resources else ""
    return written_amounts(move.moved_resources) + became


def guest(consumer: str, names: Mapping[str, str]) -> str:
    """Return a consumer with the name of its guest, where the host knows one."""
    return f"{names[consumer]} {consumer}" if consumer in names else consumer


def families(traits: Iterable[str]) -> list[tuple[str, str]]:
    """Group traits by their prefix, for one line each: (prefix, the rest of each name)."""
    found: dict[str, list[str]] = {}
    for trait in traits:
        family = next((prefix for prefix in FAMILIES if trait.startswith(prefix)), "")
        found.setdefault(family, []).append(trait.removeprefix(family))
    return [(f"{family}… " if len(ends) > 1 else family, " ".join(ends)) for family, ends in sorted(found.items())]
