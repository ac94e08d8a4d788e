"""
The package is upgraded on the full guest, and with it the layout: flat becomes numa under guests that go on.

Each guest has a VF of a real card and a mediated device; the conversion was approved before the upgrade, and runs
before the service, as systemd orders it.
"""

import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from beds import placement
from beds.by_hand import ByHand
from beds.guest import machine
from beds.guest.machine import PROJECT, Guest
from beds.guest.service import CARDS, CONFIG, HOST, RESHAPE, UNIT, build, install, set_vfs, show, wait_until_well
from beds.guests import GuestSpec, domain_xml

pytestmark = pytest.mark.live

IMAGE = PROJECT / ".guest"
VFS = ("0000:41:10.0", "0000:81:10.0")
MTTY = "/sys/class/mdev_bus/mtty/mdev_supported_types/mtty-1/create"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The Debian package of this tree, and one of the next version."""
    folder = tmp_path_factory.mktemp("package")
    return {"now": build(folder / "now"), "next": build(folder / "next", version="999")}


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[Guest]:
    with machine.running(IMAGE, tmp_path) as running:
        for card in CARDS:
            set_vfs(running, card)
        yield running


def test_an_upgrade_converts_the_host_under_its_guests(
    guest: Guest, package: dict[str, Path], placement_template: Path, tmp_path: Path
) -> None:
    with placement.serving(tmp_path / "placement", placement_template) as server:
        placed = ByHand(server.url)
        install(guest, package["now"], config("flat", server.url))
        guest.run(f"systemctl start {UNIT}")
        wait_until_well(guest)
        (root,) = placed.providers().values()
        stock = placed.stock(root["uuid"])
        assert (stock["SRIOV_NET_VF"]["total"], stock["CUSTOM_MTTY"]["total"]) == (8, 24)

        guests = {str(uuid.uuid4()): vf for vf in VFS}
        for identity, vf in guests.items():
            start_guest(guest, identity, vf)
            # What the scheduler gave it of the flat host.
            placed.claim(identity, {root["uuid"]: {"VCPU": 1, "MEMORY_MB": 64, "SRIOV_NET_VF": 1, "CUSTOM_MTTY": 1}})
        before = processes(guest)
        assert len(before) == len(guests)

        approve(guest, "numa")
        began = time.monotonic()
        install(guest, package["next"], config("numa", server.url))
        wait_until_well(guest)
        print(f"\nupgraded and converted in {time.monotonic() - began:.0f} s")

        assert "Version: 999" in guest.run("dpkg -s compute-node-agent")
        assert processes(guest) == before
        assert show(guest, RESHAPE, "Result") == "success"
        assert (
            0
            < int(show(guest, RESHAPE, "ExecMainExitTimestampMonotonic"))
            <= int(show(guest, UNIT, "ExecMainStartTimestampMonotonic"))
        )
        names = {row["uuid"]: name for name, row in placed.providers().items()}
        for identity, vf in guests.items():
            cell = VFS.index(vf)
            held = placed.send("GET", f"/allocations/{identity}")["allocations"]
            where = {(names[slot], kind): n for slot, row in held.items() for kind, n in row["resources"].items()}
            print(f"guest on {vf}: {where}")
            assert where[f"{HOST}_{CARDS[cell]}", "SRIOV_NET_VF"] == 1
            assert where[f"{HOST}_mtty_mtty", "CUSTOM_MTTY"] == 1
            assert where[f"{HOST}_NUMA{cell}", "VCPU"] == 1
            assert where[f"{HOST}_NUMA{cell}_PAGES_4", "MEMORY_MB"] == 64
            assert len(where) == 4


def config(layout: str, url: str) -> str:
    return CONFIG.format(layout=layout, port=url.rpartition(":")[2]) + "interval = 10\n"


def approve(guest: Guest, layout: str) -> None:
    """As an operator does before an upgrade: the plan is read, and left for the next start of the service."""
    planned = guest.run(f"compute-node-agent reshape --to {layout} --format json", check=False)
    digest = json.loads(planned[planned.index("{") : planned.rindex("}") + 1])["digest"]
    guest.run(f"compute-node-agent reshape --to {layout} --approve --digest {digest}")


def start_guest(guest: Guest, identity: str, vf: str) -> None:
    """A guest that is bound to its card's cell, with a VF and a port of the sample device."""
    mdev, cell = str(uuid.uuid4()), VFS.index(vf)
    guest.run(f"echo {mdev} > {MTTY}")
    spec = GuestSpec(memory_mib=64, vfs=(vf,), mdevs=(mdev,), pins=(str(2 * cell),))
    text = domain_xml(identity, f"guest-{cell}", spec).replace(
        "<os>", f"<numatune><memory mode='strict' nodeset='{cell}'/></numatune><os>"
    )
    guest.send(f"/root/{identity}.xml", text)
    guest.run(f"virsh -q create /root/{identity}.xml")


def processes(guest: Guest) -> set[str]:
    """Process and start of each running guest: another one would have others."""
    return set(guest.run("ps -C qemu-system-x86_64,qemu-system-x86 -o pid=,lstart=").strip().splitlines())
