"""CPU sets as nova writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.host.parse import format_cpu_set, parse_cpu_set


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        pytest.param("0-3,8", {0, 1, 2, 3, 8}, id="range and single"),
        pytest.param("0-7,^3,^5-6", {0, 1, 2, 4, 7}, id="taken away again"),
        pytest.param("^1,0-2", {0, 2}, id="exclusion first"),
        pytest.param(" 1 , , 3 - 4 ", {1, 3, 4}, id="spaces and empty parts"),
        pytest.param("5-5", {5}, id="range of one"),
    ],
)
def test_expands(text: str, cpus: set[int]) -> None:
    assert parse_cpu_set(text) == cpus


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a", "1-", "-1", "1-2-3", "^", "0x1", "1.5", "²"], "neither"),
        (["3-1"], "lower than its first"),
        (["1,^1", ""], "names no CPU"),
        (["65536", "0-65536"], "beyond 65535"),
    ],
)
def test_refuses_what_is_no_set(texts: list[str], message: str) -> None:
    assert parse_cpu_set("65535") == {65535}
    for text in texts:
        with pytest.raises(ValueError, match=message):
            parse_cpu_set(text)


@given(st.frozensets(st.integers(0, 300), min_size=1))
def test_there_and_back(cpus: frozenset[int]) -> None:
    assert parse_cpu_set(format_cpu_set(cpus)) == cpus


def test_no_cpu_is_no_text() -> None:
    assert format_cpu_set(frozenset()) == ""
