"""What libvirt would answer on made-up hosts; those of ``SHAPES`` are the fake driver's, in drivers/made_up."""

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from drivers.devices.inventories import libvirt_name
from drivers.fake import NAMESPACE
from drivers.host.archive import with_index
from drivers.pci import PciAddress

HUGE_KIB = 2048
MDEV_TYPE = "nvidia-222"  # that each GPU can make
FEATURES = ("aes", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "sse4.1", "sse4.2", "ssse3")
PARTS = 8  # VFs or mediated devices of a card
DOMAIN_CAPABILITIES = (
    "<domainCapabilities><domain>kvm</domain><machine>pc-i440fx-7.2</machine><arch>x86_64</arch><devices>"
    '<disk supported="yes"><enum name="bus"><value>ide</value><value>fdc</value><value>scsi</value>'
    '<value>virtio</value><value>usb</value><value>sata</value></enum></disk><video supported="yes">'
    '<enum name="modelType"><value>vga</value><value>cirrus</value><value>virtio</value><value>none</value></enum>'
    "</video></devices></domainCapabilities>"
)


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


SHAPES = {
    "small": Shape(cells=1, cores=4, memory_gib=16, disk_gib=200),
    "medium": Shape(cells=2, cores=32, memory_gib=128, disk_gib=2000),
    "large": Shape(cells=4, cores=64, memory_gib=256, disk_gib=8000),
    "network": Shape(2, 32, memory_gib=64, disk_gib=2000, huge_gib=16, nics=2),
    "gpu": Shape(2, 64, memory_gib=128, disk_gib=4000, gpus=4),
    "mixed": Shape(2, 32, memory_gib=64, disk_gib=4000, huge_gib=16, nics=2, gpus=2),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """An SR-IOV NIC or a GPU; its slot decides its address."""

    is_gpu: bool
    slot: int
    cell: int
    parts: int  # VFs of a NIC, or mediated devices that a GPU can make

    @property
    def address(self) -> PciAddress:
        """The address of the card, of a NIC that of its PF."""
        return PciAddress(0, 0x10 + self.slot, 0, 0)

    @property
    def libvirt_name(self) -> str:
        """libvirt's name of the device."""
        return libvirt_name(str(self.address))


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


def host_of(shape: str) -> FakeHost:
    """A host of one of ``SHAPES``; the fake driver gives it another name."""
    of = SHAPES[shape]
    slots = range(of.nics + of.gpus)
    cards = (Card(is_gpu=slot >= of.nics, slot=slot, cell=slot % of.cells, parts=PARTS) for slot in slots)
    return FakeHost(name=shape, shape=of, cards=tuple(cards))


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
        "libvirt/domcapabilities/x86_64-pc-kvm.xml": DOMAIN_CAPABILITIES,
        **{f"libvirt/nodedevs/{name}.xml": text for card in host.cards for name, text in _devices(card)},
    }
    return with_index(files, host.name)


def _capabilities(host: FakeHost) -> str:
    features = "".join(f'<feature name="{feature}" />' for feature in FEATURES)
    cells = "".join(_cell(host.shape, number) for number in range(host.shape.cells))
    return (
        f'<capabilities><host><cpu><arch>x86_64</arch>{features}</cpu><topology><cells num="{host.shape.cells}">{cells}'
        f'</cells></topology></host><guest><arch name="x86_64"><emulator>/usr/bin/qemu-system-x86_64</emulator>'
        f'<machine canonical="pc-i440fx-7.2">pc</machine><domain type="qemu" /><domain type="kvm" /></arch></guest>'
        f"</capabilities>"
    )


def _cell(of: Shape, number: int) -> str:
    memory_kib, huge_kib = of.memory_gib * 1024**2, of.huge_gib * 1024**2
    cpus = range(number * of.cores, (number + 1) * of.cores)
    pages = ((4, (memory_kib - huge_kib) // 4), (HUGE_KIB, huge_kib // HUGE_KIB)) if huge_kib else ()
    listed = "".join(f'<pages unit="KiB" size="{size_kib}">{count}</pages>' for size_kib, count in pages)
    every = "".join(f'<cpu id="{cpu}" socket_id="{number}" core_id="{cpu}" siblings="{cpu}" />' for cpu in cpus)
    return (
        f'<cell id="{number}"><memory unit="KiB">{memory_kib}</memory>{listed}<cpus num="{len(cpus)}">{every}</cpus>'
        f"</cell>"
    )


def _devices(card: Card) -> Iterator[tuple[str, str]]:
    """Yield (name, XML) of each node device of a card."""
    if card.is_gpu:
        kind = (
            f"<type id='{MDEV_TYPE}'><name>GRID {MDEV_TYPE}</name><deviceAPI>vfio-pci</deviceAPI>"
            f"<availableInstances>{card.parts}</availableInstances></type>"
        )
        types = f"<capability type='mdev_types'>{kind}</capability>"
        yield _pci(card.address, card.cell, "nvidia", "10de", "1eb8", types, 0x030200)
        return
    vfs = [PciAddress(0, card.address.bus, 2 + number // 8, number % 8) for number in range(card.parts)]
    of_vfs = f"<capability type='virt_functions' maxCount='63'>{''.join(map(_address, vfs))}</capability>"
    yield _pci(card.address, card.cell, "ixgbe", "8086", "10fb", of_vfs)
    name = f"ens{card.slot}"
    yield (
        f"net_{name}",
        f"<device><name>net_{name}</name><parent>{card.libvirt_name}</parent><capability type='net'>"
        f"<interface>{name}</interface><link speed='10000' state='up'/></capability></device>",
    )
    of_pf = f"<capability type='phys_function'>{_address(card.address)}</capability>"
    yield from (_pci(vf, card.cell, "ixgbevf", "8086", "10ed", of_pf) for vf in vfs)


def _pci(
    at: PciAddress, cell: int, driver: str, vendor: str, product: str, more: str, of: int = 0x020000
) -> tuple[str, str]:
    """Return (name, XML) of a PCI function; ``of`` is its class, ``more`` its further capabilities."""
    name = libvirt_name(str(at))
    return name, (
        f"<device><name>{name}</name><parent>computer</parent><driver><name>{driver}</name></driver>"
        f"<capability type='pci'><class>0x{of:06x}</class><domain>{at.domain}</domain><bus>{at.bus}</bus>"
        f"<slot>{at.slot}</slot><function>{at.function}</function><product id='0x{product}'/>"
        f"<vendor id='0x{vendor}'/>{more}<numa node='{cell}'/></capability></device>"
    )


def _address(at: PciAddress) -> str:
    return f"<address domain='{at.domain}' bus='{at.bus}' slot='{at.slot}' function='{at.function}'/>"
