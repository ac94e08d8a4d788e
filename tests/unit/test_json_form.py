"""The JSON that other programs read: each operation by its name, and a conversion with all that a person agrees to."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import pytest

from agent.command.shown import encode_outcome
from agent.sync.json_form import KINDS, encode, encode_observed_tree, encode_operation, encode_plan
from agent.sync.outcome import Outcome, Status
from reportclient.allocations import Move
from reportclient.forecast import forecast
from reportclient.plan import (
    Create,
    Delete,
    EnsureClasses,
    EnsureTraits,
    Operation,
    Plan,
    Rename,
    Reparent,
    Reshape,
    Rewrite,
    SetAggregates,
    SetInventories,
    SetTraits,
)
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider

REWRITE = Rewrite(
    consumer="guest",
    generation=1,
    project="p",
    user="u",
    kind=None,
    before={"r": {"VGPU": 1}},
    after={"c": {"VGPU": 1}},
)
FOUR, TWO = Inventory(total=4), Inventory(total=2)
RECORD = {
    "reserved": 0,
    "min_unit": 1,
    "max_unit": FOUR.max_unit,
    "step_size": 1,
    "allocation_ratio": 1.0,
}
ALLOCATIONS = {"guest": {"c": {"VGPU": 1}}}


@dataclass(frozen=True)
class Value:
    """What a verb might find."""

    status: Status
    files: tuple[Path, ...]
    names: frozenset[str]
    node: str | None
    refused: str | None = None
    empty: str = ""


def test_a_value_has_a_key_for_each_field_but_for_an_optional_one_without_a_value() -> None:
    value = Value(Status.UNSAFE, (Path("/f"),), frozenset("ba"), None)
    form = {"status": "unsafe", "files": ["/f"], "names": ["a", "b"], "node": None, "empty": ""}

    assert encode({"found": [value]}) == {"found": [form]}
    assert encode(replace(value, refused="why")) == {**form, "refused": "why"}


def told(operation: Operation) -> dict[str, Any]:
    """An operation as other programs read it, where provider ``c`` has two GPUs before it."""
    encoded: dict[str, Any] = json.loads(json.dumps(encode_operation(operation, {"c": {"VGPU": TWO}})))
    return encoded


@pytest.mark.parametrize(
    ("operation", "form"),
    [
        (EnsureClasses(("CUSTOM_A",)), {"operation": "ensure-resource-classes", "names": ["CUSTOM_A"]}),
        (EnsureTraits(("CUSTOM_T",)), {"operation": "ensure-traits", "names": ["CUSTOM_T"]}),
        (
            Create("c", "host_c", "r"),
            {"operation": "create", "provider": "host_c", "uuid": "c", "parent_uuid": "r"},
        ),
        (
            Rename("c", "new_c", "host_c"),
            {"operation": "rename", "provider": "new_c", "uuid": "c", "old_name": "host_c"},
        ),
        (
            Reparent("c", "host_c", "r", "host", "cell"),
            {
                "operation": "reparent",
                "provider": "host_c",
                "uuid": "c",
                "parent_uuid": "r",
                "parent": "host",
                "old_parent": "cell",
            },
        ),
        (
            SetTraits("c", "host_c", frozenset("ba"), frozenset("b"), frozenset("z")),
            {
                "operation": "set-traits",
                "provider": "host_c",
                "uuid": "c",
                "traits": ["a", "b"],
                "added": ["b"],
                "removed": ["z"],
            },
        ),
        (
            SetAggregates("c", "host_c", frozenset("yx")),
            {"operation": "set-aggregates", "provider": "host_c", "uuid": "c", "aggregates": ["x", "y"]},
        ),
        (Delete("c", "host_c"), {"operation": "delete", "provider": "host_c", "uuid": "c"}),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, dict) else "",
)
def test_an_operation_is_told_by_its_name(operation: Operation, form: dict[str, Any]) -> None:
    assert told(operation) == form


def test_inventories_are_told_with_what_stood_before_them_also_within_a_reshape() -> None:
    stock = SetInventories("c", "host_c", {"VGPU": FOUR})
    form = {
        "operation": "set-inventories",
        "provider": "host_c",
        "uuid": "c",
        "inventories": {"VGPU": {"total": 4, **RECORD}},
        "before": {"VGPU": {"total": 2, **RECORD}},
    }

    assert told(stock) == form
    assert told(Reshape((stock,), (REWRITE,))) == {
        "operation": "reshape",
        "inventories": [form],
        "allocations": ALLOCATIONS,
    }


ROOT = Provider(name="host", inventories={"VGPU": FOUR})
TREE = ObservedTree((ObservedProvider(uuid="r", generation=1, provider=ROOT),))
MOVED = Plan(
    operations=(
        Create("c", "host_c", "r"),
        Reshape((SetInventories("c", "host_c", {"CUSTOM_GPU": FOUR}), SetInventories("r", "host", {})), (REWRITE,)),
    ),
    moves=(
        Move(
            consumer="guest",
            from_provider="host",
            to_provider="host_c",
            moved_resources={"VGPU": 1},
            to_resources={"CUSTOM_GPU": 1},
            because="its card",
        ),
    ),
)


def test_a_tree_after_a_plan_has_what_the_plan_makes() -> None:
    after = encode_observed_tree(forecast(MOVED, TREE), ())["providers"]

    assert after.keys() == {"host", "host_c"}
    assert after["host_c"]["inventories"] == {"CUSTOM_GPU": {"total": 4, **RECORD}}
    assert encode_plan(MOVED, TREE)["moves"][0]["because"] == "its card"


def test_each_operation_has_a_kind() -> None:
    assert KINDS.keys() == set(get_args(Operation))


def test_an_ended_pass_has_the_keys_of_its_plan_and_what_it_reserved_all_the_same() -> None:
    form = encode_outcome(Outcome(node="h", status=Status.UNSAFE, reserving=Plan((Delete("c", "host_c"),))))

    assert form.keys() == {"node", "outcome", "notes", "digest", "operations", "moves", "names", "reserving"}
    assert form["reserving"].keys() == {"digest", "operations", "moves"}


def test_a_desired_provider_is_told_without_its_name() -> None:
    assert encode(Provider(name="host_c", parent="host", traits=frozenset("ba"))) == {
        "parent": "host",
        "inventories": {},
        "traits": ["a", "b"],
        "aggregates": [],
    }
