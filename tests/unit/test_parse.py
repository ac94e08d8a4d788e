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


@pytest.mark.parametrize("text", ["a", "1-", "-1", "3-1", "1-2-3", "^", "0x1", "1,^1", "", "1.5", "²", "0-99999999999"])
def test_refuses_what_is_no_set(text: str) -> None:
    with pytest.raises(ValueError, match=r"neither|lower than its first|names no CPU|beyond"):
        parse_cpu_set(text)


@given(st.frozensets(st.integers(0, 300), min_size=1))
def test_there_and_back(cpus: frozenset[int]) -> None:
    assert parse_cpu_set(format_cpu_set(cpus)) == cpus


def test_no_cpu_is_no_text() -> None:
    assert format_cpu_set(frozenset()) == ""
