"""Which operations of a plan stand side by side."""

import pytest

from reportclient.plan import Create, Delete, EnsureTraits, Operation, SetAggregates, SetInventories, SetTraits
from reportclient.waves import waves

NONE: frozenset[str] = frozenset()
PARENTS = {"root": None, "cell": "root", "card": "cell", "other": "root"}


def make(uuid: str, parent: str | None = "root") -> Create:
    return Create(uuid, uuid, parent)


def describe(uuid: str) -> SetTraits:
    return SetTraits(uuid, uuid, NONE, NONE, NONE)


def group(uuid: str) -> SetAggregates:
    return SetAggregates(uuid, uuid, NONE)


def stock(uuid: str) -> SetInventories:
    return SetInventories(uuid, uuid, {})


def delete(uuid: str) -> Delete:
    return Delete(uuid, uuid)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([make("a"), make("b")], ["a b"], id="new siblings"),
        pytest.param([make("a"), make("b", "a"), make("c", "a")], ["a", "b c"], id="a child waits for its parent"),
        pytest.param([make("a"), describe("a"), group("a")], ["a", "a+a"], id="a provider has one lane"),
        pytest.param(
            [make("a"), make("b"), EnsureTraits(("T",)), describe("a"), describe("b"), group("b")],
            ["a b", "names", "a b+b"],
            id="names are made in between",
        ),
        pytest.param([describe("root"), describe("cell")], ["root", "cell"], id="what stands is written in order"),
        pytest.param([stock("a"), stock("b")], ["a", "b"], id="stock is written in order"),
        pytest.param([delete("card"), delete("other"), delete("cell")], ["card other", "cell"], id="children go first"),
        pytest.param([delete("card"), stock("a"), delete("other")], ["card", "a", "other"], id="others divide"),
    ],
)
def test_stands_side_by_side(steps: list[Operation], expected: list[str]) -> None:
    found = waves(steps, PARENTS)

    assert [step for wave in found for lane in wave for step in lane] == steps
    assert [" ".join("+".join(map(name, lane)) for lane in wave) for wave in found] == expected


def name(step: Operation) -> str:
    return step.uuid if isinstance(step, Create | SetTraits | SetAggregates | SetInventories | Delete) else "names"
