"""A pool of Ceph that hosts share: what a host decides of it, and what it refuses."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.sync.decide.view import Wishes
from agent.sync.leave import hand_over_node, retire_node
from agent.sync.outcome import Outcome, Status
from agent.sync.pool_node import pool_nodes
from agent.sync.run import run_pass
from beds.one_host import ABROAD, FORCE, GUEST, MIGRATION, RESHAPE, ROOT, Cut, OneHost
from drivers.errors import MalformedFact, PolicyError
from drivers.facts import DiskFacts, DiskSpace, DiskUnread, PoolSpace
from drivers.policy import FOUND, DiskPolicy, Layout, Policy, Ratio, Ratios
from drivers.pools import POOLS, REPORTED_BY, SHARER, aggregate_of, pool_name, pool_provider, pool_uuid
from fakes import FACTS
from reportclient.names import SHARES
from reportclient.ownership import MARKER
from reportclient.reserve import HELD, keeps
from reportclient.tree import Inventory, Provider

VMS = PoolSpace("vms", cluster_bytes=3000 << 30, pool_gib=900, fsid="9f4e7c1a-6c0e-4f6f-8a55-2d9b3c1f7e10")
OWN = Policy()
SHARED = Policy(disk=DiskPolicy(shared=FOUND))
LOCAL = DiskSpace(total_bytes=500 << 30, free_bytes=400 << 30)


OTHER = "00000000-0000-4000-8000-000000000078"
UUID = pool_uuid(VMS)


@pytest.fixture
def one(tmp_path: Path) -> OneHost:
    return a_host(tmp_path)


def a_host(folder: Path) -> OneHost:
    """A host that counts the pool on its own root, with a guest that has a disk; its agent reports the pool too."""
    found = OneHost(folder, replace(FACTS, disk=VMS), OWN)
    found.sync()
    report(found)
    found.claim({"": {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 20}})
    return found


def report(one: OneHost, wishes: Wishes = Wishes(), *, disk: DiskFacts = VMS) -> Outcome:
    """A pass over the pool, as this host sees it."""
    (node,) = pool_nodes(reporter(one, disk))
    return run_pass(node, wishes)


def reporter(one: OneHost, disk: DiskFacts = VMS) -> Any:
    """This host with an agent that reports the pool."""
    policy = replace(one.policy, disk=replace(one.policy.disk, reports_pool=True))
    seen = OneHost(one.folder, with_disk(one, disk), policy, sender=one.sender)
    return seen.node


def share(one: OneHost) -> None:
    assert one.sync(RESHAPE, policy=SHARED).status is Status.CHANGED


def pool(one: OneHost) -> Any:
    """The stock of the pool's provider; None: there is none."""
    seen = one.node.client.root(UUID)
    return seen and seen.provider.inventories["DISK_GB"]


def rows(one: OneHost, consumer: str = GUEST) -> dict[str, int]:
    """DISK_GB of a consumer, by provider: the pool's, or the root."""
    found = one.node.client.consumer(consumer)
    assert found
    names = {UUID: "pool", ROOT: "root"}
    return {names.get(uuid, uuid): each["DISK_GB"] for uuid, each in found.slots.items() if "DISK_GB" in each}


def with_disk(one: OneHost, disk: DiskFacts) -> Any:
    return replace(one.facts, disk=disk)


def evacuated(one: OneHost) -> None:
    """The guest has something of another host too."""
    consumer = one.node.client.consumer(GUEST)
    assert consumer
    one.send("POST", "/resource_providers", {"name": "abroad", "uuid": ABROAD})
    one.put(ABROAD, "inventories", inventories={"VCPU": {"total": 4}})
    hold(one, {**consumer.slots, ABROAD: {"VCPU": 1}})


def hold(one: OneHost, slots: Any) -> None:
    """What the guest has from now on, by uuid of the provider."""
    consumer = one.node.client.consumer(GUEST)
    assert consumer
    body = {
        "allocations": {uuid: {"resources": dict(each)} for uuid, each in slots.items()},
        "project_id": consumer.project,
        "user_id": consumer.user,
        "consumer_generation": consumer.generation,
        "consumer_type": consumer.kind,
    }
    one.send("PUT", f"/allocations/{GUEST}", body)


@pytest.mark.parametrize("layout", ["flat", "devices", "cells", "numa"])
def test_the_guests_disks_are_on_the_pool_and_back(one: OneHost, layout: Layout) -> None:
    one.sync(RESHAPE, policy=Policy(layout=layout))
    before, offered = one.stock(), pool(one)

    assert one.sync(policy=Policy(layout=layout, disk=DiskPolicy(shared=FOUND))).status is Status.RESHAPE_NEEDED
    done = one.sync(RESHAPE)
    assert (done.status, rows(one), pool(one)) == (Status.CHANGED, {"pool": 20}, offered)
    assert ("DISK_GB" in one.stock(), SHARER in one.traits(""), one.aggregates()) == (False, True, {aggregate_of(UUID)})
    assert (one.sync().status, one.sync().notes) == (Status.UNCHANGED, ())

    done = one.sync(RESHAPE, policy=Policy(layout=layout))
    assert "leaves the shared storage" in " ".join(done.notes)
    assert (rows(one), one.stock(), pool(one)) == ({"root": 20}, before, offered)
    assert (SHARER in one.traits(""), one.aggregates()) == (False, set())
    assert (one.sync().status, one.sync().notes) == (Status.UNCHANGED, ())


def test_all_that_a_pass_writes_is_in_its_plan_and_the_pool_is_not_written(one: OneHost) -> None:
    for policy in (SHARED, OWN):
        generation = one.node.client.root(UUID).generation  # type: ignore[union-attr]
        foreseen = one_plan(one, policy)
        writes = one.sender.writes
        done = one.sync(RESHAPE, policy=policy)

        assert done.plan.digest == foreseen.digest
        assert one.sender.writes - writes == len(done.plan.operations)
        assert UUID not in {getattr(step, "uuid", "") for step in done.plan.operations}
        assert one.node.client.root(UUID).generation <= generation + 1  # type: ignore[union-attr]  # by the reshape alone


def one_plan(one: OneHost, policy: Policy) -> Any:
    one.policy = policy
    return one.foresee(RESHAPE).plan


@pytest.mark.parametrize(("before", "after", "where"), [(OWN, SHARED, "pool"), (SHARED, OWN, "root")])
@pytest.mark.parametrize("lost", [False, True])
def test_what_was_cut_off_at_any_write_is_finished_by_the_next_pass(
    tmp_path: Path, before: Policy, after: Policy, where: str, lost: bool
) -> None:
    for writes in range(12):
        one = a_host(tmp_path / str(writes))
        one.sync(RESHAPE, policy=before)
        try:
            with one.ending_after(writes):
                one.sync(RESHAPE, policy=after)
        except Cut:
            if lost:
                one.forget()
            one.sync(RESHAPE)
            assert (rows(one), SHARER in one.traits("")) == ({where: 20}, where == "pool")
            assert one.aggregates() == ({aggregate_of(UUID)} if where == "pool" else set())
            assert one.sync().status is Status.UNCHANGED
        else:
            break
    assert writes > 2


def test_the_mind_may_change_after_each_write(tmp_path: Path) -> None:
    """A host that was cut off while it came, or left, goes back whole."""
    for before, after, where in ((OWN, SHARED, "root"), (SHARED, OWN, "pool")):
        for writes in range(6):
            one = a_host(tmp_path / f"{where}{writes}")
            one.sync(RESHAPE, policy=before)
            try:
                with one.ending_after(writes):
                    one.sync(RESHAPE, policy=after)
            except Cut:
                one.sync(RESHAPE, policy=before)
                assert (rows(one), SHARER in one.traits("")) == ({where: 20}, where == "pool")
                assert ("DISK_GB" in one.stock()) == (where == "root")
                assert one.aggregates() == ({aggregate_of(UUID)} if where == "pool" else set())


def test_a_new_host_shares_from_its_first_pass(one: OneHost) -> None:
    new = OneHost(one.folder / "new", replace(one.facts, hostname="new"), SHARED, sender=one.sender)
    node = replace(new.node, driver=one_of(new, OTHER))

    run_pass(node)

    root = node.client.root(OTHER)
    assert root
    assert ("DISK_GB" in root.provider.inventories, SHARER in root.provider.traits) == (False, True)
    assert run_pass(node).status is Status.UNCHANGED


def one_of(one: OneHost, identity: str) -> Any:
    return type(one.node.driver)(one.facts, identity)  # type: ignore[call-arg]


def test_without_a_pool_a_host_changes_nothing_about_its_disk_and_says_what_to_do(tmp_path: Path) -> None:
    one = OneHost(tmp_path, replace(FACTS, disk=VMS), OWN)
    one.sync()
    before = one.stock()["DISK_GB"]

    done = one.sync(RESHAPE, policy=replace(SHARED, reserved_memory_mib=1024))

    assert (one.stock()["DISK_GB"], one.stock()["MEMORY_MB"][1]) == (before, 1024)
    assert (SHARER in one.traits(""), one.aggregates(), pool(one)) == (False, set(), None)
    assert f"DISK_GB stays as it is in placement: placement has no provider {pool_name(VMS)}" in done.notes[0]
    assert "set [agent] report_pool = true on one of its hosts" in done.notes[0]


@pytest.mark.parametrize("asked", [UUID, pool_name(VMS)])
def test_a_pool_is_named_by_uuid_or_name_whatever_the_disk_is(one: OneHost, asked: str) -> None:
    one.sync(RESHAPE, facts=with_disk(one, LOCAL), policy=Policy(disk=DiskPolicy(shared=asked)))

    assert (rows(one), one.sync().status) == ({"pool": 20}, Status.UNCHANGED)


def test_a_named_pool_counts_also_while_the_cluster_is_silent(one: OneHost) -> None:
    one.sync(RESHAPE, facts=with_disk(one, DiskUnread("no answer")), policy=Policy(disk=DiskPolicy(shared=UUID)))

    assert (rows(one), "DISK_GB" in one.stock()) == ({"pool": 20}, False)


def test_a_host_that_shares_can_be_renamed_and_the_pool_keeps_its_name(one: OneHost) -> None:
    share(one)
    name = one.node.client.root(UUID).name  # type: ignore[union-attr]

    one.sync(replace(RESHAPE, rename_from="host"), facts=replace(one.facts, hostname="other"))

    assert one.node.client.root(UUID).name == name  # type: ignore[union-attr]
    assert (rows(one), one.sync().status, one.sync().notes) == ({"pool": 20}, Status.UNCHANGED, ())


def test_a_host_goes_from_one_pool_to_another_in_one_plan(one: OneHost) -> None:
    share(one)
    volumes = replace(VMS, pool="volumes")
    report(one, disk=volumes)

    one.sync(RESHAPE, facts=with_disk(one, volumes))

    assert rows(one) == {pool_uuid(volumes): 20}
    assert one.aggregates() == {aggregate_of(pool_uuid(volumes))}
    assert (one.sync().status, one.sync().notes) == (Status.UNCHANGED, ())


def test_a_host_whose_next_pool_nobody_reports_stays_on_the_first(one: OneHost) -> None:
    share(one)

    done = one.sync(RESHAPE, facts=with_disk(one, replace(VMS, pool="volumes")))

    assert "placement has no provider ceph_" in done.notes[0]
    assert (rows(one), SHARER in one.traits(""), "DISK_GB" in one.stock()) == ({"pool": 20}, True, False)
    assert one.aggregates() == {aggregate_of(UUID)}


def test_a_host_without_guests_that_takes_its_own_disk_leaves_the_pool(one: OneHost) -> None:
    share(one)
    one.claim({})

    done = one.sync(RESHAPE, facts=with_disk(one, LOCAL), policy=OWN)

    assert (done.status, SHARER in one.traits(""), one.aggregates()) == (Status.CHANGED, False, set())
    assert one.sync().status is Status.UNCHANGED


def test_a_host_leaves_the_aggregate_of_a_pool_that_was_deleted_and_may_come_again(one: OneHost) -> None:
    share(one)
    one.claim({})
    one.send("DELETE", f"/resource_providers/{UUID}")
    assert "placement has no provider" in one.sync(RESHAPE).notes[0]
    assert (SHARER in one.traits(""), "DISK_GB" in one.stock()) == (True, False)

    one.sync(RESHAPE, policy=OWN)

    assert (SHARER in one.traits(""), one.aggregates(), "DISK_GB" in one.stock()) == (False, set(), True)


def test_while_the_cluster_is_silent_nothing_changes(one: OneHost) -> None:
    share(one)

    done = one.sync(facts=with_disk(one, DiskUnread("no answer")))

    assert (done.status, SHARER in one.traits("")) == (Status.UNCHANGED, True)
    assert done.notes == ("DISK_GB stays as it is in placement: no answer",)
    assert pool_nodes(reporter(one, DiskUnread("no answer"))) == ()
    assert "consumers hold allocations here" in " ".join(retire_node(one.node).notes)


def test_a_host_that_shares_is_neither_handed_over_nor_retired_under_its_guests(one: OneHost) -> None:
    share(one)

    assert "set [agent] shared_disk = own" in hand_over_node(one.node, force=True).notes[0]
    assert "consumers hold allocations" in retire_node(one.node).notes[0]
    one.claim({})
    assert retire_node(one.node).status is Status.CHANGED
    assert pool(one).total == 900


def test_a_disk_of_a_server_that_is_on_another_host_too_stays_until_that_ends(one: OneHost) -> None:
    """As after an evacuation: which host has the disk cannot be told."""
    share(one)
    evacuated(one)

    done = one.sync(RESHAPE, policy=OWN)
    assert (rows(one), SHARER in one.traits(""), "DISK_GB" in one.stock()) == ({"pool": 20}, True, True)
    assert f"disks of {GUEST} stay on a storage" in " ".join(done.notes)
    assert one.sync().status is Status.UNCHANGED

    consumer = one.node.client.consumer(GUEST)
    assert consumer
    hold(one, {uuid: each for uuid, each in consumer.slots.items() if uuid != ABROAD})
    one.sync(RESHAPE)
    assert (rows(one), SHARER in one.traits(""), one.sync().status) == ({"root": 20}, False, Status.UNCHANGED)


def test_disks_of_one_server_in_three_places_come_together_on_the_next_pool(one: OneHost) -> None:
    share(one)
    evacuated(one)
    one.sync(RESHAPE, policy=OWN)
    volumes = replace(VMS, pool="volumes")
    report(one, disk=volumes)
    there = pool_uuid(volumes)
    hold(one, {ROOT: {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 5}, UUID: {"DISK_GB": 20}, there: {"DISK_GB": 1}})

    one.sync(RESHAPE, facts=with_disk(one, volumes), policy=SHARED)

    assert (rows(one), one.sync().status) == ({there: 26}, Status.UNCHANGED)


def test_a_migration_has_its_disk_on_the_pool_as_the_guest_has(one: OneHost) -> None:
    """While a guest moves away, its migration has what it had here."""
    one.claim({})
    one.claim({"": {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 20}}, MIGRATION)

    share(one)
    assert rows(one, MIGRATION) == {"pool": 20}
    one.sync(RESHAPE, policy=OWN)
    assert rows(one, MIGRATION) == {"root": 20}


def test_a_pool_that_is_too_small_is_refused(one: OneHost) -> None:
    report(one, FORCE, disk=replace(VMS, pool_gib=10))

    done = one.sync(RESHAPE, policy=SHARED)

    assert (done.status, rows(one)) == (Status.UNSAFE, {"root": 20})
    assert f"make room on {POOLS}" in done.notes[0]


def test_a_ratio_that_was_set_by_hand_is_not_lost_in_silence(one: OneHost) -> None:
    one.set_by_hand("", "DISK_GB", allocation_ratio=2.0)

    done = one.sync(RESHAPE, policy=SHARED)
    assert (done.status, rows(one), one.ratios("DISK_GB")) == (Status.UNSAFE, {"root": 20}, {"host": 2.0})
    assert "the allocation ratio 2 of DISK_GB on host was set by hand, and would be lost" in done.notes[0]

    one.set_by_hand("", "DISK_GB", allocation_ratio=1.0)
    share(one)


def test_a_host_that_a_person_took_out_of_the_aggregate_takes_its_disks_back_all_the_same(one: OneHost) -> None:
    share(one)
    one.put(ROOT, "aggregates", aggregates=[])
    one.forget()

    assert one.sync(policy=OWN).status is Status.RESHAPE_NEEDED
    one.sync(RESHAPE)

    assert (rows(one), SHARER in one.traits(""), one.sync().status) == ({"root": 20}, False, Status.UNCHANGED)


def test_a_host_with_lost_memory_goes_on_sharing(one: OneHost) -> None:
    share(one)
    one.forget()

    assert one.sync().status is Status.UNCHANGED
    assert rows(one) == {"pool": 20}


def test_the_reporter_makes_the_pool_and_then_is_at_rest(one: OneHost) -> None:
    seen = one.node.client.root(UUID)
    assert seen
    assert (seen.name, pool(one).total) == (pool_name(VMS), 900)
    assert seen.provider.aggregates == frozenset({aggregate_of(UUID)})
    assert REPORTED_BY + ROOT.upper().replace("-", "_") in seen.provider.traits

    done = report(one)

    assert (done.status, done.notes) == (Status.UNCHANGED, ())


def test_a_second_reporter_refuses_and_says_who_reports_the_pool(one: OneHost) -> None:
    other = replace(reporter(one), driver=one_of(one, OTHER))
    (node,) = pool_nodes(other)

    with pytest.raises(PolicyError, match=f"the agent of compute node {ROOT} reports {pool_name(VMS)}"):
        run_pass(node)

    trait = REPORTED_BY + ROOT.upper().replace("-", "_")
    one.put(UUID, "traits", traits=sorted(one.node.client.root(UUID).provider.traits - {trait}))  # type: ignore[union-attr]
    assert run_pass(node).status is Status.CHANGED
    with pytest.raises(PolicyError, match=f"the agent of compute node {OTHER} reports"):
        report(one)


def test_of_two_reporters_at_once_one_wins_at_each_write(tmp_path: Path) -> None:
    for writes in range(8):
        one = OneHost(tmp_path / str(writes), replace(FACTS, disk=VMS), OWN)
        (second,) = pool_nodes(replace(reporter(one), driver=one_of(one, OTHER)))
        with suppress(Cut), one.ending_after(writes):
            report(one)
        with suppress(PolicyError):
            run_pass(second)
        with suppress(PolicyError):
            report(one)
        seen = one.node.client.root(UUID)
        assert seen
        assert sum(name.startswith(REPORTED_BY) for name in seen.provider.traits) == 1
        assert pool(one).total == 900


def test_what_an_operator_sets_of_the_pool_stays(one: OneHost) -> None:
    stock = {"total": 900, "reserved": 100, "allocation_ratio": 1.5, "max_unit": 900, "min_unit": 1, "step_size": 1}
    one.put(UUID, "inventories", inventories={"DISK_GB": stock})

    assert report(one).status is Status.UNCHANGED
    report(one, disk=replace(VMS, pool_gib=1000))

    assert (pool(one).total, pool(one).reserved, pool(one).allocation_ratio) == (1000, 100, 1.5)


def test_a_much_smaller_pool_is_written_by_force_or_after_three_looks(one: OneHost) -> None:
    small = replace(VMS, pool_gib=300)
    assert [report(one, disk=small).status for _ in range(3)] == [Status.UNSAFE, Status.UNSAFE, Status.CHANGED]
    report(one, disk=VMS)
    assert report(one, FORCE, disk=small).status is Status.CHANGED

    assert pool(one).total == 300
    assert report(one, disk=replace(VMS, pool_gib=302)).status is Status.UNCHANGED


def test_a_pool_of_less_than_one_gib_offers_nothing_new() -> None:
    empty = replace(VMS, pool_gib=0)
    new = pool_provider(empty, Policy(ratios=Ratios(disk=Ratio(1.0, 2.0))), None).inventories["DISK_GB"]
    assert (new.total, new.reserved, new.allocation_ratio) == (1, 1, 2.0)


@pytest.mark.parametrize(("gib", "said", "held"), [(0, 0, True), (9, 8, False), (9, 9, False), (9, 10, True)])
def test_of_a_pool_that_holds_less_than_an_operator_reserved_all_is_reserved_and_marked(
    gib: int, said: int, held: bool
) -> None:
    stands = Provider(name="pool", inventories={"DISK_GB": Inventory(total=20, reserved=said)})

    found = pool_provider(replace(VMS, pool_gib=gib), OWN, stands)

    assert found.inventories["DISK_GB"].reserved == (max(gib, 1) if held else said)
    assert found.traits - {SHARES, MARKER} == ({HELD} | keeps({"DISK_GB": said}) if held else set())


def test_hosts_of_one_cluster_agree_on_the_pools_identity() -> None:
    assert pool_uuid(VMS) == pool_uuid(replace(VMS, cluster_bytes=1, pool_gib=2))
    assert pool_uuid(VMS) != pool_uuid(replace(VMS, pool="volumes"))
    assert aggregate_of(pool_uuid(VMS)) not in (pool_uuid(VMS), aggregate_of(pool_uuid(replace(VMS, pool="volumes"))))


def test_a_pool_larger_than_placement_can_count_is_a_sentence(one: OneHost) -> None:
    with pytest.raises(MalformedFact, match="cannot report the Ceph pool vms, which can hold 2147483648 GiB"):
        report(one, disk=replace(VMS, pool_gib=2**31))


def test_a_refused_pass_does_not_remember_the_pool_as_part_of_the_tree(one: OneHost) -> None:
    share(one)

    assert one.sync(policy=replace(SHARED, layout="cells")).status is Status.RESHAPE_NEEDED

    left = one.node.state_file(ROOT).read(one.node.where).observed
    assert left is not None
    assert [seen.uuid for seen in left] == [ROOT]


def test_a_host_cut_off_between_two_pools_goes_back_to_the_first_whole(tmp_path: Path) -> None:
    """The memory still names the first pool, and the tree stands on the second."""
    for writes in range(8):
        one = a_host(tmp_path / str(writes))
        share(one)
        volumes = replace(VMS, pool="volumes")
        report(one, disk=volumes)
        try:
            with one.ending_after(writes):
                one.sync(RESHAPE, facts=with_disk(one, volumes))
        except Cut:
            one.sync(RESHAPE, facts=with_disk(one, VMS))
            assert (writes, rows(one), one.aggregates()) == (writes, {"pool": 20}, {aggregate_of(UUID)})
        else:
            break


def test_a_pass_of_the_service_between_full_ones_reads_no_consumer(one: OneHost) -> None:
    share(one)
    one.sync(Wishes(deep=True))
    one.sender.reads = 0

    assert one.sync(Wishes(deep=False)).status is Status.UNCHANGED
    assert one.sender.reads == 5  # the tree, and the pool with its three aspects

    one.put(ROOT, "aggregates", aggregates=[])  # and where the aggregate is gone, it looks for the disks again
    assert one.sync(Wishes(deep=False, reshape=True)).status is Status.CHANGED
    assert (rows(one), one.aggregates()) == ({"pool": 20}, {aggregate_of(UUID)})


def test_an_older_memory_of_the_first_pool_leaves_no_disk_on_the_second(one: OneHost) -> None:
    share(one)
    saved = {path: path.read_bytes() for path in one.folder.rglob("*") if path.is_file()}
    volumes = replace(VMS, pool="volumes")
    report(one, disk=volumes)
    one.sync(RESHAPE, facts=with_disk(one, volumes))
    for path, text in saved.items():
        path.write_bytes(text)

    one.sync(RESHAPE, facts=with_disk(one, VMS))

    assert (rows(one), one.aggregates()) == ({"pool": 20}, {aggregate_of(UUID)})


@pytest.mark.parametrize("reserved", [0, 100])
def test_what_an_operator_reserves_of_a_pool_outlives_a_time_in_which_it_was_small(one: OneHost, reserved: int) -> None:
    stock = {
        "total": 900,
        "reserved": reserved,
        "allocation_ratio": 1.5,
        "max_unit": 900,
        "min_unit": 1,
        "step_size": 1,
    }
    one.claim({})
    one.put(UUID, "inventories", inventories={"DISK_GB": stock})
    report(one, FORCE, disk=replace(VMS, pool_gib=0))
    report(one, disk=VMS)
    assert (pool(one).total, pool(one).reserved) == (900, reserved)


def test_the_disk_of_an_evacuated_guest_is_not_counted_twice_for_good(one: OneHost) -> None:
    """Its new host has the disk; nova takes what is on this host's tree off the guest once this host is back."""
    consumer = one.node.client.consumer(GUEST)
    assert consumer
    one.send("POST", "/resource_providers", {"name": "abroad", "uuid": ABROAD})
    one.put(ABROAD, "inventories", inventories={"VCPU": {"total": 4}, "DISK_GB": {"total": 100}})
    hold(one, {**consumer.slots, ABROAD: {"VCPU": 1, "DISK_GB": 20}})

    one.sync(RESHAPE, policy=SHARED)
    now = one.node.client.consumer(GUEST)
    assert now
    here = one.tree().by_uuid.keys()
    hold(one, {uuid: each for uuid, each in now.slots.items() if uuid not in here})

    assert sum(rows(one).values()) == 20


@pytest.mark.parametrize("after", [OWN, SHARED])
def test_a_claim_that_was_under_way_while_a_host_left_a_pool_is_moved_too(one: OneHost, after: Policy) -> None:
    """The scheduler chose the first pool before the host left it, and placement takes the claim after that."""
    share(one)
    one.claim({})
    volumes = replace(VMS, pool="volumes")
    report(one, disk=volumes)
    one.sync(RESHAPE, policy=after, facts=with_disk(one, volumes))
    one.sync()
    one.claim({"": {"VCPU": 1, "MEMORY_MB": 64}})
    hold(one, {**one.node.client.consumer(GUEST).slots, UUID: {"DISK_GB": 20}})  # type: ignore[union-attr]

    done = one.sync(RESHAPE)

    assert "pool" not in rows(one) or done.notes, (rows(one), one.stock())


def test_a_host_that_left_a_deleted_pool_without_a_memory_is_not_in_it_when_it_is_made_again(one: OneHost) -> None:
    share(one)
    one.claim({})
    one.send("DELETE", f"/resource_providers/{UUID}")
    one.forget()
    one.sync(RESHAPE, policy=OWN)
    report(one)
    done = one.sync(RESHAPE)

    both = "DISK_GB" in one.stock() and aggregate_of(UUID) in one.aggregates()
    assert not both, ("DISK_GB is on offer on root and pool", done.notes)
