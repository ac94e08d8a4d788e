"""The lines that ``discover --suggest`` prints for recorded hosts are a configuration that offers what is there."""

import re
from pathlib import Path

import pytest

from beds.agents import run_here
from beds.golden import GoldenHost, golden_hosts

pytestmark = pytest.mark.live

HOSTS = {one.folder.name: one for one in golden_hosts()}


def suggested(host: GoldenHost) -> str:
    done = run_here("discover", "--host", host.archive, "--config-file", host.config, "--suggest")
    assert done.code == 0, done.err
    return done.out


def configured(host: GoldenHost, folder: Path) -> Path:
    """A file with the host's own [libvirt], as its archive was recorded with it, and what is suggested for it."""
    found = re.search(r"^\[libvirt\]\n[^\[]*", host.config.read_text(encoding="utf-8"), re.MULTILINE)
    path = folder / "agent.conf"
    path.write_text(f"{found.group() if found else ''}\n{suggested(host)}", encoding="utf-8")
    return path


@pytest.mark.parametrize("name", HOSTS)
def test_what_is_suggested_is_read_and_each_line_has_an_effect(name: str, tmp_path: Path) -> None:
    path = configured(HOSTS[name], tmp_path)

    done = run_here("discover", "--host", HOSTS[name].archive, "--config-file", path, "--format", "json")

    assert done.code == 0, done.err
    assert "configuration:" not in done.err


def totals(host: GoldenHost, path: Path) -> dict[str, int]:
    done = run_here("discover", "--host", host.archive, "--config-file", path, "--format", "json")
    assert done.code == 0, done.err
    stocks = [one["inventories"] for one in done.json["providers"].values()]
    names = {name for one in stocks for name in one} - {"VCPU", "PCPU", "MEMORY_MB", "DISK_GB"}
    return {name: sum(one[name]["total"] for one in stocks if name in one) for name in names}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("four-cells", {"SRIOV_NET_VF": 16, "VGPU": 24}),
        ("odd-cells", {"SRIOV_NET_VF": 4}),
        ("mdev-vfs", {"VGPU": 8}),
        ("typed-vfs", {"CUSTOM_NVIDIA_1055": 3, "CUSTOM_NVIDIA_1058": 1, "CUSTOM_NVIDIA_1413": 4}),
    ],
)
def test_what_is_suggested_offers_each_device_once(name: str, expected: dict[str, int], tmp_path: Path) -> None:
    path = configured(HOSTS[name], tmp_path)

    assert totals(HOSTS[name], path) == expected
