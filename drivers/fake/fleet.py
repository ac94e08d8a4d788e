"""Generate host archives from a seed: the same seed, count and shape always give the same hosts."""

import json
import random
import uuid
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, tostring

from drivers.host.archive import FORMAT, HostArchive

_NAMESPACE = uuid.UUID("5b2f0c3e-8f0c-4c57-9d0f-6a52a6f2a7b1")
FEATURES = ("aes", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "sse4.1", "sse4.2", "ssse3")


@dataclass(frozen=True, slots=True)
class Shape:
    """The hardware of a generated host; a host has once or twice this memory and disk."""

    cells: int
    cores: int  # of one cell
    threads: int  # of one core
    memory_gib: int  # of one cell
    disk_gib: int  # of the host


SHAPES = {
    "small": Shape(cells=1, cores=4, threads=1, memory_gib=16, disk_gib=200),
    "medium": Shape(cells=2, cores=16, threads=2, memory_gib=128, disk_gib=2000),
    "large": Shape(cells=4, cores=32, threads=2, memory_gib=256, disk_gib=8000),
}


def generate_fleet(folder: Path, hosts: int, *, seed: int, shape: str) -> tuple[HostArchive, ...]:
    """
    Write ``hosts`` archives below ``folder`` and return them.

    Hosts of one shape differ in memory, disk and CPU features, as in a cloud that grew over years.

    Raises:
        KeyError: there is no such shape; ``SHAPES`` has their names.
        OSError: the folder cannot be written.
    """
    return tuple(_generate(folder / f"fake-{seed}-{shape}-{n:04}", seed, SHAPES[shape], n) for n in range(hosts))


def _generate(root: Path, seed: int, shape: Shape, number: int) -> HostArchive:
    dice = random.Random(f"{seed}/{number}/{shape}")
    cpus = shape.cells * shape.cores * shape.threads
    disk_bytes = shape.disk_gib * dice.choice((1, 2)) * 1024**3
    files = {
        "compute_id": f"{uuid.uuid5(_NAMESPACE, root.name)}\n",
        "disk.json": json.dumps({"total_bytes": disk_bytes, "free_bytes": disk_bytes // 2}),
        "libvirt/version.json": json.dumps({"libvirt": 9_000_000, "hypervisor": 7_002_000, "type": "QEMU"}),
        "libvirt/cpumap.json": json.dumps({"total": cpus, "online": list(range(cpus))}),
        "libvirt/capabilities.xml": _capabilities(dice, shape),
        "libvirt/domains.json": "{}",
        "libvirt/domcapabilities/x86_64-pc-kvm.xml": _domain_capabilities(),
    }
    host = {
        "format": FORMAT,
        "hostname": root.name,
        "recorded_at": "1970-01-01T00:00:00Z",
        "uname": {},
        "files": sorted(files),
    }
    for name, text in (files | {"host.json": json.dumps(host)}).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return HostArchive(root)


def _capabilities(dice: random.Random, shape: Shape) -> str:
    root = Element("capabilities")
    host = SubElement(root, "host")
    cpu = SubElement(host, "cpu")
    SubElement(cpu, "arch").text = "x86_64"
    for feature in FEATURES[: dice.randint(4, len(FEATURES))]:
        SubElement(cpu, "feature", name=feature)
    cells = SubElement(SubElement(host, "topology"), "cells", num=str(shape.cells))
    memory_kib = shape.memory_gib * dice.choice((1, 2)) * 1024**2
    for number in range(shape.cells):
        _add_cell(cells, number, memory_kib, shape)
    arch = SubElement(SubElement(root, "guest"), "arch", name="x86_64")
    SubElement(arch, "emulator").text = "/usr/bin/qemu-system-x86_64"
    SubElement(arch, "machine", canonical="pc-i440fx-7.2").text = "pc"
    for virt_type in ("qemu", "kvm"):
        SubElement(arch, "domain", type=virt_type)
    return tostring(root, encoding="unicode")


def _add_cell(cells: Element, number: int, memory_kib: int, shape: Shape) -> None:
    cell = SubElement(cells, "cell", id=str(number))
    SubElement(cell, "memory", unit="KiB").text = str(memory_kib)
    cpus = SubElement(cell, "cpus", num=str(shape.cores * shape.threads))
    first = number * shape.cores * shape.threads
    for core in range(shape.cores):
        siblings = range(first + core * shape.threads, first + (core + 1) * shape.threads)
        for id_ in siblings:
            SubElement(
                cpus,
                "cpu",
                id=str(id_),
                socket_id=str(number),
                core_id=str(core),
                siblings=",".join(map(str, siblings)),
            )


def _domain_capabilities() -> str:
    root = Element("domainCapabilities")
    SubElement(root, "domain").text = "kvm"
    SubElement(root, "machine").text = "pc-i440fx-7.2"
    SubElement(root, "arch").text = "x86_64"
    devices = SubElement(root, "devices")
    for device, enum, values in (
        ("disk", "bus", ("ide", "fdc", "scsi", "virtio", "usb", "sata")),
        ("video", "modelType", ("vga", "cirrus", "virtio", "none")),
    ):
        choice = SubElement(SubElement(devices, device, supported="yes"), "enum", name=enum)
        for value in values:
            SubElement(choice, "value").text = value
    return tostring(root, encoding="unicode")
