"""Writes a machine as the kernel's files, and changes them as hot-plug does."""

import os.path
import shutil
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

from beds.synthetic.model import IXGBE, IXGBEVF, TESLA_T4, Gpu, Machine, Nic
from drivers.host.parse import format_cpu_set

NETWORK, DISPLAY = 0x020000, 0x030200
EMPTY_FOLDERS = (
    "sys/bus/mdev/devices", "sys/class/mdev_bus", "sys/class/dmi", "sys/class/iommu", "sys/class/fc_host",
    "sys/class/scsi_host", "sys/class/block", "sys/class/net", "sys/devices/virtual", "sys/block", "sys/fs/cgroup",
    "sys/firmware", "run/udev/data", "dev/vfio",
)  # fmt: skip
VF_OFFSET, VF_STRIDE = 128, 2


class Files:
    """The files of one machine below ``root``: ``sys``, ``proc``, ``run/udev`` and ``dev/vfio``."""

    def __init__(self, root: Path, machine: Machine) -> None:
        self.root = root
        self.machine = machine
        self._group = 10
        self._interface = 10
        for folder in EMPTY_FOLDERS:
            (root / folder).mkdir(parents=True, exist_ok=True)
        self._write("run/udev/control", "")  # without it libudev takes it that no udevd sends events
        self._write_driver("vfio-pci")
        self._write("sys/bus/pci/drivers_probe", "")
        self._write_cpus()
        self._write_cells()
        self._write_proc()
        for nic in machine.nics:
            self.add_nic(nic)
        for gpu in machine.gpus:
            self.add_gpu(gpu)

    def device(self, address: str) -> Path:
        """The folder of a PCI function, below its bus's bridge."""
        bus = int(address[5:7], 16)
        return self.root / f"sys/devices/pci0000:{bus & 0x80:02x}/{address}"

    def add_nic(self, nic: Nic) -> list[Path]:
        """A card with its VFs; answers the folders that appeared."""
        pf = self._add_function(nic.address, IXGBE, NETWORK, nic.cell, "ixgbe")
        facts = {
            "sriov_totalvfs": nic.total_vfs,
            "sriov_numvfs": nic.vfs,
            "sriov_offset": VF_OFFSET,
            "sriov_stride": VF_STRIDE,
            "sriov_vf_device": IXGBEVF[1],
            "sriov_drivers_autoprobe": 1,
        }
        self._write_all(pf, facts)
        net = self._add_interface(pf, nic.name, nic.speed_mbps)
        return [pf, net, *(path for number in range(nic.vfs) for path in self._add_vf(nic, number))]

    def set_vfs(self, nic: Nic, count: int) -> tuple[list[Path], list[Path]]:
        """As ``echo count > sriov_numvfs``, from however many there are: (folders that appeared, those that went)."""
        pf = self.device(nic.address)
        standing = len(list(pf.glob("virtfn*")))
        gone = [path for number in range(count, standing) for path in self._remove_vf(nic, number)]
        came = [path for number in range(standing, count) for path in self._add_vf(nic, number)]
        self._write_all(pf, {"sriov_numvfs": count})
        return came, gone

    def remove_nic(self, nic: Nic) -> list[Path]:
        """A card and its VFs; answers the folders that went, VFs first."""
        _, gone = self.set_vfs(nic, 0)
        pf = self.device(nic.address)
        interface = pf / "net" / nic.name
        (self.root / "sys/class/net" / nic.name).unlink()
        self._remove_function(pf)
        return [*gone, interface, pf]

    def add_gpu(self, gpu: Gpu) -> list[Path]:
        """A card with its mediated devices; answers the folders that appeared."""
        folder = self._add_function(gpu.address, TESLA_T4, DISPLAY, gpu.cell, "nvidia")
        self._link(folder, self.root / "sys/class/mdev_bus" / gpu.address)
        for kind, total in gpu.types.items():
            facts = {"name": f"GRID {kind}", "device_api": "vfio-pci", "available_instances": total, "create": ""}
            self._write_all(folder / "mdev_supported_types" / kind, facts)
            (folder / "mdev_supported_types" / kind / "devices").mkdir()
        return [folder, *(self.add_mdev(gpu, uuid, kind) for uuid, kind in gpu.mdevs.items())]

    def add_mdev(self, gpu: Gpu, uuid: str, kind: str) -> Path:
        """As writing the uuid to the type's ``create``; answers the folder that appeared."""
        parent = self.device(gpu.address)
        folder = parent / uuid
        self._write_all(folder, {"uevent": "DRIVER=vfio_mdev", "remove": ""})
        type_folder = parent / "mdev_supported_types" / kind
        self._link(type_folder, folder / "mdev_type")
        self._link(self.root / "sys/bus/mdev", folder / "subsystem")
        self._link(folder, self.root / "sys/bus/mdev/devices" / uuid)
        self._link(folder, type_folder / "devices" / uuid)
        self._add_iommu_group(folder)
        self._set_available(gpu)
        return folder

    def remove_mdev(self, gpu: Gpu, uuid: str) -> Path:
        """As writing 1 to its ``remove``; answers the folder that went."""
        folder = self.device(gpu.address) / uuid
        type_folder = (folder / "mdev_type").resolve()
        (type_folder / "devices" / uuid).unlink()
        (self.root / "sys/bus/mdev/devices" / uuid).unlink()
        shutil.rmtree(folder)
        self._set_available(gpu)
        return folder

    def remove_gpu(self, gpu: Gpu) -> list[Path]:
        """A card without mediated devices; answers the folder that went."""
        folder = self.device(gpu.address)
        (self.root / "sys/class/mdev_bus" / gpu.address).unlink()
        self._remove_function(folder)
        return [folder]

    def set_link(self, nic: Nic, state: str) -> Path:
        """The operstate of a PF's interface; answers its folder, which changed."""
        folder = self.device(nic.address) / "net" / nic.name
        self._write_all(folder, {"operstate": state})
        return folder

    def _add_vf(self, nic: Nic, number: int) -> list[Path]:
        pf = self.device(nic.address)
        folder = self._add_function(nic.vf(number), IXGBEVF, NETWORK, nic.cell, "ixgbevf")
        self._link(pf, folder / "physfn")
        self._link(folder, pf / f"virtfn{number}")
        return [folder, self._add_interface(folder, f"{nic.name}v{number}", nic.speed_mbps)]

    def _remove_vf(self, nic: Nic, number: int) -> list[Path]:
        folder = self.device(nic.vf(number))
        name = f"{nic.name}v{number}"
        (self.root / "sys/class/net" / name).unlink()
        (self.device(nic.address) / f"virtfn{number}").unlink()
        self._remove_function(folder)
        return [folder / "net" / name, folder]

    def _remove_function(self, folder: Path) -> None:
        (self.root / "sys/bus/pci/devices" / folder.name).unlink()
        driver = (folder / "driver").resolve()
        (driver / folder.name).unlink()
        shutil.rmtree(folder)

    def _add_function(self, address: str, ids: tuple[str, str], kind: int, cell: int, driver: str) -> Path:
        folder = self.device(address)
        vendor, product = ids
        (self.root / "sys/devices" / folder.parent.name).mkdir(parents=True, exist_ok=True)
        facts = {
            "vendor": f"0x{vendor}",
            "device": f"0x{product}",
            "class": f"0x{kind:06x}",
            "subsystem_vendor": "0x0000",
            "subsystem_device": "0x0000",
            "revision": "0x01",
            "numa_node": cell,
            "irq": 0,
            "enable": 1,
            "power_state": "D0",
            "driver_override": "(null)",
            "resource": "\n".join(["0x0000000000000000 0x0000000000000000 0x0000000000000000"] * 13),
            "modalias": f"pci:v0000{vendor.upper()}d0000{product.upper()}sv00000000sd00000000bc02sc00i00",
            "uevent": f"DRIVER={driver}\nPCI_CLASS={kind:X}\nPCI_ID={vendor}:{product}\nPCI_SLOT_NAME={address}",
        }
        self._write_all(folder, facts)
        (folder / "config").write_bytes(_config_space(vendor, product, kind))
        self._write_driver(driver)
        self._link(self.root / "sys/bus/pci", folder / "subsystem")
        self._link(folder, self.root / "sys/bus/pci/devices" / address)
        self._link(self.root / f"sys/bus/pci/drivers/{driver}", folder / "driver")
        self._link(folder, self.root / f"sys/bus/pci/drivers/{driver}/{address}")
        self._add_iommu_group(folder)
        return folder

    def _add_interface(self, device: Path, name: str, speed_mbps: int) -> Path:
        self._interface += 1
        folder = device / "net" / name
        mac = ":".join(f"{byte:02x}" for byte in struct.pack(">HI", 0x0200, self._interface))
        facts = {
            "address": mac,
            "addr_len": 6,
            "ifindex": self._interface,
            "iflink": self._interface,
            "type": 1,
            "operstate": "up",
            "speed": speed_mbps,
            "duplex": "full",
            "mtu": 1500,
            "carrier": 1,
            "flags": "0x1003",
            "dev_port": 0,
            "dev_id": "0x0",
            "addr_assign_type": 0,
            "uevent": f"INTERFACE={name}\nIFINDEX={self._interface}",
        }
        self._write_all(folder, facts)
        self._link(self.root / "sys/class/net", folder / "subsystem")
        self._link(device, folder / "device")
        self._link(folder, self.root / "sys/class/net" / name)
        self._write(f"run/udev/data/n{self._interface}", f"E:ID_NET_NAME_PATH={name}\nV:1\n")
        return folder

    def _add_iommu_group(self, device: Path) -> None:
        self._group += 1
        group = self.root / f"sys/kernel/iommu_groups/{self._group}"
        self._link(device, group / "devices" / device.name)
        self._link(group, device / "iommu_group")
        self._write(f"dev/vfio/{self._group}", "")

    def _set_available(self, gpu: Gpu) -> None:
        """As NVIDIA's driver does: a card makes mediated devices of one type at a time."""
        types = self.device(gpu.address) / "mdev_supported_types"
        made = {kind: len(list((types / kind / "devices").iterdir())) for kind in gpu.types}
        for kind, total in gpu.types.items():
            others = sum(made.values()) - made[kind]
            (types / kind / "available_instances").write_text(f"{0 if others else total - made[kind]}\n")

    def _write_driver(self, name: str) -> None:
        folder = self.root / f"sys/bus/pci/drivers/{name}"
        if not folder.is_dir():
            self._write_all(folder, dict.fromkeys(("bind", "unbind", "new_id", "remove_id"), ""))
            (self.root / f"sys/module/{name.replace('-', '_')}").mkdir(parents=True, exist_ok=True)
            self._link(self.root / f"sys/module/{name.replace('-', '_')}", folder / "module")

    def _write_cpus(self) -> None:
        machine = self.machine
        cores = machine.cells * machine.cores
        everyone = range(cores * machine.threads)
        cpu_folder = self.root / "sys/devices/system/cpu"
        listed = format_cpu_set(frozenset(everyone))
        online = format_cpu_set(frozenset(everyone) - machine.offline)
        offline = format_cpu_set(machine.offline)
        facts = {"online": online, "present": listed, "possible": listed, "offline": offline, "kernel_max": 63}
        self._write_all(cpu_folder, facts | {"isolated": machine.isolated})
        self._write_all(cpu_folder / "smt", {"active": int(machine.threads > 1), "control": "on"})
        for cpu in everyone:
            core = cpu % cores
            cell = core // machine.cores
            socket = cell // machine.cells_per_socket
            siblings = [core + thread * cores for thread in range(machine.threads)]
            package = [one for one in everyone if one % cores // machine.cores // machine.cells_per_socket == socket]
            folder = cpu_folder / f"cpu{cpu}"
            topology = {
                "physical_package_id": socket,
                "die_id": 0,
                "cluster_id": -1,
                "core_id": core % (machine.cores * machine.cells_per_socket),
                **_cpu_maps("thread_siblings", siblings, everyone),
                **_cpu_maps("core_cpus", siblings, everyone),
                **_cpu_maps("core_siblings", package, everyone),
                **_cpu_maps("package_cpus", package, everyone),
                **_cpu_maps("die_cpus", package, everyone),
            }
            if cpu not in machine.offline:
                self._write_all(folder / "topology", topology)
            self._write_all(folder, {"uevent": ""} | ({"online": int(cpu not in machine.offline)} if cpu else {}))
            self._link(self.root / f"sys/devices/system/node/node{cell}", folder / f"node{cell}")

    def _write_cells(self) -> None:
        machine = self.machine
        nodes = self.root / "sys/devices/system/node"
        listed = format_cpu_set(frozenset(machine.cell_ids))
        self._write_all(
            nodes, dict.fromkeys(("online", "possible", "has_cpu", "has_memory", "has_normal_memory"), listed)
        )
        cores = machine.cells * machine.cores
        everyone = range(cores * machine.threads)
        for cell in machine.cell_ids:
            cpus = [cpu for cpu in everyone if cpu % cores // machine.cores == cell and cpu not in machine.offline]
            memory_kib = machine.memory_of(cell)
            folder = nodes / f"node{cell}"
            used = sum(size * count for size, count in machine.pages.items())
            facts = {
                "cpulist": format_cpu_set(frozenset(cpus)),
                "cpumap": _hex_map(cpus, len(everyone)),
                "distance": " ".join(str(self._distance(cell, other)) for other in machine.cell_ids),
                "meminfo": f"Node {cell} MemTotal:       {memory_kib} kB\n"
                f"Node {cell} MemFree:        {max(0, memory_kib - used)} kB",
                "uevent": "",
            }
            self._write_all(folder, facts)
            for cpu in cpus:
                self._link(self.root / f"sys/devices/system/cpu/cpu{cpu}", folder / f"cpu{cpu}")
            for size, count in machine.pages.items():
                pages = {"nr_hugepages": count, "free_hugepages": count, "surplus_hugepages": 0}
                self._write_all(folder / f"hugepages/hugepages-{size}kB", pages)
        for size, count in machine.pages.items():
            total = count * machine.cells
            pages = {"nr_hugepages": total, "free_hugepages": total, "resv_hugepages": 0, "surplus_hugepages": 0}
            self._write_all(self.root / f"sys/kernel/mm/hugepages/hugepages-{size}kB", pages)

    def _distance(self, one: int, other: int) -> int:
        if one == other:
            return 10
        per_socket = self.machine.cells_per_socket
        return 12 if one // per_socket == other // per_socket else 21

    def _write_proc(self) -> None:
        machine = self.machine
        total = sum(map(machine.memory_of, machine.cell_ids))
        free = f"MemFree: {total} kB\nMemAvailable: {total} kB\nBuffers: 0 kB\nCached: 0 kB\n"  # the last two for nova
        pages = "Hugepagesize: 2048 kB\n"  # without it libvirt has no huge pages
        self._write("proc/meminfo", f"MemTotal: {total} kB\n{free}{pages}")
        cores = machine.cells * machine.cores
        flags = "fpu vme de pse tsc msr pae mce cx8 apic vmx lm constant_tsc ssse3 sse4_1 sse4_2 aes avx avx2"
        blocks = [
            f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 106\n"
            f"model name\t: Intel(R) Xeon(R) Gold 6342 CPU @ 2.80GHz\nstepping\t: 6\ncpu MHz\t\t: 2800.000\n"
            f"physical id\t: {cpu % cores // machine.cores // machine.cells_per_socket}\n"
            f"core id\t\t: {cpu % cores}\nflags\t\t: {flags}\n"
            for cpu in range(cores * machine.threads)
        ]
        self._write("proc/cpuinfo", "\n".join(blocks))

    def _write_all(self, folder: Path, facts: Mapping[str, object]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in facts.items():
            (folder / name).write_text(f"{value}\n")

    def _write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def _link(self, target: Path, link: Path) -> None:
        """A relative link, as sysfs has them: it still leads there once the tree is mounted at /sys."""
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.relpath(target, link.parent))


def _cpu_maps(name: str, cpus: Iterable[int], everyone: range) -> dict[str, str]:
    """A set of CPUs as the kernel gives it: as a mask, and as a list."""
    cpus = list(cpus)
    return {name: _hex_map(cpus, len(everyone)), f"{name}_list": format_cpu_set(frozenset(cpus))}


def _hex_map(cpus: Iterable[int], count: int) -> str:
    value = sum(1 << cpu for cpu in cpus)
    words = range(max(1, -(-count // 32)))
    return ",".join(f"{value >> 32 * word & 0xFFFFFFFF:08x}" for word in reversed(words))


def _config_space(vendor: str, product: str, kind: int) -> bytes:
    """PCI configuration space with a PCI Express capability that can be reset: libvirt passes no others to guests."""
    space = bytearray(256)
    struct.pack_into("<HH", space, 0x00, int(vendor, 16), int(product, 16))
    struct.pack_into("<HH", space, 0x04, 0x0407, 0x0010)  # status: there is a list of capabilities
    space[0x09:0x0C] = struct.pack("<I", kind)[:3]
    space[0x34] = 0x40
    space[0x40] = 0x10  # PCI Express
    struct.pack_into("<H", space, 0x42, 2)
    struct.pack_into("<I", space, 0x44, 1 << 28)  # can be reset alone (FLR)
    struct.pack_into("<I", space, 0x4C, 3 | 8 << 4)  # link: 8 GT/s, 8 lanes
    struct.pack_into("<H", space, 0x52, 3 | 8 << 4)
    return bytes(space)
