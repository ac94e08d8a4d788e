"""The planner of ordinary changes: five laws, and an example for each edge that they could hide."""

import uuid
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given

from reportclient.diff import adopted, diff
from reportclient.errors import TreeMismatch
from reportclient.forecast import forecast
from reportclient.ownership import MARKER, Names, Ownership
from reportclient.plan import (
    Create,
    Delete,
    EnsureClasses,
    EnsureTraits,
    Plan,
    Rename,
    Reparent,
    Reshape,
    SetAggregates,
    SetInventories,
    SetTraits,
)
from reportclient.renaming import child_uuid
from reportclient.reserve import HELD, KEEP
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree
from strategies import (
    FOREIGN_CLASSES,
    FOREIGN_TRAITS,
    OUR_CLASSES,
    OUR_TRAITS,
    ROOT,
    ROOT_UUID,
    desired_trees,
    observed_trees,
)

OURS = Ownership(emitted=Names(frozenset(OUR_CLASSES), frozenset({*OUR_TRAITS, MARKER})))


def plan_for(observed: ObservedTree, desired: ProviderTree, ours: Ownership = OURS) -> Plan:
    return diff(observed, desired, ours, root_uuid=ROOT_UUID)


def root_of(**changes: object) -> ObservedTree:
    provider = Provider(name=ROOT, traits=frozenset({MARKER}))
    seen = ObservedProvider(uuid=ROOT_UUID, generation=7, provider=replace(provider, **changes))  # type: ignore[arg-type]
    return ObservedTree((seen,))


def tree_of(**changes: object) -> ProviderTree:
    return ProviderTree((replace(Provider(name=ROOT, traits=frozenset({MARKER})), **changes),))  # type: ignore[arg-type]


@given(observed_trees(), desired_trees())
def test_converge_what_is_ours_becomes_what_is_desired(observed: ObservedTree, desired: ProviderTree) -> None:
    after = forecast(plan_for(observed, desired), observed).by_name

    for provider in desired:
        stands = after[provider.name].provider
        classes = set(OUR_CLASSES) if provider.parent is None else set(stands.inventories)
        assert {name: stands.inventories[name] for name in classes & stands.inventories.keys()} == provider.inventories
        assert stands.traits - set(FOREIGN_TRAITS) == provider.traits
        assert stands.parent == provider.parent
    ours = {name for name, seen in after.items() if MARKER in seen.provider.traits}
    assert ours == {provider.name for provider in desired}


@given(observed_trees(), desired_trees())
def test_idempotent_after_a_pass_there_is_nothing_to_do(observed: ObservedTree, desired: ProviderTree) -> None:
    after = forecast(plan_for(observed, desired), observed)

    assert plan_for(after, desired) == Plan()


@given(observed_trees(), desired_trees())
def test_foreign_parts_are_left_as_they_are(observed: ObservedTree, desired: ProviderTree) -> None:
    after = forecast(plan_for(observed, desired), observed).by_uuid

    for seen in observed:
        if seen.uuid not in after:
            assert MARKER in seen.provider.traits
            continue
        stands = after[seen.uuid].provider
        assert stands.traits & set(FOREIGN_TRAITS) == seen.provider.traits & set(FOREIGN_TRAITS)
        assert stands.aggregates == seen.provider.aggregates
        for name in FOREIGN_CLASSES:
            assert stands.inventories.get(name) == seen.provider.inventories.get(name)


@given(observed_trees(), desired_trees())
def test_one_operation_per_provider_and_aspect(observed: ObservedTree, desired: ProviderTree) -> None:
    flat = [
        one
        for operation in plan_for(observed, desired).operations
        for one in (operation.inventories if isinstance(operation, Reshape) else (operation,))
    ]

    counts = Counter(
        (type(one), getattr(one, "uuid", None)) for one in flat if not isinstance(one, EnsureClasses | EnsureTraits)
    )
    assert set(counts.values()) <= {1}


@given(observed_trees(), desired_trees())
def test_nothing_is_ever_on_offer_twice(observed: ObservedTree, desired: ProviderTree) -> None:
    """At no moment between two operations is there more of a class than before or after the plan."""
    stages = [observed]
    for operation in plan_for(observed, desired).operations:
        stages.append(forecast(Plan((operation,)), stages[-1]))

    for name in ("VGPU", "PCPU"):
        totals = [
            sum(seen.provider.inventories[name].total for seen in stage if name in seen.provider.inventories)
            for stage in stages
        ]
        assert max(totals) <= max(totals[0], totals[-1])


def test_a_device_that_changes_its_parent_is_moved_once_the_parent_is_there_and_before_any_stock() -> None:
    nic = Provider(name="host_nic", parent=ROOT, inventories={"VGPU": Inventory(total=8)}, traits=frozenset({MARKER}))
    seen = ObservedProvider(uuid=str(uuid.UUID(int=8)), generation=1, provider=nic)
    cell = Provider(
        name="host_NUMA0", parent=ROOT, inventories={"PCPU": Inventory(total=1)}, traits=frozenset({MARKER})
    )
    desired = ProviderTree((*tree_of().providers, cell, replace(nic, parent="host_NUMA0")))

    plan = plan_for(ObservedTree((*root_of().providers, seen)), desired)

    cell_uuid = child_uuid(ROOT_UUID, ROOT, "host_NUMA0")
    assert plan.operations == (
        Create(cell_uuid, "host_NUMA0", ROOT_UUID),
        Reparent(seen.uuid, "host_nic", cell_uuid, "host_NUMA0", ROOT),
        EnsureTraits((MARKER,)),
        SetTraits(cell_uuid, "host_NUMA0", frozenset({MARKER}), frozenset({MARKER}), frozenset()),
        SetInventories(cell_uuid, "host_NUMA0", cell.inventories),
    )


def test_the_stock_of_a_provider_that_goes_leaves_together_with_the_stock_that_comes() -> None:
    old = Provider(name="host_gpu", parent=ROOT, inventories={"VGPU": Inventory(total=8)}, traits=frozenset({MARKER}))
    seen = ObservedProvider(uuid=str(uuid.UUID(int=8)), generation=1, provider=old)

    plan = plan_for(ObservedTree((*root_of().providers, seen)), tree_of(inventories={"VCPU": Inventory(total=8)}))

    assert plan.operations == (
        Reshape(
            (
                SetInventories(ROOT_UUID, ROOT, {"VCPU": Inventory(total=8)}),
                SetInventories(seen.uuid, "host_gpu", {}),
            )
        ),
        Delete(seen.uuid, "host_gpu"),
    )


def test_a_new_root_is_created_then_described_then_stocked() -> None:
    desired = tree_of(inventories={"VCPU": Inventory(total=4)}, traits=frozenset({MARKER, "COMPUTE_NODE"}))

    operations = plan_for(ObservedTree(), desired).operations

    assert [type(operation) for operation in operations] == [Create, EnsureTraits, SetTraits, SetInventories]
    assert operations[0] == Create(ROOT_UUID, ROOT, None)


def test_a_new_child_takes_its_uuid_from_the_root_and_its_own_part_of_the_name() -> None:
    desired = ProviderTree((tree_of().root, Provider(name="host_gpu0", parent="host", traits=frozenset({MARKER}))))

    (create,) = (step for step in plan_for(root_of(), desired).operations if isinstance(step, Create))

    assert create.uuid == str(uuid.uuid5(uuid.UUID(ROOT_UUID), "_gpu0")) == child_uuid(ROOT_UUID, "other", "other_gpu0")


def test_a_child_that_nova_made_is_known_by_its_name_whatever_its_uuid() -> None:
    child = Provider(name="host_pci_0000_81_00_0", parent="host", inventories={"VGPU": Inventory(total=2)})
    seen = ObservedProvider(uuid=str(uuid.UUID(int=5)), generation=1, provider=child)
    observed = ObservedTree((*root_of().providers, seen))
    desired = ProviderTree((tree_of().root, replace(child, traits=frozenset({MARKER}))))

    with pytest.raises(TreeMismatch, match="made neither by this agent nor by nova"):
        plan_for(observed, desired)
    operations = plan_for(observed, desired, replace(OURS, adopted=frozenset({child.name}))).operations

    assert [type(operation) for operation in operations] == [EnsureTraits, SetTraits]
    assert operations[1].uuid == seen.uuid  # type: ignore[union-attr]


def test_stock_goes_before_the_traits_that_it_loses() -> None:
    observed = root_of(inventories={"VCPU": Inventory(total=4)}, traits=frozenset({MARKER, "COMPUTE_NODE"}))

    operations = plan_for(observed, tree_of(inventories={"VCPU": Inventory(total=2)})).operations

    assert [type(operation) for operation in operations] == [SetInventories, SetTraits]


def test_traits_that_only_go_need_not_wait_where_the_stock_stays() -> None:
    observed = root_of(traits=frozenset({MARKER, "COMPUTE_NODE"}))

    assert [type(operation) for operation in plan_for(observed, tree_of()).operations] == [SetTraits]


def test_aggregates_are_added_and_those_of_others_kept() -> None:
    (operation,) = plan_for(root_of(aggregates=frozenset({"a"})), tree_of(aggregates=frozenset({"b"}))).operations

    assert operation == SetAggregates(ROOT_UUID, ROOT, frozenset({"a", "b"}))


def test_what_the_operator_no_longer_names_is_withdrawn() -> None:
    configured = {ROOT: Names(frozenset({"CUSTOM_LICENCE"}), frozenset({"CUSTOM_FAST"}))}
    observed = root_of(
        inventories={"CUSTOM_LICENCE": Inventory(total=3), "CUSTOM_FOREIGN": Inventory(total=1)},
        traits=frozenset({MARKER, "CUSTOM_FAST", "CUSTOM_FOREIGN_TRAIT"}),
    )

    after = forecast(plan_for(observed, tree_of(), replace(OURS, configured=configured)), observed)

    assert after.providers[0].provider.inventories.keys() == {"CUSTOM_FOREIGN"}
    assert after.providers[0].provider.traits == {MARKER, "CUSTOM_FOREIGN_TRAIT"}


def test_a_standard_trait_that_placement_is_too_old_for_is_left_out_and_named() -> None:
    desired = tree_of(traits=frozenset({MARKER, "COMPUTE_NODE", "HW_CPU_X86_AVX"}))

    plan = diff(root_of(), desired, OURS, root_uuid=ROOT_UUID, known_traits=frozenset({MARKER, "COMPUTE_NODE"}))

    assert plan.left_out == {"HW_CPU_X86_AVX"}
    assert plan.operations == (
        SetTraits(ROOT_UUID, ROOT, frozenset({MARKER, "COMPUTE_NODE"}), frozenset({"COMPUTE_NODE"}), frozenset()),
    )


def test_custom_names_are_made_once_and_only_where_they_are_new() -> None:
    desired = tree_of(
        inventories={"CUSTOM_OLD": Inventory(total=1), "CUSTOM_NEW": Inventory(total=1)},
        traits=frozenset({MARKER, "CUSTOM_A", "CUSTOM_B"}),
    )
    observed = root_of(inventories={"CUSTOM_OLD": Inventory(total=1)})

    plan = diff(observed, desired, OURS, root_uuid=ROOT_UUID, known_traits=frozenset({"CUSTOM_A"}))

    assert plan.operations[:2] == (EnsureClasses(("CUSTOM_NEW",)), EnsureTraits(("CUSTOM_B",)))


def test_our_name_with_another_uuid_is_refused() -> None:
    with pytest.raises(TreeMismatch, match=f"uuid {ROOT_UUID}, and this host's compute_id is"):
        diff(root_of(), tree_of(), OURS, root_uuid=str(uuid.UUID(int=2)))


def test_our_uuid_under_another_name_is_refused_and_renamed_on_demand() -> None:
    desired = tree_of(name="new")

    with pytest.raises(TreeMismatch, match="sync --rename-from host"):
        plan_for(root_of(), desired)
    plan = diff(root_of(), desired, OURS, root_uuid=ROOT_UUID, rename=True)

    assert plan.operations == (Rename(ROOT_UUID, "new", ROOT),)


def test_a_foreign_child_of_a_provider_that_is_gone_stops_the_plan() -> None:
    ours = Provider(name="host_nic", parent=ROOT, traits=frozenset({MARKER}))
    foreign = Provider(name="theirs", parent="host_nic")
    observed = ObservedTree(
        (
            *root_of().providers,
            ObservedProvider(uuid=str(uuid.UUID(int=8)), generation=1, provider=ours),
            ObservedProvider(uuid=str(uuid.UUID(int=9)), generation=1, provider=foreign),
        )
    )

    with pytest.raises(TreeMismatch, match="theirs, which another service made"):
        plan_for(observed, tree_of())


def test_providers_go_children_first() -> None:
    def ours(number: int, name: str, parent: str) -> ObservedProvider:
        provider = Provider(name=name, parent=parent, traits=frozenset({MARKER}))
        return ObservedProvider(uuid=str(uuid.UUID(int=number)), generation=1, provider=provider)

    observed = ObservedTree((*root_of().providers, ours(8, "host_a", ROOT), ours(9, "host_a_b", "host_a")))

    operations = plan_for(observed, tree_of()).operations

    assert [operation.name for operation in operations if isinstance(operation, Delete)] == ["host_a_b", "host_a"]


def test_what_we_reserved_is_given_back_before_the_mark_that_says_so_goes() -> None:
    """A pass that is cut off in between would leave the reservation as if it were an operator's."""
    stock = {"VGPU": Inventory(total=2, reserved=2)}
    marks = frozenset({HELD, "CUSTOM_DEVICE_UNHEALTHY_KEEP_1_VGPU"})
    gpu = Provider(name="host_gpu", parent="host", inventories=stock, traits=marks | {MARKER})
    seen = ObservedProvider(uuid="g", generation=1, provider=gpu)
    observed = ObservedTree((*root_of().providers, seen))
    well = replace(gpu, inventories={"VGPU": Inventory(total=2, reserved=1)}, traits=frozenset({MARKER, "HW_GPU_MAX"}))
    desired = ProviderTree((observed.providers[0].provider, well))
    ours = Ownership(emitted=Names(traits=frozenset({MARKER, HELD}), prefixes=(KEEP,)))

    steps = [one for one in diff(observed, desired, ours, root_uuid=ROOT_UUID).operations if one.uuid == "g"]  # type: ignore[union-attr]

    assert [type(step) for step in steps] == [SetTraits, SetInventories, SetTraits]
    assert isinstance(steps[0], SetTraits)
    assert marks <= steps[0].traits
    assert isinstance(steps[2], SetTraits)
    assert steps[2].removed == marks


def test_an_empty_child_that_a_pass_of_ours_left_is_known_by_its_uuid() -> None:
    """Cut off after it was made, and not wanted any more: nobody else would take it away."""
    begun = ObservedProvider(
        uuid=child_uuid(ROOT_UUID, ROOT, f"{ROOT}_0"), generation=0, provider=Provider(name=f"{ROOT}_0", parent=ROOT)
    )
    others = replace(begun, uuid=str(uuid.UUID(int=9)), provider=Provider(name=f"{ROOT}_1", parent=ROOT))
    marked = replace(begun, provider=replace(begun.provider, traits=frozenset({"OWNER_CYBORG"})))

    assert adopted(ObservedTree((*root_of(), begun, others)), ()) == {begun.name}
    assert adopted(ObservedTree((*root_of(), marked)), {begun.name}) == frozenset()
