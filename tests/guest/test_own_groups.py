"""The image under podman: a guest that floats, with the control groups of the host and with some of its own."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beds import placement, podman
from beds.by_hand import ByHand
from beds.guest import machine
from beds.guest.machine import PROJECT, Guest
from beds.guest.service import CONFIG, HOST

UUID, MIB = "6d1f8f6c-55a5-4f4e-9d0e-3f5f0c6a7b11", 64
STATE = "/var/lib/compute-node-agent"
FILES = (
    "/root/etc:/etc/compute-node-agent:ro",
    f"{STATE}:{STATE}",
    "/run/libvirt:/run/libvirt",
)
GUEST = f"""<domain type='qemu'><name>floats</name><uuid>{UUID}</uuid><memory unit='MiB'>{MIB}</memory><vcpu>1</vcpu>
<memoryBacking><allocation mode='immediate'/></memoryBacking>
<os><type arch='x86_64' machine='q35'>hvm</type></os><devices><memballoon model='none'/></devices></domain>"""


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[Guest]:
    """It has the image of this tree, and runs a guest that may have its memory in any cell."""
    subprocess.run([PROJECT / "tools/deb.sh", sys._base_executable], check=True)  # type: ignore[attr-defined]
    package = max((PROJECT / "build").glob("*.deb"), key=lambda one: one.stat().st_mtime)
    subprocess.run([PROJECT / "tools/image.sh", package], check=True)
    image = max((PROJECT / "build").glob("*.oci.tar"), key=lambda one: one.stat().st_mtime)
    with machine.running(PROJECT / ".guest", tmp_path) as running:
        running.copy(image, "/var/tmp/image.tar")
        running.run("podman load --input /var/tmp/image.tar", timeout=900)
        running.run(f"mkdir -p /root/etc {STATE}")
        running.send("/root/floats.xml", GUEST)
        running.run("virsh -q create /root/floats.xml")
        yield running


def in_podman(guest: Guest, *arguments: str, groups: str = "host") -> Any:
    """What a verb in the image prints as JSON; ``groups``: whose control groups it sees."""
    options = [one for one in podman.OPTIONS if not one.startswith("--cgroupns")]
    command = (
        "podman run --rm --user=0:0 --cap-add=dac_read_search,setuid,setgid",
        f"--cgroupns={groups}",
        *options,
        *(f"--volume={one}" for one in FILES),
        "$(podman images --quiet)",
        *arguments,
        "--format json",
    )
    return json.loads(guest.run(f"{' '.join(command)} || true"))  # codes of a dry run, and what a machine lacks


def test_a_conversion_places_a_floating_guest_by_its_memory_and_refuses_to_guess_where_groups_hide_it(
    guest: Guest, placement_template: Path, tmp_path: Path
) -> None:
    with placement.serving(tmp_path / "placement", placement_template) as server:
        config = CONFIG.format(port=server.url.rpartition(":")[2], layout="devices")
        guest.send("/root/etc/compute-node-agent.conf", config)
        assert in_podman(guest, "sync")["outcome"] == "changed"
        cloud = ByHand(server.url)
        cloud.claim(UUID, {cloud.providers()[HOST]["uuid"]: {"VCPU": 1, "MEMORY_MB": MIB}})

        seen = in_podman(guest, "reshape", "--to", "cells")
        hidden = in_podman(guest, "reshape", "--to", "cells", groups="private")

    assert "counted in the cells with most of the guest's memory" in json.dumps(seen)
    assert "in this container nothing shows in which cell the guest's memory is" in json.dumps(hidden)
