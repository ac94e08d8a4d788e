"""A pool of Ceph that hosts share: what a host decides of it, and what it refuses."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.sync.decide.pool import Pool
from agent.sync.decide.sharing import below
from agent.sync.leave import hand_over_node, retire_node
from agent.sync.outcome import Status
from agent.sync.run import run_pass
from beds.one_host import ABROAD, FORCE, GUEST, RESHAPE, ROOT, OneHost
from drivers.errors import MalformedFact
from drivers.facts import DiskFacts, DiskSpace, DiskUnread, PoolSpace
from drivers.policy import Layout, Policy, Ratio
from drivers.pools import POOLS, SHARER, pool_aggregate, pool_provider, pool_uuid
from fakes import FACTS
from reportclient.tree import Inventory, ObservedTree, Provider

VMS = PoolSpace("vms", cluster_bytes=3000 << 30, pool_gib=900, fsid="9f4e7c1a-6c0e-4f6f-8a55-2d9b3c1f7e10")
OWN = Policy()
SHARED = Policy(disk_shared=True)
LOCAL = DiskSpace(total_bytes=500 << 30, free_bytes=400 << 30)


@pytest.fixture
def one(tmp_path: Path) -> OneHost:
    """A host that reports the pool on its own root, with a guest that has a disk."""
    found = OneHost(tmp_path, replace(FACTS, disk=VMS), OWN)
    found.sync()
    found.claim({"": {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 20}})
    return found


def share(one: OneHost) -> None:
    assert one.sync(RESHAPE, policy=SHARED).status is Status.CHANGED


def pool(one: OneHost) -> Any:
    """The stock of the pool's provider; None: there is none."""
    seen = one.node.client.root(pool_uuid(VMS))
    return seen and seen.provider.inventories["DISK_GB"]


def rows(one: OneHost) -> dict[str, int]:
    """DISK_GB of the guest, by provider: the pool's, or the root."""
    consumer = one.node.client.consumer(GUEST)
    assert consumer
    return {
        "pool" if uuid == pool_uuid(VMS) else "root": each["DISK_GB"]
        for uuid, each in consumer.slots.items()
        if "DISK_GB" in each
    }


def beside(one: OneHost, other: str) -> None:
    """Another host comes into the pool's aggregate."""
    one.send("POST", "/resource_providers", {"name": other, "uuid": other})
    body = {"resource_provider_generation": 0, "aggregates": [pool_aggregate(VMS)]}
    one.send("PUT", f"/resource_providers/{other}/aggregates", body)


def with_disk(one: OneHost, disk: DiskFacts) -> Any:
    return replace(one.facts, disk=disk)


@pytest.mark.parametrize("layout", ["flat", "devices", "cells", "numa"])
def test_the_guests_disks_are_on_the_pool_and_back(one: OneHost, layout: Layout) -> None:
    one.sync(RESHAPE, policy=Policy(layout=layout))
    before = one.stock()

    done = one.sync(policy=Policy(layout=layout, disk_shared=True))
    assert (done.status, pool(one)) == (Status.RESHAPE_NEEDED, None)
    done = one.sync(RESHAPE)
    assert (done.status, rows(one), pool(one).total) == (Status.CHANGED, {"pool": 20}, 900)
    assert f"the provider {POOLS}" in done.notes[0]
    assert "DISK_GB" not in one.stock()
    assert SHARER in one.traits("")
    assert (one.sync().status, one.sync().notes) == (Status.UNCHANGED, ())

    done = one.sync(RESHAPE, policy=Policy(layout=layout))
    assert "leaves the shared storage" in " ".join(done.notes)
    assert (rows(one), one.stock(), pool(one)) == ({"root": 20}, before, None)
    assert SHARER not in one.traits("")
    assert one.sync().status is Status.UNCHANGED


def test_a_new_host_shares_from_its_first_pass(tmp_path: Path) -> None:
    one = OneHost(tmp_path, replace(FACTS, disk=VMS), SHARED)

    one.sync()

    assert (pool(one).total, "DISK_GB" in one.stock()) == (900, False)
    assert one.sync().status is Status.UNCHANGED


def test_a_host_that_shares_can_be_renamed_and_the_pool_keeps_its_name(one: OneHost) -> None:
    share(one)
    name = one.node.client.root(pool_uuid(VMS)).name  # type: ignore[union-attr]

    one.sync(replace(RESHAPE, rename_from="host"), facts=replace(one.facts, hostname="other"))

    assert one.node.client.root(pool_uuid(VMS)).name == name  # type: ignore[union-attr]
    assert (rows(one), one.sync().status) == ({"pool": 20}, Status.UNCHANGED)


def test_a_host_that_leaves_the_pool_while_it_is_renamed_takes_its_disks_back_after_that(one: OneHost) -> None:
    share(one)

    one.sync(replace(RESHAPE, rename_from="host"), facts=replace(one.facts, hostname="other"), policy=OWN)
    assert rows(one) == {"pool": 20}
    one.sync(RESHAPE)

    assert (rows(one), one.sync().status, SHARER in one.traits("")) == ({"root": 20}, Status.UNCHANGED, False)


@pytest.mark.parametrize("policy", [OWN, SHARED])
def test_a_host_does_not_forget_what_it_shares(one: OneHost, policy: Policy) -> None:
    share(one)

    done = one.sync(RESHAPE, facts=with_disk(one, replace(VMS, pool="volumes")), policy=policy)

    assert done.status is Status.UNSAFE
    assert "host still shares ceph_" in done.notes[0]
    assert rows(one) == {"pool": 20}
    assert one.sync(facts=with_disk(one, VMS), policy=SHARED).status is Status.UNCHANGED


def test_while_the_cluster_is_silent_nothing_changes(one: OneHost) -> None:
    share(one)

    done = one.sync(facts=with_disk(one, DiskUnread("no answer")))

    assert (done.status, SHARER in one.traits("")) == (Status.UNCHANGED, True)
    assert done.notes == ("DISK_GB stays as it is in placement: no answer",)
    assert "consumers hold allocations here" in " ".join(retire_node(one.node).notes)


def test_a_host_that_shares_is_neither_handed_over_nor_retired_under_its_guests(one: OneHost) -> None:
    share(one)

    assert "set [agent] shared_disk = own" in hand_over_node(one.node, force=True).notes[0]
    assert "consumers hold allocations" in retire_node(one.node).notes[0]
    one.claim({})
    assert retire_node(one.node).status is Status.CHANGED
    assert pool(one) is None


def test_a_disk_of_a_server_that_is_on_another_host_too_stays(one: OneHost) -> None:
    """As after an evacuation: which host has the disk cannot be told."""
    share(one)
    consumer = one.node.client.consumer(GUEST)
    assert consumer
    one.send("POST", "/resource_providers", {"name": "abroad", "uuid": ABROAD})
    stock = {"VCPU": {"total": 4}}
    one.send(
        "PUT",
        f"/resource_providers/{ABROAD}/inventories",
        {"resource_provider_generation": 0, "inventories": stock},
    )
    slots = {uuid: {"resources": dict(each)} for uuid, each in {**consumer.slots, ABROAD: {"VCPU": 1}}.items()}
    one.send(
        "PUT",
        f"/allocations/{GUEST}",
        {
            "allocations": slots,
            "project_id": consumer.project,
            "user_id": consumer.user,
            "consumer_generation": consumer.generation,
            "consumer_type": consumer.kind,
        },
    )

    one.sync(RESHAPE, policy=OWN)

    assert (rows(one), SHARER in one.traits("")) == ({"pool": 20}, True)


def test_a_much_smaller_total_waits_for_force(one: OneHost) -> None:
    share(one)

    done = one.sync(facts=with_disk(one, replace(VMS, pool_gib=300)))
    assert (done.status, pool(one).total) == (Status.UNCHANGED, 900)
    assert "can hold 300 GiB by what this host sees" in done.notes[0]
    one.sync(FORCE)
    assert pool(one).total == 300
    assert one.sync(facts=with_disk(one, replace(VMS, pool_gib=302))).status is Status.UNCHANGED
    one.sync(facts=with_disk(one, replace(VMS, pool_gib=400)))
    assert pool(one).total == 400


def test_a_pool_that_is_too_small_is_refused(one: OneHost) -> None:
    done = one.sync(RESHAPE, facts=with_disk(one, replace(VMS, pool_gib=10)), policy=SHARED)

    assert (done.status, pool(one)) == (Status.UNSAFE, None)
    assert f"make room on {POOLS}" in done.notes[0]


def test_a_refused_pass_does_not_remember_the_pool_as_part_of_the_tree(one: OneHost) -> None:
    share(one)

    assert one.sync(policy=replace(SHARED, layout="cells")).status is Status.RESHAPE_NEEDED

    left = one.node.state_file(ROOT).read(one.node.where).observed
    assert left is not None
    assert [seen.uuid for seen in left] == [ROOT]


@pytest.mark.parametrize(
    ("used", "reserved"),
    [
        pytest.param(0, 5, id="by nobody"),
        pytest.param(10, 10, id="with room for twice as much"),
        pytest.param(11, 11, id="a part of a unit counts whole"),
        pytest.param(500, 100, id="by more than there is"),
    ],
)
def test_what_others_use_of_a_pool_is_no_room_for_a_hosts_disks(used: int, reserved: int) -> None:
    stock = {"DISK_GB": Inventory(total=100, reserved=5, allocation_ratio=2.0)}
    wanted = Provider(name="pool", inventories=stock)
    found = below(Pool(stands=None, wanted=wanted, uuid="pool", aggregate="all", shared=True, used=used), "host")

    assert found.provider.inventories["DISK_GB"].reserved == reserved
    assert (found.name, found.provider.parent) == ("host_pool", "host")


def test_a_pool_of_less_than_one_gib_offers_nothing_new() -> None:
    empty = replace(VMS, pool_gib=0)
    new = pool_provider(empty, Policy(disk_ratio=Ratio(1.0, 2.0)), None).inventories["DISK_GB"]
    assert (new.total, new.reserved, new.allocation_ratio) == (1, 1, 2.0)


def test_a_pool_that_can_hold_nothing_more_by_one_host_is_written_by_force_alone(one: OneHost) -> None:
    share(one)
    full = with_disk(one, replace(VMS, pool_gib=0))

    done = one.sync(facts=full)
    assert (pool(one).total, pool(one).reserved) == (900, 0)
    assert "can hold 1 GiB by what this host sees, which is much less" in " ".join(done.notes)
    one.sync(FORCE)

    assert (pool(one).total, pool(one).reserved) == (1, 1)


def test_of_a_new_host_whose_cluster_is_silent_no_disk_is_said_to_stay(tmp_path: Path) -> None:
    one = OneHost(tmp_path, replace(FACTS, disk=DiskUnread("no answer")), OWN)

    assert "DISK_GB is not reported: no answer" in one.sync().notes
    assert "DISK_GB" not in one.stock()


def test_hosts_of_one_cluster_agree_on_the_pools_identity() -> None:
    assert pool_uuid(VMS) == pool_uuid(replace(VMS, cluster_bytes=1, pool_gib=2))
    assert pool_uuid(VMS) != pool_uuid(replace(VMS, pool="volumes"))
    assert pool_aggregate(VMS) not in (pool_uuid(VMS), pool_aggregate(replace(VMS, pool="volumes")))


def test_an_archive_without_the_clusters_identity_shares_nothing(tmp_path: Path) -> None:
    one = OneHost(tmp_path, replace(FACTS, disk=replace(VMS, fsid="")), SHARED)

    one.sync()

    assert one.stock()["DISK_GB"] == (3000, 0)
    assert isinstance(one.tree(), ObservedTree)


def leave_the_aggregate(one: OneHost, uuid: str = "") -> None:
    root = one.tree().root
    assert root
    body = {"resource_provider_generation": root.generation, "aggregates": []}
    one.send("PUT", f"/resource_providers/{uuid or root.uuid}/aggregates", body)


def test_a_host_that_a_person_took_out_of_the_aggregate_takes_its_disks_back_all_the_same(one: OneHost) -> None:
    share(one)
    leave_the_aggregate(one)

    assert one.sync(policy=OWN).status is Status.RESHAPE_NEEDED
    one.sync(RESHAPE)

    assert (rows(one), SHARER in one.traits(""), one.sync().status) == ({"root": 20}, False, Status.UNCHANGED)


def test_a_host_remembers_what_it_shares_where_nothing_in_placement_says_so_any_more(one: OneHost) -> None:
    share(one)
    leave_the_aggregate(one)
    one.remove_traits("", SHARER)

    done = one.sync(RESHAPE, policy=OWN)

    assert (done.status, rows(one)) == (Status.UNSAFE, {"pool": 20})
    assert "still shares ceph_" in done.notes[0]


@pytest.mark.parametrize("policy", [OWN, SHARED])
def test_a_cluster_that_was_made_anew_holds_no_host_without_guests(one: OneHost, policy: Policy) -> None:
    share(one)
    one.claim({})
    anew = replace(VMS, fsid="00000000-6c0e-4f6f-8a55-2d9b3c1f7e10")

    done = one.sync(RESHAPE, facts=with_disk(one, anew), policy=policy)

    assert done.status is Status.CHANGED
    assert one.aggregates() == ({pool_aggregate(anew)} if policy.disk_shared else set())
    assert one.node.client.root(pool_uuid(VMS)) is None
    assert one.sync().status is Status.UNCHANGED


def test_a_host_without_guests_that_takes_its_own_disk_leaves_the_pool(one: OneHost) -> None:
    share(one)
    one.claim({})

    done = one.sync(RESHAPE, facts=with_disk(one, LOCAL), policy=OWN)

    assert (done.status, SHARER in one.traits(""), one.aggregates()) == (Status.CHANGED, False, set())
    assert one.node.client.root(pool_uuid(VMS)) is None
    assert one.sync().status is Status.UNCHANGED


def test_a_pool_that_others_share_stays_when_a_host_takes_its_own_disk(one: OneHost) -> None:
    share(one)
    one.claim({})
    beside(one, "00000000-0000-4000-8000-000000000078")

    one.sync(RESHAPE, facts=with_disk(one, LOCAL), policy=OWN)

    assert one.aggregates() == set()
    assert one.node.client.root(pool_uuid(VMS)) is not None


def test_a_host_without_guests_retires_while_the_cluster_is_silent(one: OneHost) -> None:
    share(one)
    one.claim({})
    one.sync(facts=with_disk(one, DiskUnread("no answer")))

    assert retire_node(one.node).status is Status.CHANGED
    assert one.node.client.root(pool_uuid(VMS)) is None


def test_a_pool_whose_stock_a_person_deleted_is_left(one: OneHost) -> None:
    share(one)
    one.claim({})
    seen = one.node.client.root(pool_uuid(VMS))
    assert seen
    body = {"resource_provider_generation": seen.generation, "inventories": {}}
    one.send("PUT", f"/resource_providers/{seen.uuid}/inventories", body)

    one.sync(RESHAPE, policy=OWN)

    assert (one.stock()["DISK_GB"][0], SHARER in one.traits(""), one.sync().status) == (3000, False, Status.UNCHANGED)


def test_a_pool_larger_than_placement_can_count_is_a_sentence(one: OneHost) -> None:
    with pytest.raises(MalformedFact, match="cannot report the Ceph pool vms, which can hold 2147483648 GiB"):
        one.sync(facts=with_disk(one, replace(VMS, pool_gib=2**31)), policy=SHARED)


def test_of_hosts_that_leave_at_the_same_time_the_last_takes_the_pool_away(one: OneHost) -> None:
    """Another host is in the aggregate when this one looks, and out of it once this one is out."""
    share(one)
    other = "00000000-0000-4000-8000-000000000077"
    one.send("POST", "/resource_providers", {"name": "other", "uuid": other})
    body = {"resource_provider_generation": 0, "aggregates": [pool_aggregate(VMS)]}
    one.send("PUT", f"/resource_providers/{other}/aggregates", body)
    node = one.node
    client = node.client
    members, looks = client.members, []

    def first_with_the_other(aggregate: str) -> Any:
        looks.append(aggregate)
        found = members(aggregate)
        if len(looks) == 1:
            one.send(
                "PUT",
                f"/resource_providers/{other}/aggregates",
                {**body, "resource_provider_generation": 1, "aggregates": []},
            )
        return found

    client.members = first_with_the_other  # type: ignore[method-assign]
    one.sync(policy=OWN)
    run_pass(replace(node, settings=one.settings), RESHAPE)

    assert (pool(one), len(looks)) == (None, 2)
