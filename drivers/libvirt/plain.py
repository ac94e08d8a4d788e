"""Keeps the XML of node devices whose used parts cannot change while the kernel shows the same devices."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from drivers.host import interface
from drivers.host.function import FunctionEntry, is_whole, look_at_function
from drivers.host.interface import look_at_interface

_NAME = re.compile(r"pci_([0-9a-f]{4,})_([0-9a-f]{2})_([0-9a-f]{2})_([0-7])")
_CAPABILITY = re.compile(r"<capability type='([^']*)'")
_PLAIN = frozenset({"pci", "pci-bridge", "phys_function"})  # PFs, vGPU cards and cards with a serial number have more
_VENDOR = re.compile(r"<vendor id='(0x[0-9a-f]+)'")
_PRODUCT = re.compile(r"<product id='(0x[0-9a-f]+)'")
_DRIVER = re.compile(r"<driver>\s*<name>([^<]*)</name>")
_INTERFACE = re.compile(rf"<path>{interface.FOLDER}/([^</]+)</path>\s*<parent>computer</parent>")


@dataclass(frozen=True, slots=True)
class _Answer:
    """What libvirt answered, and the device at that moment."""

    text: str
    folder: str
    look: Callable[[str], FunctionEntry | int | None]
    entry: FunctionEntry | int

    def holds(self) -> bool:
        return self.look(self.folder) == self.entry


class PlainDevices:
    """
    The XML of functions that can only be used whole, and of interfaces without hardware.

    libvirt reads the kernel for each answer. Functions are bridges, VFs, and others without VFs, mediated devices and
    serial number: the parts that ``nodedev.py`` parses change with the driver, or when the function is removed, and
    three calls of the kernel show it. An XML that does not agree with the kernel, or during which the function changed,
    is not kept. An interface without hardware, as each guest has, belongs to no function, and nothing of it is used; so
    one look after the answer is enough.
    """

    def __init__(self, functions: Path, interfaces: Path = interface.FOLDER) -> None:
        """Keep nothing yet; the folders are the kernel's lists of functions, and of interfaces without hardware."""
        self._functions = functions
        self._interfaces = interfaces
        self._kept: dict[str, _Answer] = {}

    def read(self, name: str, ask: Callable[[], str]) -> str:
        """Return the XML of a node device: the kept one, or what ``ask`` returns, whose errors are passed on."""
        kept = self._kept.get(name)
        if kept and kept.holds():
            return kept.text
        folder = self._folder_of(name)
        entry = look_at_function(folder) if folder else None
        text = ask()
        self._kept.pop(name, None)
        answer = _function(folder, text, entry) if entry else self._interface(text)
        if answer and answer.holds():
            self._kept[name] = answer
        return text

    def forget(self) -> None:
        """Keep nothing, so that libvirt is asked for all."""
        self._kept.clear()

    def _folder_of(self, name: str) -> str:
        """Return where the kernel has a node device; empty: it is no PCI function."""
        found = _NAME.fullmatch(name)
        return f"{self._functions}/{found[1]}:{found[2]}:{found[3]}.{found[4]}" if found else ""

    def _interface(self, text: str) -> _Answer | None:
        """Return the answer about an interface without hardware; None: the XML is of another device."""
        found = _INTERFACE.search(text)
        folder = f"{self._interfaces}/{found[1]}" if found else ""
        inode = look_at_interface(folder) if folder else None
        return None if inode is None else _Answer(text, folder, look_at_interface, inode)


def _function(folder: str, text: str, entry: FunctionEntry) -> _Answer | None:
    """
    Return the answer about a function; None: it can be divided, or the XML does not agree with the kernel.

    Its driver has to be that of the entry: a driver whose probe fails is bound for a moment, and no event follows.
    """
    capabilities = frozenset(_CAPABILITY.findall(text))
    vendor, product, driver = _VENDOR.search(text), _PRODUCT.search(text), _DRIVER.search(text)
    plain = (
        capabilities <= _PLAIN
        and (driver[1] if driver else "") == entry.driver
        and vendor
        and product
        and is_whole(
            Path(folder),
            vendor=int(vendor[1], 16),
            product=int(product[1], 16),
            is_vf="phys_function" in capabilities,
        )
    )
    return _Answer(text, folder, look_at_function, entry) if plain else None
