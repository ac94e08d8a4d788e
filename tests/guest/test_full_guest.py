"""The full guest: VFs of a real card, a real mediated device and a guest on a VF, each seen in the tree."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beds.golden import HOSTS, LAYOUTS, GoldenHost, beyond_the_machine, write_layout
from beds.guest import machine
from beds.guest.machine import PROJECT, Guest

IMAGE = PROJECT / ".guest"
CONFIG = "/root/agent.conf"
GOLDEN = GoldenHost(HOSTS / "full-guest")
FIRST, SECOND = "0000:41:00.0", "0000:81:00.0"  # the cards of cells 0 and 1


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    with machine.running(IMAGE, tmp_path_factory.mktemp("guest")) as running:
        running.send(CONFIG, GOLDEN.config.read_text())
        for address in (FIRST, SECOND):
            running.run(f"ip link set $(ls /sys/bus/pci/devices/{address}/net) up")
        yield running


def reported(guest: Guest, provider: str, name: str, total: int) -> Any:
    """The providers that the agent reports, once one of them has this much of a class."""
    for _ in range(60):
        tree = guest.agent("discover", "--config-file", CONFIG)["providers"]
        if tree.get(provider, {}).get("inventories", {}).get(name, {}).get("total") == total:
            return tree
        time.sleep(0.5)
    raise AssertionError(tree)


@pytest.mark.parametrize("address", [FIRST, SECOND])
def test_vfs_of_a_real_card_appear_under_its_cell(guest: Guest, address: str) -> None:
    guest.run(f"echo 4 > /sys/bus/pci/devices/{address}/sriov_numvfs")

    tree = reported(guest, f"full-guest_{address}", "SRIOV_NET_VF", 4)
    assert tree[f"full-guest_{address}"]["parent"] == f"full-guest_NUMA{int(address == SECOND)}"


def test_a_real_mediated_device_takes_from_what_its_parent_can_make(guest: Guest) -> None:
    """mtty has 24 ports: one device of two ports leaves 22 of one port."""
    types = "/sys/class/mdev_bus/mtty/mdev_supported_types"
    guest.run(f"echo 83b8f4f2-509f-382f-3c1e-e6bfe0fa1001 > {types}/mtty-2/create")

    assert reported(guest, "full-guest_mtty_mtty", "CUSTOM_MTTY", 22)


def test_the_vf_of_a_guest_stays_in_the_inventory(guest: Guest) -> None:
    source = "<address domain='0' bus='0x81' slot='0x10' function='0'/>"
    guest.send(
        "/root/vf.xml",
        f"""<domain type='qemu'><name>on-a-vf</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>
        <os><type arch='x86_64' machine='q35'>hvm</type></os><devices><memballoon model='none'/>
        <hostdev mode='subsystem' type='pci' managed='yes'><source>{source}</source></hostdev></devices></domain>""",
    )
    guest.run("virsh -q create /root/vf.xml")

    assert "vfio-pci" in guest.run("virsh nodedev-dumpxml pci_0000_81_10_0")
    tree = guest.agent("discover", "--config-file", CONFIG)["providers"]
    assert tree[f"full-guest_{SECOND}"]["inventories"]["SRIOV_NET_VF"]["total"] == 4


def test_the_record_of_this_guest_has_its_expected_trees(
    guest: Guest, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Recorded with the VFs, the mediated device and the domain of the tests before."""
    guest.agent("record", "/root/record", "--config-file", CONFIG)
    guest.fetch("/root/record", tmp_path / "record")
    if request.config.getoption("--update-golden"):
        shutil.rmtree(GOLDEN.archive, ignore_errors=True)
        shutil.copytree(tmp_path / "record", GOLDEN.archive)
    for layout in LAYOUTS:
        guest.send(f"/root/{layout}.conf", write_layout(layout, tmp_path).read_text())
        options = ("--config-file", CONFIG, "--config-file", f"/root/{layout}.conf")
        live = guest.agent("discover", *options)
        recorded = guest.agent("discover", "--host", "/root/record", *options)
        for one in (live, recorded):
            del one["about"]["request_id"], one["about"]["time"]  # each run has its own
        assert recorded == live
        if request.config.getoption("--update-golden"):
            GOLDEN.write(layout, live)
        ours = ("DISK_GB", "MEMORY_MB")  # another kernel leaves another amount of memory
        assert beyond_the_machine(live, apart_from=ours) == beyond_the_machine(GOLDEN.read(layout), apart_from=ours)


def test_systemd_runs_here(guest: Guest) -> None:
    assert guest.run("ps -p 1 -o comm=").strip() == "systemd"
    assert guest.run("systemctl is-active libvirtd").strip() == "active"
