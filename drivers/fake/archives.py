"""Make a host up from a seed, and write it as a host archive: what its libvirt would answer."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

from drivers.devices.inventories import libvirt_name
from drivers.fake.hosts import SHAPES, Card, CardKind, FakeHost, Shape
from drivers.host.archive import HostArchive, with_index, write_files
from drivers.pci import parse_pci_address

HUGE_KIB = 2048
MDEV_TYPE = "nvidia-222"  # that each GPU can make
FEATURES = ("aes", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "sse4.1", "sse4.2", "ssse3")
PARTS = (8, 16)  # how many VFs or mediated devices a card can have


def write_host(folder: Path, *, seed: int, shape: str) -> HostArchive:
    """
    Write the archive of a made-up host below ``folder`` and return it.

    Raises:
        OSError: the folder cannot be written.
    """
    host = make_host(seed=seed, shape=shape)
    return write_files(folder / host.name, files_of(host))


def make_host(*, seed: int, shape: str) -> FakeHost:
    """
    Return a host of a shape, a key of ``SHAPES``: the same seed and shape always give the same.

    Seeds differ in memory, disk, CPU features and cards, as the hosts of a cloud that grew over years.
    """
    return _make(f"fake-{seed}-{shape}", SHAPES[shape])


def _make(name: str, shape: Shape) -> FakeHost:
    dice = random.Random(name)
    kinds: tuple[tuple[CardKind, int], ...] = (("nic", shape.nics), ("gpu", shape.gpus))
    slots = enumerate(kind for kind, count in kinds for _ in range(count))
    return FakeHost(
        name=name,
        shape=shape,
        disk_gib=shape.disk_gib * dice.choice((1, 2)),
        features=FEATURES[: dice.randint(4, len(FEATURES))],
        memory_gib=shape.memory_gib * dice.choice((1, 2)),
        cards=tuple(Card(kind, slot, slot % shape.cells, dice.choice(PARTS)) for slot, kind in slots),
    )


def files_of(host: FakeHost) -> dict[str, str]:
    """Return the files of a host's archive: path -> text."""
    cpus = host.shape.cells * host.shape.cores * host.shape.threads
    disk_bytes = host.disk_gib * 1024**3
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
    features = "".join(f'<feature name="{feature}" />' for feature in host.features)
    cells = "".join(_cell(host, number, cpus) for number, cpus in enumerate(host.shape.cpus))
    return (
        f'<capabilities><host><cpu><arch>x86_64</arch>{features}</cpu><topology><cells num="{host.shape.cells}">{cells}'
        f'</cells></topology></host><guest><arch name="x86_64"><emulator>/usr/bin/qemu-system-x86_64</emulator>'
        f'<machine canonical="pc-i440fx-7.2">pc</machine><domain type="qemu" /><domain type="kvm" /></arch></guest>'
        f"</capabilities>"
    )


def _cell(host: FakeHost, number: int, cpus: range) -> str:
    memory_kib, huge_kib = host.memory_gib * 1024**2, host.shape.huge_gib * 1024**2
    pages = ((4, (memory_kib - huge_kib) // 4), (HUGE_KIB, huge_kib // HUGE_KIB)) if huge_kib else ()
    listed = "".join(f'<pages unit="KiB" size="{size_kib}">{count}</pages>' for size_kib, count in pages)
    threads = host.shape.threads
    every = "".join(
        f'<cpu id="{cpu}" socket_id="{number}" core_id="{core}" siblings="{",".join(map(str, siblings))}" />'
        for core in range(host.shape.cores)
        for siblings in (cpus[core * threads : (core + 1) * threads],)
        for cpu in siblings
    )
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
