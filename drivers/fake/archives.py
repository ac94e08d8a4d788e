"""Write made-up hosts as host archives; the capabilities of their libvirt."""

import json
from pathlib import Path

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
