"""A host that changes while it is read: the look is taken again, and never a smaller or another host."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from drivers.errors import Vanished
from drivers.facts import CpuMap
from drivers.host.archive import Document, HostArchive, KernelFiles
from drivers.libvirt.driver import LibvirtDriver
from drivers.libvirt.nodedev import parse_devices
from drivers.libvirt.recorded import RecordedConnection
from drivers.libvirt.xml import unread
from drivers.policy import GuestPolicy, InstancesFolder, Policy

RECORDED = Path(__file__).parents[1] / "hosts/full-guest/archive"
CPU = "<cpu id='{0}' socket_id='0' die_id='0' core_id='{0}' siblings='{0}'/>"
PF = """<device><name>pci_0000_81_00_0</name><capability type='pci'><domain>0</domain><bus>129</bus>
<slot>0</slot><function>0</function><product id='0x10fb'/><vendor id='0x8086'/><capability type='virt_functions'>
<address domain='0x0000' bus='0x81' slot='0x10' function='0x0'/>
<address domain='0x0000' bus='0x81' slot='0x10' function='0x2'/></capability></capability></device>"""
CARD = PF.replace("<domain>", "<class>0x020000</class><domain>", 1)
VF = """<device><name>pci_0000_81_10_{0}</name><capability type='pci'><domain>0</domain><bus>129</bus>
<slot>16</slot><function>{0}</function><product id='0x10ed'/><vendor id='0x8086'/><capability type='phys_function'>
<address domain='0x0000' bus='0x81' slot='0x00' function='0x0'/></capability></capability></device>"""


@dataclass
class Moving(RecordedConnection):
    """A recorded host whose topology is another one at each look, and whose CPU map is one of them."""

    topologies: Iterable[Iterable[Iterable[int]]] = (((0, 1), (2, 3)),)
    cpus: int = 4
    devices: tuple[Document, ...] = ()
    live: bool = True
    kernel: Path = Path("/nowhere")  # folder of the kernel's files
    _looks: list[Document] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(HostArchive(RECORDED))
        self.files = KernelFiles(self.kernel)
        self._looks = [Document(capabilities(cells), "libvirt") for cells in self.topologies]

    def capabilities(self) -> Document:
        return self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]

    def node_devices(self) -> tuple[tuple[str, Document], ...]:
        return tuple((str(number), document) for number, document in enumerate(self.devices))

    def cpu_map(self) -> CpuMap:
        return CpuMap(self.cpus, frozenset(range(self.cpus)))


def capabilities(cells: Iterable[Iterable[int]]) -> str:
    listed = "".join(
        f"<cell id='{id_}'><memory unit='KiB'>4194304</memory><cpus>{''.join(map(CPU.format, cpus))}</cpus></cell>"
        for id_, cpus in enumerate(cells)
    )
    return (
        f"<capabilities><host><cpu><arch>x86_64</arch></cpu><topology><cells>{listed}</cells></topology></host>"
        f"</capabilities>"
    )


def driver_of(connection: RecordedConnection) -> LibvirtDriver:
    return LibvirtDriver(connection, Policy(guests=GuestPolicy(virt_type="qemu")), InstancesFolder(instances=RECORDED))


def look(connection: Moving) -> tuple[tuple[int, int], ...]:
    return driver_of(connection).survey("host").facts.offline_cpus


def test_a_cpu_that_came_online_after_the_topology_was_read_means_another_look() -> None:
    with pytest.raises(Vanished, match="CPU 3 came online while the host was read"):
        look(Moving(topologies=[[(0, 1), (2,)], [(0, 1), (2, 3)]]))


def test_a_cpu_that_came_online_is_in_the_cell_that_the_kernel_tells(tmp_path: Path) -> None:
    home = tmp_path / "sys/devices/system/cpu/cpu3/node1/distance"
    home.parent.mkdir(parents=True)
    home.write_text("20 10\n")

    assert look(Moving(topologies=[[(0, 1), (2,)], [(0, 1), (2, 3)]], kernel=tmp_path)) == ((3, 1),)


def test_an_online_cpu_of_which_nobody_knows_a_place_needs_no_other_look(tmp_path: Path) -> None:
    assert look(Moving(topologies=[[(0, 1), (2,)]], kernel=tmp_path)) == ()


def test_a_list_of_devices_that_lacks_vfs_of_a_pf_means_another_look() -> None:
    pf, vf, vf2 = (Document(text, "libvirt") for text in (PF, VF.format(0), VF.format(2)))
    look(Moving(devices=(pf, vf, vf2)))

    driver = driver_of(Moving(devices=(pf, vf)))

    with pytest.raises(Vanished, match=r"0000:81:10.2: libvirt's PF 0000:81:00.0 has this VF, which the list .* lacks"):
        driver.survey("host")
    assert [one.name for one in driver.survey("host").facts.devices.odd] == ["0000:81:10.2"]  # it stays so


@dataclass
class Busy(Moving):
    """A host on which the interface of a guest goes away at each look, and another one each time."""

    number: int = 0

    def node_devices(self) -> tuple[tuple[str, Document], ...]:
        self.number += 1
        gone = f"net_vnet{self.number}_fe_54_00_12_34_56"
        return ("pci_0000_81_00_0", Document(CARD, "libvirt")), (gone, Document(unread(f"no {gone}"), gone))


def test_interfaces_of_guests_that_go_away_one_after_another_make_no_card_odd() -> None:
    driver = driver_of(Busy())

    for _ in range(3):
        with pytest.raises(Vanished):
            driver.survey("host")


def test_a_recorded_device_that_is_no_text_is_odd_alone(tmp_path: Path) -> None:
    folder = tmp_path / "libvirt/nodedevs"
    folder.mkdir(parents=True)
    (folder / "pci_0000_81_10_0.xml").write_bytes(b"\xff\xfe")
    (folder / "pci_0000_81_00_0.xml").write_text(PF)

    found = parse_devices(RecordedConnection(HostArchive(tmp_path)).node_devices())

    assert {one.name for one in found.odd} == {"0000:81:10.0", "0000:81:10.2"}
    assert "is not UTF-8 text" in found.odd[0].because


def test_a_recorded_host_with_an_odd_device_is_looked_at_once(tmp_path: Path) -> None:
    connection = Moving(devices=(Document(PF, "libvirt"),), live=False, kernel=tmp_path)

    assert len(driver_of(connection).survey("host").facts.devices.odd) == 2
