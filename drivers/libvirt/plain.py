"""Keeps the XML of PCI functions that can only be used whole, while the kernel has them as they were."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from drivers.host.function import FunctionEntry, is_whole, look_at_function

_NAME = re.compile(r"pci_([0-9a-f]{4,})_([0-9a-f]{2})_([0-9a-f]{2})_([0-7])")
_CAPABILITY = re.compile(r"<capability type='([^']*)'")
_PLAIN = frozenset({"pci", "pci-bridge", "phys_function"})  # PFs, vGPU cards and cards with a serial number have more
_VENDOR = re.compile(r"<vendor id='(0x[0-9a-f]+)'")
_PRODUCT = re.compile(r"<product id='(0x[0-9a-f]+)'")
_DRIVER = re.compile(r"<driver>\s*<name>([^<]*)</name>")


@dataclass(frozen=True, slots=True)
class _Answer:
    """What libvirt answered, and the function at that moment."""

    entry: FunctionEntry
    text: str


class PlainFunctions:
    """
    The XML of bridges, VFs, and other functions without VFs, mediated devices and serial number.

    libvirt reads the kernel for each answer. Of such a function, what is parsed here changes with its driver, or when
    the function is removed: three calls of the kernel show it. An XML that does not agree with the kernel, or during
    which the function changed, is not kept.
    """

    def __init__(self, folder: Path) -> None:
        """Keep nothing yet; ``folder`` is the kernel's list of functions."""
        self._folder = folder
        self._kept: dict[str, _Answer] = {}

    def read(self, name: str, ask: Callable[[], str]) -> str:
        """Return the XML of a node device: the kept one, or what ``ask`` returns, whose errors are passed on."""
        folder = self._folder_of(name)
        entry = look_at_function(folder) if folder else None
        kept = self._kept.get(name)
        if kept and kept.entry == entry:
            return kept.text
        text = ask()
        self._kept.pop(name, None)
        if entry and _is_plain(folder, text, entry) and look_at_function(folder) == entry:
            self._kept[name] = _Answer(entry, text)
        return text

    def forget(self) -> None:
        """Keep nothing, so that libvirt is asked for all."""
        self._kept.clear()

    def _folder_of(self, name: str) -> str:
        """Return where the kernel has a node device; empty: it is no PCI function."""
        found = _NAME.fullmatch(name)
        return f"{self._folder}/{found[1]}:{found[2]}:{found[3]}.{found[4]}" if found else ""


def _is_plain(folder: str, text: str, entry: FunctionEntry) -> bool:
    """
    Whether an XML is of a function that can only be used whole, and agrees with the kernel.

    Its driver has to be that of the entry: a driver whose probe fails is bound for a moment, and no event follows.
    """
    capabilities = frozenset(_CAPABILITY.findall(text))
    vendor, product, driver = _VENDOR.search(text), _PRODUCT.search(text), _DRIVER.search(text)
    return bool(
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
