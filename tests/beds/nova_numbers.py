"""
Recorded hosts below nova's own libvirt driver and PCI tracker, and below ours: what each reports of CPUs, memory, PCI.

Runs in nova's Python. ``tools/beside_nova.py`` prints a table.
"""

# ruff: noqa: E402 - nova wants its threads chosen before anything else of it is imported

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

os.environ["OS_NOVA_DISABLE_EVENTLET_PATCHING"] = "1"

from nova import monkey_patch

monkey_patch.patch(backend="threading")

import libvirt
import nova.conf
from nova import context, exception, objects
from nova.compute import pci_placement_translator
from nova.compute.provider_tree import ProviderTree
from nova.pci.manager import PciDevTracker
from nova.virt import fake
from nova.virt.libvirt.driver import LibvirtDriver as NovasDriver

from agent.errors import USER_ERRORS
from agent.settings.read import load_settings
from drivers.host.archive import HostArchive
from drivers.libvirt.connection import HOST_CPU
from drivers.libvirt.driver import LibvirtDriver
from drivers.libvirt.recorded import CAPABILITIES, CPU_MAP, MEMORY, RecordedConnection

ROOT = "11111111-1111-1111-1111-111111111111"
LAYOUT = "[compute]\nlayout = devices\n"  # nova's own
_CAPABILITIES = {  # libvirt's name of a device's capability -> the flag of listAllDevices
    "pci": libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_PCI_DEV,
    "net": libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_NET,
    "vdpa": libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_VDPA,
    "mdev": libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_MDEV,
    "mdev_types": libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_MDEV_TYPES,
    "vpd": libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_VPD,
}
_APART = ("DISK_GB", "NET_BW_", "MEM_ENCRYPTION_")  # of this machine, of Neutron, and of no PCI device
Numbers = dict[str, dict[str, int]]  # provider, without the root's name -> class -> total


def refusal(code: int) -> libvirt.libvirtError:
    """Return an error of libvirt's with this code."""
    error = libvirt.libvirtError("recorded")
    error.err = (code, libvirt.VIR_FROM_NONE, "recorded", 0, None, None, None, 0, 0)
    return error


class Device:
    """What nova asks of a ``virNodeDevice``."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text
        self._xml = ElementTree.fromstring(text)

    def name(self) -> str:
        return self._name

    def parent(self) -> str | None:
        return self._xml.findtext("parent")

    def XMLDesc(self, _flags: int) -> str:  # noqa: N802
        return self._text

    def listCaps(self) -> list[str]:  # noqa: N802
        own = [str(one.get("type")) for one in self._xml.iterfind("capability")]
        inner = [str(one.get("type")) for one in self._xml.iterfind("capability/capability")]
        return own + [name for name in inner if name in ("mdev_types", "vpd")]


class Connection:
    """What nova's driver asks of a ``virConnect`` for its inventory, answered by an archive."""

    def __init__(self, archive: HostArchive) -> None:
        self._archive, self._recorded = archive, RecordedConnection(archive)
        self._devices = {name: Device(name, document.text) for name, document in self._recorded.node_devices()}

    def getHostname(self) -> str:  # noqa: N802
        return self._recorded.hostname()

    def getType(self) -> str:  # noqa: N802
        return "QEMU"

    def getVersion(self) -> int:  # noqa: N802
        return self._recorded.versions().hypervisor

    def getLibVersion(self) -> int:  # noqa: N802
        return self._recorded.versions().libvirt

    def getCapabilities(self) -> str:  # noqa: N802
        return self._recorded.capabilities().text

    def getCPUMap(self) -> tuple[int, list[bool], int]:  # noqa: N802
        found = self._archive.read_json(CPU_MAP)
        return found["total"], [cpu in found["online"] for cpu in range(found["total"])], len(found["online"])

    def getInfo(self) -> list[object]:  # noqa: N802
        """virNodeGetInfo: of all these nova's inventory takes the memory in MiB; without a record that of all cells."""
        root = ElementTree.fromstring(self.getCapabilities())
        memory_kib = sum(int(one.text or 0) for one in root.iterfind("host/topology/cells/cell/memory"))
        told = (self._archive.root / MEMORY).exists()
        memory_mib = self._recorded.memory_mib() if told else memory_kib // 1024
        return ["x86_64", memory_mib, len(self._archive.read_json(CPU_MAP)["online"]), 0, 1, 1, 1, 1]

    def getDomainCapabilities(self, _path: str, arch: str, machine: str, virt: str, _flags: int = 0) -> str:  # noqa: N802
        for name, document in self._recorded.domain_capabilities(virt, ()):
            if name == f"{arch}-{machine}-{virt}":
                return document.text
        raise refusal(libvirt.VIR_ERR_INVALID_ARG)

    def baselineCPU(self, cpus: list[str], _flags: int) -> str:  # noqa: N802
        model = ElementTree.fromstring(cpus[0]).findtext("model")
        known = model in self._recorded.cpu_models("x86_64")
        return self._recorded.expand(f"x86_64-{model}" if known else HOST_CPU, cpus[0]).text

    def compareCPU(self, _cpu: str, _flags: int) -> int:  # noqa: N802
        return int(libvirt.VIR_CPU_COMPARE_SUPERSET)

    def getCPUModelNames(self, arch: str) -> list[str]:  # noqa: N802
        return list(self._recorded.cpu_models(arch))

    def listAllDevices(self, flags: int) -> list[Device]:  # noqa: N802
        wanted = {name for name, flag in _CAPABILITIES.items() if flags & flag}
        return [one for one in self._devices.values() if not flags or wanted & set(one.listCaps())]

    def listDevices(self, capability: str, _flags: int = 0) -> list[str]:  # noqa: N802
        return [one.name() for one in self._devices.values() if capability in one.listCaps()]

    def nodeDeviceLookupByName(self, name: str) -> Device:  # noqa: N802
        if name not in self._devices:
            raise refusal(libvirt.VIR_ERR_NO_NODE_DEVICE)
        return self._devices[name]

    def listAllDomains(self, _flags: int = 0) -> list[object]:  # noqa: N802
        return []

    def physical_functions(self) -> frozenset[str]:
        """Return the addresses of the functions that can have VFs, as sysfs would tell nova."""
        found = set()
        for one in self._devices.values():
            pci = ElementTree.fromstring(one.XMLDesc(0)).find("capability[@type='pci']")
            if pci is not None and pci.find("capability[@type='virt_functions']") is not None:
                parts = [int(pci.findtext(name) or "0", 0) for name in ("domain", "bus", "slot", "function")]
                found.add("{:04x}:{:02x}:{:02x}.{:x}".format(*parts))
        return frozenset(found)


@dataclass(frozen=True, slots=True)
class Case:
    """A recorded host with one of its configurations."""

    name: str
    archive: Path
    config: Path


def cases(folder: Path) -> Iterator[Case]:
    """Yield each archive in the folder with each of its configurations."""
    for host in sorted(path for path in folder.iterdir() if path.is_dir()):
        for archive in sorted(host.glob("**/host.json")):
            for config in sorted(archive.parents[1].glob("*.conf")) or sorted(host.glob("*.conf")):
                label = f"{archive.parent.relative_to(folder)}, {config.name}".replace("/archive,", ",")
                yield Case(label, archive.parent, config)


def novas(case: Case) -> Numbers | str:
    """Return what nova's driver and its PCI tracker report; a text where nova-compute refuses to start."""
    connection = Connection(HostArchive(case.archive))
    functions = connection.physical_functions()

    def is_physical_function(domain: str, bus: str, slot: str, function: str) -> bool:
        return f"{domain}:{bus}:{slot}.{function}" in functions

    nova.conf.CONF.clear()
    nova.conf.CONF(["--config-file", str(case.config)], project="nova", default_config_files=[])
    nova.conf.CONF.set_override("compute_driver", "libvirt.LibvirtDriver")
    nova.conf.CONF.set_override("instances_path", tempfile.gettempdir())
    objects.register_all()
    empty = objects.PciDeviceList(objects=[])
    with (
        mock.patch("nova.pci.utils.is_physical_function", is_physical_function),
        mock.patch("nova.objects.PciDeviceList.get_by_compute_node", return_value=empty),
        mock.patch("nova.objects.InstanceList.get_by_host", return_value=objects.InstanceList(objects=[])),
        mock.patch("nova.objects.ComputeNode.get_by_nodename", return_value=objects.ComputeNode(numa_topology=None)),
        mock.patch.object(NovasDriver, "static_traits", {}),
        mock.patch.object(NovasDriver, "_update_provider_tree_for_vgpu"),
    ):
        try:
            return _of_nova(connection)
        except (exception.NovaException, ValueError) as error:
            return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _of_nova(connection: Connection) -> Numbers:
    driver = NovasDriver(fake.FakeVirtAPI())
    driver._host.get_connection = lambda: connection
    name, tree = connection.getHostname(), ProviderTree()
    tree.new_root(name, ROOT, generation=0)
    driver.update_provider_tree(tree, name)
    tracker = PciDevTracker(context.get_admin_context(), objects.ComputeNode(id=1, numa_topology=None))
    tracker.update_devices_from_hypervisor_resources(driver._get_pci_passthrough_devices())
    pci_placement_translator.update_provider_tree_for_pci(tree, name, tracker, {}, [])
    rows = [tree.data(uuid) for uuid in tree.get_provider_uuids(name)]
    return _known({row.name: {one: stock["total"] for one, stock in row.inventory.items()} for row in rows}, name)


def ours(case: Case) -> tuple[Numbers | str, frozenset[str]]:
    """
    Return what our driver reports in the layout ``devices``, and the providers of odd devices.

    A text where the pass is refused.
    """
    with tempfile.TemporaryDirectory() as folder:
        layout = Path(folder, "layout.conf")
        layout.write_text(LAYOUT)
        try:
            settings = load_settings([case.config, layout])
            policy = settings.policy
            connection = RecordedConnection(HostArchive(case.archive))
            driver = LibvirtDriver(connection, policy, settings.hypervisor.disk)
            survey = driver.survey(driver.name())
            tree, _ = driver.shape(survey, policy, None)
        except USER_ERRORS as error:
            return f"{type(error).__name__}: {' '.join(str(error).split())}", frozenset()
    odd = frozenset(f"_{one.pf or one.address}" for one in survey.facts.devices.odd)
    found = {one.name: {name: stock.total for name, stock in one.inventories.items()} for one in tree}
    return _known(found, driver.name()), odd


def _known(found: Numbers, root: str) -> Numbers:
    """Return what is compared: CPUs, memory and PCI classes; not what depends on the machine that this runs on."""
    told = {
        name.removeprefix(root): {one: total for one, total in each.items() if not one.startswith(_APART)}
        for name, each in found.items()
        if name == root or ":" in name.removeprefix(root)  # else a card's mediated devices, or memory encryption
    }
    return {name: each for name, each in told.items() if each}


@dataclass(frozen=True, slots=True)
class Difference:
    """A class of a provider that nova and this agent count otherwise, or a refusal of one of both."""

    text: str
    reason: str = ""  # beginning of the row of docs/novas-options.md that says why; empty: none does


def differences(case: Case) -> list[Difference]:
    """Return what nova and this agent count otherwise; empty: all is equal, or both refuse the configuration."""
    theirs, (own, odd) = novas(case), ours(case)
    if isinstance(theirs, str) or isinstance(own, str):
        same = isinstance(theirs, str) and isinstance(own, str)
        return [] if same else [Difference(f"nova: {short(theirs)}; here: {short(own)}", _why_refused(case, theirs))]
    return [
        Difference(
            f"{provider or 'root'} {name}: nova {theirs.get(provider, {}).get(name, 0)}, "
            f"here {own.get(provider, {}).get(name, 0)}",
            "odd devices"
            if provider.lower() in odd
            else _why(case, provider, name, theirs.get(provider, {}), own.get(provider, {})),
        )
        for provider in sorted(theirs.keys() | own.keys())
        for name in sorted(theirs.get(provider, {}).keys() | own.get(provider, {}).keys())
        if theirs.get(provider, {}).get(name) != own.get(provider, {}).get(name)
    ]


def short(found: Numbers | str) -> str:
    """Return the sums of all classes, or the beginning of a refusal."""
    if isinstance(found, str):
        return found[:300]
    sums = sum(map(Counter, found.values()), Counter[str]())
    return ", ".join(f"{total} {name}" for name, total in sorted(sums.items()))


def _why(case: Case, provider: str, name: str, theirs: dict[str, int], own: dict[str, int]) -> str:
    """Return why one of both does not report a device at all."""
    config = case.config.read_text(encoding="utf-8")
    if name in own and not theirs:
        found = "VFs of `[pci] discover = all`" if "discover = all" in config and name == "SRIOV_NET_VF" else ""
        return "devices of a `physical_network`" if "physical_network" in config else found
    code = _class_code(case.archive, provider.lower().removeprefix("_")) if name in theirs and not own else ""
    return "bridges" if code.startswith(("0x0600", "0x0604")) else ""


def _why_refused(case: Case, theirs: Numbers | str) -> str:
    """Return why one of both refuses what the other reports."""
    if isinstance(theirs, str):
        return "rules with `class_attribute`" if "class_attribute" in case.config.read_text(encoding="utf-8") else ""
    cells = ElementTree.parse(case.archive / CAPABILITIES).getroot().find("host/topology/cells/cell")
    return "hosts without cells" if cells is None and not (case.archive / MEMORY).exists() else ""


def _class_code(archive: Path, address: str) -> str:
    name = "pci_" + address.replace(":", "_").replace(".", "_")
    path = archive / f"libvirt/nodedevs/{name}.xml"
    return (ElementTree.parse(path).getroot().findtext("capability/class") or "") if path.exists() else ""
