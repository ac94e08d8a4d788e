"""The synthetic hosts, each named after its story."""

from beds.synthetic.model import Gpu, Machine, Nic

T4_TYPES = {"nvidia-222": 16, "nvidia-223": 8, "nvidia-231": 8}

# The two hosts of the article on nested resource providers: on the first both cards have 8 VFs; on the second one card
# is given to guests whole, and the other has 8 VFs.
QUEENS_FIRST = Machine(
    name="queens-first",
    nics=(
        Nic(address="0000:01:00.0", cell=0, name="ens1", vfs=8),
        Nic(address="0000:81:00.0", cell=1, name="ens2", vfs=8),
    ),
)
QUEENS_SECOND = Machine(
    name="queens-second",
    nics=(
        Nic(address="0000:01:00.0", cell=0, name="ens1", vfs=0),
        Nic(address="0000:81:00.0", cell=1, name="ens2", vfs=8),
    ),
)

# Two sockets of two cells, a device in each cell, huge pages of two sizes.
FOUR_CELLS = Machine(
    name="four-cells",
    cells=4,
    cells_per_socket=2,
    memory_kib=64 << 20,
    pages={2048: 1024, 1048576: 4},
    nics=(
        Nic(address="0000:01:00.0", cell=0, name="ens1", vfs=8),
        Nic(address="0000:81:00.0", cell=2, name="ens2", vfs=8),
    ),
    gpus=(
        Gpu(
            address="0000:06:00.0",
            cell=1,
            types=T4_TYPES,
            mdevs={"c2177883-f1bb-47f0-914d-32a22e3a8804": "nvidia-222"},
        ),
        Gpu(
            address="0000:86:00.0",
            cell=3,
            types=T4_TYPES,
            mdevs={
                "1b20d080-1b54-4048-85b3-a6a62d165c01": "nvidia-231",
                "1b20d080-1b54-4048-85b3-a6a62d165c02": "nvidia-231",
            },
        ),
    ),
    isolated="30-31",
)

# A cell of CPUs without memory, one of memory without CPUs, ids with a gap, a CPU that is off; a card on no known cell.
ODD_CELLS = Machine(
    name="odd-cells",
    without_memory=frozenset({1}),
    memory_only=(7,),
    offline=frozenset({3}),
    isolated="2",
    nics=(
        Nic(address="0000:01:00.0", cell=-1, name="ens1", vfs=2),
        Nic(address="0000:81:00.0", cell=7, name="ens2", vfs=2),
    ),
)

# As many devices as a host has that is nothing but devices: 8 cards of 64 VFs, 16 GPUs.
WIDE = Machine(
    name="wide",
    cells=4,
    cells_per_socket=2,
    nics=tuple(
        Nic(address=f"0000:{0x10 + 4 * n:02x}:00.0", cell=n % 4, name=f"ens{n}", vfs=64, total_vfs=64) for n in range(8)
    ),
    gpus=tuple(Gpu(address=f"0000:{0x81 + n:02x}:00.0", cell=n % 4, types=T4_TYPES) for n in range(16)),
)
