"""JSON of others becomes values by their types, or is refused by the name of what is wrong."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from reportclient.json_text import decode_as, decode_json


@dataclass(frozen=True)
class Part:
    """A value within another one."""

    name: str
    more: bool = False


@dataclass(frozen=True)
class Value:
    """One field of each kind that files have."""

    text: str
    count: int
    seconds: float
    flag: bool
    names: frozenset[str]
    pairs: tuple[tuple[str, int], ...]
    parts: Mapping[str, Part]
    lists: dict[str, list[int]]
    anything: object = None
    maybe: Part | None = None


RIGHT: dict[str, Any] = {
    "text": "t",
    "count": 1,
    "seconds": 2,
    "flag": True,
    "names": ["b", "a"],
    "pairs": [["x", 1]],
    "parts": {"one": {"name": "n", "unknown": 1}},
    "lists": {"a": [1]},
    "a key of a newer version": {},
}
WRONG: dict[str, tuple[Any, ...]] = {
    "text": (None, 1, [], True),
    "count": (None, "1", 1.0, True, []),
    "seconds": ("2", True),
    "flag": (None, 0, "true"),
    "names": (None, "ab", {}, [1], [None]),
    "pairs": (None, [["x"]], [["x", 1, 2]], [[1, "x"]], ["x1"]),
    "parts": (None, [], {"one": []}, {"one": {}}, {"one": {"name": "n", "more": 1}}),
    "lists": (None, [], {"a": {}}, {"a": ["1"]}),
    "maybe": (1, "x", [], {}),
}


def test_json_becomes_a_value_by_its_types() -> None:
    parts = {"one": Part("n")}

    assert decode_as(Value, RIGHT) == Value("t", 1, 2, True, frozenset("ab"), (("x", 1),), parts, {"a": [1]})
    assert decode_as(Value, RIGHT | {"maybe": {"name": "n"}, "anything": [1]}).maybe == Part("n")


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, several in WRONG.items() for value in several])
def test_a_value_of_another_kind_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"^(Expected|Object missing required field).* at `\$\.{name}"):
        decode_as(Value, RIGHT | {name: value})


@pytest.mark.parametrize("name", [name for name in RIGHT if name in Value.__annotations__])
def test_a_value_that_lacks_a_field_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"missing required field `{name}`"):
        decode_as(Value, {key: value for key, value in RIGHT.items() if key != name})


@pytest.mark.parametrize("whole", [None, 7, [RIGHT]])
def test_what_is_no_object_is_refused(whole: object) -> None:
    with pytest.raises(ValueError, match="Expected `object`"):
        decode_as(Value, whole)


@pytest.mark.parametrize("text", ["1e300", "-1e999", "Infinity", "-Infinity", "NaN"])
def test_a_number_that_nothing_has_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"it has {text} where no number is larger than 1e"):
        decode_json(f'{{"seconds": {text}}}')
