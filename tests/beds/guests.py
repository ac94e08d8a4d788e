"""Guests as libvirt tells of them, to be added to a host archive or started on a synthetic host."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

# What nova writes into a domain, of what an agent reads.
METADATA = """\
<nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
  <nova:flavor name="small">
    <nova:memory>{memory_mib}</nova:memory><nova:disk>0</nova:disk><nova:swap>0</nova:swap>
    <nova:ephemeral>0</nova:ephemeral><nova:vcpus>{vcpus}</nova:vcpus><nova:extraSpecs/>
  </nova:flavor>
  <nova:owner><nova:user uuid="{user}">u</nova:user><nova:project uuid="{project}">p</nova:project></nova:owner>
</nova:instance>"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestSpec:
    """One guest; ``pins`` and ``cells`` say what it is bound to, and none means that it floats."""

    vcpus: int = 1
    on: int = 0  # how many of them are switched on; 0: all
    memory_mib: int = 32
    cpuset: str = ""  # the host's CPUs of all vCPUs without a pin
    pins: tuple[str, ...] = ()  # the host's CPUs of each vCPU, for instance ("4", "5")
    emulator_pin: str = ""  # the host's CPUs of the emulator's own threads
    cells: tuple[int, ...] = ()  # a cell of the guest on each of these of the host, with equal memory
    page_kib: int | None = None  # of huge pages
    vfs: tuple[str, ...] = ()  # PCI addresses
    mdevs: tuple[str, ...] = ()  # uuids
    sev_policy: str | None = None
    state: str = "running"
    metadata: str = ""  # XML of others, as nova's
    devices: tuple[str, ...] = field(default=())  # more XML


def read_spec(record: Mapping[str, object]) -> GuestSpec:
    """A guest as a story's JSON writes it: lists for tuples."""
    return GuestSpec(**{key: tuple(value) if isinstance(value, list) else value for key, value in record.items()})  # type: ignore[arg-type]


def domain_xml(uuid: str, name: str, guest: GuestSpec, *, emulator: str = "/usr/bin/qemu-system-x86_64") -> str:
    """A domain as nova defines it, in what matters here."""
    mib = guest.memory_mib
    cells = "".join(
        f"<cell id='{index}' cpus='{_share(guest.vcpus, len(guest.cells), index)}' memory='{mib // len(guest.cells)}' "
        f"unit='MiB'/>"
        for index in range(len(guest.cells))
    )
    nodes = "".join(f"<memnode cellid='{i}' mode='strict' nodeset='{cell}'/>" for i, cell in enumerate(guest.cells))
    pins = "".join(f"<vcpupin vcpu='{i}' cpuset='{cpus}'/>" for i, cpus in enumerate(guest.pins))
    pins += f"<emulatorpin cpuset='{guest.emulator_pin}'/>" if guest.emulator_pin else ""
    usual = f" cpuset='{guest.cpuset}'" if guest.cpuset else ""
    page = f"<page size='{guest.page_kib}' unit='KiB'/>" if guest.page_kib else ""
    parts = [
        f"<name>{name}</name><uuid>{uuid}</uuid><memory unit='KiB'>{mib * 1024}</memory>",
        f"<vcpu{usual} current='{guest.on or guest.vcpus}'>{guest.vcpus}</vcpu>",
        f"<memoryBacking><hugepages>{page}</hugepages></memoryBacking>" if page else "",
        f"<cputune>{pins}</cputune>" if pins else "",
        f"<numatune><memory mode='strict' nodeset='{','.join(map(str, guest.cells))}'/>{nodes}</numatune>"
        if guest.cells
        else "",
        f"<cpu mode='custom'><model>qemu64</model><numa>{cells}</numa></cpu>" if cells else "",
        f"<metadata>{guest.metadata}</metadata>" if guest.metadata else "",
        "<os><type arch='x86_64' machine='q35'>hvm</type></os>",
        f"<launchSecurity type='sev'><policy>{guest.sev_policy}</policy></launchSecurity>" if guest.sev_policy else "",
        f"<devices><emulator>{emulator}</emulator><memballoon model='none'/>",
        *(_vf(address) for address in guest.vfs),
        *(_mdev(identity) for identity in guest.mdevs),
        *guest.devices,
        "</devices>",
    ]
    return f"<domain type='qemu'>{''.join(parts)}</domain>"


def add_guests(archive: Path, guests: Mapping[str, GuestSpec]) -> None:
    """Guests by uuid, as an archive records them; those that were there are gone."""
    folder = archive / "libvirt" / "domains"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for number, (uuid, guest) in enumerate(guests.items(), 1):
        (folder / f"{uuid}.xml").write_text(domain_xml(uuid, f"instance-{number:08x}", guest), encoding="utf-8")
    states = {uuid: guest.state for uuid, guest in guests.items()}
    (archive / "libvirt" / "domains.json").write_text(json.dumps(states), encoding="utf-8")


def _share(vcpus: int, cells: int, index: int) -> str:
    each = vcpus // cells
    first = index * each
    last = vcpus - 1 if index == cells - 1 else first + each - 1
    return str(first) if first == last else f"{first}-{last}"


def _vf(address: str) -> str:
    domain, bus, slot, function = re.split("[:.]", address)
    place = f"<address domain='0x{domain}' bus='0x{bus}' slot='0x{slot}' function='0x{function}'/>"
    return f"<hostdev mode='subsystem' type='pci' managed='yes'><source>{place}</source></hostdev>"


def _mdev(identity: str) -> str:
    source = f"<source><address uuid='{identity}'/></source>"
    return f"<hostdev mode='subsystem' type='mdev' model='vfio-pci'>{source}</hostdev>"
