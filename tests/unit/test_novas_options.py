"""Each option of nova that changes what nova reports changes what we report, or is refused: none is passed over."""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ConfigError
from agent.settings.read import load_settings
from beds.upgrades import write_config
from drivers.errors import DiscoveryError, PolicyError
from drivers.facts import DiskFacts, DiskSpace, PoolSpace
from drivers.host.archive import DISK, HostArchive, encode_disk
from drivers.libvirt.driver import LibvirtDriver
from drivers.libvirt.recorded import RecordedConnection
from drivers.policy import CephPool, DiskPlace, VolumeGroup

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs/novas-options.md"
HOSTS_FOLDER = HERE.parent / "hosts"
ROW = re.compile(r"^\| `(\[\w+\] \w+)` \|", re.MULTILINE)

Groups = Mapping[str, Mapping[str, object]]

VIRT: Groups = {"libvirt": {"virt_type": "qemu"}}
VF = '{"address": "0000:81:00.0", "product_id": "10ed"}'
REPORTED: Groups = {"pci": {"report_in_placement": True, "device_spec": VF}}
VGPU: Groups = {"devices": {"enabled_mdev_types": "nvidia-222"}}
LVM: Groups = {"libvirt": {"images_type": "lvm", "images_volume_group": "one"}}
RBD: Groups = {"libvirt": {"images_type": "rbd"}}
CACHE: Groups = {"workarounds": {"reserve_disk_resource_for_image_cache": True}}
CUSTOM: Groups = {"libvirt": {"cpu_mode": "custom", "cpu_models": "qemu64"}}

# option -> what must be set for it to count, and values of which each changes what is reported
CASES: dict[str, tuple[Groups, tuple[object, ...]]] = {
    "[DEFAULT] compute_driver": ({}, ("ironic.IronicDriver", "fake.FakeDriver")),
    "[DEFAULT] cpu_allocation_ratio": ({}, (3.0,)),
    "[DEFAULT] disk_allocation_ratio": ({}, (3.0,)),
    "[DEFAULT] ram_allocation_ratio": ({}, (3.0,)),
    "[DEFAULT] initial_cpu_allocation_ratio": ({}, (3.0,)),
    "[DEFAULT] initial_disk_allocation_ratio": ({}, (3.0,)),
    "[DEFAULT] initial_ram_allocation_ratio": ({}, (3.0,)),
    "[DEFAULT] reserved_host_cpus": ({}, (1,)),
    "[DEFAULT] reserved_host_disk_mb": ({}, (1,)),
    "[DEFAULT] reserved_host_memory_mb": ({}, (1,)),
    "[DEFAULT] reserved_huge_pages": ({"compute": {"layout": "cells"}}, ("node:0,size:2048,count:1",)),
    "[DEFAULT] vcpu_pin_set": ({}, ("0-3",)),
    "[DEFAULT] instances_path": ({}, ("/srv",)),
    "[DEFAULT] force_raw_images": (LVM, (False,)),
    "[compute] cpu_shared_set": ({}, ("0-3",)),
    "[compute] cpu_dedicated_set": ({}, ("4-7",)),
    "[compute] image_type_exclude_list": ({}, ("qcow2",)),
    "[compute] provider_config_location": ({}, ("/nosuch",)),
    "[libvirt] virt_type": ({}, ("kvm", "lxc", "parallels")),
    "[libvirt] cpu_mode": ({}, ("none", "host-passthrough")),
    "[libvirt] cpu_models": (CUSTOM, ("Nehalem",)),
    "[libvirt] cpu_model_extra_flags": ({}, ("-mmx",)),
    "[libvirt] cpu_power_management": ({"compute": {"cpu_dedicated_set": "3"}}, (True,)),
    "[libvirt] hw_machine_type": ({}, ("x86_64=nosuch",)),
    "[libvirt] swtpm_enabled": ({}, (True,)),
    "[libvirt] supported_tpm_secret_security": ({"libvirt": {"swtpm_enabled": True}}, ("user",)),
    "[libvirt] images_type": ({}, ("rbd", "lvm", "ploop")),
    "[libvirt] images_volume_group": (LVM, ("two",)),
    "[libvirt] images_rbd_pool": (RBD, ("vms",)),
    "[libvirt] images_rbd_ceph_conf": (RBD, ("/etc/ceph/two.conf",)),
    "[libvirt] rbd_user": (RBD, ("nova",)),
    "[libvirt] file_backed_memory": ({"DEFAULT": {"reserved_host_memory_mb": 0}}, (4096,)),
    "[libvirt] pmem_namespaces": ({}, ("SMALL:ns0",)),
    "[libvirt] num_memory_encrypted_guests": ({}, (5,)),
    "[libvirt] num_intel_tdx_guests": ({"libvirt": {"cpu_mode": "host-passthrough"}}, (5,)),
    "[pci] report_in_placement": ({"pci": {"device_spec": VF}}, (True,)),
    "[pci] device_spec": (REPORTED, ('{"address": "0000:01:00.0", "product_id": "10ed"}',)),
    "[devices] enabled_mdev_types": ({}, ("nvidia-222",)),
    "[mdev_nvidia-222] device_addresses": (VGPU, ("0000:86:00.0",)),
    "[mdev_nvidia-222] max_instances": (VGPU, (1,)),
    "[mdev_nvidia-222] mdev_class": (VGPU, ("CUSTOM_SMALL",)),
    "[workarounds] reserve_disk_resource_for_image_cache": ({}, (True,)),
    "[image_cache] subdirectory_name": (CACHE, ("cached",)),
}
HOSTS = {"[libvirt] cpu_power_management": "odd-cells"}  # where one of its CPUs is off; else four-cells
PLACE = re.compile(r"\[([\w-]+)\] (\w+)")


def merged(*several: Groups) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for groups in several:
        for group, options in groups.items():
            found.setdefault(group, {}).update(options)
    return found


def archive_of(name: str, folder: Path) -> HostArchive:
    """A recorded host whose QEMU and kernel have Intel TDX besides."""
    root = folder / name
    shutil.copytree(HOSTS_FOLDER / name / "archive", root)
    for file in root.glob("libvirt/domcapabilities/*.xml"):
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace("<features>", "<features><tdx supported='yes'/>", 1), encoding="utf-8")
    capacity = root / "sys/fs/cgroup/misc.capacity"
    capacity.parent.mkdir(parents=True)
    capacity.write_text("tdx 63\n", encoding="utf-8")
    return HostArchive(root)


def record_storage(archive: HostArchive, place: DiskPlace) -> None:
    """Let the host have been recorded with the disks of its guests at this place."""
    size = 250 * 1024**3
    found: DiskFacts = DiskSpace(total_bytes=size, free_bytes=size)
    if isinstance(place, CephPool):
        found = PoolSpace(place.name, 3 * size, 250)
    elif isinstance(place, VolumeGroup):
        found = DiskSpace(total_bytes=size, free_bytes=size, volume_group=place.name)
    elif place.image_cache:
        found = DiskSpace(total_bytes=size, free_bytes=size, image_cache_bytes=1024**3)
    (archive.root / DISK).write_text(encode_disk(found), encoding="utf-8")


def reported(groups: Groups, archive: HostArchive, folder: Path) -> Any:
    """What is reported of the host with these options, and read for it; else why it is refused."""
    try:
        settings = load_settings([write_config(merged(VIRT, groups), folder / "nova.conf")])
        policy = settings.policy
        record_storage(archive, settings.hypervisor.disk)
        driver = LibvirtDriver(RecordedConnection(archive), policy, settings.hypervisor.disk)
        tree, _ = driver.shape(driver.survey(driver.name()), policy, None)
        asked = policy.guests.machine_types  # of a live libvirt; a recorded one tells what it was asked for then
        return tree, settings.hypervisor.disk, settings.hypervisor.driver, settings.operator_files.folder, asked
    except (ConfigError, PolicyError, DiscoveryError) as error:
        return str(error)


@pytest.mark.parametrize("option", CASES)
def test_each_option_changes_what_is_reported_or_is_refused(option: str, tmp_path: Path) -> None:
    needs, values = CASES[option]
    place = PLACE.fullmatch(option)
    assert place
    archive = archive_of(HOSTS.get(option, "four-cells"), tmp_path)
    before = reported(needs, archive, tmp_path)
    for value in values:
        assert reported(merged(needs, {place[1]: {place[2]: value}}), archive, tmp_path) != before


def test_the_page_names_each_of_these_options_once() -> None:
    listed = ROW.findall(PAGE.read_text(encoding="utf-8"))

    assert sorted(listed) == sorted(name.replace("mdev_nvidia-222", "mdev_TYPE") for name in CASES)
