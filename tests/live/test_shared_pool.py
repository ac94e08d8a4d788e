"""Four hosts whose guests have their disks on one storage: counted once, by hosts that do not know each other."""

import json
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import pytest

from beds.agents import Result, run_agent
from beds.by_hand import ByHand
from beds.golden import HOSTS
from beds.placement import PlacementServer
from beds.trees import add_consumer, identity
from beds.upgrades import write_config

pytestmark = pytest.mark.live

GIB = 1024**3
FSID = "9f4e7c1a-6c0e-4f6f-8a55-2d9b3c1f7e10"
POOL = f"ceph_{FSID}_vms"
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
        file = write_config(config, self.folder / f"{name}-{shared_disk}.conf")
        return run_agent(verb, "--host", self.folder / name, "--config-file", file, *more, "--format", "json")

    def at_once(self, verb: str, *more: object, shared_disk: str = "sharing") -> None:
        """All hosts at the same time."""
        with ThreadPoolExecutor(len(NAMES)) as pool:
            for done in pool.map(lambda name: self.run(name, verb, *more, shared_disk=shared_disk), NAMES):
                assert done.code == 0, done.out + done.err

    def providers(self) -> dict[str, Any]:
        rows = self.placement.send("GET", "/resource_providers")["resource_providers"]
        return {one["name"]: one for one in rows}

    def stock(self, name: str) -> Any:
        uuid = self.providers()[name]["uuid"]
        return self.placement.send("GET", f"/resource_providers/{uuid}/inventories")["inventories"]

    def held(self, name: str) -> dict[str, Mapping[str, int]]:
        """What each consumer has on a provider."""
        uuid = self.providers()[name]["uuid"]
        rows = self.placement.send("GET", f"/resource_providers/{uuid}/allocations")["allocations"]
        return {consumer: one["resources"] for consumer, one in rows.items()}

    def said(self, name: str) -> Any:
        """What an operator says of a provider: its traits, and its aggregates."""
        uuid = self.providers()[name]["uuid"]
        traits = self.placement.send("GET", f"/resource_providers/{uuid}/traits")["traits"]
        aggregates = self.placement.send("GET", f"/resource_providers/{uuid}/aggregates")["aggregates"]
        return {"traits": sorted(traits), "aggregates": sorted(aggregates), "stock": self.stock(name)}

    def join(self, name: str, *aggregates: str) -> None:
        one = self.providers()[name]
        body = {"resource_provider_generation": one["generation"], "aggregates": list(aggregates)}
        self.placement.send("PUT", f"/resource_providers/{one['uuid']}/aggregates", body)

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
    return found


def disks(*names: str) -> dict[str, dict[str, int]]:
    return {identity(f"{name}-{number}"): {"DISK_GB": 20} for name in names for number in (1, 2)}


def test_a_pool_is_counted_once_and_the_disks_of_all_guests_are_there(fleet: Fleet) -> None:
    before = fleet.sums()
    asked = fleet.run("first", "sync")
    assert (asked.code, POOL in fleet.providers()) == (3, False), asked.out + asked.err

    fleet.at_once("reshape", "--apply")

    assert fleet.stock(POOL)["DISK_GB"]["total"] == 900
    assert not any("DISK_GB" in fleet.stock(name) for name in NAMES)
    assert fleet.held(POOL) == disks(*NAMES)
    assert fleet.sums() == before
    assert fleet.providers()[POOL]["uuid"] == POOL_UUID
    assert sorted(fleet.providers()) == sorted((*NAMES, POOL))


def test_at_rest_nobody_writes_and_who_sees_a_change_first_writes_it_once(fleet: Fleet) -> None:
    fleet.at_once("reshape", "--apply")
    fleet.at_once("sync")
    generations = {name: one["generation"] for name, one in fleet.providers().items()}

    fleet.at_once("sync")
    assert {name: one["generation"] for name, one in fleet.providers().items()} == generations

    for number, name in enumerate(NAMES):
        fleet.write_host(name, pool_gib=1200 + number)  # no two of them look at the same moment
    fleet.at_once("sync")
    assert 1200 <= fleet.stock(POOL)["DISK_GB"]["total"] <= 1203
    assert fleet.providers()[POOL]["generation"] == generations[POOL] + 1


def test_a_scheduler_finds_a_host_with_the_pools_disk(fleet: Fleet) -> None:
    fleet.at_once("reshape", "--apply")

    found = fleet.placement.send("GET", "/allocation_candidates?resources=VCPU:1,DISK_GB:30&limit=50")

    uuids = {name: one["uuid"] for name, one in fleet.providers().items()}
    offered = [set(one["allocations"]) for one in found["allocation_requests"]]
    assert sorted(map(sorted, offered)) == sorted(sorted({uuids[name], POOL_UUID}) for name in NAMES)


def test_a_host_takes_its_disks_back_and_the_last_one_takes_the_pool_away(fleet: Fleet) -> None:
    before = fleet.sums()
    fleet.at_once("reshape", "--apply")

    assert fleet.run("first", "sync", shared_disk="own").code == 3
    done = fleet.run("first", "reshape", "--apply", shared_disk="own")
    assert done.code == 0, done.out + done.err
    assert fleet.held("first") == dict.fromkeys(disks("first"), GUEST)
    assert fleet.held(POOL) == disks("second", "third", "fourth")
    assert fleet.sums() == before

    for name in ("second", "third", "fourth"):
        assert POOL in fleet.providers()
        done = fleet.run(name, "reshape", "--apply", shared_disk="own")
        assert done.code == 0, done.out + done.err

    assert POOL not in fleet.providers()
    assert fleet.sums() == before
    assert all(fleet.run(name, "sync", shared_disk="own").json["outcome"] == "unchanged" for name in NAMES)


def test_a_host_that_is_retired_leaves_the_pool_to_the_others(fleet: Fleet) -> None:
    fleet.at_once("reshape", "--apply")
    refused = fleet.run("first", "retire")
    assert (refused.code, "consumers hold allocations" in refused.out) == (4, True)

    for name in NAMES:
        assert POOL in fleet.providers()
        for consumer in disks(name):
            fleet.placement.send("DELETE", f"/allocations/{consumer}")
        done = fleet.run(name, "retire")
        assert done.code == 0, done.out + done.err

    assert fleet.providers() == {}


def test_what_an_operator_sets_of_the_pool_stays(fleet: Fleet) -> None:
    fleet.at_once("reshape", "--apply")
    seen = fleet.placement.send("GET", f"/resource_providers/{POOL_UUID}/inventories")
    stock = seen["inventories"]["DISK_GB"] | {"reserved": 100, "allocation_ratio": 1.5}
    body = {"resource_provider_generation": seen["resource_provider_generation"], "inventories": {"DISK_GB": stock}}
    fleet.placement.send("PUT", f"/resource_providers/{POOL_UUID}/inventories", body)

    fleet.at_once("sync")

    assert fleet.stock(POOL)["DISK_GB"] == stock


@pytest.mark.parametrize("shared_disk", ["sharing", "own"])
def test_a_host_that_shares_is_not_handed_over(fleet: Fleet, shared_disk: str) -> None:
    """It shares until a reshape took its disks back, whatever the option says by now."""
    fleet.at_once("reshape", "--apply")

    refused = fleet.run("first", "hand-over", shared_disk=shared_disk)

    assert refused.code == 4
    assert "set [agent] shared_disk = own" in refused.out


@pytest.mark.parametrize("shared_disk", ["sharing", "own"])
def test_a_host_whose_disks_are_elsewhere_now_does_not_forget_what_it_shares(fleet: Fleet, shared_disk: str) -> None:
    fleet.at_once("reshape", "--apply")
    before = fleet.sums(), fleet.providers()
    fleet.write_host("first", pool_gib=900, pool="volumes")

    refused = fleet.run("first", "reshape", "--apply", shared_disk=shared_disk, pool="volumes")

    assert refused.code == 4, refused.out + refused.err
    assert f"first still shares {POOL} for its guests' disks" in refused.out
    assert (fleet.sums(), fleet.providers()) == before


def test_while_the_cluster_is_silent_a_host_goes_on_sharing_and_is_not_retired(fleet: Fleet) -> None:
    fleet.at_once("reshape", "--apply")
    before = fleet.sums(), fleet.providers()
    (fleet.folder / "first/disk.json").write_text(json.dumps({"because": "no answer"}), encoding="utf-8")

    assert fleet.run("first", "sync").json["outcome"] == "unchanged"
    assert "consumers hold allocations here" in fleet.run("first", "retire").out
    assert (fleet.sums(), fleet.providers()) == before


def test_a_pool_that_one_host_sees_much_smaller_is_not_written_without_force(fleet: Fleet) -> None:
    fleet.at_once("reshape", "--apply")
    fleet.write_host("first", pool_gib=300)

    told = fleet.run("first", "sync")
    assert (told.code, fleet.stock(POOL)["DISK_GB"]["total"]) == (0, 900)
    assert "can hold 300 GiB by what this host sees" in told.out
    assert fleet.run("first", "sync", "--force").code == 0
    assert fleet.stock(POOL)["DISK_GB"]["total"] == 300


def test_a_pool_that_is_too_small_for_all_disks_is_refused_before_anything_is_written(fleet: Fleet) -> None:
    for name in NAMES:
        fleet.write_host(name, pool_gib=100)  # the guests of two hosts have 80
    for name in ("first", "second"):
        assert fleet.run(name, "reshape", "--apply").code == 0
    before = fleet.sums(), fleet.providers()

    refused = fleet.run("third", "reshape", "--apply")

    assert refused.code == 4, refused.out + refused.err
    assert f"make room on {POOL}" in refused.out
    assert (fleet.sums(), fleet.providers()) == before


def test_a_pool_that_holds_less_than_one_gib_offers_nothing_once_a_person_says_so(fleet: Fleet) -> None:
    fleet.at_once("reshape", "--apply")
    fleet.write_host("first", pool_gib=0)

    assert fleet.run("first", "sync").json["outcome"] == "unchanged"
    assert fleet.stock(POOL)["DISK_GB"]["total"] == 900
    assert fleet.run("first", "sync", "--force").json["outcome"] == "changed"

    stock = fleet.stock(POOL)["DISK_GB"]
    assert (stock["total"], stock["reserved"]) == (1, 1)


@pytest.fixture
def on_nfs(placement_server: PlacementServer, tmp_path: Path) -> Fleet:
    """Hosts of a storage that an operator shares among them."""
    found = with_guests(Fleet(placement_server, tmp_path, of_ceph=False))
    send, identity_ = found.placement.send, identity(NFS)
    send("POST", "/resource_providers", {"name": NFS, "uuid": identity_})
    stock = {"DISK_GB": {"total": 900, "reserved": 50, "allocation_ratio": 1.5}}
    body: dict[str, object] = {"resource_provider_generation": 0, "inventories": stock}
    send("PUT", f"/resource_providers/{identity_}/inventories", body)
    body = {"resource_provider_generation": 1, "traits": ["MISC_SHARES_VIA_AGGREGATE"]}
    send("PUT", f"/resource_providers/{identity_}/traits", body)
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

    refused = on_nfs.run("first", "reshape", "--apply")

    assert refused.code != 0
    assert "no provider shares DISK_GB with first. Give the storage's provider the trait" in refused.err
