"""PCI addresses: from text to value and back; they sort by domain, bus, slot and function."""

import re
from dataclasses import dataclass

LIMITS = (0xFFFFFFFF, 0xFF, 0x1F, 0x7)  # highest domain, bus, slot and function
ADDRESS = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")


@dataclass(frozen=True, slots=True, order=True)
class PciAddress:
    """The address of a PCI function; ``str`` gives the kernel's form, ``0000:81:00.0``."""

    domain: int
    bus: int
    slot: int
    function: int

    def __post_init__(self) -> None:
        limits = zip((self.domain, self.bus, self.slot, self.function), LIMITS, strict=True)
        if not all(0 <= part <= limit for part, limit in limits):
            raise ValueError(f"no PCI function is at {self.domain:x}:{self.bus:x}:{self.slot:x}.{self.function:x}")

    @property
    def routing_id(self) -> int:
        """Bus, slot and function as one number, in which VFs follow their PF (PCI Express, single root I/O)."""
        return self.bus << 8 | self.slot << 3 | self.function

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.slot:02x}.{self.function:x}"


def parse_pci_address(text: str) -> PciAddress:
    """
    Parse an address in the kernel's form; spaces around it are ignored.

    Raises:
        ValueError: it has another form.
    """
    match = ADDRESS.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no PCI address like 0000:81:00.0")
    return PciAddress(*(int(part, 16) for part in match.groups()))
