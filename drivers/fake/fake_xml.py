"""The devices and the guests of a made-up host as libvirt's XML, of which the agent reads all that is here."""

from collections.abc import Iterator
from uuid import uuid5

from drivers.devices.inventories import libvirt_name
from drivers.fake.hosts import HUGE_KIB, MDEV_TYPE, NAMESPACE, Card, FakeGuest, FakeHost
from drivers.pci import parse_pci_address

_OTHER_TYPE = "nvidia-223"  # that a GPU can make too, half as many, while it has none of the usual type


def device_files(host: FakeHost) -> Iterator[tuple[str, str]]:
    """Yield (name, XML) of each node device of a host's cards."""
    for card in host.cards:
        if card.kind == "nic":
            yield card.libvirt_name, _pci(card.address, card.cell, "ixgbe", "8086", "10fb", _vfs(card))
            yield f"net_ens{card.slot}", _net(card)
            of_pf = f"<capability type='phys_function'>{_address(card.address)}</capability>"
            for vf in card.vfs:
                yield libvirt_name(vf), _pci(vf, card.cell, "ixgbevf", "8086", "10ed", of_pf)
        else:
            yield (
                card.libvirt_name,
                _pci(card.address, card.cell, "nvidia", "10de", "1eb8", _types(host, card), 0x030200),
            )
            for guest in host.held(card):
                yield f"mdev_{guest.device.replace('-', '_')}", _mdev(guest.device, card)


def guest_xml(host: FakeHost, guest: FakeGuest) -> str:
    """Return the domain of a guest as nova defines it."""
    flavor = guest.flavor
    kib = flavor.memory_mib * 1024
    last = flavor.vcpus - 1
    usual = ",".join(f"{cpus[0]}-{cpus[-1]}" for cpus in host.shape.shared) if host.shape.has_guests else ""
    parts = [
        f"<name>instance-{guest.number:08x}</name><uuid>{guest.uuid}</uuid>",
        f"<metadata>{_metadata(host, guest)}</metadata>",
        f"<memory unit='KiB'>{kib}</memory><currentMemory unit='KiB'>{kib}</currentMemory>",
        f"<memoryBacking><hugepages><page size='{HUGE_KIB}' unit='KiB' nodeset='0'/></hugepages></memoryBacking>"
        if guest.kind == "pages"
        else "",
        f"<vcpu placement='static'{f' cpuset={chr(39)}{usual}{chr(39)}' if usual and guest.cell is None else ''}>"
        f"{flavor.vcpus}</vcpu>",
    ]
    numa = ""
    if guest.cell is not None:
        parts.append(_bindings(host, guest, guest.cell))
        numa = f"<numa><cell id='0' cpus='0{f'-{last}' if last else ''}' memory='{kib}' unit='KiB'/></numa>"
    parts += [
        "<os><type arch='x86_64' machine='pc-i440fx-7.2'>hvm</type></os>",
        f"<cpu mode='host-model'><topology sockets='{flavor.vcpus}' cores='1' threads='1'/>{numa}</cpu>",
        f"<devices><emulator>/usr/bin/qemu-system-x86_64</emulator>{_device(guest)}</devices>",
    ]
    return f"<domain type='kvm'>{''.join(parts)}</domain>"


def _metadata(host: FakeHost, guest: FakeGuest) -> str:
    flavor = guest.flavor
    specs = "".join(f"<nova:extraSpec name='{name}'>{value}</nova:extraSpec>" for name, value in flavor.extra_specs)
    root = f"<nova:root type='image' uuid='{host.identity}'/>" if guest.of_image else "<nova:root type='volume'/>"
    ports = ""
    if guest.kind == "port":
        ip = f"<nova:ip type='fixed' address='198.51.100.{guest.number % 250 + 1}' ipVersion='4'/>"
        ports = (
            f"<nova:ports><nova:port uuid='{uuid5(NAMESPACE, f'port of {guest.uuid}')}'>{ip}</nova:port></nova:ports>"
        )
    return (
        f"<nova:instance xmlns:nova='http://openstack.org/xmlns/libvirt/nova/1.1'>"
        f"<nova:package version='32.0.0'/><nova:name>{guest.kind}-{guest.number}</nova:name>"
        f"<nova:flavor name='{flavor.name}'><nova:memory>{flavor.memory_mib}</nova:memory>"
        f"<nova:disk>{flavor.disk_gib}</nova:disk><nova:swap>{flavor.swap_mib}</nova:swap>"
        f"<nova:ephemeral>0</nova:ephemeral><nova:vcpus>{flavor.vcpus}</nova:vcpus>"
        f"<nova:extraSpecs>{specs}</nova:extraSpecs></nova:flavor>"
        f"<nova:owner><nova:user uuid='user'>user</nova:user><nova:project uuid='project'>project</nova:project>"
        f"</nova:owner>{root}{ports}</nova:instance>"
    )


def _bindings(host: FakeHost, guest: FakeGuest, cell: int) -> str:
    shared = host.shape.shared[cell]
    sets = guest.pins or (f"{shared[0]}-{shared[-1]}",) * guest.flavor.vcpus
    pins = "".join(f"<vcpupin vcpu='{index}' cpuset='{cpus}'/>" for index, cpus in enumerate(sets))
    emulator = ",".join(map(str, dict.fromkeys(sets)))
    return (
        f"<cputune>{pins}<emulatorpin cpuset='{emulator}'/></cputune><numatune>"
        f"<memory mode='strict' nodeset='{cell}'/><memnode cellid='0' mode='strict' nodeset='{cell}'/></numatune>"
    )


def _device(guest: FakeGuest) -> str:
    if guest.kind == "vf":
        source = f"<source>{_address(guest.device)}</source>"
        return f"<hostdev mode='subsystem' type='pci' managed='yes'>{source}</hostdev>"
    if guest.kind == "vgpu":
        source = f"<source><address uuid='{guest.device}'/></source>"
        return f"<hostdev mode='subsystem' type='mdev' managed='no' model='vfio-pci'>{source}</hostdev>"
    if guest.kind == "port":
        mac = f"<mac address='fa:16:3e:00:{guest.number >> 8 & 0xFF:02x}:{guest.number & 0xFF:02x}'/>"
        source = f"<source>{_address(guest.device, 'pci')}</source>"
        return f"<interface type='hostdev' managed='yes'>{mac}{source}<vlan><tag id='100'/></vlan></interface>"
    return ""


def _pci(address: str, cell: int, driver: str, vendor: str, product: str, more: str, of: int = 0x020000) -> str:
    at = parse_pci_address(address)
    return (
        f"<device><name>{libvirt_name(address)}</name><parent>computer</parent><driver><name>{driver}</name></driver>"
        f"<capability type='pci'><class>0x{of:06x}</class><domain>{at.domain}</domain><bus>{at.bus}</bus>"
        f"<slot>{at.slot}</slot><function>{at.function}</function><product id='0x{product}'/>"
        f"<vendor id='0x{vendor}'/>{more}<numa node='{cell}'/></capability></device>"
    )


def _vfs(card: Card) -> str:
    addresses = "".join(map(_address, card.vfs))
    return f"<capability type='virt_functions' maxCount='63'>{addresses}</capability>"


def _net(card: Card) -> str:
    return (
        f"<device><name>net_ens{card.slot}</name><parent>{card.libvirt_name}</parent><capability type='net'>"
        f"<interface>ens{card.slot}</interface><link speed='10000' state='up'/></capability></device>"
    )


def _types(host: FakeHost, card: Card) -> str:
    made = len(host.held(card))
    room = {MDEV_TYPE: card.parts - made, _OTHER_TYPE: 0 if made else card.parts // 2}
    listed = "".join(
        f"<type id='{name}'><name>GRID {name}</name><deviceAPI>vfio-pci</deviceAPI>"
        f"<availableInstances>{available}</availableInstances></type>"
        for name, available in room.items()
    )
    return f"<capability type='mdev_types'>{listed}</capability>"


def _mdev(device: str, card: Card) -> str:
    return (
        f"<device><name>mdev_{device.replace('-', '_')}</name><parent>{card.libvirt_name}</parent>"
        f"<capability type='mdev'><type id='{MDEV_TYPE}'/><uuid>{device}</uuid></capability></device>"
    )


def _address(text: str, kind: str = "") -> str:
    at = parse_pci_address(text)
    of = f"type='{kind}' " if kind else ""
    place = f"domain='0x{at.domain:04x}' bus='0x{at.bus:02x}' slot='0x{at.slot:02x}' function='0x{at.function:x}'"
    return f"<address {of}{place}/>"
