"""A PCI function in the kernel's list: what shows that it is the same as before, and that it can only be used whole."""

import os
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path("/sys/bus/pci/devices")
MDEV_TYPES = "mdev_supported_types"
DIVISIBLE = ("sriov_totalvfs", MDEV_TYPES, "vpd")  # sysfs-bus-pci, vfio-mediated-device.rst
"""
Files of functions whose XML can change while inode and driver stay the same.

These are the VFs of a PF, types of mediated devices, and the serial number, which a card does not always give.
"""


@dataclass(frozen=True, slots=True)
class FunctionEntry:
    """One look at a function."""

    inode: int  # of its folder, which is another one after the function was removed and came again
    driver: str  # empty: none


def look_at_function(folder: str) -> FunctionEntry | None:
    """Return the entry with this folder; None: it has mediated devices, it is not there, or it cannot be read."""
    try:
        inode = os.stat(folder).st_ino  # noqa: PTH116 - as objects, paths would cost more than an answer of libvirt
        return None if _is_there(f"{folder}/{MDEV_TYPES}") else FunctionEntry(inode, _driver(folder))
    except OSError:
        return None


def is_whole(folder: Path, *, vendor: int, product: int, is_vf: bool) -> bool:
    """Whether a function of this vendor and product is there and can only be used whole."""
    try:
        return (
            not any((folder / name).exists() for name in DIVISIBLE)
            and (folder / "physfn").exists() is is_vf
            and _number(folder / "vendor") == vendor
            and _number(folder / "device") == product
        )
    except (OSError, ValueError):
        return False


def _is_there(path: str) -> bool:
    try:
        os.stat(path)  # noqa: PTH116 - as above
    except FileNotFoundError:
        return False
    return True


def _number(file: Path) -> int:
    return int(file.read_text(encoding="ascii"), 16)


def _driver(folder: str) -> str:
    try:
        return os.readlink(f"{folder}/driver").rpartition("/")[2]  # noqa: PTH115 - as above
    except FileNotFoundError:
        return ""
