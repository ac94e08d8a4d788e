"""What is said of two plans that differ: the smallest thing that tells them apart."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from agent.sync.decide.plan_changes import NOT_KEPT, plan_changes
from agent.sync.json_form import encode_kept
from reportclient.allocations import Move, Slots
from reportclient.plan import (
    Create,
    Delete,
    EnsureClasses,
    EnsureTraits,
    Plan,
    Reshape,
    Rewrite,
    SetInventories,
    SetTraits,
)
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider

Stock = Mapping[str, Inventory]
CPUS = Inventory(total=8, max_unit=8, reserved=1)


def stands(**inventories: Inventory) -> ObservedTree:
    root = Provider(name="host", inventories=inventories, traits=frozenset({"CUSTOM_THEIRS"}))
    child = Provider(name="host_NUMA0", parent="host")
    return ObservedTree(
        (
            ObservedProvider(uuid="r", generation=1, provider=root),
            ObservedProvider(uuid="n", generation=1, provider=child),
        )
    )


def kept(*steps: Any, moves: tuple[Move, ...] = (), tree: ObservedTree | None = None) -> Any:
    """A plan as it is read back from its file."""
    return json.loads(json.dumps(encode_kept(Plan(steps, moves), tree or stands(VCPU=CPUS))))


def reshape(stock: Stock, after: Slots | None = None) -> Reshape:
    rewrite = Rewrite(consumer="g", generation=1, project="p", user="u", kind=None, before={}, after=after or {})
    return Reshape((SetInventories("r", "host", {}), SetInventories("n", "host_NUMA0", stock)), (rewrite,))


def traits(*names: str) -> SetTraits:
    return SetTraits("n", "host_NUMA0", frozenset(names), frozenset(names), frozenset())


def move(target: str, *, amount: int = 2, because: str = "pinned") -> Move:
    moved = {"VCPU": amount}
    return Move(consumer="g", from_provider="host", to_provider=target, moved_resources=moved, because=because)


READ = kept(reshape({"VCPU": CPUS}))


@pytest.mark.parametrize(
    ("read", "now", "sentences"),
    [
        pytest.param(READ, kept(reshape({"VCPU": Inventory(total=6, max_unit=6, reserved=2)})),
            ("total of VCPU on host_NUMA0 8 -> 6", "reserved of VCPU on host_NUMA0 1 -> 2"),
            id="fields; a max_unit that follows its total is not told"),
        pytest.param(READ, kept(reshape({"VCPU": replace(CPUS, max_unit=4), "PCPU": Inventory(total=2)})),
            ("PCPU on host_NUMA0 is new, total 2", "max_unit of VCPU on host_NUMA0 8 -> 4"),
            id="a class that comes, and a max_unit that does not follow its total"),
        pytest.param(kept(reshape({"VCPU": replace(CPUS, max_unit=4)})), READ,
            ("max_unit of VCPU on host_NUMA0 4 -> 8",), id="a max_unit that follows its total now"),
        pytest.param(READ, kept(reshape({})), ("VCPU on host_NUMA0 is gone",), id="a class that goes"),
        pytest.param(kept(traits("A")), kept(), ("trait A on host_NUMA0 is gone",), id="what one plan writes alone"),
        pytest.param(kept(Delete("n", "host_NUMA0")), kept(Delete("n", "host_NUMA0")), (), id="both delete a provider"),
        pytest.param(kept(Create("x", "host_x", "r")), kept(Create("x", "host_x", "n")),
            ("parent of host_x host -> host_NUMA0",), id="another parent"),
        pytest.param(kept(traits("A", "B")), kept(traits("A", "C")),
            ("trait C on host_NUMA0 is new", "trait B on host_NUMA0 is gone"), id="traits"),
        pytest.param(kept(), kept(Create("x", "host_NUMA1", "r"), SetInventories("x", "host_NUMA1", {"VCPU": CPUS})),
            ("provider host_NUMA1 is new",), id="a provider, without all that it has"),
        pytest.param(kept(), kept(Delete("n", "host_NUMA0")), ("provider host_NUMA0 is gone",), id="a provider goes"),
        pytest.param(READ, kept(reshape({"VCPU": CPUS}), tree=stands(VCPU=Inventory(total=9, max_unit=9, reserved=1))),
            ("in placement total of VCPU on host 8 -> 9",), id="what stood before"),
        pytest.param(READ, kept(reshape({}), tree=stands(VCPU=Inventory(total=9, max_unit=9, reserved=1))),
            ("VCPU on host_NUMA0 is gone",), id="what stood before, where more differs"),
        pytest.param(kept(moves=(move("host_NUMA0"),)), kept(moves=(move("host_NUMA1"),)),
            ("2 VCPU of g go to host_NUMA1 instead of host_NUMA0",), id="another target"),
        pytest.param(kept(moves=(move("a"), move("b"))), kept(moves=(move("c"),)),
            (*(f"the move of 2 VCPU of g to {one} is gone" for one in "ab"), "the move of 2 VCPU of g to c is new"),
            id="two moves of one kind, of which nobody knows the new target"),
        pytest.param(kept(moves=(move("host_NUMA0"),)), kept(moves=(move("host_NUMA0", amount=3),)),
            ("the move of 2 VCPU of g to host_NUMA0 is gone", "the move of 3 VCPU of g to host_NUMA0 is new"),
            id="another amount"),
        pytest.param(kept(reshape({"VCPU": CPUS}, {"n": {"VCPU": 2}, "abroad": {"DISK_GB": 5, "A": 1}})),
            kept(reshape({"VCPU": CPUS}, {"n": {"VCPU": 2}, "abroad": {"DISK_GB": 6, "B": 1}})),
            ("A of g on abroad 1 -> 0", "B of g on abroad 0 -> 1", "DISK_GB of g on abroad 5 -> 6"),
            id="what a consumer has elsewhere"),
        pytest.param(kept(EnsureTraits(("A",)), EnsureTraits(("B",))),
            kept(EnsureTraits(("A",)), EnsureClasses(("C",))),
            ("the operation ensure-traits is gone", "the operation ensure-resource-classes is new"),
            id="steps, where nothing smaller differs"),
        pytest.param({key: value for key, value in kept(moves=(move("a"),)).items() if key not in ("before", "after")},
            kept(moves=(move("b"),)), ("2 VCPU of g go to b instead of a", NOT_KEPT),
            id="a plan that an older release kept"),
        pytest.param(kept(moves=(move("host_NUMA0"),)), kept(moves=(move("host_NUMA0", because="memory"),)), (),
            id="a reason is no difference"),
    ],
)  # fmt: skip
def test_differences(read: Any, now: Any, sentences: tuple[str, ...]) -> None:
    assert plan_changes(read, now) == sentences


def test_a_foreign_trait_on_a_provider_whose_traits_are_not_written_is_no_difference() -> None:
    root, child = stands(VCPU=CPUS).providers
    theirs = Provider(name="host_NUMA0", parent="host", traits=frozenset({"CUSTOM_NEW"}))
    changed = ObservedTree((root, ObservedProvider(uuid=child.uuid, generation=2, provider=theirs)))

    assert plan_changes(READ, kept(reshape({"VCPU": Inventory(total=4)}), tree=changed))[0].startswith("total of VCPU")
    assert not any("CUSTOM_NEW" in one for one in plan_changes(READ, kept(reshape({}), tree=changed)))
