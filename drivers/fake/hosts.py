"""Made-up hosts as values: their shapes, their cards, their guests, and what each guest has of which provider."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from drivers.devices.inventories import libvirt_name

CardKind = Literal["nic", "gpu"]
GuestKind = Literal["plain", "pinned", "pages", "vf", "vgpu", "port"]  # port: a VF for a port of Neutron
Allocations = dict[str, dict[str, int]]  # name of a provider -> class -> amount

NAMESPACE = uuid.UUID("5b2f0c3e-8f0c-4c57-9d0f-6a52a6f2a7b1")
HUGE_KIB = 2048
CLASSES: Mapping[CardKind, str] = {"nic": "SRIOV_NET_VF", "gpu": "VGPU"}
MDEV_TYPE = "nvidia-222"  # of the mediated devices that guests have


@dataclass(frozen=True, slots=True)
class Shape:
    """The hardware and the guests of a generated host; a host has once or twice this memory and disk."""

    cells: int
    cores: int  # of one cell
    threads: int  # of one core
    memory_gib: int  # of one cell
    disk_gib: int  # of the host
    huge_gib: int = 0  # pages of 2 MiB of one cell
    nics: int = 0  # cards with VFs
    gpus: int = 0  # cards that make mediated devices
    guests: int = 0  # at most; half of them at least, as far as there is room
    ports: bool = False  # whether guests get VFs for ports of Neutron too, beside those that their flavors ask for

    @property
    def has_guests(self) -> bool:
        """Return whether the shape is one with guests, so that half of its CPUs are dedicated to pinned ones."""
        return self.guests > 0

    @property
    def cpus(self) -> tuple[range, ...]:
        """The CPUs of each cell."""
        each = self.cores * self.threads
        return tuple(range(cell * each, (cell + 1) * each) for cell in range(self.cells))

    @property
    def shared(self) -> tuple[range, ...]:
        """The CPUs of each cell for floating vCPUs: the lower half."""
        return tuple(cpus[: len(cpus) // 2] for cpus in self.cpus)

    @property
    def dedicated(self) -> tuple[range, ...]:
        """The CPUs of each cell for pinned vCPUs: the upper half."""
        return tuple(cpus[len(cpus) // 2 :] for cpus in self.cpus)


SHAPES = {
    "small": Shape(cells=1, cores=4, threads=1, memory_gib=16, disk_gib=200),
    "medium": Shape(cells=2, cores=16, threads=2, memory_gib=128, disk_gib=2000),
    "large": Shape(cells=4, cores=32, threads=2, memory_gib=256, disk_gib=8000),
    "network": Shape(2, 16, 2, memory_gib=64, disk_gib=2000, huge_gib=16, nics=2, guests=12),
    "ports": Shape(2, 16, 2, memory_gib=64, disk_gib=2000, huge_gib=16, nics=2, guests=12, ports=True),
    "gpu": Shape(2, 32, 2, memory_gib=128, disk_gib=4000, gpus=4, guests=20),
    "mixed": Shape(2, 16, 2, memory_gib=64, disk_gib=4000, huge_gib=16, nics=2, gpus=2, guests=16),
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

    @property
    def suffix(self) -> str:
        """What follows the root's name in the name of the card's provider."""
        return self.address if self.kind == "nic" else self.libvirt_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavor:
    """A flavor of nova."""

    name: str
    vcpus: int
    memory_mib: int
    disk_gib: int
    swap_mib: int = 0
    extra_specs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeGuest:
    """A guest of nova on a made-up host."""

    uuid: str
    number: int  # guests count from 1 on each host
    kind: GuestKind
    flavor: Flavor
    of_image: bool  # boots from an image; else from a volume, and its root disk is not on the host
    cell: int | None = None  # that its CPUs and memory are bound to; None: it floats
    pins: tuple[int, ...] = ()  # the CPU of each vCPU; empty: not pinned
    card: int | None = None  # slot of the card of which it has a device
    device: str = ""  # PCI address of a VF, or uuid of a mediated device

    @property
    def disk_gib(self) -> int:
        """What the guest has of the host's disk."""
        return self.flavor.disk_gib * self.of_image + -(-self.flavor.swap_mib // 1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeHost:
    """A host."""

    name: str
    shape: Shape
    memory_gib: int  # of one cell
    disk_gib: int
    features: tuple[str, ...]  # of its CPU
    cards: tuple[Card, ...] = ()  # by slot
    guests: tuple[FakeGuest, ...] = ()  # by number

    @property
    def identity(self) -> str:
        """The uuid of its root provider."""
        return str(uuid.uuid5(NAMESPACE, self.name))

    @property
    def kinds(self) -> tuple[GuestKind, ...]:
        """The kinds of guests that a host of this shape with these cards can have."""
        cards = {card.kind for card in self.cards}
        wanted: Mapping[GuestKind, bool] = {
            "plain": True,
            "pinned": self.shape.has_guests,
            "pages": bool(self.shape.huge_gib),
            "vf": "nic" in cards,
            "vgpu": "gpu" in cards,
            "port": "nic" in cards,
        }
        return tuple(kind for kind, can in wanted.items() if can)

    def held(self, card: Card) -> tuple[FakeGuest, ...]:
        """Return the guests that have a device of a card."""
        return tuple(guest for guest in self.guests if guest.card == card.slot)

    def allocations(self, guest: FakeGuest) -> Allocations:
        """Return what nova's scheduler allocates to a guest in the layout devices: nothing for a port of Neutron."""
        cpus = "PCPU" if guest.pins else "VCPU"
        root = {cpus: guest.flavor.vcpus, "MEMORY_MB": guest.flavor.memory_mib, "DISK_GB": guest.disk_gib}
        found = {self.name: {name: amount for name, amount in root.items() if amount}}
        return found if guest.kind == "port" else found | self.devices(guest)

    def devices(self, guest: FakeGuest) -> Allocations:
        """Return what a guest has of cards, whether nova allocates it or not."""
        return {f"{self.name}_{card.suffix}": {CLASSES[card.kind]: 1} for card in self.cards if card.slot == guest.card}

    def flat(self, guest: FakeGuest) -> Allocations:
        """Return what nova's scheduler allocates to a guest in the layout flat: all of it on the root."""
        sums: dict[str, int] = {}
        for amounts in self.allocations(guest).values():
            for name, amount in amounts.items():
                sums[name] = sums.get(name, 0) + amount
        return {self.name: sums}
