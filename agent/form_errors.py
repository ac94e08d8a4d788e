"""Says where a file that people write differs from the form that is read. Pure."""

from collections.abc import Mapping

import jsonschema

_LONGEST = 500  # letters of a sentence, which may have a whole record in it


def form_error(record: object, schema: Mapping[str, object]) -> str:
    """Return the gravest difference of a record from its JSON schema, as jsonschema says it; empty: there is none."""
    error = jsonschema.exceptions.best_match(jsonschema.Draft7Validator(schema).iter_errors(record))
    if error is None:
        return ""
    return f"{error.json_path.removeprefix('$').lstrip('.') or 'the file'}: {error.message[:_LONGEST]}"
