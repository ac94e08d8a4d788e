"""Storage that an operator shares among hosts by an aggregate: guests' disks are counted there, and nothing else is."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.sync.leave import hand_over_node, retire_node
from agent.sync.outcome import Status
from agent.sync.pool_node import pool_nodes
from agent.sync.run import run_pass
from beds.one_host import GUEST, RESHAPE, ROOT, Cut, OneHost
from drivers.facts import PoolSpace
from drivers.policy import FOUND, DiskPolicy, Layout, Policy
from drivers.pools import SHARER, pool_uuid
from fakes import FACTS
from reportclient.names import SHARES

NFS, OTHER = "11111111-2222-4333-8444-555555555555", "11111111-2222-4333-8444-666666666666"
AGGREGATE = "aaaaaaaa-2222-4333-8444-555555555555"
CEPH = PoolSpace("vms", cluster_bytes=3000 << 30, pool_gib=900, fsid="9f4e7c1a-6c0e-4f6f-8a55-2d9b3c1f7e10")
OWN = Policy()
SHARED = Policy(disk=DiskPolicy(shared=FOUND))
STOCK = {"DISK_GB": {"total": 5000, "reserved": 100, "allocation_ratio": 2.0}, "CUSTOM_IOPS": {"total": 9}}


@pytest.fixture
def one(tmp_path: Path) -> OneHost:
    return a_host(tmp_path)


def a_host(folder: Path) -> OneHost:
    """A host with a guest that has a disk, and beside it a storage of which it is told by an aggregate."""
    found = OneHost(folder, FACTS, OWN)
    found.sync()
    found.send("PUT", "/resource_classes/CUSTOM_IOPS")
    found.send("PUT", "/traits/CUSTOM_NFS")
    found.claim({"": {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 20}})
    add_storage(found, NFS, "nfs")
    join(found, ROOT, AGGREGATE)
    return found


def add_storage(one: OneHost, uuid: str, name: str) -> None:
    one.send("POST", "/resource_providers", {"name": name, "uuid": uuid})
    one.put(uuid, "inventories", inventories=STOCK)
    one.put(uuid, "traits", traits=[SHARES, "CUSTOM_NFS"])
    join(one, uuid, AGGREGATE)


def join(one: OneHost, uuid: str, *aggregates: str) -> None:
    one.put(uuid, "aggregates", aggregates=list(aggregates))


def storage(one: OneHost) -> Any:
    """All that an operator says of the storage."""
    seen = one.node.client.root(NFS)
    return seen and seen.provider


def rows(one: OneHost) -> dict[str, int]:
    """DISK_GB of the guest, by provider."""
    consumer = one.node.client.consumer(GUEST)
    assert consumer
    names = {NFS: "nfs", OTHER: "other", ROOT: "root"}
    return {names[uuid]: each["DISK_GB"] for uuid, each in consumer.slots.items() if "DISK_GB" in each}


@pytest.mark.parametrize("layout", ["flat", "devices", "cells", "numa"])
def test_the_guests_disks_are_counted_there_and_back(one: OneHost, layout: Layout) -> None:
    one.sync(RESHAPE, policy=Policy(layout=layout))
    before, said = one.stock(), storage(one)

    assert one.sync(policy=Policy(layout=layout, disk=DiskPolicy(shared=FOUND))).status is Status.RESHAPE_NEEDED
    done = one.sync(RESHAPE)
    assert (done.status, rows(one), "DISK_GB" in one.stock()) == (Status.CHANGED, {"nfs": 20}, False)
    assert SHARER in one.traits("")
    assert (one.sync().status, one.sync().notes) == (Status.UNCHANGED, ())
    assert storage(one) == said

    one.sync(RESHAPE, policy=Policy(layout=layout))
    assert (rows(one), one.stock(), SHARER in one.traits("")) == ({"root": 20}, before, False)
    assert one.sync().status is Status.UNCHANGED
    assert storage(one) == said
    assert AGGREGATE in one.tree().providers[0].provider.aggregates


@pytest.mark.parametrize(("before", "after", "where"), [(OWN, SHARED, "nfs"), (SHARED, OWN, "root")])
def test_what_was_cut_off_at_any_write_is_finished_by_the_next_pass(
    tmp_path: Path, before: Policy, after: Policy, where: str
) -> None:
    for writes in range(10):
        one = a_host(tmp_path / str(writes))
        one.sync(RESHAPE, policy=before)
        said = storage(one)
        try:
            with one.ending_after(writes):
                one.sync(RESHAPE, policy=after)
        except Cut:
            one.sync(RESHAPE)
            assert (rows(one), storage(one)) == ({where: 20}, said)
            assert (one.sync().status, SHARER in one.traits("")) == (Status.UNCHANGED, after == SHARED)
        else:
            break
    assert writes > 1


def test_of_two_storages_none_is_chosen_but_the_named_one(one: OneHost) -> None:
    add_storage(one, OTHER, "other")

    done = one.sync(RESHAPE, policy=SHARED)
    assert "nfs, other share DISK_GB with host: name one of them in [agent] shared_disk" in done.notes[0]
    assert rows(one) == {"root": 20}

    one.sync(RESHAPE, policy=Policy(disk=DiskPolicy(shared="nfs")))
    assert (rows(one), one.sync().status) == ({"nfs": 20}, Status.UNCHANGED)


def test_a_host_that_was_taken_out_of_the_aggregate_stays_until_it_is_to_leave(one: OneHost) -> None:
    one.sync(RESHAPE, policy=SHARED)
    join(one, ROOT)

    done = one.sync(RESHAPE)
    assert "no provider shares DISK_GB with host" in done.notes[0]
    assert (rows(one), "DISK_GB" in one.stock(), SHARER in one.traits("")) == ({"nfs": 20}, False, True)

    one.forget()
    one.sync(RESHAPE, policy=OWN)
    assert (rows(one), SHARER in one.traits("")) == ({"root": 20}, False)


def test_a_host_that_moves_on_to_ceph_waits_for_the_pool_and_takes_its_disks_there(one: OneHost) -> None:
    one.sync(RESHAPE, policy=SHARED)

    done = one.sync(RESHAPE, facts=replace(one.facts, disk=CEPH))
    assert "placement has no provider ceph_" in done.notes[0]
    assert rows(one) == {"nfs": 20}

    policy = replace(one.policy, disk=replace(one.policy.disk, reports_pool=True))
    reporting = replace(one.node, settings=replace(one.settings, policy=policy))
    (pool,) = pool_nodes(reporting)
    run_pass(pool)
    one.sync(RESHAPE)
    consumer = one.node.client.consumer(GUEST)
    assert consumer
    assert consumer.slots[pool_uuid(CEPH)] == {"DISK_GB": 20}
    assert (NFS in consumer.slots, one.sync().status) == (False, Status.UNCHANGED)


def test_a_host_that_shares_is_not_handed_over_and_its_retirement_leaves_the_storage(one: OneHost) -> None:
    one.sync(RESHAPE, policy=SHARED)
    said = storage(one)

    assert "set [agent] shared_disk = own" in hand_over_node(one.node, force=True).notes[0]
    assert "consumers hold allocations" in retire_node(one.node).notes[0]
    one.claim({})
    assert retire_node(one.node).status is Status.CHANGED
    assert storage(one) == said


@pytest.mark.parametrize("policy", [OWN, SHARED])
def test_a_host_that_is_moved_to_another_storage_takes_its_disks_along(one: OneHost, policy: Policy) -> None:
    another = "aaaaaaaa-2222-4333-8444-777777777777"
    one.sync(RESHAPE, policy=SHARED)
    add_storage(one, OTHER, "other")
    join(one, OTHER, another)
    join(one, ROOT, another)

    one.sync(RESHAPE, policy=policy)

    assert rows(one) == ({"root": 20} if policy == OWN else {"other": 20})
    assert one.sync().status is Status.UNCHANGED


def test_a_storage_that_is_gone_for_good_holds_no_host(one: OneHost) -> None:
    one.sync(RESHAPE, policy=SHARED)
    one.claim({})
    one.send("DELETE", f"/resource_providers/{NFS}")

    assert one.sync(RESHAPE, policy=OWN).status is Status.CHANGED

    assert ("DISK_GB" in one.stock(), SHARER in one.traits(""), one.sync().status) == (True, False, Status.UNCHANGED)


def test_an_agent_killed_before_it_saved_that_it_moved_on_goes_back_whole(
    one: OneHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_storage(one, OTHER, "other")
    one.sync(RESHAPE, policy=Policy(disk=DiskPolicy(shared=NFS)))
    with monkeypatch.context() as patch:
        patch.setattr("agent.sync.run._read_back", _killed)
        with pytest.raises(Cut):
            one.sync(RESHAPE, policy=Policy(disk=DiskPolicy(shared=OTHER)))
    assert rows(one) == {"other": 20}

    one.sync(RESHAPE, policy=Policy(disk=DiskPolicy(shared=NFS)))

    assert rows(one) == {"nfs": 20}


def _killed(*_: object) -> None:
    raise Cut("killed")
