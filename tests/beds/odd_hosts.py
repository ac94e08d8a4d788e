"""Made-up hosts that are odd in the ways of real machines, and what is right to report of them, counted apart."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from drivers.host.archive import with_index, write_files

LAYOUTS = ("flat", "devices", "cells", "numa")
SMALL_KIB, HUGE_KIB = 4, 2048
NIC, SWITCH, GPU, BRIDGE = 0x020000, 0x068000, 0x030200, 0x060400
CLASSES = {"nic": "SRIOV_NET_VF", "switch": "CUSTOM_NVSWITCH", "gpu": "CUSTOM_H200", "disk": "CUSTOM_NVME"}
RULES = (
    {"vendor_id": "8086", "product_id": "10ed", "resource_class": "SRIOV_NET_VF"},
    {"vendor_id": "10de", "product_id": "22a3", "resource_class": "NVSWITCH"},
    {"vendor_id": "10de", "product_id": "2335", "resource_class": "H200"},
    {"vendor_id": "8086", "product_id": "0a54", "resource_class": "NVME"},
)
# What can be wrong with one device, and whether that device can still be offered.
WRONG = {
    "nothing": True,
    "no numa": True,
    "cell that is not there": True,
    "no class": True,
    "interface of InfiniBand": True,
    "link without a speed": True,
    "file of a bridge": True,
    "vf not listed": False,
    "power state of no kind": False,
    "power state unreadable": False,
}


@dataclass(frozen=True, slots=True)
class OddCell:
    """One cell as libvirt lists it; ``cpus`` may be empty, or overlap with another cell's."""

    id: int
    cpus: tuple[int, ...]
    memory_kib: int
    huge_kib: int

    @property
    def xml(self) -> str:
        cpus = "".join(f"<cpu id='{cpu}' socket_id='0' core_id='{cpu}' siblings='{cpu}'/>" for cpu in self.cpus)
        small = (self.memory_kib - self.huge_kib) // SMALL_KIB
        pages = f"<pages unit='KiB' size='{SMALL_KIB}'>{small}</pages>"
        pages += f"<pages unit='KiB' size='{HUGE_KIB}'>{self.huge_kib // HUGE_KIB}</pages>"
        memory = f"<memory unit='KiB'>{self.memory_kib}</memory>" if self.memory_kib else ""
        return f"<cell id='{self.id}'>{memory}{pages}<cpus num='{len(self.cpus)}'>{cpus}</cpus></cell>"


@dataclass(frozen=True, slots=True)
class OddDevice:
    """A card: of a kind, in a PCI domain, wrong in one way (``WRONG``)."""

    kind: str  # of CLASSES, or "bridge"
    domain: int
    bus: int
    cell: int
    wrong: str
    vfs: int = 0

    @property
    def address(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:00.0"

    @property
    def offered(self) -> int:
        """How many units a guest can be given: VFs that are there, or the card; none above domain FFFF."""
        if self.kind == "bridge" or self.domain > 0xFFFF:
            return 0
        if self.kind == "nic":
            return self.vfs if WRONG[self.wrong] else self.vfs - 1
        return int(WRONG[self.wrong])

    @property
    def files(self) -> Iterator[tuple[str, str]]:
        """The XML of its functions, and the kernel's files of the one that is odd, by path in an archive."""
        vfs = [(self.bus, 0x10 + n // 8, n % 8) for n in range(self.vfs)]
        listed = vfs[:-1] if self.wrong == "vf not listed" else vfs
        yield self._function((self.bus, 0, 0), self._capability(vfs))
        for vf in listed:
            of = f"<capability type='phys_function'>{self._place((self.bus, 0, 0))}</capability>"
            yield self._function(vf, of)
        if self.kind == "nic":
            yield self._net()
        odd = listed[-1] if listed else (self.bus, 0, 0)
        if self.wrong == "power state of no kind":
            yield f"sys/bus/pci/devices/{self._text(odd)}/power_state", "D5\n"
        elif self.wrong == "power state unreadable":
            yield f"sys/bus/pci/devices/{self._text(odd)}/power_state/is", "a folder"

    def _capability(self, vfs: list[tuple[int, int, int]]) -> str:
        if self.wrong == "file of a bridge":
            return "<capability type='pci-express'><link validity='cap' port='0' speed='8' width='8'/></capability>"
        named = "".join(map(self._place, vfs))
        return f"<capability type='virt_functions' maxCount='64'>{named}</capability>" if vfs else ""

    def _function(self, place: tuple[int, int, int], more: str) -> tuple[str, str]:
        bus, slot, function = place
        is_vf = self.kind == "nic" and place != (self.bus, 0, 0)
        vendor, product, device_class = {
            "nic": ("8086", "10ed" if is_vf else "10fb", NIC),
            "switch": ("10de", "22a3", SWITCH),
            "gpu": ("10de", "2335", GPU),
            "disk": ("8086", "0a54", 0x010802),
            "bridge": ("10de", "22a3", BRIDGE),
        }[self.kind]
        name = f"pci_{self._text(place).replace(':', '_').replace('.', '_')}"
        cell = 99 if self.wrong == "cell that is not there" else self.cell
        numa = "" if self.wrong == "no numa" else f"<numa node='{cell}'/>"
        kind = "" if self.wrong == "no class" and self.kind != "bridge" else f"<class>0x{device_class:06x}</class>"
        driver = "ixgbe" if self.kind == "nic" and not is_vf else "vfio-pci"
        header = "<capability type='pci-bridge'/>" if self.kind == "bridge" else ""
        return f"libvirt/nodedevs/{name}.xml", (
            f"<device><name>{name}</name><parent>computer</parent><driver><name>{driver}</name></driver>"
            f"<capability type='pci'>{kind}<domain>{self.domain}</domain><bus>{bus}</bus><slot>{slot}</slot>"
            f"<function>{function}</function><product id='0x{product}'/><vendor id='0x{vendor}'/>{more}{header}{numa}"
            f"</capability></device>"
        )

    def _net(self) -> tuple[str, str]:
        name = f"net_ens{self.domain}_{self.bus}"
        kind = "80211" if self.wrong == "interface of InfiniBand" else "80203"
        speed = "" if self.wrong == "link without a speed" else "speed='10000' "
        parent = f"pci_{self.address.replace(':', '_').replace('.', '_')}"
        return f"libvirt/nodedevs/{name}.xml", (
            f"<device><name>{name}</name><parent>{parent}</parent><capability type='net'><interface>{name[4:]}"
            f"</interface><link {speed}state='up'/><capability type='{kind}'/></capability></device>"
        )

    def _text(self, place: tuple[int, int, int]) -> str:
        return f"{self.domain:04x}:{place[0]:02x}:{place[1]:02x}.{place[2]:x}"

    def _place(self, place: tuple[int, int, int]) -> str:
        bus, slot, function = place
        return (
            f"<address domain='0x{self.domain:04x}' bus='0x{bus:02x}' slot='0x{slot:02x}' function='0x{function:x}'/>"
        )


@dataclass(frozen=True, slots=True)
class OddHost:
    """A host of cells and devices; CPUs that no cell lists are online all the same."""

    name: str
    cells: tuple[OddCell, ...]
    online: frozenset[int]
    total: int  # CPUs that could be there
    dedicated: frozenset[int] = frozenset()  # [compute] cpu_dedicated_set
    devices: tuple[OddDevice, ...] = field(default=())

    @property
    def overlaps(self) -> bool:
        """Whether a CPU is listed in two cells."""
        listed = Counter(cpu for cell in self.cells for cpu in cell.cpus)
        return any(count > 1 for count in listed.values())

    def right(self, layout: str) -> dict[str, int]:
        """
        What guests can be given of each class, summed over all providers of a tree: counted from this value alone.

        The memory of cells without CPUs may be a device's: in layouts with cells it is not for guests, unless no cell
        has both; in the others nova counts it. What rounding leaves belongs to the lowest cell with memory.
        """
        found = Counter({"VCPU": len(self.online - self.dedicated), "PCPU": len(self.dedicated)})
        memory_kib = sum(cell.memory_kib for cell in self.cells)
        mib = {cell: cell.memory_kib // 1024 for cell in sorted(self.cells, key=lambda one: one.id) if cell.memory_kib}
        mib[next(iter(mib))] += memory_kib // 1024 - sum(mib.values())
        with_cpus = {cell for cell in mib if cell.cpus} if layout in ("cells", "numa") else set()
        found["MEMORY_MB"] = sum(mib[cell] for cell in with_cpus or mib)
        for device in self.devices:
            found[CLASSES.get(device.kind, "")] += device.offered
        return {name: amount for name, amount in found.items() if amount}

    def options(self, layout: str) -> dict[str, dict[str, Any]]:
        """What its operator configures: the dedicated CPUs, and a rule for each kind of card."""
        compute: dict[str, Any] = {"layout": layout}
        if self.dedicated:
            sets = {"cpu_dedicated_set": self.dedicated, "cpu_shared_set": self.online - self.dedicated}
            compute |= {name: ",".join(map(str, sorted(cpus))) for name, cpus in sets.items()}
        return {
            "compute": compute,
            "DEFAULT": {"reserved_host_memory_mb": 0},
            "pci": {"report_in_placement": "true", "device_spec": json.dumps(RULES)},
        }

    def write(self, folder: Path) -> Path:
        """Write the archive, as ``record`` does."""
        files = {
            "disk.json": json.dumps({"total_bytes": 100 << 30, "free_bytes": 50 << 30}),
            "libvirt/version.json": json.dumps({"libvirt": 9_000_000, "hypervisor": 7_002_000, "type": "QEMU"}),
            "libvirt/cpumap.json": json.dumps({"total": self.total, "online": sorted(self.online)}),
            "libvirt/capabilities.xml": self._capabilities(),
            "libvirt/domains.json": "{}",
            "libvirt/domcapabilities/x86_64-pc-kvm.xml": (
                "<domainCapabilities><domain>kvm</domain><machine>pc-i440fx-7.2</machine><arch>x86_64</arch>"
                "<devices/></domainCapabilities>"
            ),
            "proc/net/route": "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n",
            "proc/net/if_inet6": "",
        }
        for device in self.devices:
            files |= dict(device.files)
        return write_files(folder / self.name, with_index(files, self.name)).root

    def _capabilities(self) -> str:
        cells = "".join(cell.xml for cell in self.cells)
        return (
            f"<capabilities><host><cpu><arch>x86_64</arch></cpu><topology><cells num='{len(self.cells)}'>{cells}"
            f"</cells></topology></host><guest><arch name='x86_64'><emulator>/usr/bin/qemu-system-x86_64</emulator>"
            f"<machine canonical='pc-i440fx-7.2'>pc</machine><domain type='kvm'/></arch></guest></capabilities>"
        )


def odd_host(seed: int) -> OddHost:
    """A host for each seed, the same one each time."""
    random = Random(seed)
    count = random.randint(1, 5)
    cpus = list(range(count * random.randint(1, 6) * 2))
    shares = [tuple(cpus[cell::count]) for cell in range(count)]
    for change in random.sample(_CPU_ODDITIES, k=random.randint(0, 2)):
        shares = change(shares, random)
    ids = random.sample(range(12), k=len(shares)) if random.random() < 0.4 else list(range(len(shares)))
    cells = tuple(_cell(id_, cpus_of, random) for id_, cpus_of in zip(ids, shares, strict=True))
    if not any(cell.memory_kib for cell in cells):
        cells = (OddCell(cells[0].id, cells[0].cpus, 8 << 20, 0), *cells[1:])
    online = frozenset(cpus) | frozenset(cpu for share in shares for cpu in share)
    dedicated = frozenset(random.sample(sorted(online), k=len(online) // 2)) if random.random() < 0.5 else frozenset()
    return OddHost(
        name=f"odd{seed}",
        cells=cells,
        online=online,
        total=max(online) + 1 + random.choice((0, 0, 4)),
        dedicated=dedicated,
        devices=tuple(_device(number, [cell.id for cell in cells], random) for number in range(random.randint(0, 6))),
    )


Shares = list[tuple[int, ...]]


def _each_lists_all(shares: Shares, _: Random) -> Shares:
    every = tuple(sorted(cpu for share in shares for cpu in share))
    return [every for _ in shares]


def _one_lists_a_neighbours(shares: Shares, random: Random) -> Shares:
    number = random.randrange(len(shares))
    return [(*share, *shares[number][:1]) if at != number else share for at, share in enumerate(shares)]


def _cell_without_cpus(shares: Shares, _: Random) -> Shares:
    return [*shares, ()]


def _first_cell_without_cpus(shares: Shares, _: Random) -> Shares:
    return [(), *shares]


def _some_in_no_cell(shares: Shares, random: Random) -> Shares:
    part = random.choice((2, 3))
    return [share[: len(share) - len(share) // part] for share in shares]


_CPU_ODDITIES: tuple[Callable[[Shares, Random], Shares], ...] = (
    _each_lists_all,
    _one_lists_a_neighbours,
    _cell_without_cpus,
    _first_cell_without_cpus,
    _some_in_no_cell,
)


def _cell(id_: int, cpus: tuple[int, ...], random: Random) -> OddCell:
    memory_kib = random.choice((0, 4 << 20, (8 << 20) + 512, 16 << 20))
    huge_kib = random.choice((0, 0, 1 << 20)) if memory_kib else 0
    return OddCell(id_, tuple(dict.fromkeys(cpus)), memory_kib, huge_kib)


def _device(number: int, cells: list[int], random: Random) -> OddDevice:
    kind = random.choice((*CLASSES, "bridge", "nic"))
    fits = [
        wrong
        for wrong in WRONG
        if not (
            (kind != "nic" and wrong in ("vf not listed", "interface of InfiniBand", "link without a speed"))
            or (kind != "disk" and wrong == "file of a bridge")
            or (kind == "bridge" and not WRONG[wrong])
        )
    ]
    return OddDevice(
        kind=kind,
        domain=random.choice((0, 0, 0, 1, 0xFFFF, 0x10000)),
        bus=0x10 + number,
        cell=random.choice(cells),
        wrong=random.choice(fits),
        vfs=random.randint(2, 9) if kind == "nic" else 0,
    )
