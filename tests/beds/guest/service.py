"""The package in the full guest, and its service there."""

import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

from beds.guest.machine import PROJECT, Guest

UNIT, RESHAPE = "compute-node-agent.service", "compute-node-agent-reshape.service"
CARDS = ("0000:41:00.0", "0000:81:00.0")  # of cells 0 and 1
HOST = "full-guest"
PATIENCE_S = 240


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
    deadline = time.monotonic() + PATIENCE_S
    while not (told := show(guest, UNIT, "StatusText")).startswith("up to date"):
        if time.monotonic() > deadline:
            journal = guest.run(f"journalctl --no-pager -n 60 -u {UNIT} -u {RESHAPE}", check=False)
            raise AssertionError(f"{told}:\n{journal}")
        time.sleep(2)


def show(guest: Guest, unit: str, name: str) -> str:
    return guest.run(f"systemctl show {shlex.quote(unit)} -p {name} --value").strip()
