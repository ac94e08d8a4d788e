"""libvirt's node devices and domains into facts, and what is none refused."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.errors import MalformedFact
from drivers.facts import Devices, Guest, GuestMemory, Mdev, MdevParent, MdevType, NetDevice, PciIds, Sriov
from drivers.host.archive import Document
from drivers.libvirt.domains import parse_guest
from drivers.libvirt.nodedev import parse_devices
from drivers.libvirt.xml import unread
from hardware import at

PF = """<device><name>pci_0000_81_00_0</name><parent>pci_0000_80_02_0</parent><driver><name>ixgbe</name></driver>
<capability type='pci'><class>0x020000</class><domain>0</domain><bus>129</bus><slot>0</slot><function>0</function>
<product id='0x10fb'>82599ES</product><vendor id='0x8086'>Intel</vendor>
<capability type='virt_functions' maxCount='63'>
<address domain='0x0000' bus='0x81' slot='0x10' function='0x2'/>
<address domain='0x0000' bus='0x81' slot='0x10' function='0x0'/>
</capability><iommuGroup number='12'><address domain='0x0000' bus='0x81' slot='0x00' function='0x0'/></iommuGroup>
<numa node='2'/></capability></device>"""
VF = """<device><name>pci_0000_81_10_0</name><parent>pci_0000_80_02_0</parent><capability type='pci'><domain>0</domain>
<bus>129</bus><slot>16</slot><function>0</function><product id='0x10ed'/><vendor id='0x8086'/>
<capability type='phys_function'><address domain='0x0000' bus='0x81' slot='0x00' function='0x0'/></capability>
</capability></device>"""
NET = """<device><name>net_ens2</name><parent>pci_0000_81_00_0</parent><capability type='net'>
<interface>ens2</interface><address>02:00:00:00:02:00</address><link speed='10000' state='up'/></capability></device>"""
VDPA = """<device><name>vdpa_vdpa0</name><parent>pci_0000_81_10_0</parent><driver><name>vhost_vdpa</name></driver>
<capability type='vdpa'><chardev>/dev/vhost-vdpa-0</chardev></capability></device>"""
GPU = """<device><name>pci_0000_84_00_0</name><capability type='pci'><domain>0</domain><bus>132</bus><slot>0</slot>
<function>0</function><product id='0x1eb8'/><vendor id='0x10de'/><capability type='mdev_types'>
<type id='nvidia-222'><name>GRID T4-1B</name><deviceAPI>vfio-pci</deviceAPI>
<availableInstances>15</availableInstances></type>
</capability></capability></device>"""
MTTY = """<device><name>mtty_mtty</name><parent>computer</parent><capability type='mdev_types'>
<type id='mtty-1'><name>Single port serial</name><deviceAPI>vfio-pci</deviceAPI>
<availableInstances>24</availableInstances></type>
<capability type='mdev_types'><type id='mtty-1'><deviceAPI>vfio-pci</deviceAPI>
<availableInstances>24</availableInstances></type>
</capability></capability></device>"""
MDEV = """<device><name>mdev_c2177883_f1bb_47f0_914d_32a22e3a8804_0000_84_00_0</name><parent>pci_0000_84_00_0</parent>
<capability type='mdev'><type id='nvidia-222'/>
<uuid>c2177883-f1bb-47f0-914d-32a22e3a8804</uuid><iommuGroup number='1'/></capability></device>"""
VF2 = VF.replace("pci_0000_81_10_0", "pci_0000_81_10_2").replace("<function>0<", "<function>2<")
SECOND_GPU = GPU.replace("_84_", "_85_").replace("<bus>132<", "<bus>133<")
MDEV_CARD, MDEV_NAME = "pci_0000_84_00_0", "mdev_c2177883_f1bb_47f0_914d_32a22e3a8804_0000_84_00_0"
UUID = "c2177883-f1bb-47f0-914d-32a22e3a8804"


def parse(*texts: str) -> Devices:
    return parse_devices(
        tuple((f"name {number}", Document(text, f"document {number}")) for number, text in enumerate(texts))
    )


def test_a_pf_with_its_vfs_its_interface_and_where_it_is() -> None:
    vf, pf = sorted(parse(VF, PF, NET.replace("ens2", "ens3"), NET).functions, key=lambda one: one.is_pf)

    assert (pf.address, pf.ids) == (at("0000:81:00.0"), PciIds("8086", "10fb", 0x020000))
    assert (pf.driver, pf.cell) == ("ixgbe", 2)
    assert (pf.sriov, pf.vfs) == (Sriov(63), (at("0000:81:10.0"), at("0000:81:10.2")))
    assert pf.net_devices == (NetDevice("ens2", "up", 10000), NetDevice("ens3", "up", 10000))
    assert pf.vdpa == ()
    assert (vf.pf, vf.is_pf, vf.cell, vf.driver) == (at("0000:81:00.0"), False, None, None)
    assert vf.ids == PciIds("8086", "10ed")


def test_a_vf_has_the_path_of_the_vdpa_device_on_it() -> None:
    assert [one.vdpa for one in parse(VF, VDPA).functions] == [("/dev/vhost-vdpa-0",)]


@pytest.mark.parametrize("kind", ["pci-bridge", "cardbus-bridge"])
def test_a_function_with_the_header_of_a_bridge_is_one_whatever_its_class(kind: str) -> None:
    text = "<device><name>{}</name><capability type='pci'>{}<domain>0</domain><bus>{}</bus><slot>0</slot>"
    ids = "<function>0</function><product id='1'/><vendor id='1'/>{}</capability></device>"
    other = (text + ids).format("other", "<class>0x068000</class>", 1, "<capability type='mdev_types'/>")
    bridge = (text + ids).format("bridge", "<class>0x060980</class>", 2, f"<capability type='{kind}'/>")

    assert [one.ids.is_bridge for one in parse(other, bridge).functions] == [False, True]


@pytest.mark.parametrize(
    ("fields", "serial"),
    [
        ("<fields access='readonly'><serial_number>MT2113X00000</serial_number></fields>", "MT2113X00000"),
        ("<fields access='readonly'><part_number>MBF2H332A</part_number></fields>", None),
        ("<fields access='readonly'><serial_number> </serial_number></fields>", None),
        ("<fields access='readwrite'><serial_number>MT2113X00000</serial_number></fields>", None),
    ],
)
def test_the_serial_number_of_a_card_is_in_its_vital_product_data(fields: str, serial: str | None) -> None:
    """The form is that of libvirt's formatnode.html and of nova's recorded BlueField-2 (libvirt_data.py)."""
    with_vpd = PF.replace("<iommuGroup", f"<capability type='vpd'><name>A card</name>{fields}</capability><iommuGroup")

    (pf,) = parse(with_vpd).functions
    assert pf.serial_number == serial


@pytest.mark.parametrize(
    ("link", "speed"),
    [
        *((f"<link speed='{text}' state='up'/>", None) for text in ("-1", "4294967295", "2000000", "1", "0", "")),
        ("<link speed='2' state='up'/>", 2),
        ("<link state='up'/>", None),
        ("", None),
    ],
)
def test_a_link_has_a_speed_that_a_link_can_have_or_none(link: str, speed: int | None) -> None:
    found = parse(PF, NET.replace("<link speed='10000' state='up'/>", link))

    assert found.functions[0].net_devices == (NetDevice("ens2", "up" if link else None, speed),)


@pytest.mark.parametrize(
    ("address", "state"),
    [
        pytest.param("52:54:00:12:34:56", "down", id="Ethernet"),
        pytest.param(":".join(["80", "00", "02", "08", "fe"] + ["80"] * 15), None, id="InfiniBand"),
        pytest.param("", "down", id="unknown"),
    ],
)
def test_ip_over_infiniband_does_not_tell_the_link_of_its_port(address: str, state: str | None) -> None:
    net = NET.replace("'up'", "'down'").replace("</interface>", f"</interface><address>{address}</address>", 1)

    (pf, *_) = parse(PF, VF, VF2, net).functions

    assert [one.state for one in pf.net_devices] == [state]


def test_a_pf_whose_vfs_are_not_made_yet_is_a_pf() -> None:
    empty = re.sub("<address domain='0x0000' bus='0x81' slot='0x10'[^>]*>", "", PF)

    assert [(one.is_pf, one.vfs) for one in parse(empty).functions] == [(True, ())]


def test_mediated_devices_and_their_parents_on_pci_or_not() -> None:
    found = parse(GPU, MTTY, MDEV.replace("c2177883-", "f2177883-"), MDEV)

    assert found.mdevs == tuple(Mdev(one, "nvidia-222", MDEV_CARD) for one in (UUID, UUID.replace("c2", "f2", 1)))
    assert found.mdev_parents == (
        MdevParent("mtty_mtty", None, (MdevType("mtty-1", "Single port serial", 24),)),
        MdevParent(MDEV_CARD, at("0000:84:00.0"), (MdevType("nvidia-222", "GRID T4-1B", 15),)),
    )


def test_a_parent_can_make_up_to_a_million() -> None:
    """vfio_ap of s390 has 256 cards of 256 domains each."""
    (maker,) = parse(MTTY.replace(">24<", ">1000000<")).mdev_parents

    assert maker.types[0].available_instances == 1_000_000


def test_other_kinds_of_devices_are_passed_over() -> None:
    assert parse("<device><name>computer</name><capability type='system'/></device>") == Devices()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(PF[:200], "document 0 is not well-formed", id="truncated"),
        pytest.param("", "document 0 is not well-formed", id="empty"),
        pytest.param("<domain/>", "begins with <domain> where libvirt writes <device>", id="another document"),
        pytest.param("<device/>", "document 0 has no <name>", id="no name"),
        pytest.param(PF.replace("<bus>129</bus>", ""), "has no <bus>", id="no bus"),
        pytest.param(PF.replace("<bus>129</bus>", "<bus>x</bus>"), "'x' where a whole number", id="no number"),
        pytest.param(
            PF.replace("0x8086'", "8o86'"), "'8o86' as id of its vendor, which is not a hexadecimal number", id="vendor"
        ),
        pytest.param(PF.replace("0x020000", "net"), "'net' as class, which is not a hexadecimal number", id="class"),
        pytest.param(
            PF.replace("slot='0x10' function='0x2'", "slot='q' function='0x2'"), "is not a PCI address", id="address"
        ),
        pytest.param(PF.replace("node='2'", "node='-'"), "'-' where a whole", id="cell"),
        pytest.param(NET.replace("<interface>ens2</interface>", ""), "has no <interface>", id="interface"),
        pytest.param(GPU.replace(">15<", "><"), "empty <availableInstances>", id="instances"),
        pytest.param(GPU.replace(">15<", ">1000001<"), "more than any card can", id="too many instances"),
        pytest.param(MDEV.replace("<type id='nvidia-222'/>", ""), "has no <type>", id="type of an mdev"),
    ],
)
def test_malformed_devices_are_odd_and_name_their_document(text: str, message: str) -> None:
    (odd,) = parse(text).odd

    assert re.search(message, odd.because)
    assert "document 0" in odd.because


@pytest.mark.parametrize(
    ("broken", "gone"),
    [
        pytest.param(PF.replace("0x8086'", "8o86'"), {"0000:81:00.0", "0000:81:10.0", "0000:81:10.2"}, id="PF"),
        pytest.param(VF.replace("0x8086'", "8o86'"), {"0000:81:10.0"}, id="VF"),
        pytest.param(
            NET.replace("'10000'", "'fast'"), {"0000:81:00.0", "0000:81:10.0", "0000:81:10.2"}, id="interface of a PF"
        ),
        pytest.param(GPU.replace(">15<", ">many<"), {"0000:84:00.0", MDEV_CARD}, id="vGPU card"),
        pytest.param(MDEV.replace("<type id='nvidia-222'/>", ""), {MDEV_CARD}, id="mediated device"),
        pytest.param(unread("gone"), set(), id="of unknown kind"),
        pytest.param(unread(""), set(), id="for no known reason"),
    ],
)
def test_a_device_that_is_odd_takes_what_hangs_on_it_along_and_nothing_else(broken: str, gone: set[str]) -> None:
    whole = (PF, VF, VF2, NET, GPU, MDEV, MTTY)
    name = re.search("<name>(.*)</name>", broken)
    kept = tuple(one for one in whole if not (name and f"<name>{name[1]}</name>" in one))

    before, after = parse(*whole), parse(*kept, broken)

    functions, cards = (
        ({str(one.address) for one in found.functions} for found in (before, after)),
        ({one.name for one in found.mdev_parents} for found in (before, after)),
    )
    assert (set.difference(*functions) | set.difference(*cards)) == gone
    assert before.odd == ()
    assert after.odd
    assert all(one.because for one in after.odd)


@pytest.mark.parametrize("name", ["net_ens2_00_11", "vdpa_vdpa0"])
def test_an_interface_of_which_nothing_is_known_may_be_of_each_network_card(name: str) -> None:
    net = name, Document("<device", "c")
    found = parse_devices((("a", Document(PF, "a")), ("b", Document(GPU, "b")), net))

    assert [str(one.address) for one in found.functions] == ["0000:84:00.0"]
    assert {"0000:81:00.0", name} < {one.name for one in found.odd}
    assert parse_devices((("b", Document(GPU, "b")), net)).odd == ()


def test_a_mediated_device_of_which_nothing_is_known_may_be_of_each_card() -> None:
    listed = (("a", Document(SECOND_GPU, "a")), ("b", Document(GPU, "b")), (MDEV_NAME, Document("<device", "c")))

    found = parse_devices(listed)

    assert found.mdev_parents == ()
    assert [(one.name, one.card) for one in found.odd] == [(MDEV_NAME, MDEV_CARD), (MDEV_NAME, "pci_0000_85_00_0")]


def test_a_vf_that_its_pf_names_and_the_list_lacks_is_odd_alone() -> None:
    found = parse(PF, VF)

    assert [(one.name, one.pf) for one in found.odd] == [("0000:81:10.2", at("0000:81:00.0"))]
    assert len(found.functions) == 2


@given(
    st.sampled_from((PF, VF, NET, GPU, MTTY, MDEV)),
    st.integers(0, 600),
    st.integers(0, 30),
    st.text("<>/'=a0 x", max_size=5),
)
def test_a_damaged_document_is_read_or_odd_and_names_itself(text: str, start: int, length: int, patch: str) -> None:
    damaged = text[:start] + patch + text[start + length :]

    assert all("document 0" in one.because or "lacks" in one.because for one in parse(damaged).odd if not one.hangs)


def test_a_guest_has_vfs_cards_and_mediated_devices() -> None:
    xml = f"""<domain type='kvm'><devices>
    <hostdev mode='subsystem' type='pci'><source>
    <address domain='0x0000' bus='0x81' slot='0x10' function='0x0'/></source></hostdev>
    <hostdev mode='subsystem' type='mdev'><source><address uuid='{UUID.upper()}'/></source></hostdev>
    <hostdev mode='subsystem' type='usb'><source><address bus='1' device='2'/></source></hostdev>
    <interface type='hostdev'><source>
    <address type='pci' domain='0' bus='0x81' slot='0x10' function='0x2'/></source></interface>
    <interface type='bridge'><source bridge='br0'/></interface></devices></domain>"""

    guest = parse_guest(Document(xml, "domain"), "u", "running")

    assert guest.devices.pci == {at("0000:81:10.0"), at("0000:81:10.2")}
    assert guest.devices.ports == {at("0000:81:10.2")}
    assert guest.devices.mdevs == {UUID}


def test_a_guest_whose_device_cannot_be_understood_is_an_error() -> None:
    xml = "<domain><devices><hostdev type='pci'><source/></hostdev></devices></domain>"

    with pytest.raises(MalformedFact, match="has no <source/address>"):
        parse_guest(Document(xml, "domain"), "u", "running")


CELLS = """<cpu><numa><cell id='0' memory='2048' unit='MiB'/><cell id='1' memory='2048' unit='MiB'/></numa></cpu>
<numatune><memnode cellid='1' mode='strict' nodeset='3'/></numatune>"""
DIMM = """<memory model='dimm'><target><size unit='MiB'>1024</size>{node}</target></memory>"""
VIRTIO_MEM = """<memory model='virtio-mem'><target><size unit='MiB'>4096</size><node>1</node>
<requested unit='MiB'>512</requested><current unit='MiB'>{current}</current></target></memory>"""
HUGE = "<memoryBacking><hugepages><page size='2048' nodeset='{}'/></hugepages></memoryBacking>"
NVDIMM = (
    """<memory model='nvdimm'><source><path>/f</path></source><target><size unit='MiB'>256</size></target></memory>"""
)


def guest_of(text: str) -> Guest:
    return parse_guest(Document(f"<domain>{text}</domain>", "domain"), "u", "running")


@pytest.mark.parametrize(
    ("text", "memory"),
    [
        pytest.param(
            f"<memory>6291456</memory>{CELLS}<devices>{DIMM.format(node='<node>1</node>')}</devices>",
            (GuestMemory(2048), GuestMemory(2048, frozenset({3})), GuestMemory(1024, frozenset({3}))),
            id="a DIMM has the binding of its cell",
        ),
        pytest.param(
            f"<memory>9000000</memory>{CELLS}<devices>{VIRTIO_MEM.format(current=0)}</devices>",
            (GuestMemory(2048), GuestMemory(2048, frozenset({3})), GuestMemory(512, frozenset({3}))),
            id="virtio-mem that grows",
        ),
        pytest.param(
            f"<memory>9000000</memory>{CELLS}<devices>{VIRTIO_MEM.format(current=700)}</devices>",
            (GuestMemory(2048), GuestMemory(2048, frozenset({3})), GuestMemory(700, frozenset({3}))),
            id="virtio-mem that shrinks has yet what it gives back",
        ),
        pytest.param(
            f"<memory unit='MiB'>5376</memory><devices>{DIMM.format(node='')}{NVDIMM}</devices>",
            (GuestMemory(4096), GuestMemory(1024)),
            id="without cells libvirt counts all devices as memory, and a file is none",
        ),
        pytest.param(
            f"<memory unit='MiB'>6144</memory><devices>{VIRTIO_MEM.format(current=512)}</devices>",
            (GuestMemory(2048), GuestMemory(512)),
            id="without cells the largest size of virtio-mem is not what it has",
        ),
        pytest.param(
            f"<memory>6291456</memory>{CELLS}<devices><memory model='dimm'><source><pagesize>2048</pagesize>"
            "<nodemask>5</nodemask></source><target><size>1048576</size><node>1</node></target></memory></devices>",
            (
                GuestMemory(2048),
                GuestMemory(2048, frozenset({3})),
                GuestMemory(1024, frozenset({5}), huge=True, page_kib=2048),
            ),
            id="a DIMM with pages and a cell of its own",
        ),
        pytest.param(
            f"<memory>6291456</memory>{CELLS}{HUGE.format(1)}<devices>{DIMM.format(node='<node>1</node>')}</devices>",
            (GuestMemory(2048), *(GuestMemory(mib, frozenset({3}), True, 2048) for mib in (2048, 1024))),
            id="a DIMM has the pages of its cell",
        ),
        pytest.param(
            f"<memory unit='MiB'>5120</memory>{HUGE.format(0)}<devices>{DIMM.format(node='')}</devices>",
            (GuestMemory(4096, huge=True, page_kib=2048), GuestMemory(1024, huge=True, page_kib=2048)),
            id="without cells all is of the cell 0",
        ),
        pytest.param(
            f"<memory>6291456</memory>{CELLS}<devices>{NVDIMM}<memory model='dimm'><target/></memory></devices>",
            (GuestMemory(2048), GuestMemory(2048, frozenset({3}))),
            id="a file and a DIMM of no size take no memory",
        ),
        pytest.param(
            f"<memory unit='MiB'>1024</memory><devices>{DIMM.format(node='') * 2}</devices>",
            (GuestMemory(0), GuestMemory(1024), GuestMemory(1024)),
            id="without cells there may be less memory than its devices have",
        ),
    ],
)
def test_memory_devices_count_as_far_as_they_are_memory_of_the_host(text: str, memory: tuple[GuestMemory, ...]) -> None:
    assert guest_of(text).memory == memory


@pytest.mark.parametrize(
    ("text", "some_off"),
    [
        pytest.param("<vcpu>3</vcpu>", False, id="all are on"),
        pytest.param("<vcpu current='3'>3</vcpu>", False, id="all are on, and current says so"),
        pytest.param("<vcpu current='2'>3</vcpu>", True, id="the last one is off"),
        pytest.param(
            "<vcpu current='2'>3</vcpu><vcpus><vcpu id='0' enabled='yes'/><vcpu id='1' enabled='no'/>"
            "<vcpu id='2' enabled='yes'/></vcpus>",
            True,
            id="one in between is off",
        ),
    ],
)
def test_vcpus_that_are_switched_off_count_with_their_pins(text: str, some_off: bool) -> None:
    guest = guest_of(f"{text}<cputune><vcpupin vcpu='1' cpuset='1'/><vcpupin vcpu='2' cpuset='2'/></cputune>")

    assert (guest.vcpus, guest.some_off) == ((frozenset(), frozenset({1}), frozenset({2})), some_off)


@pytest.mark.parametrize(("pins", "is_fine"), [(4, True), (5, False)])
def test_pins_of_a_guest_are_counted_up_to_the_limit(pins: int, is_fine: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drivers.libvirt.domains.MOST_PINS", 4)
    text = "".join(f"<vcpupin vcpu='{number}' cpuset='{number}'/>" for number in range(pins))

    guest = guest_of(f"<vcpu>{pins}</vcpu><cputune>{text}</cputune>")

    assert (len(guest.vcpus), "more than 4 CPUs" in guest.unread) == ((pins, False) if is_fine else (0, True))


def test_an_odd_device_with_an_address_is_known_by_that_and_another_by_its_name() -> None:
    names = ("pci_0000_81_00_0", "mtty_mtty")
    card, other = parse_devices(tuple((name, Document("<device>", name)) for name in names)).odd

    assert (str(card.address), card.card) == ("0000:81:00.0", "")
    assert (other.name, other.address, other.card) == ("mtty_mtty", None, "mtty_mtty")
