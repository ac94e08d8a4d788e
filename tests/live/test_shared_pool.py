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
from beds.trees import add_consumer, identity, lay_down
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

    def write_host(self, name: str, pool_gib: int) -> None:
        archive = self.folder / name
        shutil.rmtree(archive, ignore_errors=True)
        shutil.copytree(HOSTS / "tdx-guests/archive", archive)
        host = json.loads((archive / "host.json").read_text(encoding="utf-8")) | {"hostname": name}
        del host["files"]
        (archive / "host.json").write_text(json.dumps(host), encoding="utf-8")
        (archive / "compute_id").write_text(identity(name), encoding="utf-8")
        disk = {"pool": "vms", "cluster_bytes": 3000 * GIB, "pool_gib": pool_gib, "fsid": FSID}
        if self.of_ceph:
            (archive / "disk.json").write_text(json.dumps(disk), encoding="utf-8")

    def run(self, name: str, verb: str, *more: object, shared_disk: str = "sharing", **agent: object) -> Result:
        config: dict[str, dict[str, Any]] = {
            "libvirt": {"images_type": "rbd", "images_rbd_pool": "vms"} if self.of_ceph else {},
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
    found = fleet.placement.send("GET", "/allocation_candidates?resources=VCPU:1,DISK_GB:30&limit=50")
    uuids = {name: one["uuid"] for name, one in fleet.providers().items()}
    offered = [set(one["allocations"]) for one in found["allocation_requests"]]
    assert sorted(map(sorted, offered)) == sorted(sorted({uuids[name], POOL_UUID}) for name in NAMES)


def test_of_reporters_at_once_one_wins(placement_server: PlacementServer, tmp_path: Path) -> None:
    fleet = with_guests(Fleet(placement_server, tmp_path))
    with ThreadPoolExecutor(len(NAMES)) as threads:
        list(threads.map(fleet.report, NAMES))

    codes = [fleet.report(name).code for name in NAMES]

    assert sorted(codes) == [0, 1, 1, 1]
    assert sum("POOL_OF_" in trait for trait in fleet.said(POOL)["traits"]) == 1
    assert fleet.stock(POOL)["DISK_GB"]["total"] == 900


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


def test_hosts_that_come_at_once_never_fill_a_pool_beyond_its_room(fleet: Fleet) -> None:
    fleet.write_host("first", pool_gib=100)
    assert fleet.report("first", "--force").code == 0

    with ThreadPoolExecutor(len(NAMES)) as threads:
        done = list(threads.map(lambda name: fleet.run(name, "reshape", "--apply"), NAMES))

    assert sorted(one.code == 0 for one in done) == [False, False, True, True], [one.out + one.err for one in done]
    assert sum(each["DISK_GB"] for each in fleet.held(POOL).values()) == 80


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
    assert "has no DISK_GB: by [agent] shared_disk" in on_nfs.run("first", "explain", "first", "DISK_GB").err
    assert (on_nfs.sums(), on_nfs.said(NFS)) == (before, said[NFS])
    found = on_nfs.placement.send("GET", "/allocation_candidates?resources=VCPU:1,DISK_GB:30&limit=50")
    assert len(found["allocation_requests"]) == len(NAMES)
    generations = {name: one["generation"] for name, one in on_nfs.providers().items()}
    on_nfs.at_once("sync")
    assert {name: one["generation"] for name, one in on_nfs.providers().items()} == generations

    on_nfs.at_once("reshape", "--apply", shared_disk="own")
    assert on_nfs.held(NFS) == {}
    assert (on_nfs.sums(), {name: on_nfs.said(name) for name in (NFS, *NAMES)}) == (before, said)
