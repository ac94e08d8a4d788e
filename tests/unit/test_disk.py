"""The file system of the instances, and what nova's image cache takes of it."""

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from agent.settings.read import load_settings
from drivers.errors import DiscoveryError
from drivers.facts import DiskSpace
from drivers.host import disk
from drivers.host.disk import probe_disk
from drivers.libvirt.shape import shape
from drivers.policy import DiskPlace, DiskPolicy, InstancesFolder, Policy
from fakes import FACTS

GIB = 1024**3
RESERVING = "[DEFAULT]\ninstances_path = {}\n[workarounds]\nreserve_disk_resource_for_image_cache = true\n"


def read(place: DiskPlace) -> DiskSpace:
    found = probe_disk(place)
    assert isinstance(found, DiskSpace)
    return found


def place(tmp_path: Path, more: str = "") -> InstancesFolder:
    config = tmp_path / "agent.conf"
    config.write_text(RESERVING.format(tmp_path) + more, encoding="utf-8")
    found = load_settings([config]).hypervisor.disk
    assert isinstance(found, InstancesFolder)
    return found


@pytest.mark.parametrize("named", ["_base", "cached"])
def test_what_files_of_the_image_cache_occupy_is_read(tmp_path: Path, named: str) -> None:
    cache = tmp_path / named
    (cache / "folder").mkdir(parents=True)
    with (cache / "sparse").open("wb") as file:
        file.truncate(GIB)
    for name in ("one", "two"):
        (cache / name).write_bytes(b"x" * 70_000)

    found = read(place(tmp_path, f"[image_cache]\nsubdirectory_name = {named}\n"))

    assert found.image_cache_bytes is not None
    assert 2 * 70_000 <= found.image_cache_bytes < 2 * 70_000 + (1 << 20)


def test_without_the_option_or_the_folder_nothing_is_cached(tmp_path: Path) -> None:
    assert read(place(tmp_path)).image_cache_bytes == 0
    (tmp_path / "_base").mkdir()
    (tmp_path / "_base/image").write_bytes(b"x" * 70_000)

    assert read(replace(place(tmp_path), image_cache=None)).image_cache_bytes is None


def test_a_cache_on_another_file_system_takes_nothing_of_the_instances(tmp_path: Path) -> None:
    assert read(InstancesFolder(instances=tmp_path, image_cache=Path("/dev/shm"))).image_cache_bytes == 0


@pytest.mark.parametrize(
    ("made", "folder", "missing"), [("a/b", "a/b", None), ("a", "a", "a/b"), ("", "", "a/b")], ids=["there", "1", "2"]
)
def test_where_the_default_folder_does_not_exist_it_is_told_whose_file_system_is_read(
    tmp_path: Path, made: str, folder: str, missing: str | None
) -> None:
    (tmp_path / made).mkdir(parents=True, exist_ok=True)

    found = read(InstancesFolder(instances=tmp_path / "a/b", may_be_missing=True))

    assert found.folder == str(tmp_path / folder)
    assert found.missing == (str(tmp_path / missing) if missing else None)
    text = shape(replace(FACTS, disk=found), Policy(), None).providers[0].inventories["DISK_GB"][1].fact
    gone = f" ({tmp_path / missing} does not exist)" if missing else ""
    assert text == f"the file system of {tmp_path / folder} has {found.total_bytes} bytes{gone}"


def test_a_default_folder_that_is_a_link_to_nowhere_is_not_read_elsewhere(tmp_path: Path) -> None:
    """Somebody made the link: what it leads to is not mounted."""
    (tmp_path / "instances").symlink_to(tmp_path / "not-mounted")

    with pytest.raises(DiscoveryError, match="is it mounted"):
        read(InstancesFolder(instances=tmp_path / "instances", may_be_missing=True))


def test_a_default_folder_that_cannot_be_looked_at_is_not_read_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(_: Path) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(Path, "lstat", stale)

    with pytest.raises(DiscoveryError, match="Stale file handle: is it mounted"):
        read(InstancesFolder(instances=tmp_path / "instances", may_be_missing=True))


def test_an_image_that_goes_during_the_look_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "_base").mkdir()
    monkeypatch.setattr(Path, "iterdir", lambda folder: iter([folder / "gone"]))

    assert read(place(tmp_path)).image_cache_bytes == 0


def test_a_cache_that_cannot_be_listed_is_an_error_with_both_ways_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "_base").mkdir()

    def refuse(_folder: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    said = r"cannot read nova's image cache at .*_base .*Permission denied: allow .* or set .* = false"

    with pytest.raises(DiscoveryError, match=said):
        disk.probe_disk(place(tmp_path))


@pytest.mark.parametrize(("mib", "cached", "reserved"), [(0, 0, 0), (0, 1, 1), (1, GIB, 2), (1024, GIB + 1, 3)])
def test_the_cache_is_reserved_in_whole_gib_beside_what_is_kept_for_the_host(
    mib: int, cached: int, reserved: int
) -> None:
    facts = replace(FACTS, disk=DiskSpace(100 * GIB, 0, cached))

    tree = shape(facts, Policy(disk=DiskPolicy(reserved_mib=mib)), None).tree

    assert tree.root.inventories["DISK_GB"].reserved == reserved
