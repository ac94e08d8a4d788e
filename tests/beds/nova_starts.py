"""Hosts whose nova-compute starts, or refuses to start: as an older nova left them, with what we say of them."""

import argparse
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from agent.command.novas_start import START, foretell
from agent.command.result import settings_of
from agent.errors import ConfigError
from agent.state.identity import FILE
from beds.memory import MemoryPlacement
from reportclient.client import PlacementClient
from reportclient.transport import Transport

RECORDED = Path(__file__).parents[1] / "hosts/full-guest"
NODE = "full-guest"
ROOT = "11111111-1111-1111-1111-111111111111"
OTHER = "33333333-3333-3333-3333-333333333333"
CARD = "22222222-2222-2222-2222-222222222222"
GUEST = "446773c1-567b-485b-9bc7-596961fe33b5"
OWNER = (
    "<metadata><nova:instance xmlns:nova='http://openstack.org/xmlns/libvirt/nova/1.1'>"
    "<nova:flavor><nova:extraSpecs/></nova:flavor>"
    "<nova:owner><nova:user uuid='u'/><nova:project uuid='p'/></nova:owner></nova:instance></metadata>"
)
ES = "<launchSecurity type='sev'><policy>0x7</policy></launchSecurity>"
SEV = "<sev supported='yes'><cbitpos>47</cbitpos><reducedPhysBits>1</reducedPhysBits><maxGuests>{}</maxGuests>"
SEV += "<maxESGuests>{}</maxESGuests></sev>"
FILE_OF_CLASSES = """\
meta: {{schema_version: '1.0'}}
providers: [{{identification: {{uuid: {}}}, inventories: {{additional: [{{{}: {{total: 4}}}}]}}}}]
"""
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
    root: str = ""  # a class that an older nova left on the root
    held: bool = True  # the guest has one of it
    card: bool = False  # nova reports a PCI device
    below: str = ""  # a provider of nova's below the root, and its class, of which the guest has one
    slots: tuple[int, int] = (9, 5)  # how many guests can have SEV, and SEV-ES
    elsewhere: bool = False  # the guest has one of the class on another host too
    files: tuple[str, ...] = ()  # of provider.yaml: a provider's uuid, and a class
    refusal: str = ""  # in nova's words; empty: it starts


SEV_BELOW = "amd_sev MEM_ENCRYPTION_CONTEXT"
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
    "live_migratable for a card that is not here, and an old QEMU": Scene(
        options={"pci.device_spec": '{"vendor_id": "10de", "product_id": "ffff", "live_migratable": "yes"}'},
        refusal="live_migratable but it's not supported by libvirt",
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
    "a vGPU on the root, and no type enabled": Scene(root="VGPU", refusal="in use"),
    "a free vGPU on the root, and no type enabled": Scene(root="VGPU", held=False),
    "dedicated CPUs that are not set aside any more": Scene(root="PCPU", refusal="in use"),
    "a class that somebody made by hand": Scene(root="FPGA", refusal="in use"),
    "a free class that somebody made by hand": Scene(root="FPGA", held=False),
    "PCI devices that are not to be reported any more": Scene(card=True, refusal="report_in_placement"),
    "persistent memory that is not there": Scene(
        options={"libvirt.pmem_namespaces": "LARGE:lost"}, refusal="PMEM namespace lost isn't on host"
    ),
    "encryption on the root, and none here": Scene(
        root="MEM_ENCRYPTION_CONTEXT", refusal="child resource provider for AMD SEV is not found"
    ),
    "encryption below the root, and none here": Scene(below=SEV_BELOW, refusal="Failed to synchronize"),
    "encryption below the root": Scene(kernel="sev", below=SEV_BELOW),
    "a vGPU below the root, and no type enabled": Scene(below="pci_0000_84_00_0 VGPU"),
    "a vGPU below the root, of another card than the type": Scene(options=MDEVS, below="pci_0000_85_00_0 VGPU"),
    "encryption on the root": Scene(kernel="sev", root="MEM_ENCRYPTION_CONTEXT"),
    "encryption on the root, and all slots for SEV-ES": Scene(
        kernel="sev sev_es", root="MEM_ENCRYPTION_CONTEXT", slots=(0, 5), refusal="AMD SEV is not found"
    ),
    "encryption on the root, and of another host too": Scene(
        kernel="sev", root="MEM_ENCRYPTION_CONTEXT", elsewhere=True, refusal="Unexpected MEM_ENCRYPTION_CONTEXT"
    ),
    "a class of a file for each root, and a file for this root": Scene(
        root="CUSTOM_A", files=("$COMPUTE_NODE CUSTOM_A", f"{ROOT} CUSTOM_B"), refusal="in use"
    ),
    "a class of a file for each root": Scene(root="CUSTOM_A", files=("$COMPUTE_NODE CUSTOM_A",)),
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
        one.write_text(one.read_text().replace("<sev supported='no'/>", SEV.format(*scene.slots)))
    version = archive / "libvirt/version.json"
    version.write_text(version.read_text().replace("7002022", str(scene.qemu)))
    (archive / "ndctl.json").write_text("[]")
    if scene.compute_id:
        (archive / FILE).write_text(f"{ROOT}\n")
    return archive


def config_of(scene: Scene, folder: Path) -> Path:
    options = {"libvirt.virt_type": "qemu", "DEFAULT.host": NODE, **scene.options}
    groups: dict[str, list[str]] = {}
    for name, value in options.items():
        group, _, option = name.partition(".")
        groups.setdefault(group, []).append(f"{option} = {value}\n")
    for number, file in enumerate(scene.files):
        groups.setdefault("compute", []).append(f"provider_config_location = {folder}/files\n" if not number else "")
        (folder / "files").mkdir(exist_ok=True)
        (folder / f"files/{number}.yaml").write_text(FILE_OF_CLASSES.format(*file.split()))
    path = folder / "nova.conf"
    path.write_text("".join(f"[{group}]\n{''.join(lines)}" for group, lines in groups.items()))
    return path


def placement_of(scene: Scene) -> MemoryPlacement:
    """A placement that has the host, as an older nova left it."""
    placement = MemoryPlacement()

    def send(method: str, path: str, body: Any) -> None:
        assert placement.request(path, method, json=body, microversion="1.39").status_code < 300

    if scene.root.startswith("CUSTOM_"):
        send("PUT", f"/resource_classes/{scene.root}", None)
    send("POST", "/resource_providers", {"name": scene.name, "uuid": ROOT})
    stock = {"VCPU": {"total": 8}} | ({scene.root: {"total": 4}} if scene.root else {})
    send("PUT", f"/resource_providers/{ROOT}/inventories", {"inventories": stock, "resource_provider_generation": 0})
    if scene.elsewhere:
        send("POST", "/resource_providers", {"name": "another host", "uuid": OTHER})
        there = {"inventories": {scene.root: {"total": 4}}, "resource_provider_generation": 0}
        send("PUT", f"/resource_providers/{OTHER}/inventories", there)
    if scene.root and scene.held:
        held = {ROOT: {"resources": {"VCPU": 1, scene.root: 1}}}
        held |= {OTHER: {"resources": {scene.root: 1}}} if scene.elsewhere else {}
        body = {"allocations": held, "project_id": "p", "user_id": "u"}
        send("PUT", f"/allocations/{GUEST}", body | {"consumer_generation": None, "consumer_type": "INSTANCE"})
    if scene.card:
        card = {"name": f"{NODE}_0000:81:00.0", "uuid": CARD, "parent_provider_uuid": ROOT}
        send("POST", "/resource_providers", card)
        traits = {"traits": ["COMPUTE_MANAGED_PCI_DEVICE"], "resource_provider_generation": 0}
        send("PUT", f"/resource_providers/{CARD}/traits", traits)
    if scene.below:
        suffix, name = scene.below.split()
        below = {"name": f"{NODE}_{suffix}", "uuid": CARD, "parent_provider_uuid": ROOT}
        send("POST", "/resource_providers", below)
        there = {"inventories": {name: {"total": 9}}, "resource_provider_generation": 0}
        send("PUT", f"/resource_providers/{CARD}/inventories", there)
        held = {ROOT: {"resources": {"VCPU": 1}}, CARD: {"resources": {name: 1}}}
        body = {"allocations": held, "project_id": "p", "user_id": "u"}
        send("PUT", f"/allocations/{GUEST}", body | {"consumer_generation": None, "consumer_type": "INSTANCE"})
    return placement


def foretold(placement: MemoryPlacement, archive: Path, config: Path) -> list[str]:
    """Why nova-compute will not start, as this agent says; its own refusal of the configuration counts."""
    client = PlacementClient(Transport(placement, where="placement"))
    asked = argparse.Namespace(config_file=[config], config_dir=[], host=archive, nova="34")
    try:
        settings_of(asked)
    except ConfigError as error:
        return [*error.problems]
    with mock.patch("agent.command.novas_start.open_client", return_value=(client, "placement")):
        found = [*foretell(asked)]
    return [one.detail for one in found if one.check == START and not one.ok]
