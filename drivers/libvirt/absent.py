"""Why no provider of a host has a class or a trait: the option that is not set, or the fact that is missing. Pure."""

import os_resource_classes

from drivers.devices.match import PHYSNET
from drivers.devices.memory import CONTEXT, PMEM
from drivers.facts import HostFacts, dotted
from drivers.libvirt.host_inventories import DEDICATED_OPTION
from drivers.libvirt.shape import BELOW
from drivers.libvirt.traits import SINCE, emitted_traits
from drivers.policy import DevicePolicy, Policy
from reportclient.names import is_custom, is_standard_trait

_BY_HAND = "a file below [compute] provider_config_location"
_UNSET_TYPES = "[devices] enabled_mdev_types is not set"
_BANDWIDTH = ("NET_BW_EGR_KILOBIT_PER_SEC", "NET_BW_IGR_KILOBIT_PER_SEC")
_OF_VERSIONS = "needs libvirt {} and QEMU {}, and this host has {} and {}"
_OF_OPTIONS = {  # beginning of a trait's name -> the option without which no host has it, or that leaves it out
    "HW_CPU_X86_": "the CPUs of guests do not have it under [libvirt] cpu_mode and cpu_model_extra_flags",
    "COMPUTE_IMAGE_TYPE_": "[compute] image_type_exclude_list leaves it out",
    "COMPUTE_SECURITY_TPM_SECRET_SECURITY_": "swtpm_enabled or supported_tpm_secret_security leaves it out",
    "COMPUTE_NET_VIF_MODEL_LAN9118": "[libvirt] virt_type is kvm",
    "COMPUTE_SECURITY_TPM_": "[libvirt] swtpm_enabled is false, or libvirt's domain capabilities have no such TPM",
    "HW_CPU_HYPERTHREADING": "libvirt's capabilities show no CPUs with siblings",
    "HW_ARCH_": "libvirt's capabilities name another architecture",
}


def why_absent(facts: HostFacts, policy: Policy, name: str) -> str:
    """Return why no provider of this host has this class or trait; with what gives it, where anything does."""
    if name in os_resource_classes.STANDARDS:
        return _why_no_class(policy, name)
    if is_standard_trait(name):
        return _why_no_trait(facts, name)
    if not is_custom(name):
        return "neither os-resource-classes nor os-traits has this name, and it does not begin with CUSTOM_"
    if name.startswith("CUSTOM_PMEM_NAMESPACE_"):
        return f"{PMEM} has no such label"
    if name.startswith(PHYSNET):
        return "no rule of [pci] device_spec that matches a device here names this physical network"
    return f"{_why_no_device(policy.devices, name)}, and neither {_BY_HAND} nor [agent] root_traits gives it"


def _why_no_class(policy: Policy, name: str) -> str:
    cpus, devices = policy.cpus, policy.devices
    if name == "PCPU":
        return f"{DEDICATED_OPTION} " + ("is not set" if cpus.dedicated is None else "names no CPU that is on")
    if name == "VCPU":
        unset = f"{DEDICATED_OPTION} is set, and {cpus.shared_option} is not: no CPU is shared then"
        return unset if cpus.shared is None else f"{cpus.shared_option} names no CPU that is on"
    if name == CONTEXT:
        kernel = "libvirt's domain capabilities offer guests no encrypted memory of AMD's"
        return f"{kernel}; Intel TDX needs [libvirt] cpu_mode = host-passthrough and a kernel that has it"
    if name in _BANDWIDTH:
        return "no rule of [pci] device_spec that matches a PF here sets bandwidth, and [pci] link_bandwidth is false"
    if name in ("VGPU", "PCI_DEVICE", "SRIOV_NET_VF", "FPGA", "PGPU"):
        return _why_no_device(devices, name)
    if name in ("MEMORY_MB", "DISK_GB"):
        return "no part of this host has any: see compute-node-agent check"
    return f"this agent does not report it on a hypervisor: {_BY_HAND} can"


def _why_no_device(devices: DevicePolicy, name: str) -> str:
    """Say which rule of which option would give a class of devices, and that it matches no device."""
    types = [one.type for one in devices.mdevs if one.resource_class == name]
    if types:
        return f"[devices] enabled_mdev_types has {', '.join(types)}, and no device of this host supports that"
    if name == "VGPU":
        return "no type in [devices] enabled_mdev_types has this class" if devices.mdevs else _UNSET_TYPES
    if devices.rules and not devices.report:
        return "[pci] report_in_placement is false"
    rules = "no rule of [pci] device_spec gives it to a device of this host"
    by_itself = " and [pci] discover is rules" if name == "SRIOV_NET_VF" and not devices.discover_all else ""
    return f"{rules if devices.rules else '[pci] device_spec is not set'}{by_itself}"


def _why_no_trait(facts: HostFacts, name: str) -> str:
    if name in BELOW.traits:
        return "no device that is offered here has it"
    if name not in emitted_traits():
        return f"this agent does not find it out: [agent] root_traits or {_BY_HAND} can report it"
    versions = facts.hypervisor.versions
    if first := SINCE.get(name):
        return _OF_VERSIONS.format(*map(dotted, (*first, versions.libvirt, versions.hypervisor)))
    ground = (why for prefix, why in _OF_OPTIONS.items() if name.startswith(prefix))
    return next(ground, "libvirt's domain capabilities do not have it")
