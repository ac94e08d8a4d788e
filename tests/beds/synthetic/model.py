"""What a synthetic host has, as values; ``hosts`` has those that tests use, each with its story."""

from dataclasses import dataclass, field

IXGBE, IXGBEVF = ("8086", "10fb"), ("8086", "10ed")
TESLA_T4 = ("10de", "1eb8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """An SR-IOV network card of one PF, with VFs at slots 0x10 and up of its bus."""

    address: str
    cell: int
    name: str  # of its interface
    vfs: int
    total_vfs: int = 63
    speed_mbps: int = 10_000

    def vf(self, number: int) -> str:
        """The address of a VF, numbered from 0."""
        rid = 0x80 + 2 * number
        return f"{self.address[:5]}{int(self.address[5:7], 16) + (rid >> 8):02x}:{rid >> 3 & 31:02x}.{rid & 7}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A graphics card whose driver makes mediated devices."""

    address: str
    cell: int
    types: dict[str, int]  # type -> how many there can be
    mdevs: dict[str, str] = field(default_factory=dict)  # uuid -> type


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A whole host; cells are alike, and CPUs are numbered as Linux does: first all cores' first threads."""

    name: str
    cells: int = 2
    cells_per_socket: int = 1
    cores: int = 4  # of each cell
    threads: int = 2
    memory_kib: int = 16 << 20  # of each cell
    pages: dict[int, int] = field(default_factory=dict)  # huge page size in KiB -> how many in each cell
    nics: tuple[Nic, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    isolated: str = ""
    offline: frozenset[int] = frozenset()  # CPUs
    without_memory: frozenset[int] = frozenset()  # cells
    memory_only: tuple[int, ...] = ()  # ids of more cells, which have no CPUs and may leave gaps

    @property
    def cell_ids(self) -> tuple[int, ...]:
        return (*range(self.cells), *self.memory_only)

    def memory_of(self, cell: int) -> int:
        """In KiB."""
        return 0 if cell in self.without_memory else self.memory_kib
