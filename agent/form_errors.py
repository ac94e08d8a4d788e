"""Says where a file that people write differs from the form that is read, and what is meant. Pure."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

import jsonschema

PLAIN = 0.6  # least likeness that difflib takes by default; 1: the same
_NEAR = 0.7  # likeness of a misspelt name to the one that is meant
_LONGEST = 500  # letters of a sentence, which may have a whole record in it


def form_error(record: object, schema: Mapping[str, object]) -> str:
    """Return the gravest difference of a record from its JSON schema, as jsonschema says it; empty: there is none."""
    error = jsonschema.exceptions.best_match(jsonschema.Draft7Validator(schema).iter_errors(record))
    if error is None:
        return ""
    return f"{error.json_path.removeprefix('$').lstrip('.') or 'the file'}: {error.message[:_LONGEST]}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a question for the known name that ``name`` resembles most; empty: it resembles none."""
    near = most_alike(name, known, _NEAR)
    return f": is {near} meant?" if near else ""


def most_alike(name: str, known: Iterable[str], likeness: float = PLAIN) -> str:
    """Return the known name that ``name`` resembles most, by ``likeness`` (0 to 1) or by its letters; empty: none."""
    names = [*known]
    swapped = (one for one in names if sorted(one) == sorted(name))
    return next(iter((*get_close_matches(name, names, cutoff=likeness), *swapped)), "")
