"""A host of many GPUs whose guests have a vGPU each, as an archive; and what placement holds of it while it is flat."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

from beds import cases
from beds.guests import GuestSpec, add_guests
from beds.trees import identity
from beds.upgrades import write_config

TYPE = "nvidia-35"
EACH = {"VCPU": 1, "MEMORY_MB": 256, "DISK_GB": 1, "VGPU": 1}  # what a guest has


@dataclass(frozen=True, slots=True)
class Farm:
    """``guests`` are dealt out to the GPUs in turn; each GPU can make ``room`` vGPUs in all."""

    name: str
    gpus: int = 8
    guests: int = 40
    room: int = 16

    @property
    def root(self) -> str:
        return identity(self.name)

    @property
    def consumers(self) -> list[str]:
        return [str(uuid5(NAMESPACE_DNS, f"{self.name} guest {number}")) for number in range(self.guests)]

    def card(self, number: int) -> str:
        return f"0000:{0x10 + number % self.gpus:02x}:00.0"

    def provider(self, number: int) -> str:
        """The name of the GPU that a guest has its vGPU on."""
        return f"{self.name}_pci_{self.card(number).replace(':', '_').replace('.', '_')}"

    def write_archive(self, folder: Path) -> Path:
        made = {consumer: str(uuid5(NAMESPACE_DNS, f"mdev of {consumer}")) for consumer in self.consumers}
        archive = cases.write_archive(self._host(list(made.values())), self.name, folder)
        add_guests(archive, {one: GuestSpec(memory_mib=256, mdevs=(mdev,)) for one, mdev in made.items()})
        (archive / "compute_id").write_text(self.root, encoding="utf-8")
        return archive

    def write_config(self, folder: Path, url: str, layout: str = "devices", **more: Mapping[str, Any]) -> Path:
        conf: dict[str, Mapping[str, Any]] = {
            "placement": {"auth_type": "none", "endpoint": url, "timeout": 5},
            "agent": {"state_directory": str(folder / "state")},
            "compute": {"layout": layout},
            "devices": {"enabled_mdev_types": TYPE},
        }
        return write_config({**conf, **more}, folder / f"{self.name}-{layout}.conf")

    def _host(self, mdevs: list[str]) -> dict[str, Any]:
        cpus = [{"id": number, "socket": number // 32, "core": number, "siblings": [number]} for number in range(64)]
        return {
            "arch": "x86_64",
            "cpu_model": "Penryn",
            "disk_gb_seen": 4096,
            "online_cpus": list(range(64)),
            "memory_mb_seen": 512 * 1024,
            "numa_cells": [{"id": cell, "cpus": cpus[32 * cell : 32 * cell + 32]} for cell in (0, 1)],
            "pci_devices": [self._gpu(number) for number in range(self.gpus)],
            "mdevs": [
                {
                    "name": f"mdev_{mdev.replace('-', '_')}",
                    "parent": self.provider(number).removeprefix(f"{self.name}_"),
                    "type": TYPE,
                }
                for number, mdev in enumerate(mdevs)
            ],
        }

    def _gpu(self, number: int) -> dict[str, Any]:
        made = sum(guest % self.gpus == number for guest in range(self.guests))
        return {
            "address": self.card(number),
            "libvirt_name": self.provider(number).removeprefix(f"{self.name}_"),
            "vendor_id": "10de",
            "product_id": "0fff",
            "dev_type": "type-PCI",
            "numa_node": number % 2,
            "driver": "nvidia",
            "mdev_types": {TYPE: {"name": "", "deviceAPI": "vfio-pci", "available_instances": self.room - made}},
        }
