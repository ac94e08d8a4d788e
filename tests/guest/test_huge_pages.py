"""What ``check`` says that huge pages leave, and a guest of just that size beside a larger one."""

import json
import re
from collections.abc import Iterator

import pytest

from beds.guest import machine
from beds.guest.machine import AGENT, PROJECT, Guest
from beds.process import BedError

CONFIG, GUEST = "/root/plain.conf", "/root/plain.xml"
ROOM = re.compile(r"guests without huge pages can have (\d+) MiB")


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    with machine.running(PROJECT / ".guest", tmp_path_factory.mktemp("guest")) as running:
        options = "[compute]\nlayout = devices\n[libvirt]\nvirt_type = qemu\n[DEFAULT]\nreserved_host_memory_mb = 640\n"
        running.send(CONFIG, options)
        yield running


def starts(guest: Guest, mib: int) -> bool:
    """Whether a guest of this size starts that takes all of its memory at once, and runs."""
    guest.send(
        GUEST,
        f"""<domain type='qemu'><name>plain</name><memory unit='MiB'>{mib}</memory><vcpu>1</vcpu>
        <memoryBacking><allocation mode='immediate'/></memoryBacking>
        <os><type arch='x86_64' machine='q35'>hvm</type></os><devices><memballoon model='none'/></devices></domain>""",
    )
    guest.run("echo 3 > /proc/sys/vm/drop_caches")
    try:
        guest.run(f"virsh -q create {GUEST}")
        return guest.run("virsh -q domstate plain").strip() == "running"
    except BedError:
        return False
    finally:
        guest.run("virsh -q destroy plain", check=False)


@pytest.mark.parametrize("huge_mib", [1024, 1536, 2048])
def test_a_guest_of_what_huge_pages_leave_starts_and_one_of_all_small_pages_does_not(
    guest: Guest, huge_mib: int
) -> None:
    """What the host keeps holds its own processes, and QEMU's: a guest that takes that too is killed."""
    guest.run(f"sysctl -q vm.nr_hugepages={huge_mib // 2}")
    found = json.loads(guest.run(f"{AGENT} check --config-file {CONFIG} --format json", check=False))  # no placement
    (told,) = (one["detail"] for one in found["checks"] if one["check"] == "memory")
    room = ROOM.search(told)

    assert f"{huge_mib} of " in told
    assert room
    assert starts(guest, int(room[1])), told
    assert not starts(guest, int(room[1]) + 640), told
