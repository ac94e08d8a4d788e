"""Which drafts make a tree that placement has nothing of, and the parts of their plans."""

from dataclasses import replace
from typing import Any

import pytest

from agent.sync.decide.draft import Draft
from agent.sync.decide.new_tree import NewTree, names_of, new_tree
from drafts import ROOT, draft, stands
from reportclient.names import ONE_TIME
from reportclient.ownership import Contest
from reportclient.plan import (
    Create,
    Delete,
    EnsureClasses,
    EnsureTraits,
    Plan,
    Reshape,
    Rewrite,
    SetAggregates,
    SetInventories,
    SetTraits,
)
from reportclient.reserve import HELD
from reportclient.tree import Inventory, ObservedTree, ProviderTree

MAKE = Create("root", "host", None)
DESCRIBE = SetTraits("root", "host", frozenset({"CUSTOM_A"}), frozenset({"CUSTOM_A"}), frozenset())
JOIN = SetAggregates("root", "host", frozenset({"aggregate"}))
STOCK = SetInventories("root", "host", {"CUSTOM_B": Inventory(total=1)})
CHILD = SetInventories("child", "host_child", {"CUSTOM_C": Inventory(total=1)})
REWRITE = Rewrite(consumer="guest", generation=1, project="p", user="u", kind=None, before={}, after={})


def new(*steps: Any, **changes: Any) -> Draft:
    return draft(observed=ObservedTree(), plan=Plan(steps), **changes)


def test_the_plan_of_a_new_tree_is_parted() -> None:
    classes, traits = EnsureClasses(("CUSTOM_B",)), EnsureTraits(("CUSTOM_A",))

    found = new_tree(new(MAKE, classes, traits, DESCRIBE, JOIN, Reshape((STOCK, CHILD))))

    assert found == NewTree(Plan((classes, traits)), Plan((MAKE, DESCRIBE, JOIN)), (STOCK, CHILD))


def test_the_stock_of_a_single_provider_is_a_part_too() -> None:
    assert new_tree(new(MAKE, STOCK)) == NewTree(Plan(), Plan((MAKE,)), (STOCK,))


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"observed": stands(ROOT)}, id="it stands"),
        pytest.param({"identified": False}, id="its identity is not known"),
        pytest.param({"went_back": True}, id="placement was restored"),
        pytest.param({"contest": Contest("host", (), nova=False, marked=False)}, id="another writer"),
        pytest.param({"beside": True}, id="nova reports the root"),
        pytest.param({"former": "pool"}, id="it leaves a storage"),
        pytest.param({"forgotten": "pool"}, id="it still shares a storage"),
        pytest.param({"held": ("a device is held",)}, id="a held device"),
        pytest.param({"awaited": ("a device is awaited",)}, id="an awaited device"),
        pytest.param({"away": frozenset({"VGPU"})}, id="a device that is away"),
        pytest.param({"unplaceable": "no place"}, id="no place for an allocation"),
        pytest.param({"desired": ProviderTree((replace(ROOT, traits=frozenset({HELD})),))}, id="a mark of ours"),
        pytest.param({"desired": ProviderTree((replace(ROOT, traits=frozenset({ONE_TIME})),))}, id="one-time use"),
    ],
)
def test_a_draft_that_does_more_is_none_of_a_new_tree(changes: dict[str, Any]) -> None:
    assert new_tree(replace(new(MAKE, STOCK), **changes)) is None


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param((MAKE,), id="no stock"),
        pytest.param((MAKE, Reshape((STOCK,), (REWRITE,))), id="a consumer moves"),
        pytest.param((MAKE, STOCK, Delete("old", "host_old")), id="a provider goes"),
    ],
)
def test_a_plan_with_other_steps_is_none_of_a_new_tree(steps: tuple[Any, ...]) -> None:
    assert new_tree(new(*steps)) is None


def test_names_are_made_once_for_all_trees() -> None:
    one = NewTree(Plan((EnsureClasses(("CUSTOM_B", "CUSTOM_A")), EnsureTraits(("CUSTOM_T",)))), Plan(), (STOCK,))
    other = NewTree(Plan((EnsureClasses(("CUSTOM_B",)),)), Plan(), (STOCK,))

    assert names_of([one, other]) == Plan((EnsureClasses(("CUSTOM_A", "CUSTOM_B")), EnsureTraits(("CUSTOM_T",))))
    assert names_of([]) == Plan()
