"""
Values as JSON, and JSON as values by their types.

Texts of so many values that these would fill the memory are refused: a list takes 64 bytes.
"""

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import singledispatch
from pathlib import PurePath
from typing import Any, TypeVar

from msgspec import ValidationError, convert

MOST_VALUES = 1 << 20  # a record of a provider has about 30, so as many as 30,000 of them have
_MOST = 1e39  # no number with a point is larger: a ratio is at most 3.4e38 (SQL_SP_FLOAT_MAX in oslo.db)
T = TypeVar("T")


def decode_json(text: str) -> Any:
    """
    Decode a text.

    Raises:
        ValueError, RecursionError: it is not JSON, has more than ``MOST_VALUES`` values, or a number that nothing has.
    """
    check_values(text.encode(errors="surrogatepass") if len(text) > MOST_VALUES else b"")
    return json.loads(text, parse_float=_number, parse_constant=_number)


def _number(text: str) -> float:
    number = float(text)
    if not abs(number) <= _MOST:  # also where it is no number (NaN)
        raise ValueError(f"it has {text[:20]} where no number is larger than {_MOST:g}")
    return number


def check_values(text: bytes) -> None:
    """Raise ValueError where a text may have more than ``MOST_VALUES`` values; counts those in strings too."""
    if len(text) > MOST_VALUES and sum(map(text.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise ValueError(f"it has more than {MOST_VALUES} values")


@singledispatch
def encode(value: object) -> Any:
    """
    Return a value as JSON has it: of a dataclass its fields by their names, of a set its members in order.

    A field that has None, and has None as its default, is left out. A type whose JSON has other keys registers its own.
    """
    match value:
        case Enum():
            return value.value
        case PurePath():
            return str(value)
        case Mapping():
            return {key: encode(one) for key, one in value.items()}
        case Set():
            return sorted(map(encode, value))
        case str():
            return value
        case Sequence():
            return [encode(one) for one in value]
        case _ if is_dataclass(value):
            found = [(one, getattr(value, one.name)) for one in fields(value)]
            return {one.name: encode(part) for one, part in found if part is not None or one.default is not None}
        case _:
            return value


def decode_as(kind: type[T], value: object) -> T:
    """
    Return decoded JSON as a value of ``kind``: a dataclass, with all that its fields can have.

    A field that the JSON lacks has its default; keys that ``kind`` does not have are passed over.

    Raises:
        ValueError: the JSON does not fit; the message names the place. Also as ``kind``.
    """
    try:
        return convert(value, kind)
    except ValidationError as error:
        raise ValueError(str(error)) from error
