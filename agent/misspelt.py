"""The known name that is meant by a misspelt one. Pure."""

from collections.abc import Iterable
from difflib import get_close_matches

PLAIN = 0.6  # least likeness that difflib takes by default; 1: the same
_NEAR = 0.7  # likeness of a misspelt name to the one that is meant


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a question for the known name that ``name`` resembles most; empty: it resembles none."""
    near = most_alike(name, known, _NEAR)
    return f": is {near} meant?" if near else ""


def most_alike(name: str, known: Iterable[str], likeness: float = PLAIN) -> str:
    """Return the known name that ``name`` resembles most, by ``likeness`` (0 to 1) or by its letters; empty: none."""
    names = [*known]
    swapped = (one for one in names if sorted(one) == sorted(name))
    return next(iter((*get_close_matches(name, names, cutoff=likeness), *swapped)), "")
