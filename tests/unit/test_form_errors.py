"""What a person reads who wrote a file that is not in the form that is read."""

from pathlib import Path

import pytest

from agent.audit.heal import SCHEMA, read_policy
from agent.errors import ConfigError
from agent.form_errors import form_error
from agent.misspelt import nearest


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"heal": []}, ""),
        ("heal", "the file: 'heal' is not of type 'object'"),
        ({}, "the file: 'heal' is a required property"),
        ({"heal": [], "colour": 5}, "('colour' was unexpected)"),
        ({"heal": [], "limit": 0}, "limit: 0 is less than the minimum of 1"),
        ({"heal": [], "untyped": "yes" * 400}, f": '{'yes' * 166}y"),
        ({"heal": ["orphan"]}, "heal[0]: 'orphan' is not one of ["),
    ],
)
def test_a_policy_says_where_it_is_wrong_and_what_is_meant(record: object, words: str) -> None:
    found = form_error(record, SCHEMA)

    assert found.startswith(words) or found.endswith(words)
    assert bool(found) is bool(words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("heal: [", "is not YAML"),
        ("heal: []\ngrace_s: .nan", "grace_s is no number"),
        ("heal: []\ngrace_s: 2024-99-99", "is not YAML"),
        ("heal: []\nagain_s: 1000000000000", "1000000000000 is greater than the maximum of 1000000000"),
    ],
)
def test_a_policy_that_is_none_is_refused(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(text)

    with pytest.raises(ConfigError, match=words):
        read_policy(tmp_path / "policy.yaml")


def test_a_name_like_none_is_no_other_name() -> None:
    assert nearest("colour", ["heal"]) == nearest("edit", ["audit"]) == ""
