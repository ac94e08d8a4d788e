"""Names that resemble a misspelt one. Pure."""

from collections.abc import Iterable
from difflib import get_close_matches

PLAIN = 0.6  # least likeness that difflib takes by default; 1: the same


def most_alike(name: str, known: Iterable[str], likeness: float = PLAIN) -> str:
    """Return the known name that ``name`` resembles most, at least by ``likeness`` (0 to 1); empty: there is none."""
    return next(iter(get_close_matches(name, [*known], 1, likeness)), "")
