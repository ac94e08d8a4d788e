"""Devices that libvirt is not asked for again while they stay: functions that are used whole, interfaces of guests."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from beds.function import ADDRESS, NAME, PF, bind, made, rebind, unbind, xml
from drivers.facts import PciFunction
from drivers.host.function import is_whole
from drivers.libvirt.plain import PlainDevices

VFS = "<capability type='virt_functions' maxCount='8'/>"
TYPES = "<capability type='mdev_types'><type id='nvidia-35'/></capability>"
SERIAL = "<capability type='vpd'><name>card</name></capability>"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One VF, as /sys/bus/pci/devices has it."""
    return made(tmp_path / ADDRESS)


def exchange(folder: Path) -> None:
    take_away(folder)
    made(folder)


def take_away(folder: Path) -> None:
    folder.rename(folder.with_name("away"))


def offer_types(folder: Path) -> None:
    (folder / "mdev_supported_types").mkdir()


def damage_types(folder: Path) -> None:
    (folder / "mdev_supported_types").symlink_to("mdev_supported_types")  # cannot be looked at


def offer_vfs(folder: Path) -> None:
    (folder / "sriov_totalvfs").write_text("0\n", encoding="ascii")


def give_serial_number(folder: Path) -> None:
    (folder / "vpd").write_bytes(b"")


def forget_pf(folder: Path) -> None:
    (folder / "physfn").rmdir()


def lose_vendor(folder: Path) -> None:
    (folder / "vendor").unlink()


def damage_vendor(folder: Path) -> None:
    (folder / "vendor").write_text("none\n", encoding="ascii")


class Libvirt:
    """Answers with a text, and counts; ``meanwhile`` happens while it answers."""

    def __init__(self, text: str, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.text, self.asked = text, 0
        self._meanwhile = meanwhile

    def __call__(self) -> str:
        self.asked += 1
        self._meanwhile()
        return self.text


def read(plain: PlainDevices, libvirt: Libvirt, times: int = 1, name: str = NAME) -> int:
    """Read some times; how often libvirt was asked in all."""
    for _ in range(times):
        assert plain.read(name, libvirt) == libvirt.text
    return libvirt.asked


def test_libvirt_is_asked_once_for_a_function_that_stays_as_it_is(folder: Path) -> None:
    assert read(PlainDevices(folder.parent), Libvirt(xml()), 3) == 1


def test_a_function_without_a_pf_and_without_a_driver_is_kept_too(folder: Path) -> None:
    forget_pf(folder)
    assert read(PlainDevices(folder.parent), Libvirt(xml("")), 3) == 1
    unbind(folder)
    assert read(PlainDevices(folder.parent), Libvirt(xml("<capability type='pci-bridge'/>", driver=None)), 3) == 1


@pytest.mark.parametrize("change", [rebind, unbind, exchange, take_away, offer_types])
def test_libvirt_is_asked_again_after_a_change(folder: Path, change: Callable[[Path], None]) -> None:
    plain, libvirt = PlainDevices(folder.parent), Libvirt(xml())
    read(plain, libvirt, 2)

    change(folder)

    libvirt.text = xml(VFS)  # whatever it says now
    assert read(plain, libvirt, 2) == 3


@pytest.mark.parametrize(
    "text", [xml(VFS), xml(PF + TYPES), xml(PF + SERIAL), xml(""), xml(driver="vfio-pci"), xml(driver=None)]
)
def test_a_function_that_can_be_divided_or_differs_from_the_kernel_s_is_asked_each_time(
    folder: Path, text: str
) -> None:
    assert read(PlainDevices(folder.parent), Libvirt(text), 3) == 3


@pytest.mark.parametrize("text", [xml(product="0x1572"), xml(vendor="0x15b3"), "<device/>"])
def test_another_card_than_the_kernel_s_is_asked_each_time(folder: Path, text: str) -> None:
    assert read(PlainDevices(folder.parent), Libvirt(text), 3) == 3


@pytest.mark.parametrize(
    "state",
    [offer_types, damage_types, offer_vfs, give_serial_number, forget_pf, lose_vendor, damage_vendor, take_away],
)
def test_what_libvirt_does_not_say_and_the_kernel_does_is_enough_to_ask_each_time(
    folder: Path, state: Callable[[Path], None]
) -> None:
    """A card may have VFs at any moment, although libvirt names none while its driver allows none."""
    state(folder)
    assert read(PlainDevices(folder.parent), Libvirt(xml()), 3) == 3


def test_a_function_that_changes_while_libvirt_answers_is_not_kept(folder: Path) -> None:
    plain = PlainDevices(folder.parent)
    read(plain, Libvirt(xml(), lambda: exchange(folder)))
    assert read(plain, Libvirt(xml()), 2) == 1


def test_a_driver_whose_probe_fails_while_libvirt_answers_is_not_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there for libvirt's answer and while that is compared, and gone before the function is looked at again."""
    unbind(folder)
    plain = PlainDevices(folder.parent)

    def compare(*arguments: Any, **more: Any) -> bool:
        found = is_whole(*arguments, **more)
        (folder / "driver").unlink(missing_ok=True)
        return found

    monkeypatch.setattr("drivers.libvirt.plain.is_whole", compare)
    read(plain, Libvirt(xml(), lambda: bind(folder, "iavf")))
    (folder / "driver").unlink(missing_ok=True)

    assert read(plain, Libvirt(xml(driver=None))) == 1


# What stays while inode and driver do.
FIXED = {"address", "vendor_id", "product_id", "device_class", "has_bridge_header", "iommu_group", "cell", "pf"}
OF_OTHERS = {"total_vfs", "vfs", "serial_number"}  # of functions whose XML is not kept
OF_THE_KERNEL = {"power_state", "attributes"}  # read in each pass
OF_OTHER_DEVICES = {"net_devices", "vdpa"}


def test_a_kept_xml_has_no_part_that_may_change() -> None:
    """Before a field is added here: can it change while the function has the same inode and driver?"""
    known = FIXED | OF_OTHERS | OF_THE_KERNEL | OF_OTHER_DEVICES | {"driver"}
    assert {one.name for one in fields(PciFunction)} == known


def test_an_error_of_libvirt_is_passed_on_and_nothing_is_kept(folder: Path) -> None:
    plain = PlainDevices(folder.parent)

    def fail() -> None:
        raise RuntimeError("gone")

    with pytest.raises(RuntimeError, match="gone"):
        plain.read(NAME, Libvirt(xml(), fail))
    assert read(plain, Libvirt(xml())) == 1


TAP = "net_vnet0_fe_54_00_12_34_56"


@pytest.fixture
def taps(tmp_path: Path) -> Path:
    """The interface vnet0 of a guest, as /sys/devices/virtual/net has it."""
    (tmp_path / "net/vnet0").mkdir(parents=True)
    return tmp_path / "net"


def tap(path: str = "/sys/devices/virtual/net/vnet0", parent: str = "computer") -> str:
    return f"<device>\n  <name>{TAP}</name>\n  <path>{path}</path>\n  <parent>{parent}</parent>\n</device>\n"


def test_libvirt_is_asked_once_for_an_interface_without_hardware(folder: Path, taps: Path) -> None:
    assert read(PlainDevices(folder.parent, taps), Libvirt(tap()), 3, TAP) == 1


def test_an_interface_that_comes_again_is_asked_again(folder: Path, taps: Path) -> None:
    plain, libvirt = PlainDevices(folder.parent, taps), Libvirt(tap())
    read(plain, libvirt, 2, TAP)

    (taps / "vnet0").rename(taps / "away")
    (taps / "vnet0").mkdir()

    assert read(plain, libvirt, 2, TAP) == 2


def test_an_interface_that_the_kernel_lacks_is_asked_each_time(folder: Path, taps: Path) -> None:
    plain, libvirt = PlainDevices(folder.parent, taps), Libvirt(tap())
    read(plain, libvirt, 2, TAP)
    (taps / "vnet0").rmdir()
    assert read(plain, libvirt, 2, TAP) == 3


@pytest.mark.parametrize(
    "text",
    [
        tap("/sys/devices/pci0000:80/0000:81:00.0/net/vnet0", "pci_0000_81_00_0"),
        tap(parent="pci_0000_81_00_0"),
        tap("/sys/devices/virtual/net/vnet0/upper"),
        "<device/>",
    ],
)
def test_an_interface_of_a_function_is_asked_each_time(folder: Path, taps: Path, text: str) -> None:
    assert read(PlainDevices(folder.parent, taps), Libvirt(text), 3, TAP) == 3


@pytest.mark.parametrize("name", ["net_eth0_52_54_00_12_34_56", "pci_0000_81_10_2", "pci_../../x", "computer"])
def test_other_devices_and_functions_that_the_kernel_lacks_are_asked_each_time(folder: Path, name: str) -> None:
    assert read(PlainDevices(folder.parent), Libvirt(xml()), 3, name) == 3


def test_all_is_asked_after_it_was_forgotten(folder: Path) -> None:
    plain, libvirt = PlainDevices(folder.parent), Libvirt(xml())
    read(plain, libvirt)
    plain.forget()
    assert read(plain, libvirt) == 2
