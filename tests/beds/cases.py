"""A case (what nova reports for a host and a configuration) as a host archive and a configuration file."""

import json
import re
import shutil
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

from beds.by_hand import ByHand
from drivers.host.archive import with_index, write_files

GIB = 1024**3


def write_archive(host: dict[str, Any], name: str, folder: Path) -> Path:
    """The host of a case as a host archive; what a case does not tell (emulators, devices) is absent."""
    files = {
        "disk.json": json.dumps({"total_bytes": host["disk_gb_seen"] * GIB, "free_bytes": 0}),
        "libvirt/version.json": json.dumps({"libvirt": 9_000_000, "hypervisor": 7_002_000, "type": "QEMU"}),
        "libvirt/cpumap.json": json.dumps({"total": 1 + max(host["online_cpus"]), "online": host["online_cpus"]}),
        "libvirt/capabilities.xml": _capabilities(host),
        "libvirt/domains.json": "{}",
        **{f"libvirt/nodedevs/{name}.xml": xml for name, xml in _node_devices(host).items()},
    }
    shutil.rmtree(folder, ignore_errors=True)
    return write_files(folder, with_index(files, name)).root


def write_config(conf: dict[str, Any], path: Path) -> Path:
    """The configuration of a case as a file; options without a value are left out."""
    lines = []
    for group, options in conf.items():
        lines.append(f"[{group}]")
        for option, value in options.items():
            if option == "reserved_huge_pages":
                pages = (f"node:{page['node']},size:{page['size']},count:{page['count']}" for page in value or ())
                lines += [f"{option} = {page}" for page in pages]
            elif option == "device_spec":
                lines += [f"{option} = {json.dumps(rule)}" for rule in value]
            elif value not in (None, []):
                lines.append(f"{option} = {','.join(value) if isinstance(value, list) else value}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_sev(archive: Path, kernel: str) -> None:
    """
    A host with AMD's memory encryption: ``kernel`` are kvm_amd's parameters sev, sev_es and sev_snp.

    libvirt tells of it what nova's own fake libvirt does: 100 SEV and 15 SEV-ES guests.
    """
    switches = dict(zip(("sev", "sev_es", "sev_snp"), kernel.split(), strict=True))
    on = "yes" if switches["sev"] == "Y" else "no"
    files = {f"sys/module/kvm_amd/parameters/{name}": f"{switch}\n" for name, switch in switches.items()}
    files["libvirt/version.json"] = json.dumps({"libvirt": 10_005_000, "hypervisor": 8_002_000, "type": "QEMU"})
    files["libvirt/domcapabilities/x86_64-pc-kvm.xml"] = (
        f"<domainCapabilities><arch>x86_64</arch><features><sev supported='{on}'><maxGuests>100</maxGuests>"
        f"<maxESGuests>15</maxESGuests></sev><launchSecurity supported='{on}'><enum name='sectype'>"
        f"<value>sev</value><value>sev-snp</value></enum></launchSecurity></features></domainCapabilities>"
    )
    for name, text in files.items():
        (archive / name).parent.mkdir(parents=True, exist_ok=True)
        (archive / name).write_text(text, encoding="utf-8")


def write_pmem(archive: Path) -> dict[str, str]:
    """A host with the three namespaces of persistent memory of nova's own test; the option that names them."""
    names = ("ns_0", "ns_1", "ns_2")
    listed = [
        {"name": name, "mode": "devdax", "daxregion": {"devices": [{"chardev": f"dax0.{number}"}]}}
        for number, name in enumerate(names)
    ]
    (archive / "ndctl.json").write_text(json.dumps(listed), encoding="utf-8")
    return {"pmem_namespaces": "4GB:ns_0,SMALL:ns_1|ns_2"}


def set_by_hand(placement: str, after: dict[str, Any], *, traits: bool) -> None:
    """
    Allocations become those of a step, and with ``traits`` its providers get the traits that an operator added.

    What the step has on providers that are not there yet is left out.
    """
    by_hand = ByHand(placement)
    uuids = {name: one["uuid"] for name, one in by_hand.providers().items()}
    held = {
        consumer
        for uuid in uuids.values()
        for consumer in by_hand.send("GET", f"/resource_providers/{uuid}/allocations")["allocations"]
    }
    wanted = {str(uuid5(NAMESPACE_DNS, name)): slots for name, slots in after["allocations"].items()}
    for consumer in held - wanted.keys():
        by_hand.send("DELETE", f"/allocations/{consumer}")
    for consumer in wanted.keys() - held:
        by_hand.claim(consumer, {uuids[name]: amounts for name, amounts in wanted[consumer].items()})
    for name in after["providers"].keys() & uuids.keys() if traits else ():
        custom = [trait for trait in after["providers"][name]["traits"] or () if trait.startswith("CUSTOM_")]
        by_hand.add_traits(uuids[name], *custom)


def _capabilities(host: dict[str, Any]) -> str:
    """Cells share the memory that the driver saw: in nova's own tests it is not what the cells add up to."""
    cells = host["numa_cells"]
    each, rest = divmod(host["memory_mb_seen"] * 1024, len(cells))
    xml = "".join(
        f"<cell id='{cell['id']}'><memory unit='KiB'>{each + (rest if cell is cells[0] else 0)}</memory><cpus>"
        + "".join(
            f"<cpu id='{cpu['id']}' socket_id='{cpu['socket']}' core_id='{cpu['core']}' "
            f"siblings='{','.join(map(str, cpu['siblings']))}'/>"
            for cpu in cell["cpus"]
        )
        + "</cpus></cell>"
        for cell in cells
    )
    cpu = f"<cpu><arch>{host['arch']}</arch><model>{host['cpu_model']}</model></cpu>"
    return f"<capabilities><host>{cpu}<topology><cells>{xml}</cells></topology></host></capabilities>"


def _node_devices(host: dict[str, Any]) -> dict[str, str]:
    """The PCI functions and mediated devices of a case as libvirt's XML, by name."""
    devices = host["pci_devices"]
    vfs: dict[str, list[str]] = {}
    for device in devices:
        if device.get("parent_addr"):
            vfs.setdefault(device["parent_addr"], []).append(device["address"])
    found = {device["libvirt_name"]: _pci(device, vfs.get(device["address"], [])) for device in devices}
    return found | {mdev["name"]: _mdev(mdev) for mdev in host["mdevs"]}


def _pci(device: dict[str, Any], vfs: list[str]) -> str:
    domain, bus, slot, function = (int(part, 16) for part in re.split("[:.]", device["address"]))
    capabilities = ""
    if device["dev_type"] == "type-PF":
        capabilities = f"<capability type='virt_functions' maxCount='63'>{''.join(map(_address, vfs))}</capability>"
    if device.get("parent_addr"):
        capabilities = f"<capability type='phys_function'>{_address(device['parent_addr'])}</capability>"
    if types := device.get("mdev_types"):
        listed = "".join(
            f"<type id='{id_}'><name>{kind['name']}</name><deviceAPI>{kind['deviceAPI']}</deviceAPI>"
            f"<availableInstances>{kind['available_instances']}</availableInstances></type>"
            for id_, kind in types.items()
        )
        capabilities += f"<capability type='mdev_types'>{listed}</capability>"
    numa = f"<numa node='{device['numa_node']}'/>" if (device["numa_node"] or 0) >= 0 else ""
    return (
        f"<device><name>{device['libvirt_name']}</name><parent>computer</parent>"
        f"<driver><name>{device['driver']}</name></driver><capability type='pci'><domain>{domain}</domain>"
        f"<bus>{bus}</bus><slot>{slot}</slot><function>{function}</function>"
        f"<product id='0x{device['product_id']}'/><vendor id='0x{device['vendor_id']}'/>{capabilities}{numa}"
        f"</capability></device>"
    )


def _address(text: str) -> str:
    domain, bus, slot, function = re.split("[:.]", text)
    return f"<address domain='0x{domain}' bus='0x{bus}' slot='0x{slot}' function='0x{function}'/>"


def _mdev(mdev: dict[str, Any]) -> str:
    return (
        f"<device><name>{mdev['name']}</name><parent>{mdev['parent']}</parent><capability type='mdev'>"
        f"<type id='{mdev['type']}'/><uuid>{mdev['name'].removeprefix('mdev_').replace('_', '-')}</uuid>"
        f"</capability></device>"
    )
