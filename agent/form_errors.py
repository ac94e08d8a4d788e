"""Says in plain words where a file that people write differs from the form that is read, and what is meant. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

import jsonschema

_KINDS = {
    "array": "a list",
    "object": "a group of keys",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "nothing",
}
PLAIN = 0.6  # least likeness that difflib takes by default; 1: the same
_NEAR = 0.7  # likeness of a misspelt name to the one that is meant
_LONGEST = 60  # letters of a wrong value that are shown


def form_error(record: object, schema: Mapping[str, object]) -> str:
    """Return a sentence on the gravest difference of a record from its JSON schema; empty: it has that form."""
    error = jsonschema.exceptions.best_match(jsonschema.Draft7Validator(schema).iter_errors(record))
    if error is None:
        return ""
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path).lstrip(".")
    return f"{place or 'the file'} {_told(error)}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a question for the known name that ``name`` resembles most; empty: it resembles none."""
    near = most_alike(name, known, _NEAR)
    return f": is {near} meant?" if near else ""


def most_alike(name: str, known: Iterable[str], likeness: float = PLAIN) -> str:
    """Return the known name that ``name`` resembles most, at least by ``likeness`` (0 to 1); empty: there is none."""
    return next(iter(get_close_matches(name, [*known], 1, likeness)), "")


def _told(error: jsonschema.ValidationError) -> str:
    rule: object = error.validator
    wanted: Any = error.validator_value
    found: Any = error.instance
    known: list[str] = [*_schema(error).get("properties", ())]
    if rule == "type":
        kinds = [wanted] if isinstance(wanted, str) else wanted
        return f"must be {' or '.join(_KINDS[kind] for kind in kinds)}, and is {_shown(found)}"
    if rule == "enum":
        names = [*map(str, wanted)]
        return f"has {_shown(found)}, which is none of {', '.join(names)}{nearest(str(found), names)}"
    if rule == "required":
        missing = [name for name in wanted if name not in found]
        return f"lacks {', '.join(missing)}"
    if rule == "additionalProperties":
        return "; ".join(f"has {name}, which is not read{nearest(name, known)}" for name in _strange(error))
    if rule in ("minProperties", "maxProperties"):
        return f"must have {'at least' if rule == 'minProperties' else 'at most'} {wanted} of {', '.join(known)}"
    if rule == "pattern":
        return f"is {_shown(found)}, which is not spelt as {wanted}"
    if rule in ("minimum", "maximum"):
        return f"must be {'at least' if rule == 'minimum' else 'at most'} {wanted}, and is {_shown(found)}"
    return f"is wrong: {error.message[:300]}"


def _strange(error: jsonschema.ValidationError) -> Iterator[str]:
    """Yield the keys of a record that its form does not have."""
    record: Any = error.instance
    schema = _schema(error)
    for name in map(str, record):
        if name not in schema.get("properties", ()) and not any(
            re.search(pattern, name) for pattern in schema.get("patternProperties", ())
        ):
            yield name


def _schema(error: jsonschema.ValidationError) -> Mapping[str, Any]:
    return error.schema if isinstance(error.schema, Mapping) else {}


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "empty"
    text = (
        repr(value)
        if isinstance(value, str | int | float)
        else _KINDS["object" if isinstance(value, dict) else "array"]
    )
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
