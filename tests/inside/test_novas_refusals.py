"""What ``upgrade check --nova 34`` foretells of a host, beside what nova's own code does there at its start."""

# ruff: noqa: E402 - nova wants its threads chosen before anything else of it is imported

import argparse
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("nova.monkey_patch").patch(backend="threading")

import nova.conf
from nova import exception, objects
from nova.compute.manager import ComputeManager
from nova.compute.provider_tree import ProviderTree
from nova.objects import fields
from nova.virt import fake
from nova.virt.libvirt.driver import LibvirtDriver

from agent.command.novas_start import START, foretell
from agent.command.result import settings_of
from agent.errors import ConfigError
from agent.state.identity import FILE
from beds.memory import MemoryPlacement
from beds.nova_numbers import Connection
from drivers.host.archive import HostArchive
from reportclient.client import PlacementClient
from reportclient.transport import Transport

RECORDED = Path(__file__).parents[1] / "hosts/full-guest"
NODE = "full-guest"
ROOT = "11111111-1111-1111-1111-111111111111"
GUEST = "446773c1-567b-485b-9bc7-596961fe33b5"
OWNER = (
    "<metadata><nova:instance xmlns:nova='http://openstack.org/xmlns/libvirt/nova/1.1'>"
    "<nova:flavor><nova:extraSpecs/></nova:flavor>"
    "<nova:owner><nova:user uuid='u'/><nova:project uuid='p'/></nova:owner></nova:instance></metadata>"
)
ES = "<launchSecurity type='sev'><policy>0x7</policy></launchSecurity>"
SEV = "<sev supported='yes'><cbitpos>47</cbitpos><reducedPhysBits>1</reducedPhysBits><maxGuests>9</maxGuests>"
SEV += "<maxESGuests>5</maxESGuests></sev>"
PINNED = "<cputune><vcpupin vcpu='0' cpuset='1'/></cputune>"
TPM = "<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>"
ENCRYPTED = {"hw:mem_encryption": "true", "hw:mem_encryption_model": "amd-sev-es"}


@dataclass(frozen=True)
class Scene:
    """A host with one guest: what differs from the recorded one, and what nova's database has of the guest."""

    options: Mapping[str, str] = field(default_factory=dict)
    kernel: str = ""  # which of kvm_amd's parameters are on
    guest: str = ""  # in its domain
    device: str = ""  # among its devices
    specs: Mapping[str, str] = field(default_factory=dict)  # of its flavor
    pinned: bool = False
    qemu: int = 8_002_000
    compute_id: bool = True
    name: str = NODE  # in nova's database, and in placement
    root: str = ""  # a class that an older nova left on the root, of which the guest has one
    refusal: str = ""  # in nova's words; empty: it starts


MDEVS = {"devices.enabled_mdev_types": "mtty-1"}
SCENES = {
    "a host as it should be": Scene(),
    "SEV-ES": Scene(kernel="sev sev_es", guest=ES, specs=ENCRYPTED),
    "SEV-ES beside SEV-SNP": Scene(
        kernel="sev sev_es sev_snp", guest=ES, specs=ENCRYPTED, refusal="by amd-sev-es enabled but"
    ),
    "memory in files, and some reserved": Scene(
        options={"libvirt.file_backed_memory": "1024", "DEFAULT.ram_allocation_ratio": "1.0"},
        refusal="reserved_host_memory_mb' is not compatible with file-backed memory",
    ),
    "a pinned guest among shared CPUs": Scene(
        options={"compute.cpu_shared_set": "0-1"}, guest=PINNED, pinned=True, refusal="has pinned instances"
    ),
    "a guest that floats over an only shared CPU": Scene(options={"compute.cpu_shared_set": "1"}, guest=PINNED),
    "a guest that floats among dedicated CPUs": Scene(
        options={"compute.cpu_dedicated_set": "0-1"}, refusal="has unpinned instances"
    ),
    "a TPM": Scene(device=TPM, specs={"hw:tpm_version": "2.0", "hw:tpm_model": "tpm-crb"}, refusal="vTPM feature"),
    "an old QEMU": Scene(qemu=6_001_000, refusal="requires QEMU version 6.2.0"),
    "no compute_id": Scene(compute_id=False, refusal="No local node identity found"),
    "another name": Scene(name="former", refusal="Possible rename detected"),
    "a vGPU on the root that no guest has": Scene(options=MDEVS, root="VGPU", refusal="no devices assigned"),
    "a vGPU on the root, and no type enabled": Scene(root="VGPU"),
    "encryption on the root, and none here": Scene(
        root="MEM_ENCRYPTION_CONTEXT", refusal="child resource provider for AMD SEV is not found"
    ),
    "encryption on the root": Scene(kernel="sev", root="MEM_ENCRYPTION_CONTEXT"),
}


def archive_of(scene: Scene, folder: Path) -> Path:
    """The recorded host, with what a scene changes."""
    archive = folder / "archive"
    shutil.copytree(RECORDED / "archive", archive)
    for name in ("sev", "sev_es", "sev_snp"):
        (archive / f"sys/module/kvm_amd/parameters/{name}").write_text("Y" if name in scene.kernel.split() else "N")
    domain = archive / f"libvirt/domains/{GUEST}.xml"
    text = domain.read_text().replace("</name>", f"</name>{OWNER}{scene.guest}", 1)
    domain.write_text(text.replace("<devices>", f"<devices>{scene.device}", 1))
    for one in (archive / "libvirt/domcapabilities").iterdir():
        one.write_text(one.read_text().replace("<sev supported='no'/>", SEV))
    version = archive / "libvirt/version.json"
    version.write_text(version.read_text().replace("7002022", str(scene.qemu)))
    if scene.compute_id:
        (archive / FILE).write_text(f"{ROOT}\n")
    return archive


def config_of(scene: Scene, folder: Path) -> Path:
    options = {"libvirt.virt_type": "qemu", "DEFAULT.host": NODE, **scene.options}
    groups: dict[str, list[str]] = {}
    for name, value in options.items():
        group, _, option = name.partition(".")
        groups.setdefault(group, []).append(f"{option} = {value}\n")
    path = folder / "nova.conf"
    path.write_text("".join(f"[{group}]\n{''.join(lines)}" for group, lines in groups.items()))
    return path


def foretold(scene: Scene, archive: Path, config: Path) -> list[str]:
    """Why nova-compute will not start, as this agent says; its own refusal of the configuration counts."""
    placement = MemoryPlacement()

    def send(method: str, path: str, body: Any) -> None:
        assert placement.request(path, method, json=body, microversion="1.39").status_code < 300

    send("POST", "/resource_providers", {"name": scene.name, "uuid": ROOT})
    stock = {"VCPU": {"total": 8}} | ({scene.root: {"total": 4}} if scene.root else {})
    send("PUT", f"/resource_providers/{ROOT}/inventories", {"inventories": stock, "resource_provider_generation": 0})
    if scene.root:
        body = {"allocations": {ROOT: {"resources": {scene.root: 1}}}, "project_id": "p", "user_id": "u"}
        send("PUT", f"/allocations/{GUEST}", body | {"consumer_generation": None, "consumer_type": "INSTANCE"})
    client = PlacementClient(Transport(placement, where="placement"))
    asked = argparse.Namespace(config_file=[config], config_dir=[], host=archive, nova="34")
    try:
        settings_of(asked)
    except ConfigError as error:
        return [*error.problems]
    with mock.patch("agent.command.novas_start.open_client", return_value=(client, "placement")):
        found = [*foretell(asked)]
    return [one.detail for one in found if one.check == START and not one.ok]


def instance_of(scene: Scene) -> objects.Instance:
    """The guest, as nova's database has it."""
    flavor = objects.Flavor(name="f", vcpus=1, memory_mb=64, extra_specs=dict(scene.specs))
    image = {"image_hw_firmware_type": "uefi", "image_hw_machine_type": "q35"}
    cell = objects.InstanceNUMACell(
        id=0,
        cpuset=set(),
        pcpuset={0},
        memory=64,
        cpu_pinning={0: 1},
        cpu_policy=fields.CPUAllocationPolicy.DEDICATED,
    )
    topology = objects.InstanceNUMATopology(cells=[cell]) if scene.pinned else None
    return objects.Instance(
        uuid=GUEST,
        deleted=False,
        flavor=flavor,
        numa_topology=topology,
        system_metadata=image,
        image_ref="",
        info_cache=None,
    )


def begin(scene: Scene, archive: Path, config: Path) -> None:
    """What nova-compute does at its start, as far as it may refuse; raises what ends it."""
    nova.conf.CONF.clear()
    nova.conf.CONF(["--config-file", str(config)], project="nova", default_config_files=[])
    nova.conf.CONF.set_override("compute_driver", "libvirt.LibvirtDriver")
    objects.register_all()
    driver = LibvirtDriver(fake.FakeVirtAPI())
    driver._host.get_connection = lambda: Connection(HostArchive(archive))
    parameters = str(archive / "sys/module/kvm_amd/parameters/%s")
    manager = mock.Mock(spec=ComputeManager, host=NODE, driver=driver)
    service = mock.Mock(version=74)  # of nova 34
    node = objects.ComputeNode(uuid=ROOT, host=NODE, hypervisor_hostname=scene.name)
    known = ROOT if scene.compute_id else None
    with ExitStack() as stack:
        for name in ("initialize", "get_online_cpus"):
            stack.enter_context(mock.patch.object(driver._host, name, return_value=set(range(8))))
        for name in ("_do_quality_warnings", "_get_supported_perf_events", "_start_inactive_mediated_devices"):
            stack.enter_context(mock.patch.object(driver, name))
        stack.enter_context(mock.patch("nova.virt.libvirt.host.SEV_KERNEL_PARAM_FILE", parameters))
        stack.enter_context(mock.patch("nova.virt.node.read_local_node_uuid", return_value=known))
        nodes = objects.ComputeNodeList(objects=[node])
        stack.enter_context(mock.patch("nova.objects.ComputeNodeList.get_all_by_uuids", return_value=nodes))
        stack.enter_context(mock.patch.object(driver, "get_nodenames_by_uuid", return_value={ROOT: NODE}))
        stack.enter_context(mock.patch.object(driver, "_register_all_undefined_instance_details"))
        driver.init_host(NODE)
        ComputeManager._ensure_existing_node_identity(manager, service)
        ComputeManager._get_nodes(manager, None)
        driver.capabilities["supports_pcpus"] = True
        driver.process_instances_at_startup(None, [instance_of(scene)])
        if scene.root:
            move_from_root(driver, scene.root)


def move_from_root(driver: LibvirtDriver, name: str) -> None:
    tree = ProviderTree()
    tree.new_root(NODE, ROOT, generation=0)
    tree.update_inventory(NODE, {name: {"total": 4}})
    held = {GUEST: {"allocations": {ROOT: {"resources": {name: 1}}}}}
    inventories = {"pci_0000_84_00_0": {"total": 4, "max_unit": 4}} if nova.conf.CONF.devices.enabled_mdev_types else {}
    with (
        mock.patch.object(driver, "_get_gpu_inventories", return_value=inventories),
        mock.patch.object(driver, "_get_all_assigned_mediated_devices", return_value={}),
        mock.patch.object(driver, "_get_resource_class_for_device", return_value="VGPU"),
    ):
        for update in (
            driver._update_provider_tree_for_vgpu,
            driver._update_provider_tree_for_memory_encryption,
        ):
            try:  # as nova's resource tracker does, on one tree
                update(tree, NODE, None)
            except exception.ReshapeNeeded:
                update(tree, NODE, held)


@pytest.fixture(autouse=True)
def options_as_before() -> Iterator[None]:
    yield
    nova.conf.CONF.clear()


@pytest.mark.parametrize("scene", [pytest.param(scene, id=name) for name, scene in SCENES.items()])
def test_nova_refuses_to_start_where_that_was_foretold_and_nowhere_else(scene: Scene, tmp_path: Path) -> None:
    archive, config = archive_of(scene, tmp_path), config_of(scene, tmp_path)

    stops, refusal = foretold(scene, archive, config), ""
    try:
        begin(scene, archive, config)
    except (exception.NovaException, ValueError) as error:
        refusal = str(error)

    assert scene.refusal in refusal
    assert bool(stops) == bool(refusal) == bool(scene.refusal), (stops, refusal)
