"""What a person reads who wrote a file that is not in the form that is read."""

from typing import Any

import pytest

from agent.audit.heal import SCHEMA
from agent.form_errors import form_error, nearest

ENTRIES: dict[str, Any] = {
    "properties": {
        "providers": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "minProperties": 1,
                "properties": {"name": {"type": "string", "pattern": "^[a-z]+$"}},
                "patternProperties": {"^X_": {}},
            },
        }
    }
}


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ("heal", "the file must be a group of keys, and is 'heal'"),
        (None, "the file must be a group of keys, and is empty"),
        ({}, "the file lacks heal"),
        ({"heal": "over-capacity"}, "heal must be a list, and is 'over-capacity'"),
        ({"heal": {"a": 1}}, "heal must be a list, and is a group of keys"),
        ({"heal": [], "graces_s": 5}, "the file has graces_s, which is not read: is grace_s meant?"),
        ({"heal": [], "colour": 5}, "the file has colour, which is not read"),
        ({"heal": [], "limit": 0}, "limit must be at least 1, and is 0"),
        ({"heal": [], "limit": 1.5}, "limit must be a whole number, and is 1.5"),
        ({"heal": [], "untyped": "yes" * 40}, f"untyped must be true or false, and is '{('yes' * 40)[:58]}…"),
        ({"heal": [], "grace_s": True}, "grace_s must be a number, and is true"),
    ],
)
def test_a_policy_says_where_it_is_wrong_and_what_is_read(record: object, sentence: str) -> None:
    assert form_error(record, SCHEMA) == sentence


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ({"name": "a"}, ""),
        ({"X_own": 1}, ""),
        ({"nmae": "a"}, "providers[0] has nmae, which is not read: is name meant?"),
        ({"name": "A"}, "providers[0].name is 'A', which is not spelt as ^[a-z]+$"),
        ({}, "providers[0] must have at least 1 of name"),
    ],
)
def test_the_place_in_a_list_is_named(entry: object, sentence: str) -> None:
    assert form_error({"providers": [entry]}, ENTRIES) == sentence


def test_a_kind_of_finding_that_is_none_is_told_with_the_nearest() -> None:
    found = form_error({"heal": ["orphan"]}, SCHEMA)

    assert found.startswith("heal[0] has 'orphan', which is none of ")
    assert found.endswith(": is orphaned meant?")
    assert nearest("colour", ["heal"]) == ""
