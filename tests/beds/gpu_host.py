"""A made-up host that is full of GPUs: each guest has a vGPU, dealt out card by card."""

from collections.abc import Mapping
from pathlib import Path
from uuid import uuid5

from beds.made_up import options_of
from beds.upgrades import write_config
from drivers.fake.hosts import NAMESPACE, Card, FakeGuest, FakeHost, Flavor, Shape

SHAPE = Shape(cells=2, cores=64, threads=1, memory_gib=512, disk_gib=4000, gpus=1)
FLAVOR = Flavor(name="g1.tiny", vcpus=1, memory_mib=256, disk_gib=1, extra_specs=(("resources:VGPU", "1"),))


def make_host(name: str, gpus: int = 8, guests: int = 40, room: int = 16) -> FakeHost:
    """A host each of whose GPUs can make ``room`` vGPUs in all; the first guest is on the first GPU."""
    return FakeHost(
        name=name,
        shape=SHAPE,
        memory_gib=SHAPE.memory_gib,
        disk_gib=SHAPE.disk_gib,
        features=(),
        cards=tuple(Card("gpu", slot, slot % SHAPE.cells, room) for slot in range(gpus)),
        guests=tuple(_guest(name, number, number % gpus) for number in range(guests)),
    )


def write_config_of(host: FakeHost, folder: Path, url: str, layout: str, **more: Mapping[str, object]) -> Path:
    groups: dict[str, Mapping[str, object]] = {
        "placement": {"auth_type": "none", "endpoint": url, "timeout": 5},
        "agent": {"state_directory": str(folder / "state")},
        "compute": {"layout": layout},
        **options_of(host.shape),
    }
    return write_config({**groups, **more}, folder / f"{host.name}-{layout}.conf")


def _guest(host: str, number: int, card: int) -> FakeGuest:
    own, device = (str(uuid5(NAMESPACE, f"{what} {number} of {host}")) for what in ("guest", "device"))
    return FakeGuest(uuid=own, number=number + 1, kind="vgpu", flavor=FLAVOR, of_image=True, card=card, device=device)
