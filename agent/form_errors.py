"""Says where a file that people write differs from the form that is read, and what is meant. Pure."""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

import jsonschema

PLAIN = 0.6  # least likeness that difflib takes by default; 1: the same
_NEAR = 0.7  # likeness of a misspelt name to the one that is meant
_LONGEST = 500  # letters of a sentence, which may have a whole record in it


def form_error(record: object, schema: Mapping[str, object]) -> str:
    """
    Return the gravest difference of a record from its JSON schema, as jsonschema says it; empty: it has that form.

    For a misspelt name with the one that is meant.
    """
    error = jsonschema.exceptions.best_match(jsonschema.Draft7Validator(schema).iter_errors(record))
    if error is None:
        return ""
    return f"{error.json_path.removeprefix('$').lstrip('.') or 'the file'}: {error.message[:_LONGEST]}{_meant(error)}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a question for the known name that ``name`` resembles most; empty: it resembles none."""
    near = most_alike(name, known, _NEAR)
    return f": is {near} meant?" if near else ""


def most_alike(name: str, known: Iterable[str], likeness: float = PLAIN) -> str:
    """Return the known name that ``name`` resembles most, at least by ``likeness`` (0 to 1); empty: there is none."""
    return next(iter(get_close_matches(name, [*known], cutoff=likeness)), "")


def _meant(error: jsonschema.ValidationError) -> str:
    found: Any = error.instance
    rule: Any = error.validator_value
    schema: Any = error.schema
    if error.validator == "enum":
        return nearest(str(found), map(str, rule))
    if error.validator == "additionalProperties":
        known = schema["properties"]
        return "".join(nearest(str(name), known) for name in found if name not in known)
    if error.validator == "pattern" and re.search(rule, found.upper()):
        return f": is {found.upper()} meant?"
    return ""
