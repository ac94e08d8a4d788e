"""Disks of guests on a volume group or in a Ceph cluster: the commands are stand-ins here."""

import json
import shutil
import stat
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.command.arguments import main
from agent.settings.read import load_settings
from drivers.errors import DiscoveryError
from drivers.facts import DiskFacts, DiskSpace, DiskUnread, PoolSpace, Versions
from drivers.host import commands
from drivers.host.archive import DISK, HostArchive, encode_disk
from drivers.host.disk import probe_disk
from drivers.libvirt.shape import shape
from drivers.policy import OF_CELLS, CephPool, DiskPolicy, Layout, Policy, VolumeGroup
from drivers.reasons import Explained
from fakes import FACTS
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider

GIB = 1024**3
FOUR_CELLS = Path(__file__).parents[1] / "hosts/four-cells"
POOL = CephPool(name="vms", config="/etc/ceph/one.conf", user="nova", timeout_s=3)
# As ceph df of Ceph 16.2 answers, without what nobody reads here.
DF: dict[str, Any] = {
    "stats": {"total_bytes": 30 * GIB + 5, "total_avail_bytes": 20 * GIB},
    "pools": [
        {"name": "other", "stats": {"stored": 1, "max_avail": 2}},
        {"name": "vms", "stats": {"stored": GIB // 2, "max_avail": 9 * GIB, "bytes_used": 3 * GIB}},
    ],
}
FSID = "9f4e7c1a-6c0e-4f6f-8a55-2d9b3c1f7e10"
FOUND = PoolSpace("vms", cluster_bytes=30 * GIB + 5, pool_gib=9, fsid=FSID)

Script = Callable[[str, str], None]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Makes a command of this name with this body; each call leaves its arguments in the file NAME.calls."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def write(name: str, body: str) -> None:
        file = tmp_path / name
        file.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/{name}.calls\n{body}\n', encoding="utf-8")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    return write


def answering(found: Mapping[str, Any]) -> str:
    return f"[ $1 = fsid ] && echo {FSID} && exit\ncat <<'E'\n{json.dumps(found)}\nE"


# -- LVM --------------------------------------------------------------------------------------------------------------


def test_a_volume_group_is_read_by_the_command_that_nova_uses(script: Script, tmp_path: Path) -> None:
    script("vgs", "echo '  21474836480|1073741824'")

    assert probe_disk(VolumeGroup("guests")) == DiskSpace(20 * GIB, GIB, volume_group="guests")
    asked = (tmp_path / "vgs.calls").read_text(encoding="utf-8")
    assert asked.endswith("--units b -o vg_size,vg_free guests\n")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('echo "  Volume group \\"guests\\" not found" >&2; exit 5', 'vgs failed: Volume group "guests" not found'),
        ("exit 5", "vgs failed: it ended with status 5"),
        ("echo '  '", "vgs answers '' for the volume group"),
        ("echo '20G|1G'", "vgs answers '20G|1G' for the volume group"),
    ],
)
def test_a_volume_group_that_cannot_be_read_is_one_line_that_names_it(script: Script, body: str, said: str) -> None:
    script("vgs", body)

    with pytest.raises(DiscoveryError) as error:
        probe_disk(VolumeGroup("guests"))

    assert said in str(error.value)
    assert "guests ([libvirt] images_volume_group)" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_host_without_the_command_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(DiscoveryError, match="this host has no command vgs"):
        probe_disk(VolumeGroup("guests"))


def test_a_command_that_hangs_is_given_up(script: Script) -> None:
    script("vgs", "exec sleep 60")

    with pytest.raises(commands.CommandFailed, match="vgs did not answer within 1 s"):
        commands.output_of(["vgs"], 1)


def test_a_command_that_cannot_be_run_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(commands.CommandFailed, match="cannot be run: Permission denied"):
        commands.output_of([str(tmp_path)], 1)


# -- Ceph -------------------------------------------------------------------------------------------------------------


def test_a_cluster_is_asked_as_nova_asks_it(script: Script, tmp_path: Path) -> None:
    script("ceph", answering(DF))

    assert probe_disk(POOL) == FOUND
    asked = (tmp_path / "ceph.calls").read_text(encoding="utf-8")
    login = "--connect-timeout 3 --id nova --conf /etc/ceph/one.conf\n"
    assert asked == f"df detail --format=json {login}fsid {login}"


QUOTAS = [
    pytest.param(0, 9, id="none"),
    pytest.param(4 * GIB + 1, 4, id="less than the pool could hold"),
    pytest.param(GIB // 4, 0, id="less than it holds"),
    pytest.param(90 * GIB, 9, id="more than it could hold"),
]


def with_quota(quota: int) -> dict[str, Any]:
    other, pool = DF["pools"]
    return {**DF, "pools": [other, {**pool, "stats": {**pool["stats"], "quota_objects": 0, "quota_bytes": quota}}]}


@pytest.mark.parametrize(("quota", "holds"), QUOTAS)
def test_a_pool_holds_no_more_than_its_quota(script: Script, quota: int, holds: int) -> None:
    script("ceph", answering(with_quota(quota)))

    assert probe_disk(POOL) == replace(FOUND, pool_gib=holds)


def test_a_pool_that_the_cluster_does_not_have_is_an_error(script: Script) -> None:
    script("ceph", answering(DF))

    with pytest.raises(DiscoveryError, match=r"has no pool volumes .*: it has other, vms"):
        probe_disk(replace(POOL, name="volumes"))


@pytest.mark.parametrize(("in_all", "pool"), [(0, {"stored": 1, "max_avail": 2}), (GIB, {"stored": 0, "max_avail": 0})])
def test_a_cluster_that_has_not_counted_yet_is_silent(script: Script, in_all: int, pool: dict[str, int]) -> None:
    script("ceph", answering({"stats": {"total_bytes": in_all}, "pools": [{"name": "vms", "stats": pool}]}))

    assert probe_disk(POOL) == DiskUnread("the Ceph cluster has not counted yet what its pool vms can hold")


@pytest.mark.parametrize("answer", [{}, {"stats": {}, "pools": []}, {**DF, "stats": {"total_bytes": -1}}])
def test_an_answer_in_another_form_is_an_error(script: Script, answer: dict[str, Any]) -> None:
    script("ceph", answering(answer))

    with pytest.raises(DiscoveryError):
        probe_disk(POOL)


def test_a_host_that_cannot_ask_ceph_at_all_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(DiscoveryError, match="this host has no command ceph: install ceph-common"):
        probe_disk(POOL)


@pytest.mark.parametrize("text", ["", "warning: slow\n{}", "[" * 100_000])
def test_an_answer_that_is_not_json_is_an_error(script: Script, tmp_path: Path, text: str) -> None:
    (tmp_path / "answer").write_text(text, encoding="utf-8")
    script("ceph", f"cat {tmp_path}/answer")

    with pytest.raises(DiscoveryError, match=r"ceph df for the pool vms .* holds a value of the wrong kind"):
        probe_disk(POOL)


def test_a_cluster_that_does_not_answer_is_no_error(script: Script) -> None:
    script("ceph", "echo 'error connecting to the cluster' >&2; exit 1")

    assert probe_disk(POOL) == DiskUnread(
        "the Ceph cluster did not answer: ceph failed: error connecting to the cluster"
    )


# -- what is reported -------------------------------------------------------------------------------------------------


def shaped(disk: DiskFacts, before: Inventory | None = None, layout: Layout = "devices", **policy: Any) -> Explained:
    stock = {"DISK_GB": before} if before else {}
    root = Provider(name=FACTS.hostname, inventories=stock)
    observed = ObservedTree((ObservedProvider(uuid="1", generation=1, provider=root),))
    return shape(replace(FACTS, disk=disk), Policy(layout=layout, disk=DiskPolicy(**policy)), observed)


def disk_gb(*asked: Any, **policy: Any) -> Inventory | None:
    return shaped(*asked, **policy).tree.root.inventories.get("DISK_GB")


def inventory(total: int, reserved: int = 0, ratio: float = 1.0) -> Inventory:
    return Inventory(total=total, reserved=reserved, max_unit=total, allocation_ratio=ratio)


def test_what_differs_at_each_look_or_is_for_people_makes_no_other_facts() -> None:
    assert DiskSpace(GIB, 1) == DiskSpace(GIB, 2)
    assert Versions(1, 2, "QEMU") == Versions(1, 2)


def test_a_volume_group_is_reported_in_whole_gib() -> None:
    assert disk_gb(DiskSpace(20 * GIB - 1, 0, volume_group="guests"), reserved_mib=1025) == inventory(19, 2)


def test_of_a_cluster_novas_number_is_reported_unless_the_pools_is_wanted() -> None:
    assert disk_gb(FOUND) == inventory(30)
    assert disk_gb(FOUND, by_pool=True, reserved_mib=1) == inventory(9, 1)


@pytest.mark.parametrize("by_pool", [False, True])
def test_explain_shows_both_numbers_of_a_cluster(by_pool: bool) -> None:
    _, reason = shaped(FOUND, by_pool=by_pool).providers[0].inventories["DISK_GB"]

    assert reason.fact.startswith("the Ceph cluster has 30 GiB, of which its pool vms can hold 9; ")
    assert f"the {'pool' if by_pool else 'cluster'} counts" in reason.fact


@pytest.mark.parametrize(
    "verb", [["discover"], ["explain", "four-cells"], ["explain", "four-cells", "DISK_GB"]], ids=" ".join
)
def test_who_looks_for_disks_that_did_not_answer_is_told_so(
    verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(FOUR_CELLS / "archive", tmp_path / "host")
    (tmp_path / "host" / DISK).write_text('{"because": "the Ceph cluster is away"}', encoding="utf-8")

    main([*verb, "--host", str(tmp_path / "host"), "--config-file", str(FOUR_CELLS / "agent.conf")])

    assert "DISK_GB cannot be read: the Ceph cluster is away" in capsys.readouterr().err


@pytest.mark.parametrize(("now", "reported"), [(1000, 1000), (1010, 1000), (990, 1000), (1011, 1011), (989, 989)])
def test_what_a_pool_can_hold_is_reported_anew_when_it_differs_by_more_than_a_hundredth(
    now: int, reported: int
) -> None:
    space = PoolSpace("vms", cluster_bytes=9000 * GIB, pool_gib=now)

    stock, reason = shaped(space, inventory(1000), by_pool=True).providers[0].inventories["DISK_GB"]
    assert stock == inventory(reported)
    assert ("anew at a difference" in reason.fact) == (now != reported)


@pytest.mark.parametrize("layout", ["devices", *sorted(OF_CELLS)])
def test_what_does_not_answer_has_what_it_has_in_placement_and_all_else_is_reported(layout: Any) -> None:
    before = inventory(77, 5, 2.0)

    found = shaped(DiskUnread("the Ceph cluster did not answer"), before, layout=layout, reserved_mib=1)

    assert found.tree.root.inventories["DISK_GB"] == before
    assert sum(one.inventories["VCPU"].total for one in found.tree if "VCPU" in one.inventories) == 4


def test_what_does_not_answer_on_a_new_host_is_not_reported() -> None:
    assert disk_gb(DiskUnread("the Ceph cluster did not answer")) is None


@pytest.mark.parametrize(
    "was", [DiskSpace(3, 1, volume_group="guests"), DiskSpace(9, 7, 5), FOUND, DiskUnread("no answer")]
)
def test_a_recorded_host_keeps_what_has_its_disks(tmp_path: Path, was: DiskFacts) -> None:
    (tmp_path / DISK).write_text(encode_disk(was), encoding="utf-8")

    assert HostArchive(tmp_path).disk() == was


# -- options ----------------------------------------------------------------------------------------------------------


def test_the_options_are_novas(tmp_path: Path) -> None:
    config = tmp_path / "nova.conf"
    config.write_text(
        "[libvirt]\nimages_type = rbd\nimages_rbd_pool = vms\nimages_rbd_ceph_conf = /etc/ceph/one.conf\n"
        "rbd_user = nova\nrbd_connect_timeout = 3\n[agent]\nrbd_capacity = pool\n",
        encoding="utf-8",
    )
    settings = load_settings([config])
    assert (settings.hypervisor.disk, settings.policy.disk.by_pool) == (POOL, True)

    config.write_text("[libvirt]\nimages_type = lvm\nimages_volume_group = guests\n", encoding="utf-8")
    assert load_settings([config]).hypervisor.disk == VolumeGroup("guests")


@pytest.mark.parametrize(("raw", "excluded"), [("true", frozenset()), ("false", frozenset({"qcow2"}))])
def test_volumes_of_lvm_take_no_qcow2_unless_nova_turns_it_into_raw(
    tmp_path: Path, raw: str, excluded: frozenset[str]
) -> None:
    config = tmp_path / "nova.conf"
    config.write_text(
        f"[DEFAULT]\nforce_raw_images = {raw}\n[libvirt]\nimages_type = lvm\nimages_volume_group = guests\n",
        encoding="utf-8",
    )

    assert load_settings([config]).policy.guests.excluded_image_types == excluded
