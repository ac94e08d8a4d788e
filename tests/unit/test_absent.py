"""Why a host lacks a class or a trait."""

from dataclasses import replace

import pytest

from drivers.libvirt.absent import why_absent
from drivers.policy import CpuPolicy, DevicePolicy, DeviceRule, MdevRule, Policy
from hardware import host

RULES = (DeviceRule(number=1),)
PINS = CpuPolicy(dedicated=frozenset({99}))
SHARED = CpuPolicy(shared=frozenset())


@pytest.mark.parametrize(
    ("policy", "name", "why"),
    [
        (Policy(), "PCPU", "[compute] cpu_dedicated_set is not set"),
        (Policy(cpus=PINS), "PCPU", "[compute] cpu_dedicated_set names no CPU that is on"),
        (Policy(cpus=PINS), "VCPU", "[compute] cpu_dedicated_set is set, and [compute] cpu_shared_set is not"),
        (Policy(cpus=SHARED), "VCPU", "[compute] cpu_shared_set names no CPU that is on"),
        (Policy(), "VGPU", "[devices] enabled_mdev_types is not set"),
        (Policy(devices=DevicePolicy(mdevs=(MdevRule(type="i915"),))), "VGPU", "has i915, and no device"),
        (
            Policy(devices=DevicePolicy(mdevs=(MdevRule(type="i915", resource_class="CUSTOM_GPU"),))),
            "VGPU",
            "no type in [devices] enabled_mdev_types has this class",
        ),
        (Policy(), "SRIOV_NET_VF", "[pci] device_spec is not set and [pci] discover is rules"),
        (Policy(devices=DevicePolicy(rules=RULES)), "CUSTOM_QAT", "[pci] report_in_placement is false, and neither"),
        (Policy(devices=DevicePolicy(rules=RULES, report=True)), "FPGA", "no rule of [pci] device_spec gives it"),
        (Policy(), "NET_BW_EGR_KILOBIT_PER_SEC", "[pci] link_bandwidth is false"),
        (Policy(), "MEM_ENCRYPTION_CONTEXT", "no encrypted memory of AMD's"),
        (Policy(), "CUSTOM_PMEM_NAMESPACE_4GB", "[libvirt] pmem_namespaces has no such label"),
        (Policy(), "CUSTOM_PHYSNET_A", "names this physical network"),
        (Policy(), "IPV4_ADDRESS", "does not report it on a hypervisor"),
        (Policy(), "HW_CPU_X86_AVX512F", "under [libvirt] cpu_mode and cpu_model_extra_flags"),
        (Policy(), "COMPUTE_SECURITY_TPM_2_0", "[libvirt] swtpm_enabled is false"),
        (Policy(), "COMPUTE_GRAPHICS_MODEL_VIRTIO", "libvirt's domain capabilities do not have it"),
        (Policy(), "COMPUTE_RESCUE_BFV", "[agent] root_traits"),
        (Policy(), "HW_NO_SUCH", "neither os-resource-classes nor os-traits has this name"),
    ],
)
def test_what_a_host_lacks_is_explained_by_its_option_or_its_fact(policy: Policy, name: str, why: str) -> None:
    assert why in why_absent(host(), policy, name)


def test_a_trait_of_newer_versions_is_explained_by_them() -> None:
    facts = host()
    old = replace(facts.hypervisor.versions, libvirt=9_000_000, hypervisor=7_000_000)

    told = why_absent(
        replace(facts, hypervisor=replace(facts.hypervisor, versions=old)), Policy(), "COMPUTE_NET_VIF_MODEL_IGB"
    )

    assert told == "needs libvirt 9.3.0 and QEMU 8.0.0, and this host has 9.0.0 and 7.0.0"
