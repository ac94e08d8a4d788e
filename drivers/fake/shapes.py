"""The shapes of made-up hosts by name."""

from dataclasses import dataclass

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
