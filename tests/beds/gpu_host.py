"""A made-up host that is full of GPUs, as a host archive: each guest has a mediated device, dealt out card by card."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beds import cases
from beds.guests import GuestSpec, add_guests

TYPE = "nvidia-222"
PER_GPU = 16  # mediated devices of that type
FIRST_BUS = 0x10
CPUS = 128
MEMORY_MIB = 1 << 20
DISK_GB = 4000
CONFIG: Mapping[str, Mapping[str, object]] = {"libvirt": {"virt_type": "qemu"}, "devices": {"enabled_mdev_types": TYPE}}


@dataclass(frozen=True, slots=True)
class GpuHost:
    """``gpus`` are libvirt's names of the cards; ``guests`` say on which of them each guest's device is."""

    name: str
    gpus: tuple[str, ...]
    guests: Mapping[str, str]

    @property
    def held(self) -> dict[str, set[str]]:
        """The guests of each card."""
        return {gpu: {guest for guest, on in self.guests.items() if on == gpu} for gpu in self.gpus}


def make_host(name: str, gpus: int, guests: int) -> GpuHost:
    """A host with new guests; no card has more than it can."""
    cards = tuple(f"pci_0000_{FIRST_BUS + n:02x}_00_0" for n in range(gpus))
    return GpuHost(name, cards, {str(uuid.uuid4()): cards[n % gpus] for n in range(guests)})


def write_archive(host: GpuHost, identity: str, folder: Path) -> Path:
    """The host as an archive; ``identity`` is its root's uuid."""
    mdevs = {guest: str(uuid.uuid4()) for guest in host.guests}
    record = {
        "arch": "x86_64",
        "cpu_model": "EPYC",
        "disk_gb_seen": DISK_GB,
        "memory_mb_seen": MEMORY_MIB,
        "online_cpus": list(range(CPUS)),
        "numa_cells": [{"id": 0, "cpus": [{"id": n, "socket": 0, "core": n, "siblings": [n]} for n in range(CPUS)]}],
        "pci_devices": [_card(gpu, PER_GPU - len(guests)) for gpu, guests in host.held.items()],
        "mdevs": [
            {"name": f"mdev_{mdevs[guest].replace('-', '_')}", "parent": gpu, "type": TYPE}
            for guest, gpu in host.guests.items()
        ],
    }
    archive = cases.write_archive(record, host.name, folder)
    add_guests(archive, {guest: GuestSpec(memory_mib=256, mdevs=(mdevs[guest],)) for guest in host.guests})
    (archive / "compute_id").write_text(identity, encoding="utf-8")
    return archive


def _card(gpu: str, available: int) -> dict[str, Any]:
    domain, bus, slot, function = gpu.removeprefix("pci_").split("_")
    return {
        "address": f"{domain}:{bus}:{slot}.{function}",
        "libvirt_name": gpu,
        "dev_type": "type-PCI",
        "driver": "nvidia",
        "vendor_id": "10de",
        "product_id": "1eb8",
        "numa_node": 0,
        "mdev_types": {TYPE: {"name": TYPE, "deviceAPI": "vfio-pci", "available_instances": available}},
    }
