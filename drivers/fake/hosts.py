"""Made-up hosts as values: their shapes and their cards."""

import uuid
from dataclasses import dataclass
from typing import Literal

from drivers.devices.inventories import libvirt_name

NAMESPACE = uuid.UUID("5b2f0c3e-8f0c-4c57-9d0f-6a52a6f2a7b1")
CardKind = Literal["nic", "gpu"]


@dataclass(frozen=True, slots=True)
class Shape:
    """The hardware of a generated host, which has once or twice this memory and disk."""

    cells: int
    cores: int  # of one cell
    threads: int  # of one core
    memory_gib: int  # of one cell
    disk_gib: int  # of the host
    huge_gib: int = 0  # pages of 2 MiB of one cell
    nics: int = 0  # cards with VFs
    gpus: int = 0  # cards that make mediated devices

    @property
    def cpus(self) -> tuple[range, ...]:
        """The CPUs of each cell."""
        each = self.cores * self.threads
        return tuple(range(cell * each, (cell + 1) * each) for cell in range(self.cells))


SHAPES = {
    "small": Shape(cells=1, cores=4, threads=1, memory_gib=16, disk_gib=200),
    "medium": Shape(cells=2, cores=16, threads=2, memory_gib=128, disk_gib=2000),
    "large": Shape(cells=4, cores=32, threads=2, memory_gib=256, disk_gib=8000),
    "network": Shape(2, 16, 2, memory_gib=64, disk_gib=2000, huge_gib=16, nics=2),
    "gpu": Shape(2, 32, 2, memory_gib=128, disk_gib=4000, gpus=4),
    "mixed": Shape(2, 16, 2, memory_gib=64, disk_gib=4000, huge_gib=16, nics=2, gpus=2),
}


@dataclass(frozen=True, slots=True)
class Card:
    """An SR-IOV NIC or a GPU; its slot decides its address and its cell."""

    kind: CardKind
    slot: int
    cell: int
    parts: int  # VFs of a NIC, or mediated devices that a GPU can make

    @property
    def address(self) -> str:
        """The PCI address of the card, of a NIC that of its PF."""
        return f"0000:{0x10 + self.slot:02x}:00.0"

    @property
    def vfs(self) -> tuple[str, ...]:
        """The addresses of a NIC's VFs."""
        count = self.parts if self.kind == "nic" else 0
        return tuple(f"0000:{0x10 + self.slot:02x}:{2 + number // 8:02x}.{number % 8}" for number in range(count))

    @property
    def libvirt_name(self) -> str:
        """libvirt's name of the device."""
        return libvirt_name(self.address)


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeHost:
    """A host."""

    name: str
    shape: Shape
    memory_gib: int  # of one cell
    disk_gib: int
    features: tuple[str, ...]  # of its CPU
    cards: tuple[Card, ...] = ()  # by slot

    @property
    def identity(self) -> str:
        """The uuid of its root provider."""
        return str(uuid.uuid5(NAMESPACE, self.name))
