"""What nova's own code asks placement for of a flavor and an image, and what we say that it asks."""

import re
from typing import Any
from urllib.parse import parse_qsl

import pytest

pytest.importorskip("nova.monkey_patch")

import nova.conf
from nova import context, objects
from nova.pci import request as pci
from nova.scheduler import request_filter, utils

from agent.nova.aliases import parse_aliases
from agent.nova.flavors import Flavor, request_of

PLAIN = Flavor(name="plain", vcpus=4, memory_mb=8192, root_gb=20, ephemeral_gb=5, swap_mb=1500)
ALIASES = [
    '{"name": "qat", "vendor_id": "8086", "product_id": "37c9", "device_type": "type-VF"}',
    '{"name": "gpu", "resource_class": "gold gpu", "traits": "custom_fast, HW_GPU_API_VULKAN"}',
]
FILTERS = (
    request_filter.compute_status_filter,
    request_filter.accelerators_filter,
    request_filter.packed_virtqueue_filter,
    request_filter.ephemeral_encryption_filter,
    request_filter.virtio_sound_filter,
    request_filter.tpm_secret_security_filter,
)
CASES: tuple[tuple[dict[str, str], dict[str, str]], ...] = (
    ({}, {}),
    ({"resources:VGPU": "1"}, {}),
    ({"resources:VGPU": "1", "trait:CUSTOM_NVIDIA_11": "required"}, {}),
    ({"resources1:VGPU": "1", "resources2:VGPU": "1", "group_policy": "isolate"}, {}),
    ({"resources_GPU:VGPU": "2", "trait_GPU:CUSTOM_A40": "required", "trait:HW_CPU_X86_AVX512F": "forbidden"}, {}),
    ({"resources:VCPU": "0", "resources:MEMORY_MB": "0", "resources:DISK_GB": "0", "resources:CUSTOM_GOLD": "1"}, {}),
    ({"resources:CUSTOM_GOLD": "-1", "resources:NO_SUCH": "1", "resources:VGPU": "many"}, {}),
    ({"RESOURCES:VGPU": "1", "same_subtree": "_A,_B", "trait:HW_X": "maybe", "group_policy": "any"}, {}),
    ({"hw:cpu_policy": "dedicated"}, {}),
    ({"hw:cpu_policy": "shared"}, {}),
    ({"hw:cpu_policy": "dedicated", "hw:emulator_threads_policy": "isolate"}, {}),
    ({"hw:cpu_policy": "dedicated", "hw:emulator_threads_policy": "share"}, {}),
    ({"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "isolate"}, {}),
    ({"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "require"}, {}),
    ({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "1-2"}, {}),
    ({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "^0"}, {}),
    ({"hw:cpu_policy": "mixed", "hw:cpu_realtime": "yes", "hw:cpu_realtime_mask": "^0-1"}, {}),
    ({}, {"hw_cpu_policy": "dedicated"}),
    ({"resources:PCPU": "4", "hw:numa_nodes": "2"}, {}),
    ({"hw:mem_encryption": "true"}, {"hw_firmware_type": "uefi", "hw_machine_type": "q35"}),
    (
        {"hw:mem_encryption": "true", "hw:mem_encryption_model": "amd-sev-es"},
        {"hw_firmware_type": "uefi", "hw_machine_type": "q35"},
    ),
    ({"hw:pmem": "6GB, 6GB,16GB"}, {}),
    ({"hw:tpm_version": "2.0", "hw:tpm_model": "tpm-crb"}, {}),
    ({"hw:tpm_version": "1.2", "hw:tpm_secret_security": "host"}, {}),
    ({}, {"hw_tpm_version": "2.0", "hw_firmware_type": "uefi"}),
    ({"hw:pci_numa_affinity_policy": "socket"}, {}),
    ({"hw:pci_numa_affinity_policy": "required"}, {}),
    ({"os:secure_boot": "required"}, {}),
    ({}, {"os_secure_boot": "required"}),
    ({"hw:maxphysaddr_mode": "passthrough"}, {}),
    ({"hw:maxphysaddr_mode": "emulate", "hw:maxphysaddr_bits": "42"}, {}),
    ({}, {"hw_firmware_stateless": "true", "hw_firmware_type": "uefi"}),
    ({}, {"hw_firmware_stateless": "true"}),
    ({"trait:STORAGE_DISK_SSD": "required"}, {"trait:HW_CPU_X86_AVX2": "required"}),
    ({"accel:device_profile": "fpga"}, {}),
    ({"hw:virtio_packed_ring": "true"}, {}),
    ({}, {"hw_virtio_packed_ring": "true"}),
    ({"hw:ephemeral_encryption": "true", "hw:ephemeral_encryption_format": "luks"}, {}),
    ({"hw:sound_model": "virtio"}, {}),
    ({"pci_passthrough:alias": "qat:1"}, {}),
    ({"pci_passthrough:alias": "qat:2, gpu:1"}, {}),
    ({"pci_passthrough:alias": "gpu:1", "resources1:VGPU": "1"}, {}),
    ({"pci_passthrough:alias": "gpu:2", "resources1:VGPU": "1", "group_policy": "isolate"}, {}),
    ({"hw:mem_page_size": "1GB", "quota:vif_inbound_average": "1", "aggregate_instance_extra_specs:x": "y"}, {}),
)


def novas(flavor: Flavor, image: dict[str, str]) -> list[list[tuple[str, str]]]:
    """The groups of the query that nova's scheduler makes, without its limit."""
    plain: Any = objects.Flavor(
        name=flavor.name,
        vcpus=flavor.vcpus,
        memory_mb=flavor.memory_mb,
        root_gb=flavor.root_gb,
        ephemeral_gb=flavor.ephemeral_gb,
        swap=flavor.swap_mb,
        extra_specs=dict(flavor.extra_specs),
    )
    spec: Any = objects.RequestSpec(
        flavor=plain,
        image=objects.ImageMeta.from_dict({"properties": image, "disk_format": "raw", "name": "image"}),
        is_bfv=False,
        requested_resources=[],
        request_level_params=objects.RequestLevelParams(),
        pci_requests=pci.get_pci_requests_from_flavor(plain),
    )
    spec.generate_request_groups_from_pci_requests()
    for one in FILTERS:
        one(context.get_admin_context(), spec)
    return grouped(utils.resources_from_request_spec(context.get_admin_context(), spec, None).to_querystring())


def grouped(query: str) -> list[list[tuple[str, str]]]:
    """The pairs of a query by their groups; those of devices without their suffixes, which only tell them apart."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        suffix = key.removeprefix("resources").removeprefix("required")
        name = key.removesuffix(suffix) if re.fullmatch(r"_pci\d+|_?[0-9a-f-]{36}-\d+", suffix) else key
        if key != "limit":
            groups.setdefault(suffix if key != suffix else "", []).append((name, value))
    return sorted(sorted(pairs) for pairs in groups.values())


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    objects.register_all()
    nova.conf.CONF([], project="nova", default_config_files=[])
    nova.conf.CONF.set_override("alias", ALIASES, "pci")
    nova.conf.CONF.set_override("pci_in_placement", True, "filter_scheduler")


@pytest.mark.parametrize(("specs", "image"), CASES, ids=lambda one: " ".join(one) or "-")
def test_what_is_said_of_a_flavor_is_what_nova_asks(specs: dict[str, str], image: dict[str, str]) -> None:
    flavor = Flavor(**{**{name: getattr(PLAIN, name) for name in PLAIN.__slots__}, "extra_specs": specs})

    assert grouped(request_of(flavor, image, parse_aliases(ALIASES)).query) == novas(flavor, image)


def test_what_nova_ignores_is_named() -> None:
    specs = {"RESOURCES:VGPU": "1", "same_subtree": "_A,_B", "trait:HW_X": "maybe", "group_policy": "any"}
    told = request_of(Flavor(name="f", vcpus=1, memory_mb=1, root_gb=0, extra_specs=specs), {}, {})

    assert [*told.notes[:4]] == [
        "nova ignores RESOURCES:VGPU=1",
        "nova ignores same_subtree=_A,_B",
        "nova ignores trait:HW_X=maybe",
        "nova ignores group_policy=any",
    ]
