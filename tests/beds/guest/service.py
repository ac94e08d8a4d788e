"""The package in the full guest, and its service there."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from beds.guest.machine import PROJECT, Guest
from beds.process import wait_until

UNIT, RESHAPE = "compute-node-agent.service", "compute-node-agent-reshape.service"
CARDS = ("0000:41:00.0", "0000:81:00.0")  # of cells 0 and 1
HOST = "full-guest"
PATIENCE_S = 240
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
[compute]
layout = {layout}
[agent]
start_spread = 0
"""  # the group of the agent is the last one, for more of its options


def build(folder: Path, version: str = "") -> Path:
    """The Debian package of this tree, unpacked for an emulated machine; of another version if one is given."""
    command = [str(PROJECT / "tools/deb.sh"), sys._base_executable]  # type: ignore[attr-defined]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    stage, made = folder / "stage", folder / "agent.deb"
    folder.mkdir()
    subprocess.run(["dpkg-deb", "-R", str(PROJECT / done.stdout.split()[-1]), str(stage)], check=True)
    if version:
        control = stage / "DEBIAN/control"
        changed = re.sub("^Version: .*$", f"Version: {version}", control.read_text(), flags=re.MULTILINE)
        control.write_text(changed)
    subprocess.run(["dpkg-deb", "-Znone", "--root-owner-group", "-b", str(stage), str(made)], check=True)
    return made


def install(guest: Guest, package: Path, config: str) -> None:
    """As an operator does who has a tool for it: the configuration first, and it stays; then the package."""
    guest.run("mkdir -p /etc/compute-node-agent")
    guest.send("/etc/compute-node-agent/compute-node-agent.conf", config)
    guest.copy(package, "/root/agent.deb")
    guest.run("DEBIAN_FRONTEND=noninteractive dpkg -i --force-depends --force-confold /root/agent.deb", timeout=900)


def wait_until_well(guest: Guest) -> None:
    """Until the service says that it is up to date."""
    wait_until(
        lambda: show(guest, UNIT, "StatusText").startswith("up to date"),
        PATIENCE_S,
        lambda: guest.run(f"journalctl --no-pager -n 60 -u {UNIT} -u {RESHAPE}", check=False),
        pause_s=2,
    )


def set_vfs(guest: Guest, card: str) -> None:
    """The card has four VFs, and a link."""
    guest.run(f"ip link set $(ls /sys/bus/pci/devices/{card}/net) up")
    guest.run(f"echo 4 > /sys/bus/pci/devices/{card}/sriov_numvfs")


def show(guest: Guest, unit: str, name: str) -> str:
    return guest.run(f"systemctl show {shlex.quote(unit)} -p {name} --value").strip()
