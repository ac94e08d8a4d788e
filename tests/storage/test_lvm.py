"""Disks of guests in a volume group of LVM, on a file of this machine."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beds.agents import Result, run_agent
from beds.by_hand import ByHand
from beds.libvirtd import Libvirtd
from beds.placement import PlacementServer
from beds.service import noauth
from beds.storage import novas_disk_gb
from beds.upgrades import write_config

pytestmark = pytest.mark.live

GIB = 1 << 30
GROUP = "guests-of-a-test"


@pytest.fixture
def group(tmp_path: Path) -> Iterator[str]:
    """A volume group of 5 GiB and what LVM needs for itself."""
    disk = tmp_path / "disk"
    with disk.open("wb") as file:
        file.truncate(5 * GIB + (8 << 20))
    shown = subprocess.run(["losetup", "--find", "--show", str(disk)], check=True, capture_output=True, text=True)
    device = shown.stdout.strip()
    try:
        for command in (["pvcreate", "--quiet", device], ["vgcreate", "--quiet", GROUP, device]):
            subprocess.run(command, check=True, capture_output=True)
        yield GROUP
        subprocess.run(["vgremove", "--force", "--quiet", GROUP], check=True, capture_output=True)
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


def options_of(group: str) -> dict[str, object]:
    return {"images_type": "lvm", "images_volume_group": group}


def test_disk_gb_is_what_nova_counts_and_a_group_that_is_missing_changes_nothing(
    group: str, hypervisor: Libvirtd, placement_server: PlacementServer, tmp_path: Path
) -> None:
    by_hand = ByHand(placement_server.url)

    def sync(name: str) -> Result:
        groups: dict[str, dict[str, object]] = {
            "DEFAULT": {"state_path": tmp_path},
            "libvirt": {"connection_uri": hypervisor.uri, "virt_type": "qemu", **options_of(name)},
            "placement": noauth(placement_server.url),
            "agent": {"state_directory": tmp_path / "state"},
        }
        return run_agent("sync", "--config-file", write_config(groups, tmp_path / "agent.conf"))

    def stock() -> Any:
        (one,) = by_hand.providers().values()
        return one["generation"], by_hand.stock(one["uuid"])

    assert sync(group).code == 0
    before = stock()
    assert before[1]["DISK_GB"]["total"] == novas_disk_gb(options_of(group), tmp_path) == 5

    refused = sync("no-such-group")

    assert refused.code != 0
    assert 'Volume group "no-such-group" not found' in refused.err
    assert len(refused.err.strip().splitlines()) == 1
    assert stock() == before
