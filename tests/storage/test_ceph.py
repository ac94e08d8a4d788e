"""Disks of guests in a real Ceph cluster: what is reported of it, and what stays while it does not answer."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from beds import ceph
from beds.agents import Result, run_agent
from beds.by_hand import ByHand
from beds.ceph import DISK_GIB, POOL, USER, Ceph
from beds.libvirtd import Libvirtd
from beds.placement import PlacementServer
from beds.service import noauth, serving
from beds.storage import novas_disk_gb
from beds.upgrades import write_config

pytestmark = pytest.mark.live

GIB = 1 << 30


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ceph]:
    with ceph.serving(tmp_path_factory.mktemp("ceph")) as running:
        yield running


@dataclass(frozen=True, slots=True)
class Lab:
    """An agent over this machine whose guests' disks are in the cluster, and a placement."""

    folder: Path
    cluster: Ceph
    libvirt: str
    placement: str

    @property
    def disks(self) -> dict[str, object]:
        """nova's options for them."""
        return {
            "images_type": "rbd",
            "images_rbd_pool": POOL,
            "images_rbd_ceph_conf": self.cluster.config,
            "rbd_user": USER,
        }

    def groups(self, capacity: str = "cluster", **more: Mapping[str, object]) -> dict[str, dict[str, object]]:
        own = {"state_directory": self.folder / "state", "rbd_capacity": capacity, "interval": 1, "start_spread": 0}
        found: dict[str, dict[str, object]] = {
            "DEFAULT": {"state_path": self.folder},
            "libvirt": {"connection_uri": self.libvirt, "virt_type": "qemu", **self.disks},
            "placement": noauth(self.placement),
            "agent": own,
        }
        return {name: {**options, **more.get(name, {})} for name, options in found.items()}

    def agent(self, verb: str, *more: object, **groups: Any) -> Result:
        config = write_config(self.groups(**groups), self.folder / "agent.conf")
        return run_agent(verb, "--config-file", config, *more)

    def root(self) -> dict[str, str]:
        """The only provider."""
        (one,) = ByHand(self.placement).providers().values()
        return one

    def stock(self) -> dict[str, Any]:
        return ByHand(self.placement).stock(self.root()["uuid"])

    def pool_gib(self) -> int:
        """What Ceph says that the pool can hold."""
        stats = self.cluster.stats(self.cluster.ask("df"))
        return int(stats["stored"] + stats["max_avail"]) // GIB


@pytest.fixture
def lab(cluster: Ceph, hypervisor: Libvirtd, placement_server: PlacementServer, tmp_path: Path) -> Lab:
    return Lab(tmp_path, cluster, hypervisor.uri, placement_server.url)


def test_disk_gb_is_novas_number_or_what_the_pool_can_hold(lab: Lab) -> None:
    assert lab.agent("sync").code == 0
    novas = novas_disk_gb(lab.disks, lab.folder)
    assert lab.stock()["DISK_GB"]["total"] == novas == len(lab.cluster.disks) * DISK_GIB

    done = lab.agent("sync", "--force", capacity="pool")
    assert done.code == 0, done.err
    assert lab.stock()["DISK_GB"]["total"] == lab.pool_gib()
    explained = lab.agent("explain", lab.root()["name"], "DISK_GB", capacity="pool")
    assert f"its pool {POOL} can hold" in explained.out


def test_a_pool_has_no_more_than_its_quota(lab: Lab) -> None:
    quota_gib = lab.pool_gib() - 2
    lab.cluster.ask("osd", "pool", "set-quota", POOL, "max_bytes", str(quota_gib * GIB))

    done = lab.agent("sync", capacity="pool")
    lab.cluster.ask("osd", "pool", "set-quota", POOL, "max_bytes", "0")

    assert done.code == 0, done.err
    assert lab.stock()["DISK_GB"]["total"] == quota_gib
    assert lab.agent("sync", capacity="pool").code == 0
    assert lab.stock()["DISK_GB"]["total"] == lab.pool_gib()


def test_a_shared_pool_is_a_provider_of_its_own_by_the_clusters_fsid(lab: Lab) -> None:
    fsid = lab.cluster.ask("fsid")["fsid"]
    for _ in range(2):  # the first pass makes the identity by which the second one says who reports the pool
        done = lab.agent("sync", agent={"shared_disk": "sharing", "report_pool": True})
        assert done.code == 0, done.err

    placement = ByHand(lab.placement)
    rows = {name: one["uuid"] for name, one in placement.providers().items()}
    pool = rows.pop(f"ceph_{fsid}_{POOL}")
    (root,) = rows.values()
    stocks = [placement.stock(one) for one in (pool, root)]
    assert (stocks[0]["DISK_GB"]["total"], "DISK_GB" in stocks[1]) == (lab.pool_gib(), False)

    with lab.cluster.silent():
        done = lab.agent("sync", agent={"shared_disk": "sharing", "report_pool": True})
    assert done.code == 0, done.err
    assert placement.stock(pool) == stocks[0]


def test_while_the_monitors_are_stopped_disk_gb_stays_and_the_rest_of_the_pass_goes_on(lab: Lab) -> None:
    assert lab.agent("sync").code == 0
    before = lab.stock()
    with lab.cluster.silent():
        began = time.monotonic()
        done = lab.agent("sync", DEFAULT={"reserved_host_memory_mb": 513})
        print(f"a pass without an answer of Ceph took {time.monotonic() - began:.1f} s: {done.err}")
    assert done.code == 0
    assert "DISK_GB stays as it is in placement: the Ceph cluster did not answer" in done.out + done.err
    after = lab.stock()
    assert after["DISK_GB"] == before["DISK_GB"]
    assert after["MEMORY_MB"]["reserved"] == 513


def test_the_service_tells_it_and_reports_anew_within_a_pass(lab: Lab) -> None:
    with serving(lab.folder / "service", lab.groups(), state=lab.folder / "state") as service:
        service.wait_for_passes(1)
        with lab.cluster.silent():
            service.wait(lambda: "DISK_GB stays" in service.lines())
            service.wait_for_passes(2)
            assert lab.stock()["DISK_GB"]["total"] == len(lab.cluster.disks) * DISK_GIB
        service.wait(lambda: "answers again" in service.lines())
        text = service.lines()
        assert text.count("DISK_GB stays") == text.count("answers again") == 1
        assert lab.stock()["DISK_GB"]["total"] == len(lab.cluster.disks) * DISK_GIB


def test_a_pool_that_is_not_there_is_one_line_and_changes_nothing(lab: Lab) -> None:
    assert lab.agent("sync").code == 0
    before = lab.stock()

    done = lab.agent("sync", libvirt={"images_rbd_pool": "volumes"})

    assert done.code != 0
    assert "has no pool volumes" in done.err
    assert lab.stock() == before


def test_a_pool_that_keeps_each_byte_twice_holds_half_of_its_disks(lab: Lab) -> None:
    lab.cluster.add_disk()
    lab.cluster.keep_twice()

    assert lab.agent("sync", capacity="pool").code == 0

    assert lab.stock()["DISK_GB"]["total"] == lab.pool_gib() <= DISK_GIB
    assert novas_disk_gb(lab.disks, lab.folder) == len(lab.cluster.disks) * DISK_GIB
