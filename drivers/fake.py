"""The fake driver: a host that is made up, as a host archive with what its libvirt would answer."""

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from drivers.devices.inventories import libvirt_name
from drivers.host.archive import HostArchive, with_index, write_files
from drivers.pci import parse_pci_address

NAMESPACE = uuid.UUID("5b2f0c3e-8f0c-4c57-9d0f-6a52a6f2a7b1")
HUGE_KIB = 2048
MDEV_TYPE = "nvidia-222"  # that each GPU can make
FEATURES = ("aes", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "sse4.1", "sse4.2", "ssse3")
PARTS = 8  # VFs or mediated devices of a card
CardKind = Literal["nic", "gpu"]


@dataclass(frozen=True, slots=True)
class Shape:
    """The hardware of a generated host."""

    cells: int
    cores: int  # of one cell, a CPU each
    memory_gib: int  # of one cell
    disk_gib: int  # of the host
    huge_gib: int = 0  # pages of 2 MiB of one cell
    nics: int = 0  # cards with VFs
    gpus: int = 0  # cards that make mediated devices

    @property
    def cpus(self) -> tuple[range, ...]:
        """The CPUs of each cell."""
        return tuple(range(cell * self.cores, (cell + 1) * self.cores) for cell in range(self.cells))


SHAPES = {
    "small": Shape(cells=1, cores=4, memory_gib=16, disk_gib=200),
    "medium": Shape(cells=2, cores=32, memory_gib=128, disk_gib=2000),
    "large": Shape(cells=4, cores=64, memory_gib=256, disk_gib=8000),
    "network": Shape(2, 32, memory_gib=64, disk_gib=2000, huge_gib=16, nics=2),
    "gpu": Shape(2, 64, memory_gib=128, disk_gib=4000, gpus=4),
    "mixed": Shape(2, 32, memory_gib=64, disk_gib=4000, huge_gib=16, nics=2, gpus=2),
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
    cards: tuple[Card, ...] = ()  # by slot

    @property
    def identity(self) -> str:
        """The uuid of its root provider."""
        return str(uuid.uuid5(NAMESPACE, self.name))


def write_host(folder: Path, *, seed: int, shape: str) -> HostArchive:
    """
    Write the archive of a made-up host of a shape, a key of ``SHAPES``, below ``folder`` and return it.

    Hosts of other seeds have other names and uuids.

    Raises:
        OSError: the folder cannot be written.
    """
    of = SHAPES[shape]
    numbers: tuple[tuple[CardKind, int], ...] = (("nic", of.nics), ("gpu", of.gpus))
    kinds = [kind for kind, count in numbers for _ in range(count)]
    cards = tuple(Card(kind, slot, slot % of.cells, PARTS) for slot, kind in enumerate(kinds))
    host = FakeHost(name=f"fake-{seed}-{shape}", shape=of, cards=cards)
    return write_files(folder / host.name, files_of(host))


def files_of(host: FakeHost) -> dict[str, str]:
    """Return the files of a host's archive: path -> text."""
    cpus = host.shape.cells * host.shape.cores
    disk_bytes = host.shape.disk_gib * 1024**3
    files = {
        "compute_id": f"{host.identity}\n",
        "disk.json": json.dumps({"total_bytes": disk_bytes, "free_bytes": disk_bytes // 2}),
        "libvirt/version.json": json.dumps({"libvirt": 9_000_000, "hypervisor": 7_002_000, "type": "QEMU"}),
        "libvirt/cpumap.json": json.dumps({"total": cpus, "online": list(range(cpus))}),
        "libvirt/capabilities.xml": _capabilities(host),
        "libvirt/domcapabilities/x86_64-pc-kvm.xml": _domain_capabilities(),
        **{f"libvirt/nodedevs/{name}.xml": text for card in host.cards for name, text in _devices(card)},
    }
    return with_index(files, host.name)


def _capabilities(host: FakeHost) -> str:
    features = "".join(f'<feature name="{feature}" />' for feature in FEATURES)
    cells = "".join(_cell(host, number, cpus) for number, cpus in enumerate(host.shape.cpus))
    return (
        f'<capabilities><host><cpu><arch>x86_64</arch>{features}</cpu><topology><cells num="{host.shape.cells}">{cells}'
        f'</cells></topology></host><guest><arch name="x86_64"><emulator>/usr/bin/qemu-system-x86_64</emulator>'
        f'<machine canonical="pc-i440fx-7.2">pc</machine><domain type="qemu" /><domain type="kvm" /></arch></guest>'
        f"</capabilities>"
    )


def _cell(host: FakeHost, number: int, cpus: range) -> str:
    memory_kib, huge_kib = host.shape.memory_gib * 1024**2, host.shape.huge_gib * 1024**2
    pages = ((4, (memory_kib - huge_kib) // 4), (HUGE_KIB, huge_kib // HUGE_KIB)) if huge_kib else ()
    listed = "".join(f'<pages unit="KiB" size="{size_kib}">{count}</pages>' for size_kib, count in pages)
    every = "".join(f'<cpu id="{cpu}" socket_id="{number}" core_id="{cpu}" siblings="{cpu}" />' for cpu in cpus)
    return (
        f'<cell id="{number}"><memory unit="KiB">{memory_kib}</memory>{listed}<cpus num="{len(cpus)}">{every}</cpus>'
        f"</cell>"
    )


def _domain_capabilities() -> str:
    buses, videos = (
        "".join(f"<value>{name}</value>" for name in names)
        for names in (("ide", "fdc", "scsi", "virtio", "usb", "sata"), ("vga", "cirrus", "virtio", "none"))
    )
    return (
        f"<domainCapabilities><domain>kvm</domain><machine>pc-i440fx-7.2</machine><arch>x86_64</arch><devices>"
        f'<disk supported="yes"><enum name="bus">{buses}</enum></disk>'
        f'<video supported="yes"><enum name="modelType">{videos}</enum></video></devices></domainCapabilities>'
    )


def _devices(card: Card) -> Iterator[tuple[str, str]]:
    """Yield (name, XML) of each node device of a card."""
    if card.kind == "gpu":
        kind = (
            f"<type id='{MDEV_TYPE}'><name>GRID {MDEV_TYPE}</name><deviceAPI>vfio-pci</deviceAPI>"
            f"<availableInstances>{card.parts}</availableInstances></type>"
        )
        types = f"<capability type='mdev_types'>{kind}</capability>"
        yield card.libvirt_name, _pci(card.address, card.cell, "nvidia", "10de", "1eb8", types, 0x030200)
        return
    vfs = f"<capability type='virt_functions' maxCount='63'>{''.join(map(_address, card.vfs))}</capability>"
    yield card.libvirt_name, _pci(card.address, card.cell, "ixgbe", "8086", "10fb", vfs)
    name = f"ens{card.slot}"
    yield (
        f"net_{name}",
        f"<device><name>net_{name}</name><parent>{card.libvirt_name}</parent><capability type='net'>"
        f"<interface>{name}</interface><link speed='10000' state='up'/></capability></device>",
    )
    of_pf = f"<capability type='phys_function'>{_address(card.address)}</capability>"
    for vf in card.vfs:
        yield libvirt_name(vf), _pci(vf, card.cell, "ixgbevf", "8086", "10ed", of_pf)


def _pci(address: str, cell: int, driver: str, vendor: str, product: str, more: str, of: int = 0x020000) -> str:
    at = parse_pci_address(address)
    return (
        f"<device><name>{libvirt_name(address)}</name><parent>computer</parent><driver><name>{driver}</name></driver>"
        f"<capability type='pci'><class>0x{of:06x}</class><domain>{at.domain}</domain><bus>{at.bus}</bus>"
        f"<slot>{at.slot}</slot><function>{at.function}</function><product id='0x{product}'/>"
        f"<vendor id='0x{vendor}'/>{more}<numa node='{cell}'/></capability></device>"
    )


def _address(text: str) -> str:
    at = parse_pci_address(text)
    return f"<address domain='{at.domain}' bus='{at.bus}' slot='{at.slot}' function='{at.function}'/>"
