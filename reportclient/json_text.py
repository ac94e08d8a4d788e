"""
Values as JSON, and JSON as values by their types.

Texts of so many values that these would fill the memory are refused: a list takes 64 bytes.
"""

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache, singledispatch
from pathlib import PurePath
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

MOST_VALUES = 1 << 20  # a record of a provider has about 30, so as many as 30,000 of them have
_MOST = 1e15  # no number with a point is larger, be it seconds or a ratio
T = TypeVar("T")


def decode_json(text: str) -> Any:
    """
    Decode a text.

    Raises:
        ValueError, RecursionError: it is not JSON, or has more than ``MOST_VALUES`` values.
    """
    check_values(text.encode(errors="surrogatepass") if len(text) > MOST_VALUES else b"")
    return json.loads(text)


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
    found: T = _decode(kind, value, "")
    return found


def _decode(kind: Any, value: Any, place: str) -> Any:
    origin, of = get_origin(kind), get_args(kind)
    if kind in (object, Any):
        return value
    if origin is UnionType:
        return None if value is None else _decode(of[0], value, place)
    if is_dataclass(kind) and isinstance(value, dict):
        build: Any = kind
        return build(**_decode_fields(kind, value, place))
    if origin in (dict, Mapping) and isinstance(value, dict):
        return {key: _decode(of[1], one, f"{place}.{key}") for key, one in value.items()}
    if origin in (list, tuple, frozenset) and isinstance(value, list):
        kinds = of if origin is tuple and of[-1] is not ... else of[:1] * len(value)
        if len(kinds) == len(value):
            pairs = enumerate(zip(kinds, value, strict=True))
            return origin(_decode(each, one, f"{place}[{number}]") for number, (each, one) in pairs)
    if _fits(kind, value):
        return value
    raise ValueError(f"{place.lstrip('.') or 'it'} is of the wrong kind")


def _decode_fields(kind: Any, value: Mapping[str, Any], place: str) -> dict[str, Any]:
    kinds, needed = _fields_of(kind)
    if missing := needed - value.keys():
        raise ValueError(f"{place.lstrip('.') or 'it'} lacks {', '.join(sorted(missing))}")
    return {name: _decode(each, value[name], f"{place}.{name}") for name, each in kinds.items() if name in value}


@cache
def _fields_of(kind: Any) -> tuple[Mapping[str, Any], frozenset[str]]:
    """Return the types of all fields by name, and the names of those without a default."""
    bare = (one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING)
    return get_type_hints(kind), frozenset(bare)


def _fits(kind: Any, value: object) -> bool:
    if kind is float:
        return type(value) in (int, float) and abs(value) <= _MOST  # type: ignore[arg-type]
    return type(value) is kind
