"""
The full guest is booted anew: its VFs are gone until they are set again, and its mediated devices until their module is
loaded. Nothing of them is lost in placement, and nothing of them is on offer meanwhile.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from beds import placement
from beds.by_hand import ByHand
from beds.guest import machine
from beds.guest.machine import PROJECT, Guest
from beds.guest.service import CARDS, HOST, UNIT, build, install, wait_until_well

pytestmark = pytest.mark.live

VF, MTTY = "SRIOV_NET_VF", "CUSTOM_MTTY"
PATIENCE_S = 240
PORT = 9101
CONFIG = """\
[DEFAULT]
instances_path = /var/lib
state_path = /nonexistent
[libvirt]
virt_type = qemu
[pci]
discover = all
[devices]
enabled_mdev_types = mtty-1
[mdev_mtty-1]
mdev_class = CUSTOM_MTTY
[placement]
auth_type = none
endpoint = http://10.0.2.2:{port}
[agent]
interval = 5
start_spread = 0
metrics_port = {metrics}
expect_timeout = {expect}
"""
FETCH = (
    f"python3 -c 'import urllib.request as r; print(r.urlopen(\"http://127.0.0.1:{PORT}/metrics\").read().decode())'"
)


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[Guest]:
    with machine.running(PROJECT / ".guest", tmp_path) as running:
        running.run("sed -i /mtty/d /etc/modules-load.d/devices.conf")  # who loads it after a boot is late
        yield running


class Host:
    """What placement has of the guest as a host."""

    def __init__(self, url: str) -> None:
        self.send = ByHand(url).send

    def stock(self, name: str, resource_class: str) -> tuple[int, int]:
        """Total and reserved of a class on a provider; zeros where there is none."""
        rows = self.send("GET", f"/resource_providers?name={HOST}_{name}")["resource_providers"]
        found = self.send("GET", f"/resource_providers/{rows[0]['uuid']}/inventories")["inventories"] if rows else {}
        one = found.get(resource_class, {"total": 0, "reserved": 0})
        return one["total"], one["reserved"]

    def all(self) -> tuple[tuple[int, int], ...]:
        """The VFs of both cards, and the mediated devices."""
        return (*(self.stock(card, VF) for card in CARDS), self.stock("mtty_mtty", MTTY))

    def wait_for(self, wanted: tuple[tuple[int, int], ...], guest: Guest) -> None:
        self.wait_until(lambda: self.all() == wanted, guest)

    def wait_until(self, done: Callable[[], bool], guest: Guest) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            told = guest.run(f"journalctl --no-pager -n 30 -u {UNIT}", check=False)
            assert time.monotonic() < deadline, (self.all(), told)
            time.sleep(2)


def set_vfs(guest: Guest, card: str) -> None:
    guest.run(f"ip link set $(ls /sys/bus/pci/devices/{card}/net) up")
    guest.run(f"echo 4 > /sys/bus/pci/devices/{card}/sriov_numvfs")


def audit(guest: Guest) -> dict[str, Any]:
    """The findings of one kind: provider -> (expected, actual)."""
    told = json.loads(guest.run("compute-node-agent audit --format json", check=False))
    lost = [one for one in told["findings"] if one["kind"] == "profile-lost"]
    return {one["provider"]: (one["expected"], one["actual"]) for one in lost}


def config(url: str, expect: int) -> str:
    return CONFIG.format(port=url.rpartition(":")[2], metrics=PORT, expect=expect)


def test_what_a_boot_takes_away_is_reserved_until_it_is_back_or_the_wait_is_over(
    guest: Guest, placement_template: Path, tmp_path: Path
) -> None:
    whole = ((4, 0), (4, 0), (24, 0))
    with placement.serving(tmp_path / "placement", placement_template) as server:
        host = Host(server.url)
        guest.run("modprobe mtty")
        for card in CARDS:
            set_vfs(guest, card)
        install(guest, build(tmp_path / "package"), config(server.url, expect=3600))
        guest.run(f"systemctl enable --now {UNIT}")
        wait_until_well(guest)
        host.wait_for(whole, guest)
        identity = host.send("GET", f"/resource_providers?name={HOST}_{CARDS[0]}")["resource_providers"][0]["uuid"]
        ByHand(server.url).allocate(identity, VF, 1)

        guest.reboot()
        host.wait_for(((4, 4), (4, 4), (24, 24)), guest)
        said = {f"{HOST}_{CARDS[0]}": (4, 0), f"{HOST}_{CARDS[1]}": (4, 0), f"{HOST}_mtty_mtty": (24, 0)}
        assert audit(guest) == said
        host.wait_until(lambda: 'findings{kind="profile-lost"} 3' in guest.run(FETCH), guest)
        checked = guest.run("compute-node-agent check", check=False)
        assert f"{HOST}_{CARDS[0]} had 4 {VF} before this host was booted" in checked

        set_vfs(guest, CARDS[0])
        host.wait_for(((4, 0), (4, 4), (24, 24)), guest)
        guest.run("modprobe mtty")
        host.wait_for(((4, 0), (4, 4), (24, 0)), guest)
        set_vfs(guest, CARDS[1])
        host.wait_for(whole, guest)
        assert audit(guest) == {}

        guest.send("/etc/compute-node-agent/compute-node-agent.conf", config(server.url, expect=120))
        guest.reboot()
        set_vfs(guest, CARDS[0])
        host.wait_for(((4, 0), (0, 0), (0, 0)), guest)
