"""Write made-up hosts as host archives; the capabilities of their libvirt."""

import json
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, tostring

from drivers.fake.fake_xml import device_files, guest_xml
from drivers.fake.hosts import HUGE_KIB, FakeHost
from drivers.host.archive import HostArchive, with_index, write_files


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
        "libvirt/domains.json": json.dumps({guest.uuid: "running" for guest in host.guests}),
        "libvirt/domcapabilities/x86_64-pc-kvm.xml": _domain_capabilities(),
        **{f"libvirt/domains/{guest.uuid}.xml": guest_xml(host, guest) for guest in host.guests},
        **{f"libvirt/nodedevs/{name}.xml": text for name, text in device_files(host)},
        **{f"sys/bus/pci/devices/{card.address}/power_state": "D0\n" for card in host.cards},
    }
    return with_index(files, host.name)


def write_archive(root: Path, host: FakeHost) -> HostArchive:
    """
    Write a host's archive.

    Raises:
        OSError: the folder cannot be written.
    """
    return write_files(root, files_of(host))


def _capabilities(made: FakeHost) -> str:
    root = Element("capabilities")
    host = SubElement(root, "host")
    cpu = SubElement(host, "cpu")
    SubElement(cpu, "arch").text = "x86_64"
    for feature in made.features:
        SubElement(cpu, "feature", name=feature)
    cells = SubElement(SubElement(host, "topology"), "cells", num=str(made.shape.cells))
    for number, cpus in enumerate(made.shape.cpus):
        _add_cell(cells, number, cpus, made)
    arch = SubElement(SubElement(root, "guest"), "arch", name="x86_64")
    SubElement(arch, "emulator").text = "/usr/bin/qemu-system-x86_64"
    SubElement(arch, "machine", canonical="pc-i440fx-7.2").text = "pc"
    for virt_type in ("qemu", "kvm"):
        SubElement(arch, "domain", type=virt_type)
    return tostring(root, encoding="unicode")


def _add_cell(cells: Element, number: int, cpus: range, made: FakeHost) -> None:
    cell = SubElement(cells, "cell", id=str(number))
    memory_kib, huge_kib = made.memory_gib * 1024**2, made.shape.huge_gib * 1024**2
    SubElement(cell, "memory", unit="KiB").text = str(memory_kib)
    if huge_kib:
        SubElement(cell, "pages", unit="KiB", size="4").text = str((memory_kib - huge_kib) // 4)
        SubElement(cell, "pages", unit="KiB", size=str(HUGE_KIB)).text = str(huge_kib // HUGE_KIB)
    listed = SubElement(cell, "cpus", num=str(len(cpus)))
    for core in range(made.shape.cores):
        siblings = cpus[core * made.shape.threads : (core + 1) * made.shape.threads]
        for id_ in siblings:
            SubElement(
                listed,
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
