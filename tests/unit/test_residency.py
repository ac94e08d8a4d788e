"""Where a guest's memory is, by the kernel's control groups."""

import shutil
from pathlib import Path

import pytest

from drivers.errors import MalformedFact
from drivers.host.archive import HostArchive, KernelFiles
from drivers.host.kernel import probe_residency
from drivers.libvirt.driver import LibvirtDriver
from drivers.libvirt.recorded import RecordedConnection
from drivers.policy import GuestPolicy, InstancesFolder, Layout, Policy

HOST = Path(__file__).parents[1] / "hosts/full-guest/archive"
GROUPS = "sys/fs/cgroup"
MACHINED = "machine.slice/machine-qemu\\x2d7\\x2dinstance\\x2d1.scope"
OWN = "machine/qemu-7-instance-1.libvirt-qemu"
STAT = "anon N0=2048 N1=1048576\nfile N0=1024 N1=0\nkernel_stack N0=999999 N1=0\n\n"


def probe(root: Path, group: str, text: str) -> tuple[tuple[int, int], ...]:
    path = root / GROUPS / group / "memory.numa_stat"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return probe_residency(KernelFiles(root), 7, "instance-1")


@pytest.mark.parametrize("group", [MACHINED, OWN], ids=["systemd-machined's group", "libvirt's own group"])
def test_memory_is_counted_by_cell_and_what_is_part_of_it_is_not_counted_again(group: str, tmp_path: Path) -> None:
    assert probe(tmp_path, group, STAT) == ((1, 1024), (0, 3))


def test_cells_with_the_same_amount_are_told_in_their_order(tmp_path: Path) -> None:
    assert probe(tmp_path, OWN, "anon N2=4096 N0=4096\n") == ((0, 4), (2, 4))


def test_a_kernel_that_does_not_tell_is_no_guess(tmp_path: Path) -> None:
    assert probe_residency(KernelFiles(tmp_path), 7, "instance-1") == ()


@pytest.mark.parametrize("count", ["N0", "N0=many", "X0=1", "N=1"])
def test_what_is_no_count_of_a_cell_is_an_error_that_names_the_file(count: str, tmp_path: Path) -> None:
    with pytest.raises(MalformedFact, match=f"memory.numa_stat holds '{count}' where an amount like N0=123 belongs"):
        probe(tmp_path, OWN, f"anon {count}\n")


@pytest.mark.parametrize("contained", [False, True])
@pytest.mark.parametrize(("layout", "resident"), [("cells", ((1, 1024), (0, 3))), ("devices", ())])
def test_the_memory_of_running_guests_is_read_where_cells_count(
    layout: Layout, resident: tuple[tuple[int, int], ...], tmp_path: Path, *, contained: bool
) -> None:
    """Also in a container that has control groups of its own, with libvirt and its guests in them."""
    shutil.copytree(HOST, tmp_path / "host")
    group = tmp_path / "host" / GROUPS / "machine.slice/machine-qemu\\x2d1\\x2don\\x2da\\x2dvf.scope"
    group.mkdir(parents=True)
    (group / "memory.numa_stat").write_text(STAT)
    if contained:
        (tmp_path / "host" / GROUPS / "cgroup.type").write_text("domain\n")
    policy = Policy(layout=layout, guests=GuestPolicy(virt_type="qemu"))
    driver = LibvirtDriver(
        RecordedConnection(HostArchive(tmp_path / "host")), policy, InstancesFolder(instances=tmp_path)
    )

    assert [guest.resident for guest in driver.survey("host").facts.guests] == [resident]


def test_in_a_container_with_control_groups_of_its_own_the_memory_of_a_guest_is_unknown(tmp_path: Path) -> None:
    shutil.copytree(HOST, tmp_path / "host")
    (tmp_path / "host" / GROUPS).mkdir(parents=True, exist_ok=True)
    (tmp_path / "host" / GROUPS / "cgroup.type").write_text("domain\n")
    policy = Policy(layout="cells", guests=GuestPolicy(virt_type="qemu"))
    driver = LibvirtDriver(
        RecordedConnection(HostArchive(tmp_path / "host")), policy, InstancesFolder(instances=tmp_path)
    )

    facts = driver.survey("host").facts

    assert [guest.resident for guest in facts.guests] == [None]
    assert facts.cpu.tdx_hidden
