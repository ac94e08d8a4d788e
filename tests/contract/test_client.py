"""The report client against placement's own application, in this process."""

import uuid
from dataclasses import replace

import pytest

from beds.agents import CountingSender
from reportclient.client import PlacementClient
from reportclient.diff import diff
from reportclient.errors import Conflict, NameTaken, Rejected, TreeMismatch
from reportclient.ownership import MARKER, Names, Ownership
from reportclient.plan import Create, Plan, Reshape, SetInventories
from reportclient.renaming import child_uuid
from reportclient.tree import Inventory, ObservedTree, Provider, ProviderTree

pytestmark = pytest.mark.contract

OURS = Ownership(emitted=Names(frozenset({"VCPU", "MEMORY_MB"}), frozenset({"HW_CPU_X86_AVX", "COMPUTE_NODE", MARKER})))


def make_tree(name: str, *children: str) -> ProviderTree:
    root = Provider(
        name=name,
        inventories={"VCPU": Inventory(total=8, max_unit=8), "CUSTOM_TEST_STOCK": Inventory(total=2)},
        traits=frozenset({"COMPUTE_NODE", "HW_CPU_X86_AVX", MARKER}),
    )
    rest = (
        Provider(
            name=f"{name}_{child}",
            parent=name,
            inventories={"VGPU": Inventory(total=4)},
            traits=frozenset({MARKER, "CUSTOM_TEST_GPU"}),
        )
        for child in children
    )
    return ProviderTree((root, *rest))


def report(
    client: PlacementClient, tree: ProviderTree, root_uuid: str, since: ObservedTree | None = None
) -> ObservedTree:
    """One pass without a host: observe, plan, execute."""
    observed = client.observe(root_uuid, since)
    ours = replace(OURS, configured={tree.root.name: Names(frozenset({"CUSTOM_TEST_STOCK"}))})
    return client.execute(diff(observed, tree, ours, root_uuid=root_uuid), observed)


def fresh() -> tuple[str, str]:
    root_uuid = str(uuid.uuid4())
    return root_uuid, f"host-{root_uuid[:8]}"


def test_what_was_written_is_what_is_read_back(client: PlacementClient) -> None:
    root_uuid, name = fresh()
    tree = make_tree(name, "gpu0", "gpu1")

    report(client, tree, root_uuid)

    observed = client.observe(root_uuid)
    assert tuple(seen.provider for seen in observed) == tree.providers
    assert observed.by_name[f"{name}_gpu1"].uuid == child_uuid(root_uuid, name, f"{name}_gpu1")


def test_a_root_alone_is_reported_without_reading_back_and_known_afterwards(
    client: PlacementClient, sender: CountingSender
) -> None:
    root_uuid, name = fresh()
    after = report(client, make_tree(name), root_uuid)
    sender.count()

    observed = client.observe(root_uuid, after)

    assert sender.seen == [f"GET /resource_providers?in_tree={root_uuid}"]
    assert observed.root == after.root


def test_a_tree_appears_whole_and_with_its_traits_before_its_stock(
    client: PlacementClient, sender: CountingSender
) -> None:
    root_uuid, name = fresh()

    report(client, make_tree(name, "gpu0"), root_uuid)

    writes = [request for request in sender.seen if not request.startswith("GET")]
    stock = [request for request in writes if "reshaper" in request or "inventories" in request]
    assert stock == ["POST /reshaper"]
    assert writes[-1] == "POST /reshaper"


def test_without_the_role_for_a_reshape_each_provider_is_written_by_itself(
    client: PlacementClient, sender: CountingSender
) -> None:
    root_uuid, name = fresh()
    whole = sender.sender

    class Admin:
        def request(self, url: str, method: str, **kwargs: object) -> object:
            headers = {"X-Roles": "admin", **dict(kwargs.pop("headers"))}  # type: ignore[call-overload]
            return whole.request(url, method, headers=headers, **kwargs)

    sender.sender = Admin()

    assert (client.may_write(), client.may_reshape()) == (True, False)
    report(client, make_tree(name, "gpu0"), root_uuid)
    assert len(client.observe(root_uuid).providers) == 2


def test_nothing_to_do_costs_one_request(client: PlacementClient, sender: CountingSender) -> None:
    root_uuid, name = fresh()
    tree = make_tree(name, "gpu0", "gpu1")
    report(client, tree, root_uuid)
    known = client.observe(root_uuid)
    sender.count()

    report(client, tree, root_uuid, known)

    assert sender.count() == 1


def test_only_the_provider_that_somebody_touched_is_read_again(client: PlacementClient, sender: CountingSender) -> None:
    root_uuid, name = fresh()
    tree = make_tree(name, "gpu0", "gpu1")
    report(client, tree, root_uuid)
    known = client.observe(root_uuid)
    touched = known.by_name[f"{name}_gpu1"]
    sender.request("/traits/CUSTOM_BY_HAND", "PUT", microversion="1.39", headers={})
    body = {
        "resource_provider_generation": touched.generation,
        "traits": [*touched.provider.traits, "CUSTOM_BY_HAND"],
    }
    sender.request(f"/resource_providers/{touched.uuid}/traits", "PUT", json=body, microversion="1.39", headers={})
    sender.count()

    after = report(client, tree, root_uuid, known)

    paths = [request.split("?")[0] for request in sender.seen]
    base = f"GET /resource_providers/{touched.uuid}"
    assert paths == ["GET /resource_providers", f"{base}/inventories", f"{base}/traits", f"{base}/aggregates"]
    assert "CUSTOM_BY_HAND" in after.by_name[touched.name].provider.traits


def test_a_write_on_what_somebody_changed_meanwhile_is_a_conflict(client: PlacementClient) -> None:
    root_uuid, name = fresh()
    tree = make_tree(name)
    report(client, tree, root_uuid)
    old = client.observe(root_uuid)
    root = old.providers[0]
    write = SetInventories(root_uuid, name, {"VCPU": Inventory(total=3)})
    client.execute(Plan((write,)), old)

    with pytest.raises(Conflict, match="another writer came first"):
        client.execute(Plan((write,)), ObservedTree((root,)))


def test_providers_that_are_gone_are_deleted_children_first(client: PlacementClient) -> None:
    root_uuid, name = fresh()
    report(client, make_tree(name, "gpu0", "gpu1"), root_uuid)

    report(client, make_tree(name, "gpu1"), root_uuid)

    assert [seen.name for seen in client.observe(root_uuid)] == [name, f"{name}_gpu1"]


def test_a_foreign_child_stays_as_it_is(client: PlacementClient) -> None:
    root_uuid, name = fresh()
    report(client, make_tree(name), root_uuid)
    foreign = str(uuid.uuid4())
    client.execute(Plan((Create(foreign, f"{name}:ovs:br0", root_uuid),)), client.observe(root_uuid))

    report(client, make_tree(name), root_uuid)

    assert foreign in client.observe(root_uuid).by_uuid


def test_the_second_host_of_one_name_is_told_so_and_writes_nothing(client: PlacementClient) -> None:
    root_uuid, name = fresh()
    report(client, make_tree(name), root_uuid)

    with pytest.raises(NameTaken, match=r"duplicate|already"):
        report(client, make_tree(name), str(uuid.uuid4()))


def test_a_root_found_under_another_name_is_refused_and_renamed_on_demand(client: PlacementClient) -> None:
    root_uuid, name = fresh()
    report(client, make_tree(name, "gpu0"), root_uuid)
    observed, renamed = client.observe(root_uuid), make_tree(f"{name}-new", "gpu0")

    with pytest.raises(TreeMismatch, match=f"--rename-from {name}"):
        diff(observed, renamed, OURS, root_uuid=root_uuid)
    client.execute(diff(observed, renamed, OURS, root_uuid=root_uuid, rename=True), observed)

    after = client.observe(root_uuid)
    assert [seen.name for seen in after] == [f"{name}-new", f"{name}-new_gpu0"]
    assert after.by_uuid.keys() == observed.by_uuid.keys()


def test_a_class_that_placement_does_not_know_is_rejected_with_its_name(client: PlacementClient) -> None:
    root_uuid, name = fresh()
    report(client, make_tree(name), root_uuid)
    write = SetInventories(root_uuid, name, {"NO_SUCH_CLASS": Inventory(total=1)})

    with pytest.raises(Rejected, match="NO_SUCH_CLASS"):
        client.execute(Plan((write,)), client.observe(root_uuid))


def test_traits_that_placement_has_are_told_apart_from_others(client: PlacementClient) -> None:
    assert client.known_traits(["HW_CPU_X86_AVX", "CUSTOM_NEVER_MADE", "HW_NOT_YET"]) == {"HW_CPU_X86_AVX"}


def test_who_holds_what_is_read_per_provider(client: PlacementClient, sender: CountingSender) -> None:
    root_uuid, name = fresh()
    report(client, make_tree(name), root_uuid)
    consumer = str(uuid.uuid4())
    body = {
        "allocations": {root_uuid: {"resources": {"VCPU": 2}}},
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": None,
    }
    sender.request(f"/allocations/{consumer}", "PUT", json=body, microversion="1.28", headers={})

    (allocation,) = client.allocations(client.observe(root_uuid))

    assert (allocation.consumer, allocation.provider, allocation.amount) == (consumer, name, 2)


def test_late_traits_follow_a_reshape(client: PlacementClient) -> None:
    """A provider that loses traits with its stock: the stock goes first, and the generation in between is read."""
    root_uuid, name = fresh()
    full = make_tree(name, "gpu0", "gpu1")
    report(client, full, root_uuid)
    root = replace(
        full.root, inventories={"VCPU": Inventory(total=4, max_unit=4)}, traits=full.root.traits - {"COMPUTE_NODE"}
    )
    less = ProviderTree(
        (root, *(replace(child, inventories={"VGPU": Inventory(total=1)}) for child in full.providers[1:]))
    )
    observed = client.observe(root_uuid)
    plan = diff(observed, less, replace(OURS, configured={}), root_uuid=root_uuid)

    assert [type(step) for step in plan.operations[:1]] == [Reshape]
    client.execute(plan, observed)

    assert "COMPUTE_NODE" not in client.observe(root_uuid).providers[0].provider.traits
