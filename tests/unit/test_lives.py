"""Random lives of hosts and nodes go as they went before, to the last number and word: what differs is on purpose."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from beds.golden import differences
from beds.lives import digest, turns_of
from beds.node_lives import turns_of_nodes
from beds.worlds import worlds

LIVES = Path(__file__).parents[1] / "lives"
EACH = 20  # lives of a file


@pytest.fixture(scope="module")
def make() -> Iterator[Callable[..., Any]]:
    with worlds() as maker:
        yield maker


def check(file: str, lives: dict[int, Iterable[str]], request: pytest.FixtureRequest) -> None:
    found = "".join(f"{number} {' '.join(map(digest, turns))}\n" for number, turns in lives.items())

    assert not differences(found, LIVES / file, update=request.config.getoption("--update-golden"))


@pytest.mark.parametrize("first", range(0, 400, EACH))
def test_a_host_lives_as_before(make: Callable[..., Any], first: int, request: pytest.FixtureRequest) -> None:
    """A life that differs is shown by ``python -m beds.lives NUMBER``, here and at the commit before."""
    check(f"hosts-{first:03}", {one: turns_of(one, make) for one in range(first, first + EACH)}, request)


@pytest.mark.parametrize("first", range(0, 100, EACH))
def test_nodes_live_as_before(first: int, request: pytest.FixtureRequest) -> None:
    """A life that differs is shown by ``python -m beds.node_lives NUMBER``, here and at the commit before."""
    check(f"nodes-{first:03}", {one: turns_of_nodes(one) for one in range(first, first + EACH)}, request)
