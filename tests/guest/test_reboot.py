"""
The full guest is booted anew: its VFs are gone until they are set again, and its mediated devices until their module is
loaded. Nothing of them is lost in placement, and nothing of them is on offer meanwhile.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from beds import placement
from beds.by_hand import ByHand
from beds.guest import machine
from beds.guest.machine import PROJECT, Guest
from beds.guest.service import CARDS, CONFIG, HOST, PATIENCE_S, UNIT, build, install, set_vfs, wait_until_well
from beds.process import wait_until

pytestmark = pytest.mark.live

VF, MTTY = "SRIOV_NET_VF", "CUSTOM_MTTY"
PORT = 9101
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
        self.placement = ByHand(url)

    def stock(self, name: str, resource_class: str) -> tuple[int, int]:
        """Total and reserved of a class on a provider; zeros where there is none."""
        row = self.placement.providers().get(f"{HOST}_{name}")
        found = self.placement.stock(row["uuid"]) if row else {}
        one = found.get(resource_class, {"total": 0, "reserved": 0})
        return one["total"], one["reserved"]

    def all(self) -> tuple[tuple[int, int], ...]:
        """The VFs of both cards, and the mediated devices."""
        return (*(self.stock(card, VF) for card in CARDS), self.stock("mtty_mtty", MTTY))

    def wait_for(self, wanted: tuple[tuple[int, int], ...], guest: Guest) -> None:
        self.wait_until(lambda: self.all() == wanted, guest)

    def wait_until(self, done: Callable[[], bool], guest: Guest) -> None:
        journal = f"journalctl --no-pager -n 30 -u {UNIT}"
        wait_until(done, PATIENCE_S, lambda: (self.all(), guest.run(journal, check=False)), pause_s=2)


def awaited(guest: Guest) -> int:
    """How many devices the service waits for, as its metrics say; each has a sentence of its own."""
    return guest.run(FETCH).count('compute_node_agent_conditions{kind="awaited"')


def config(url: str, expect: int) -> str:
    usual = CONFIG.format(port=url.rpartition(":")[2], layout="devices")
    return f"{usual}interval = 5\nmetrics_port = {PORT}\nexpect_timeout = {expect}\n"


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
        host.placement.allocate(host.placement.providers()[f"{HOST}_{CARDS[0]}"]["uuid"], VF, 1)

        guest.reboot()
        host.wait_for(((4, 4), (4, 4), (24, 24)), guest)
        host.wait_until(lambda: awaited(guest) == 3, guest)
        checked = guest.run("compute-node-agent check", check=False)
        assert f"{HOST}_{CARDS[0]} had 4 {VF} before this host was booted" in checked

        set_vfs(guest, CARDS[0])
        host.wait_for(((4, 0), (4, 4), (24, 24)), guest)
        guest.run("modprobe mtty")
        host.wait_for(((4, 0), (4, 4), (24, 0)), guest)
        set_vfs(guest, CARDS[1])
        host.wait_for(whole, guest)
        host.wait_until(lambda: awaited(guest) == 0, guest)

        guest.send("/etc/compute-node-agent/compute-node-agent.conf", config(server.url, expect=120))
        guest.reboot()
        set_vfs(guest, CARDS[0])
        host.wait_for(((4, 0), (0, 0), (0, 0)), guest)
