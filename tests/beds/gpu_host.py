"""A made-up host that is full of GPUs: each guest has a vGPU, dealt out card by card."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid5

from beds.made_up_host import MDEV_TYPE, Card, FakeHost, Shape, files_of
from beds.upgrades import write_config
from drivers.fake import NAMESPACE
from drivers.host.archive import HostArchive, with_index, write_files

SHAPE = Shape(cells=2, cores=64, memory_gib=512, disk_gib=4000, gpus=1)
ROOT = {"VCPU": 1, "MEMORY_MB": 256, "DISK_GB": 1}  # of each guest
NOVA = "http://openstack.org/xmlns/libvirt/nova/1.1"
Allocations = dict[str, dict[str, int]]  # name of a provider -> class -> amount


@dataclass(frozen=True, slots=True)
class GpuGuest:
    """A guest with a vGPU."""

    uuid: str
    card: int  # slot of the card
    device: str  # uuid of the mediated device


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHost(FakeHost):
    """The host with its guests."""

    guests: tuple[GpuGuest, ...] = ()

    def allocations(self, guest: GpuGuest) -> Allocations:
        """What nova's scheduler allocates to a guest in the layout devices."""
        return {self.name: ROOT, f"{self.name}_{self.cards[guest.card].libvirt_name}": {"VGPU": 1}}

    def flat(self, guest: GpuGuest) -> Allocations:
        """What nova's scheduler allocates to a guest in the layout flat."""
        return {self.name: {**ROOT, "VGPU": 1}}


def make_host(name: str, gpus: int = 8, guests: int = 40, room: int = 16) -> GpuHost:
    """A host each of whose GPUs can make ``room`` vGPUs in all; the first guest is on the first GPU."""
    return GpuHost(
        name=name,
        shape=SHAPE,
        cards=tuple(Card(is_gpu=True, slot=slot, cell=slot % SHAPE.cells, parts=room) for slot in range(gpus)),
        guests=tuple(_guest(name, number, number % gpus) for number in range(guests)),
    )


def write_archive(root: Path, host: GpuHost) -> HostArchive:
    files = files_of(host)
    for card in host.cards:
        devices = [guest.device for guest in host.guests if guest.card == card.slot]
        path = f"libvirt/nodedevs/{card.libvirt_name}.xml"
        files[path] = files[path].replace(f">{card.parts}</avail", f">{card.parts - len(devices)}</avail")
        files |= {f"libvirt/nodedevs/mdev_{one.replace('-', '_')}.xml": _mdev(one, card) for one in devices}
    files |= {f"libvirt/domains/{guest.uuid}.xml": _domain(host, guest) for guest in host.guests}
    states = ", ".join(f'"{guest.uuid}": "running"' for guest in host.guests)
    return write_files(root, with_index({**files, "libvirt/domains.json": f"{{{states}}}"}, host.name))


def options_of(shape: Shape) -> dict[str, dict[str, str]]:
    """Return the options, by group, with which a pass reports all cards of hosts of a shape."""
    pci = {"pci": {"discover": "all"}} if shape.nics else {}
    return pci | ({"devices": {"enabled_mdev_types": MDEV_TYPE}} if shape.gpus else {})


def write_config_of(host: FakeHost, folder: Path, url: str, layout: str, **more: Mapping[str, object]) -> Path:
    groups: dict[str, Mapping[str, object]] = {
        "placement": {"auth_type": "none", "endpoint": url, "timeout": 5},
        "agent": {"state_directory": str(folder / "state")},
        "compute": {"layout": layout},
        **options_of(host.shape),
    }
    return write_config({**groups, **more}, folder / f"{host.name}-{layout}.conf")


def _guest(host: str, number: int, card: int) -> GpuGuest:
    own, device = (str(uuid5(NAMESPACE, f"{what} {number} of {host}")) for what in ("guest", "device"))
    return GpuGuest(own, card, device)


def _mdev(device: str, card: Card) -> str:
    return (
        f"<device><name>mdev_{device.replace('-', '_')}</name><parent>{card.libvirt_name}</parent>"
        f"<capability type='mdev'><type id='{MDEV_TYPE}'/><uuid>{device}</uuid></capability></device>"
    )


def _domain(host: GpuHost, guest: GpuGuest) -> str:
    return (
        f"<domain type='kvm'><name>instance-{host.guests.index(guest):08x}</name><uuid>{guest.uuid}</uuid><metadata>"
        f"<nova:instance xmlns:nova='{NOVA}'><nova:flavor name='g1.tiny'><nova:memory>256</nova:memory>"
        f"<nova:disk>1</nova:disk><nova:swap>0</nova:swap><nova:ephemeral>0</nova:ephemeral><nova:vcpus>1</nova:vcpus>"
        f"<nova:extraSpecs><nova:extraSpec name='resources:VGPU'>1</nova:extraSpec></nova:extraSpecs></nova:flavor>"
        f"<nova:owner><nova:user uuid='user'/><nova:project uuid='project'/></nova:owner><nova:root type='image'/>"
        f"</nova:instance></metadata><memory unit='MiB'>256</memory><vcpu>1</vcpu><devices><hostdev mode='subsystem' "
        f"type='mdev'><source><address uuid='{guest.device}'/></source></hostdev></devices></domain>"
    )
