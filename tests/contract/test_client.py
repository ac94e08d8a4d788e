"""The report client against placement's own application, in this process."""

import uuid
from dataclasses import replace

import pytest

from beds.agents import CountingSender
from beds.by_hand import ByHand
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


class Host:
    """A host that is not there, with an identity of its own."""

    def __init__(self, client: PlacementClient, name: str = "") -> None:
        self.client, self.uuid = client, str(uuid.uuid4())
        self.name = name or f"host-{self.uuid[:8]}"

    def observe(self) -> ObservedTree:
        return self.client.observe(self.uuid)

    def report(self, *children: str, since: ObservedTree | None = None) -> ObservedTree:
        """One pass: observe, plan, execute."""
        observed, tree = self.client.observe(self.uuid, since), make_tree(self.name, *children)
        ours = replace(OURS, configured={self.name: Names(frozenset({"CUSTOM_TEST_STOCK"}))})
        return self.client.execute(diff(observed, tree, ours, root_uuid=self.uuid), observed)


@pytest.fixture
def host(client: PlacementClient) -> Host:
    return Host(client)


def test_what_was_written_is_what_is_read_back(host: Host) -> None:
    host.report("gpu0", "gpu1")

    observed, name = host.observe(), f"{host.name}_gpu1"
    assert tuple(seen.provider for seen in observed) == make_tree(host.name, "gpu0", "gpu1").providers
    assert observed.by_name[name].uuid == child_uuid(host.uuid, host.name, name)


def test_a_root_alone_is_reported_without_reading_back_and_known_afterwards(host: Host, sender: CountingSender) -> None:
    after = host.report()
    sender.count()

    observed = host.client.observe(host.uuid, after)

    assert sender.seen == [f"GET /resource_providers?in_tree={host.uuid}"]
    assert observed.root == after.root


def test_a_tree_appears_whole_and_with_its_traits_before_its_stock(host: Host, sender: CountingSender) -> None:
    host.report("gpu0")

    writes = [request for request in sender.seen if not request.startswith("GET")]
    stock = [request for request in writes if "reshaper" in request or "inventories" in request]
    assert stock == ["POST /reshaper"]
    assert writes[-1] == "POST /reshaper"


def test_without_the_role_for_a_reshape_each_provider_is_written_by_itself(host: Host, sender: CountingSender) -> None:
    whole = sender.sender

    class Admin:
        def request(self, url: str, method: str, **kwargs: object) -> object:
            headers = {"X-Roles": "admin", **dict(kwargs.pop("headers"))}  # type: ignore[call-overload]
            return whole.request(url, method, headers=headers, **kwargs)

    sender.sender = Admin()

    assert (host.client.may_write(), host.client.may_reshape()) == (True, False)
    host.report("gpu0")
    assert len(host.observe().providers) == 2


def test_nothing_to_do_costs_one_request(host: Host, sender: CountingSender) -> None:
    host.report("gpu0", "gpu1")
    known = host.observe()
    sender.count()

    host.report("gpu0", "gpu1", since=known)

    assert sender.count() == 1


def test_only_the_provider_that_somebody_touched_is_read_again(host: Host, sender: CountingSender) -> None:
    host.report("gpu0", "gpu1")
    known = host.observe()
    touched = known.by_name[f"{host.name}_gpu1"]
    ByHand(sender).add_traits(touched.uuid, "CUSTOM_BY_HAND")
    sender.count()

    after = host.report("gpu0", "gpu1", since=known)

    paths = [request.split("?")[0] for request in sender.seen]
    base = f"GET /resource_providers/{touched.uuid}"
    assert paths == ["GET /resource_providers", f"{base}/inventories", f"{base}/traits", f"{base}/aggregates"]
    assert "CUSTOM_BY_HAND" in after.by_name[touched.name].provider.traits


def test_a_write_on_what_somebody_changed_meanwhile_is_a_conflict(host: Host) -> None:
    host.report()
    old = host.observe()
    root = old.providers[0]
    write = SetInventories(host.uuid, host.name, {"VCPU": Inventory(total=3)})
    host.client.execute(Plan((write,)), old)

    with pytest.raises(Conflict, match="another writer came first"):
        host.client.execute(Plan((write,)), ObservedTree((root,)))


def test_providers_that_are_gone_are_deleted_children_first(host: Host) -> None:
    host.report("gpu0", "gpu1")

    host.report("gpu1")

    assert [seen.name for seen in host.observe()] == [host.name, f"{host.name}_gpu1"]


def test_a_foreign_child_stays_as_it_is(host: Host) -> None:
    host.report()
    foreign = str(uuid.uuid4())
    host.client.execute(Plan((Create(foreign, f"{host.name}:ovs:br0", host.uuid),)), host.observe())

    host.report()

    assert foreign in host.observe().by_uuid


def test_the_second_host_of_one_name_is_told_so_and_writes_nothing(host: Host) -> None:
    host.report()

    with pytest.raises(NameTaken, match=r"duplicate|already"):
        Host(host.client, host.name).report()


def test_a_root_found_under_another_name_is_refused_and_renamed_on_demand(host: Host) -> None:
    host.report("gpu0")
    name, root_uuid = host.name, host.uuid
    observed, renamed = host.observe(), make_tree(f"{name}-new", "gpu0")

    with pytest.raises(TreeMismatch, match=f"--rename-from {name}"):
        diff(observed, renamed, OURS, root_uuid=root_uuid)
    host.client.execute(diff(observed, renamed, OURS, root_uuid=root_uuid, rename=True), observed)

    after = host.observe()
    assert [seen.name for seen in after] == [f"{name}-new", f"{name}-new_gpu0"]
    assert after.by_uuid.keys() == observed.by_uuid.keys()


def test_a_class_that_placement_does_not_know_is_rejected_with_its_name(host: Host) -> None:
    host.report()
    write = SetInventories(host.uuid, host.name, {"NO_SUCH_CLASS": Inventory(total=1)})

    with pytest.raises(Rejected, match="NO_SUCH_CLASS"):
        host.client.execute(Plan((write,)), host.observe())


def test_traits_that_placement_has_are_told_apart_from_others(client: PlacementClient) -> None:
    assert client.known_traits(["HW_CPU_X86_AVX", "CUSTOM_NEVER_MADE", "HW_NOT_YET"]) == {"HW_CPU_X86_AVX"}


def test_who_holds_what_is_read_per_provider(host: Host, sender: CountingSender) -> None:
    host.report()
    consumer = str(uuid.uuid4())
    ByHand(sender).claim(consumer, {host.uuid: {"VCPU": 2}}, None)

    (allocation,) = host.client.allocations(host.observe())

    assert (allocation.consumer, allocation.provider, allocation.amount) == (consumer, host.name, 2)


def test_late_traits_follow_a_reshape(host: Host) -> None:
    """A provider that loses traits with its stock: the stock goes first, and the generation in between is read."""
    full = make_tree(host.name, "gpu0", "gpu1")
    host.report("gpu0", "gpu1")
    root = replace(
        full.root, inventories={"VCPU": Inventory(total=4, max_unit=4)}, traits=full.root.traits - {"COMPUTE_NODE"}
    )
    less = ProviderTree(
        (root, *(replace(child, inventories={"VGPU": Inventory(total=1)}) for child in full.providers[1:]))
    )
    observed = host.observe()
    plan = diff(observed, less, replace(OURS, configured={}), root_uuid=host.uuid)

    assert [type(step) for step in plan.operations[:1]] == [Reshape]
    host.client.execute(plan, observed)

    assert "COMPUTE_NODE" not in host.observe().providers[0].provider.traits
