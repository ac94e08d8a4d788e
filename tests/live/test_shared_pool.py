"""Four hosts whose guests have their disks on one storage: counted once, by hosts that do not know each other."""

import json
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import pytest

from agent.connect.adapters import open_placement
from agent.settings.read import load_settings
from agent.sync.outcome import Status
from beds.agents import Result, run_agent
from beds.by_hand import ByHand
from beds.golden import HOSTS
from beds.one_host import RESHAPE, Cut, OneHost
from beds.placement import PlacementServer
from beds.trees import add_consumer, identity, lay_down
from beds.upgrades import write_config
from drivers.policy import DiskPolicy, Policy
from drivers.pools import SHARER
from fakes import FACTS

pytestmark = pytest.mark.live

GIB = 1024**3
FSID = "9f4e7c1a-6c0e-4f6f-8a55-2d9b3c1f7e10"
POOL = f"ceph_{FSID}_vms"
SHARING = Policy(disk=DiskPolicy(shared=POOL))
POOL_UUID = str(uuid5(UUID(FSID), "vms"))
NFS = "nfs"
NAMES = ("first", "second", "third", "fourth")
GUEST = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 20}


class Fleet:
    """Hosts of one storage, each with the agent's own memory, and their placement."""

    def __init__(self, server: PlacementServer, folder: Path, *, of_ceph: bool = True) -> None:
        self.placement = ByHand(server.url)
        self.url = server.url
        self.folder = folder
        self.of_ceph = of_ceph
        for name in NAMES:
            self.write_host(name, pool_gib=900)

    def write_host(self, name: str, pool_gib: int, **changes: object) -> None:
        archive = self.folder / name
        shutil.rmtree(archive, ignore_errors=True)
        shutil.copytree(HOSTS / "tdx-guests/archive", archive)
        host = json.loads((archive / "host.json").read_text(encoding="utf-8")) | {"hostname": name}
        del host["files"]
        (archive / "host.json").write_text(json.dumps(host), encoding="utf-8")
        (archive / "compute_id").write_text(identity(name), encoding="utf-8")
        disk = {"pool": "vms", "cluster_bytes": 3000 * GIB, "pool_gib": pool_gib, "fsid": FSID} | changes
        if self.of_ceph:
            (archive / "disk.json").write_text(json.dumps(disk), encoding="utf-8")

    def run(
        self, name: str, verb: str, *more: object, shared_disk: str = "sharing", pool: str = "vms", **agent: object
    ) -> Result:
        config: dict[str, dict[str, Any]] = {
            "libvirt": {"images_type": "rbd", "images_rbd_pool": pool} if self.of_ceph else {},
            "placement": {"auth_type": "none", "endpoint": self.url},
            "agent": {"state_directory": self.folder / f"state-{name}", "shared_disk": shared_disk, **agent},
        }
        file = write_config(config, self.folder / f"{name}-{shared_disk}-{len(agent)}.conf")
        return run_agent(verb, "--host", self.folder / name, "--config-file", file, *more, "--format", "json")

    def at_once(self, verb: str, *more: object, shared_disk: str = "sharing") -> None:
        """All hosts at the same time."""
        with ThreadPoolExecutor(len(NAMES)) as pool:
            for done in pool.map(lambda name: self.run(name, verb, *more, shared_disk=shared_disk), NAMES):
                assert done.code == 0, done.out + done.err

    def report(self, name: str = "first", *more: object, shared_disk: str = "own") -> Result:
        """A pass of a host whose agent reports the pool too."""
        return self.run(name, "sync", *more, shared_disk=shared_disk, report_pool=True)

    def providers(self) -> dict[str, Any]:
        return self.placement.providers()

    def stock(self, name: str) -> Any:
        return self.placement.stock(self.providers()[name]["uuid"])

    def held(self, name: str) -> dict[str, Mapping[str, int]]:
        """What each consumer has on a provider."""
        uuid = self.providers()[name]["uuid"]
        rows = self.placement.send("GET", f"/resource_providers/{uuid}/allocations")["allocations"]
        return {consumer: one["resources"] for consumer, one in rows.items()}

    def said(self, name: str) -> Any:
        """What an operator says of a provider: its traits, and its aggregates."""
        uuid = self.providers()[name]["uuid"]
        aggregates = self.placement.send("GET", f"/resource_providers/{uuid}/aggregates")["aggregates"]
        traits = sorted(self.placement.traits(uuid))
        return {"traits": traits, "aggregates": sorted(aggregates), "stock": self.stock(name)}

    def join(self, name: str, *aggregates: str) -> None:
        self.placement.set_aggregates(self.providers()[name]["uuid"], *aggregates)

    def sums(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for name in self.providers():
            for resources in self.held(name).values():
                for each, amount in resources.items():
                    found[each] = found.get(each, 0) + amount
        return found


def with_guests(fleet: Fleet) -> Fleet:
    """All hosts report the storage on their own roots; each has two guests with disks."""
    fleet.at_once("sync", shared_disk="own")
    for name in NAMES:
        for number in (1, 2):
            add_consumer(fleet.placement, f"{name}-{number}", {"allocations": {name: GUEST}})
    return fleet


@pytest.fixture
def fleet(placement_server: PlacementServer, tmp_path: Path) -> Fleet:
    """Hosts of a pool of Ceph."""
    found = with_guests(Fleet(placement_server, tmp_path))
    assert {name: found.stock(name)["DISK_GB"]["total"] for name in NAMES} == dict.fromkeys(NAMES, 3000)
    done = found.report()
    assert done.code == 0, done.out + done.err
    return found


def disks(*names: str) -> dict[str, dict[str, int]]:
    return {identity(f"{name}-{number}"): {"DISK_GB": 20} for name in names for number in (1, 2)}


def test_a_pool_is_counted_once_and_the_disks_of_all_guests_are_there(fleet: Fleet) -> None:
    before = fleet.sums()
    assert fleet.run("first", "sync").code == 3

    fleet.at_once("reshape", "--apply")

    assert fleet.stock(POOL)["DISK_GB"]["total"] == 900
    assert not any("DISK_GB" in fleet.stock(name) for name in NAMES)
    assert fleet.held(POOL) == disks(*NAMES)
    assert fleet.sums() == before
    assert fleet.providers()[POOL]["uuid"] == POOL_UUID
    assert sorted(fleet.providers()) == sorted((*NAMES, POOL))


def test_without_a_reporter_no_host_changes_its_disk_and_each_says_what_to_do(
    placement_server: PlacementServer, tmp_path: Path
) -> None:
    fleet = with_guests(Fleet(placement_server, tmp_path))
    before = {name: fleet.said(name) for name in NAMES}

    for name in NAMES:
        done = fleet.run(name, "reshape", "--apply")
        assert (done.code, POOL in fleet.providers()) == (0, False)
        assert f"placement has no provider {POOL}" in done.out + done.err
        assert "set [agent] report_pool = true on one of its hosts" in done.out + done.err

    assert {name: fleet.said(name) for name in NAMES} == before


def test_the_digest_is_of_all_that_is_written(fleet: Fleet) -> None:
    shown = fleet.run("first", "reshape").json

    done = fleet.run("first", "reshape", "--apply", "--digest", shown["digest"])

    assert done.code == 0, done.out + done.err
    assert fleet.held(POOL) == disks("first")
    assert fleet.said("first")["aggregates"] == [str(uuid5(UUID(POOL_UUID), "aggregate"))]


def test_at_rest_nobody_writes_and_the_reporter_alone_writes_a_change(fleet: Fleet) -> None:
    fleet.at_once("reshape", "--apply")
    fleet.at_once("sync")
    fleet.report(shared_disk="sharing")
    generations = {name: one["generation"] for name, one in fleet.providers().items()}

    fleet.at_once("sync")
    fleet.report(shared_disk="sharing")
    assert {name: one["generation"] for name, one in fleet.providers().items()} == generations

    for name in NAMES:
        fleet.write_host(name, pool_gib=1200)
    fleet.at_once("sync")
    assert fleet.stock(POOL)["DISK_GB"]["total"] == 900
    shown = fleet.run("first", "plan", report_pool=True)
    assert [one["node"] for one in shown.json["plans"] if one["operations"]] == [POOL]
    done = fleet.report(shared_disk="sharing")
    assert done.code == 0, done.out + done.err
    assert fleet.stock(POOL)["DISK_GB"]["total"] == 1200
    assert fleet.providers()[POOL]["generation"] == generations[POOL] + 1


def test_a_second_reporter_is_refused_with_who_reports_the_pool(fleet: Fleet) -> None:
    before = fleet.said(POOL)

    refused = fleet.report("second")

    assert refused.code == 1
    assert f"the agent of compute node {identity('first')} reports {POOL}" in refused.out + refused.err
    assert fleet.said(POOL) == before


def test_of_reporters_at_once_one_wins(placement_server: PlacementServer, tmp_path: Path) -> None:
    fleet = with_guests(Fleet(placement_server, tmp_path))
    with ThreadPoolExecutor(len(NAMES)) as threads:
        list(threads.map(fleet.report, NAMES))

    codes = [fleet.report(name).code for name in NAMES]

    assert sorted(codes) == [0, 1, 1, 1]
    assert sum("POOL_OF_" in trait for trait in fleet.said(POOL)["traits"]) == 1
    assert fleet.stock(POOL)["DISK_GB"]["total"] == 900


def test_a_scheduler_finds_a_host_with_the_pools_disk(fleet: Fleet) -> None:
    fleet.at_once("reshape", "--apply")

    found = fleet.placement.send("GET", "/allocation_candidates?resources=VCPU:1,DISK_GB:30&limit=50")

    uuids = {name: one["uuid"] for name, one in fleet.providers().items()}
    offered = [set(one["allocations"]) for one in found["allocation_requests"]]
    assert sorted(map(sorted, offered)) == sorted(sorted({uuids[name], POOL_UUID}) for name in NAMES)


def test_hosts_take_their_disks_back_one_by_one_and_all_at_once(fleet: Fleet) -> None:
    before, roots = fleet.sums(), {name: fleet.said(name) for name in NAMES}
    fleet.at_once("reshape", "--apply")

    assert fleet.run("first", "sync", shared_disk="own").code == 3
    done = fleet.run("first", "reshape", "--apply", shared_disk="own")
    assert done.code == 0, done.out + done.err
    assert fleet.held("first") == dict.fromkeys(disks("first"), GUEST)
    assert fleet.held(POOL) == disks("second", "third", "fourth")
    assert fleet.sums() == before

    fleet.at_once("reshape", "--apply", shared_disk="own")

    assert (fleet.held(POOL), fleet.sums()) == ({}, before)
    assert {name: fleet.said(name) for name in NAMES} == roots
    assert all(fleet.run(name, "sync", shared_disk="own").json["outcome"] == "unchanged" for name in NAMES)


def test_a_host_that_is_retired_leaves_the_pool_to_the_others(fleet: Fleet) -> None:
    fleet.at_once("reshape", "--apply")
    refused = fleet.run("first", "retire")
    assert (refused.code, "consumers hold allocations" in refused.out) == (4, True)

    for name in NAMES:
        for consumer in disks(name):
            fleet.placement.send("DELETE", f"/allocations/{consumer}")
        done = fleet.run(name, "retire")
        assert done.code == 0, done.out + done.err

    assert set(fleet.providers()) == {POOL}


class Real:
    """A placement that answers over the network, as a host in this process asks it."""

    def __init__(self, url: str, folder: Path) -> None:
        config = write_config({"placement": {"auth_type": "none", "endpoint": url}}, folder / "real.conf")
        self._adapter, _ = open_placement(load_settings([config]))

    def request(self, url: str, method: str, **more: Any) -> Any:
        answer: Any = self._adapter.request(url, method, **{"raise_exc": False, **more})
        answer.body = answer.json() if answer.content else None
        return answer


@pytest.mark.parametrize(("before", "after"), [(Policy(), SHARING), (SHARING, Policy())])
def test_what_is_cut_off_at_any_write_is_finished_or_taken_back(
    fleet: Fleet, tmp_path: Path, before: Policy, after: Policy
) -> None:
    """A host comes to the pool, or leaves it, and ends at each of its writes; then it goes on, or back."""
    one = OneHost(tmp_path / "here", replace(FACTS, hostname="here"), before)
    one.sender.placement = Real(fleet.url, tmp_path)  # type: ignore[assignment]
    one.sync()
    guest = {"VCPU": 1, "MEMORY_MB": 64} | ({} if before.disk.shared else {"DISK_GB": 20})
    one.claim({"": guest}) if not before.disk.shared else add_consumer(
        fleet.placement, "here-1", {"allocations": {"here": guest, POOL: {"DISK_GB": 20}}}
    )
    sums, cuts = fleet.sums(), 0
    for goal in (after, before):
        for writes in range(8):
            one.sender.left = writes
            try:
                one.sync(RESHAPE, policy=after)
            except Cut:
                cuts += 1
            one.sender.left = None
            one.sync(RESHAPE, policy=goal)
            shared = bool(goal.disk.shared)
            assert fleet.sums() == sums
            assert (sum(each.get("DISK_GB", 0) for each in fleet.held(POOL).values()) == 20) == shared
            assert ("DISK_GB" in one.stock(), SHARER in one.traits(""), bool(one.aggregates())) == (
                not shared,
                shared,
                shared,
            )
            assert one.sync().status is Status.UNCHANGED
            one.sync(RESHAPE, policy=before)
    assert cuts > 4


def test_a_guest_on_the_move_keeps_its_disk_on_the_pool(fleet: Fleet) -> None:
    """From a host that shares to another: its migration has what it had, and then the source leaves the pool."""
    fleet.at_once("reshape", "--apply")
    guest, uuids = identity("first-1"), {name: one["uuid"] for name, one in fleet.providers().items()}
    body = fleet.placement.send("GET", f"/allocations/{guest}")
    there = {uuid: {"resources": one["resources"]} for uuid, one in body["allocations"].items()}
    owner = {"project_id": body["project_id"], "user_id": body["user_id"], "consumer_type": "INSTANCE"}
    gone = {uuids["second"]: there.pop(uuids["first"]), **there}
    migration = identity("a migration")
    both: dict[str, object] = {
        guest: {**owner, "allocations": gone, "consumer_generation": body["consumer_generation"]},
        migration: {
            **owner,
            "consumer_type": "MIGRATION",
            "consumer_generation": None,
            "allocations": {uuids["first"]: {"resources": {"VCPU": 1, "MEMORY_MB": 512}}, **there},
        },
    }
    fleet.placement.send("POST", "/allocations", both)

    done = fleet.run("first", "reshape", "--apply", shared_disk="own")

    assert done.code == 0, done.out + done.err
    assert fleet.held("first")[migration] == GUEST
    assert fleet.held(POOL)[guest] == {"DISK_GB": 20}


def test_what_an_operator_sets_of_the_pool_stays(fleet: Fleet) -> None:
    fleet.at_once("reshape", "--apply")
    fleet.placement.change_stock(POOL_UUID, DISK_GB={"reserved": 100, "allocation_ratio": 1.5})
    stock = fleet.stock(POOL)["DISK_GB"]

    fleet.at_once("sync")
    assert fleet.report(shared_disk="sharing").code == 0

    assert fleet.stock(POOL)["DISK_GB"] == stock


@pytest.mark.parametrize("shared_disk", ["sharing", "own"])
def test_a_host_that_shares_is_not_handed_over(fleet: Fleet, shared_disk: str) -> None:
    """It shares until a reshape took its disks back, whatever the option says by now."""
    fleet.at_once("reshape", "--apply")

    refused = fleet.run("first", "hand-over", shared_disk=shared_disk)

    assert refused.code == 4
    assert "set [agent] shared_disk = own" in refused.out


def test_a_host_whose_pool_is_another_now_stays_until_that_is_reported_and_goes_there(fleet: Fleet) -> None:
    fleet.at_once("reshape", "--apply")
    before = fleet.sums(), fleet.providers()
    fleet.write_host("first", pool_gib=900, pool="volumes")

    waits = fleet.run("first", "reshape", "--apply", pool="volumes")
    assert (waits.code, "placement has no provider ceph_" in waits.out + waits.err) == (0, True)
    assert (fleet.sums(), fleet.providers()) == before

    fleet.write_host("second", pool_gib=900, pool="volumes")
    assert fleet.run("second", "sync", pool="volumes", report_pool=True).code == 3
    fleet.write_host("second", pool_gib=900)
    done = fleet.run("first", "reshape", "--apply", pool="volumes")
    assert done.code == 0, done.out + done.err
    assert fleet.held(f"ceph_{FSID}_volumes") == disks("first")
    assert fleet.sums() == before[0]


def test_while_the_cluster_is_silent_a_host_goes_on_sharing_and_is_not_retired(fleet: Fleet) -> None:
    fleet.at_once("reshape", "--apply")
    before = fleet.sums(), fleet.providers()
    (fleet.folder / "first/disk.json").write_text(json.dumps({"because": "no answer"}), encoding="utf-8")

    assert fleet.run("first", "sync").json["outcome"] == "unchanged"
    assert "consumers hold allocations here" in fleet.run("first", "retire").out
    assert (fleet.sums(), fleet.providers()) == before


def test_a_pool_that_is_much_smaller_is_not_written_without_force(fleet: Fleet) -> None:
    fleet.at_once("reshape", "--apply")
    fleet.write_host("first", pool_gib=300)

    refused = fleet.report(shared_disk="sharing")
    assert (refused.code, fleet.stock(POOL)["DISK_GB"]["total"]) == (4, 900)
    assert fleet.report("first", "--force", shared_disk="sharing").code == 0
    assert fleet.stock(POOL)["DISK_GB"]["total"] == 300


def test_a_pool_that_is_too_small_for_all_disks_is_refused_before_anything_is_written(fleet: Fleet) -> None:
    fleet.write_host("first", pool_gib=100)  # the guests of two hosts have 80
    assert fleet.report("first", "--force").code == 0
    for name in ("first", "second"):
        assert fleet.run(name, "reshape", "--apply").code == 0
    before = fleet.sums(), fleet.providers()

    refused = fleet.run("third", "reshape", "--apply")

    assert refused.code == 4, refused.out + refused.err
    assert f"make room on {POOL}" in refused.out
    assert (fleet.sums(), fleet.providers()) == before


def test_hosts_that_come_at_once_never_fill_a_pool_beyond_its_room(fleet: Fleet) -> None:
    fleet.write_host("first", pool_gib=100)
    assert fleet.report("first", "--force").code == 0

    with ThreadPoolExecutor(len(NAMES)) as threads:
        done = list(threads.map(lambda name: fleet.run(name, "reshape", "--apply"), NAMES))

    assert sorted(one.code == 0 for one in done) == [False, False, True, True], [one.out + one.err for one in done]
    assert sum(each["DISK_GB"] for each in fleet.held(POOL).values()) == 80


def test_a_pool_that_holds_less_than_one_gib_offers_nothing_once_a_person_says_so(fleet: Fleet) -> None:
    fleet.at_once("reshape", "--apply")
    fleet.write_host("first", pool_gib=0)

    assert fleet.report(shared_disk="sharing").code == 4
    assert fleet.stock(POOL)["DISK_GB"]["total"] == 900
    assert fleet.report("first", "--force", shared_disk="sharing").code == 0

    stock = fleet.stock(POOL)["DISK_GB"]
    assert (stock["total"], stock["reserved"]) == (1, 1)


@pytest.fixture
def on_nfs(placement_server: PlacementServer, tmp_path: Path) -> Fleet:
    """Hosts of a storage that an operator shares among them."""
    found = with_guests(Fleet(placement_server, tmp_path, of_ceph=False))
    stock = {"DISK_GB": {"total": 900, "reserved": 50, "allocation_ratio": 1.5}}
    shared = {"parent": None, "inventories": stock, "traits": ["MISC_SHARES_VIA_AGGREGATE"]}
    lay_down(found.placement, {NFS: shared})
    for name in (NFS, *NAMES):
        found.join(name, identity("their aggregate"))
    return found


def test_of_a_storage_that_an_operator_shares_the_disks_are_there_and_nothing_is_written(on_nfs: Fleet) -> None:
    before, said = on_nfs.sums(), {name: on_nfs.said(name) for name in (NFS, *NAMES)}

    on_nfs.at_once("reshape", "--apply")
    assert on_nfs.held(NFS) == disks(*NAMES)
    assert not any("DISK_GB" in on_nfs.stock(name) for name in NAMES)
    assert "has no DISK_GB of its own" in on_nfs.run("first", "explain", "first", "DISK_GB").err
    assert (on_nfs.sums(), on_nfs.said(NFS)) == (before, said[NFS])
    found = on_nfs.placement.send("GET", "/allocation_candidates?resources=VCPU:1,DISK_GB:30&limit=50")
    assert len(found["allocation_requests"]) == len(NAMES)
    generations = {name: one["generation"] for name, one in on_nfs.providers().items()}
    on_nfs.at_once("sync")
    assert {name: one["generation"] for name, one in on_nfs.providers().items()} == generations

    on_nfs.at_once("reshape", "--apply", shared_disk="own")
    assert on_nfs.held(NFS) == {}
    assert (on_nfs.sums(), {name: on_nfs.said(name) for name in (NFS, *NAMES)}) == (before, said)


def test_a_host_outside_of_the_storages_aggregate_is_told_what_to_do(on_nfs: Fleet) -> None:
    on_nfs.join("first")
    before = on_nfs.said("first")

    done = on_nfs.run("first", "reshape", "--apply")

    assert "no provider shares DISK_GB with first. Give the storage's provider the trait" in done.out + done.err
    assert (on_nfs.said("first"), on_nfs.held(NFS)) == (before, {})
