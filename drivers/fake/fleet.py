"""Generate hosts from a seed: the same seed, count and shape always give the same hosts."""

import random
from pathlib import Path

from drivers.fake.archives import write_archive
from drivers.fake.arrivals import with_guest
from drivers.fake.hosts import SHAPES, Card, FakeHost, Shape
from drivers.host.archive import HostArchive

FEATURES = ("aes", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "sse4.1", "sse4.2", "ssse3")
VFS, VGPUS = (8, 16), (8, 16)  # how many a card can have


def make_hosts(hosts: int, *, seed: int, shape: str) -> tuple[FakeHost, ...]:
    """
    Return ``hosts`` hosts.

    Hosts of one shape differ in memory, disk, CPU features, cards and guests, as in a cloud that grew over years.

    Raises:
        KeyError: there is no such shape; ``SHAPES`` has their names.
    """
    return tuple(_make(f"fake-{seed}-{shape}-{n:04}", seed, SHAPES[shape], n) for n in range(hosts))


def generate_fleet(folder: Path, hosts: int, *, seed: int, shape: str) -> tuple[HostArchive, ...]:
    """
    Write ``hosts`` archives below ``folder`` and return them.

    Raises:
        KeyError: as ``make_hosts``.
        OSError: the folder cannot be written.
    """
    return tuple(write_archive(folder / host.name, host) for host in make_hosts(hosts, seed=seed, shape=shape))


def _make(name: str, seed: int, shape: Shape, number: int) -> FakeHost:
    size = (  # spelt as in the first versions, so that a seed still makes the same hosts
        f"Shape(cells={shape.cells}, cores={shape.cores}, threads={shape.threads}, memory_gib={shape.memory_gib}, "
        f"disk_gib={shape.disk_gib})"
    )
    dice = random.Random(f"{seed}/{number}/{size}")
    host = FakeHost(
        name=name,
        shape=shape,
        disk_gib=shape.disk_gib * dice.choice((1, 2)),
        features=FEATURES[: dice.randint(4, len(FEATURES))],
        memory_gib=shape.memory_gib * dice.choice((1, 2)),
        cards=(
            *(Card("nic", slot, slot % shape.cells, dice.choice(VFS)) for slot in range(shape.nics)),
            *(
                Card("gpu", slot, slot % shape.cells, dice.choice(VGPUS))
                for slot in range(shape.nics, shape.nics + shape.gpus)
            ),
        ),
    )
    kinds = tuple(kind for kind in host.kinds if kind != "port" or shape.ports)
    for _ in range(dice.randint(shape.guests // 2, shape.guests)):
        host = with_guest(host, dice.choice(kinds))
    return host
