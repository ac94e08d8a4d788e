"""Values that cannot be wrong."""

from dataclasses import replace
from typing import Any

import pytest

from reportclient.tree import MAX_INT, MAX_RATIO, Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param({"total": 0}, "leave the class out", id="nothing of a class is no record"),
        pytest.param({"total": 1, "reserved": 2}, "reserved must be between", id="more reserved than there is"),
        pytest.param({"total": 1, "reserved": -1}, "reserved must be between", id="negative reserve"),
        pytest.param({"total": 1, "step_size": 0}, "must be >= 1", id="no step"),
        pytest.param({"total": 1, "min_unit": 0}, "must be >= 1", id="no least amount"),
        pytest.param({"total": 1, "max_unit": 0}, "must be >= 1", id="no largest amount"),
        pytest.param({"total": MAX_INT + 1}, "may be above", id="total without bound"),
        pytest.param({"total": 1, "min_unit": MAX_INT + 1}, "may be above", id="least amount without bound"),
        pytest.param({"total": 1, "max_unit": MAX_INT + 1}, "may be above", id="largest amount without bound"),
        pytest.param({"total": 1, "step_size": MAX_INT + 1}, "may be above", id="step without bound"),
        pytest.param({"total": 1, "allocation_ratio": -1.0}, "not negative", id="negative ratio"),
        pytest.param({"total": 1, "allocation_ratio": MAX_RATIO}, "finite", id="ratio without bound"),
        pytest.param({"total": 1, "allocation_ratio": float("nan")}, "finite", id="no ratio at all"),
    ],
)
def test_an_inventory_that_placement_would_refuse_cannot_be_built(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Inventory(**values)


@pytest.mark.parametrize(
    ("values", "capacity"),
    [
        pytest.param({"total": 10, "reserved": 1, "allocation_ratio": 1.5}, 13, id="rounded down"),
        pytest.param({"total": 1, "reserved": 1, "max_unit": 1}, 0, id="all reserved"),
        pytest.param({"total": 4, "allocation_ratio": 0}, 0, id="nothing of it"),
    ],
)
def test_capacity(values: dict[str, Any], capacity: int) -> None:
    assert Inventory(**values).capacity == capacity


@pytest.mark.parametrize(
    "providers",
    [
        pytest.param((), id="no root"),
        pytest.param((Provider(name="a"), Provider(name="a", parent="a")), id="one name twice"),
        pytest.param((Provider(name="a"), Provider(name="b")), id="two roots"),
        pytest.param((Provider(name="b", parent="a"), Provider(name="a")), id="child before parent"),
        pytest.param((Provider(name="a"), Provider(name="c", parent="b")), id="no such parent"),
    ],
)
def test_a_tree_that_is_none_cannot_be_built(providers: tuple[Provider, ...]) -> None:
    with pytest.raises(ValueError, match=r"provider"):
        ProviderTree(providers)


def test_a_root_is_known_where_it_was_observed() -> None:
    root = ObservedProvider(uuid="a", generation=1, provider=Provider(name="a"))
    child = replace(root, uuid="b", provider=Provider(name="b", parent="a"))

    assert [ObservedTree(seen).root for seen in ((), (child,), (root, child))] == [None, None, root]
