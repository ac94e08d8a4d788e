"""Finds the traits of a libvirt host's root: what its CPU, emulators and versions let a guest have."""

from collections.abc import Collection, Iterable

from drivers.facts import HostFacts
from drivers.policy import GuestPolicy
from drivers.reasons import Reason
from reportclient.names import is_standard_trait, standard_traits

SAME_NAMES = (  # libvirt's features (cpu_map) whose trait is HW_CPU_X86_ and the name in upper case, without hyphens
    "3dnow", "abm", "amx-bf16", "amx-int8", "amx-tile", "avx", "avx2", "avx512-vpopcntdq", "avx512bitalg", "avx512bw",
    "avx512cd", "avx512dq", "avx512er", "avx512f", "avx512ifma", "avx512pf", "avx512vbmi", "avx512vbmi2", "avx512vl",
    "avx512vnni", "bmi2", "f16c", "fma4", "mmx", "mpx", "pdpe1gb", "sse", "sse2", "sse4a", "ssse3", "stibp", "tbm",
    "xop",
)  # fmt: skip
CPU_FEATURES = {  # libvirt's feature -> traits, without HW_CPU_X86_; tools/cpu_traits.py compares both
    **{name: (name.replace("-", "").upper(),) for name in SAME_NAMES},
    "aes": ("AESNI",),
    "amd-no-ssb": ("AMD_NO_SSB",),
    "amd-ssbd": ("AMD_SSBD",),
    "bmi1": ("BMI",),
    "fma": ("FMA3",),
    "gfni": ("AVX512GFNI",),
    "ibpb": ("AMD_IBPB",),
    "md-clear": ("INTEL_MD_CLEAR",),
    "pcid": ("INTEL_PCID",),
    "pclmuldq": ("CLMUL",),
    "pni": ("SSE3",),  # "sse3" is QEMU's name of it alone
    "rtm": ("TSX",),  # hle alone changes nothing that a program can tell
    "sha-ni": ("SHA",),
    "spec-ctrl": ("INTEL_SPEC_CTRL",),
    "ssbd": ("INTEL_SSBD",),
    "sse4.1": ("SSE41",),
    "sse4.2": ("SSE42",),
    "svm": ("SVM", "AMD_SVM"),
    "vaes": ("AVX512VAES",),
    "virt-ssbd": ("AMD_VIRT_SSBD",),
    "vmx": ("VMX", "INTEL_VMX"),
    "vpclmulqdq": ("AVX512VPCLMULQDQ",),
}
IMAGE_TYPES = frozenset({"aki", "ami", "ari", "iso", "qcow2", "raw"})
DISK_BUSES = frozenset({"fdc", "ide", "sata", "scsi", "usb", "virtio"})
VIDEO_MODELS = frozenset({"bochs", "cirrus", "gop", "none", "qxl", "vga", "virtio", "vmvga", "xen"})
SOUND_MODELS = frozenset({"ac97", "es1370", "ich6", "ich9", "pcspk", "sb16", "usb"})
VIF_MODELS = frozenset({"e1000", "e1000e", "ne2k-pci", "pcnet", "rtl8139", "spapr-vlan", "virtio", "vmxnet3"})
ALWAYS = "reported on every host that has it, as nova does"
_OFFERS = "libvirt's domain capabilities"
VIOMMU_BY_ARCH = {"aarch64": "smmuv3", "x86_64": "intel"}

# libvirt and QEMU count versions as major * 1,000,000 + minor * 1,000 + release
LIBVIRT_IGB, QEMU_IGB = 9_003_000, 8_000_000
LIBVIRT_SOUND_VIRTIO, QEMU_SOUND_VIRTIO = 10_004_000, 8_002_000
QEMU_VIRTIO_FS = 6_002_000


def emitted_traits() -> frozenset[str]:
    """Return every trait that ``root_traits`` can ever give; on a root the agent may remove these and no others."""
    models = (
        *_named("COMPUTE_STORAGE_BUS_", DISK_BUSES),
        *_named("COMPUTE_GRAPHICS_MODEL_", VIDEO_MODELS),
        *_named("COMPUTE_IMAGE_TYPE_", IMAGE_TYPES),
        *_named("COMPUTE_NET_VIF_MODEL_", VIF_MODELS | {"igb", "lan9118"}),
        *_named("COMPUTE_SOUND_MODEL_", SOUND_MODELS | {"virtio"}),
        *_named("COMPUTE_VIOMMU_MODEL_", {"auto", "intel", "smmuv3", "virtio"}),
        *_named("COMPUTE_SECURITY_TPM_SECRET_SECURITY_", {"user", "host", "deployment"}),
        *(f"HW_CPU_X86_{name}" for names in CPU_FEATURES.values() for name in names),
    )
    single = {
        "COMPUTE_NODE", "HW_CPU_HYPERTHREADING", "COMPUTE_NET_VIRTIO_PACKED", "COMPUTE_SECURITY_UEFI_SECURE_BOOT",
        "COMPUTE_STORAGE_VIRTIO_FS", "COMPUTE_ADDRESS_SPACE_PASSTHROUGH", "COMPUTE_ADDRESS_SPACE_EMULATED",
        "COMPUTE_SECURITY_STATELESS_FIRMWARE", "COMPUTE_SECURITY_TPM_TIS", "COMPUTE_SECURITY_TPM_CRB",
        "COMPUTE_SECURITY_TPM_1_2", "COMPUTE_SECURITY_TPM_2_0",
    }  # fmt: skip
    archs = standard_traits("HW_ARCH_") | standard_traits("COMPUTE_ARCH_")
    return archs | single | frozenset(filter(is_standard_trait, models))


def root_traits(facts: HostFacts, policy: GuestPolicy) -> dict[str, Reason]:
    """Return the traits of a host's root with their reasons; leaves out names that the installed os-traits lacks."""
    archs = {offer.arch for offer in facts.hypervisor.domain_capabilities}
    found = {
        **_all("this is a compute node", ALWAYS, ["COMPUTE_NODE"]),
        **_all("every supported release of libvirt and QEMU can do this", ALWAYS, ["COMPUTE_NET_VIRTIO_PACKED"]),
        **_all(f"libvirt's capabilities: the host is {facts.cpu.arch}", ALWAYS, [f"HW_ARCH_{facts.cpu.arch.upper()}"]),
        **_all(f"{_OFFERS}: guests of {', '.join(sorted(archs))}", ALWAYS, _named("COMPUTE_ARCH_", archs)),
        **_all(
            "the formats that nova's libvirt driver takes",
            "[compute] image_type_exclude_list",
            _named("COMPUTE_IMAGE_TYPE_", IMAGE_TYPES - policy.excluded_image_types),
        ),
        **_cpu_traits(facts, policy),
        **_model_traits(facts, policy, archs),
        **_version_traits(facts),
        **_firmware_traits(facts, policy),
    }
    return {name: reason for name, reason in found.items() if is_standard_trait(name)}


def _cpu_traits(facts: HostFacts, policy: GuestPolicy) -> dict[str, Reason]:
    """
    Return the traits for CPU features that guests can have under ``cpu_mode``, and for hyperthreading.

    A flag that ``cpu_model_extra_flags`` takes away (``-flag``) gives no trait here, unlike in nova.
    """
    flags = {} if policy.cpu_mode == "none" else policy.cpu_flags
    features = (facts.cpu.guest_features - _withheld(facts, policy)) | flags.keys()
    features -= {name for name, wanted in flags.items() if not wanted}
    if policy.cpu_mode == "none" and policy.virt_type == "kvm":
        features -= {"svm"}  # QEMU's default CPU has it, and KVM's defaults take it away (target/i386/kvm/kvm-cpu.c)
    mode = f"[libvirt] cpu_mode is {policy.cpu_mode or 'unset, so host-model'}"
    traits = {
        f"HW_CPU_X86_{name}": Reason(
            f"a guest's CPU has {feature}"
            + (" by cpu_model_extra_flags" if flags.get(feature) else ", as libvirt expands it"),
            mode,
        )
        for feature in sorted(features)
        for name in _traits_of(feature, features, facts.cpu.vendor)
    }
    if any(cell.has_siblings for cell in facts.cells):
        traits |= _all("libvirt's capabilities: CPUs with siblings", ALWAYS, ["HW_CPU_HYPERTHREADING"])
    return traits


def _withheld(facts: HostFacts, policy: GuestPolicy) -> frozenset[str]:
    """
    Return the features of the host's CPU that guests with its model get on no machine type: KVM lacks them.

    Empty where libvirt does not tell the model of one of these. Without KVM QEMU emulates also what the
    host's CPU lacks.
    """
    models = [one.host_model for one in facts.hypervisor.domain_capabilities if one.arch == facts.cpu.arch]
    if policy.virt_type != "kvm" or policy.cpu_mode not in (None, "host-model") or not models:
        return frozenset()
    return frozenset.intersection(*(one.lacks if one else frozenset() for one in models))


def _traits_of(feature: str, features: Collection[str], vendor: str) -> tuple[str, ...]:
    """
    Return the traits of a CPU feature, without HW_CPU_X86_.

    Without AVX-512 the vector forms of AES, GFNI and CLMUL are those of AVX, for which os-traits has no name. A trait
    of the other vendor's CPUs is none of this host: AMD's have Intel's feature PCID, too.
    """
    other = {"AMD": "INTEL_", "Intel": "AMD_"}.get(vendor, " ")
    lacks = "AVX512" if "avx512f" not in features else " "
    return tuple(name for name in CPU_FEATURES.get(feature, ()) if not name.startswith((other, lacks)))


def _model_traits(facts: HostFacts, policy: GuestPolicy, archs: set[str]) -> dict[str, Reason]:
    """Return the traits for models and buses of guests' devices, from the emulators, else from versions."""
    buses = {bus for offer in facts.hypervisor.domain_capabilities for bus in offer.disk_buses}
    videos = {model for offer in facts.hypervisor.domain_capabilities for model in offer.video_models}
    libvirt, qemu = facts.hypervisor.versions.libvirt, facts.hypervisor.versions.hypervisor
    vifs = VIF_MODELS | ({"lan9118"} if policy.virt_type == "qemu" else frozenset())
    vifs |= {"igb"} if libvirt >= LIBVIRT_IGB and qemu >= QEMU_IGB else frozenset()
    sounds = SOUND_MODELS
    sounds |= {"virtio"} if libvirt >= LIBVIRT_SOUND_VIRTIO and qemu >= QEMU_SOUND_VIRTIO else frozenset()
    viommus = {"auto", "virtio"} | {model for arch, model in VIOMMU_BY_ARCH.items() if arch in archs}
    versions = _versions(facts)
    return {
        **_all(f"{_OFFERS}: disk buses", ALWAYS, _named("COMPUTE_STORAGE_BUS_", DISK_BUSES & buses)),
        **_all(f"{_OFFERS}: video models", ALWAYS, _named("COMPUTE_GRAPHICS_MODEL_", VIDEO_MODELS & videos)),
        **_all(versions, f"[libvirt] virt_type is {policy.virt_type}", _named("COMPUTE_NET_VIF_MODEL_", vifs)),
        **_all(versions, ALWAYS, _named("COMPUTE_SOUND_MODEL_", sounds)),
        **_all(versions, ALWAYS, _named("COMPUTE_VIOMMU_MODEL_", viommus)),
    }


def _version_traits(facts: HostFacts) -> dict[str, Reason]:
    """Return the traits of every libvirt that this agent supports, and that of QEMU's version."""
    traits = {
        "COMPUTE_ADDRESS_SPACE_PASSTHROUGH",
        "COMPUTE_ADDRESS_SPACE_EMULATED",
        "COMPUTE_SECURITY_STATELESS_FIRMWARE",
    }
    if facts.hypervisor.versions.hypervisor >= QEMU_VIRTIO_FS:
        traits.add("COMPUTE_STORAGE_VIRTIO_FS")
    return _all(_versions(facts), ALWAYS, traits)


def _firmware_traits(facts: HostFacts, policy: GuestPolicy) -> dict[str, Reason]:
    """Return the traits for secure boot and TPM; only for guests of the host's own architecture."""
    native = [offer for offer in facts.hypervisor.domain_capabilities if offer.arch == facts.cpu.arch]
    secure = ["COMPUTE_SECURITY_UEFI_SECURE_BOOT"] if any(offer.secure_boot for offer in native) else []
    traits = _all(f"{_OFFERS}: a loader with secure boot", ALWAYS, secure)
    if not policy.tpm:
        return traits
    models = {model for offer in native for model in offer.tpm_models}
    names = {name for name, model in (("TIS", "tpm-tis"), ("CRB", "tpm-crb")) if model in models}
    names |= {name.replace(".", "_") for offer in native for name in offer.tpm_versions & {"1.2", "2.0"}}
    traits |= _all(f"{_OFFERS}: TPM", "[libvirt] swtpm_enabled", _named("COMPUTE_SECURITY_TPM_", names))
    secrets = _named("COMPUTE_SECURITY_TPM_SECRET_SECURITY_", policy.tpm_secret_security)
    return traits | _all("configured by the operator", "[libvirt] supported_tpm_secret_security", secrets)


def _all(fact: str, rule: str, names: Iterable[str]) -> dict[str, Reason]:
    return dict.fromkeys(names, Reason(fact, rule))


def _versions(facts: HostFacts) -> str:
    numbers = (facts.hypervisor.versions.libvirt, facts.hypervisor.versions.hypervisor)
    libvirt, qemu = (f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}" for number in numbers)
    return f"libvirt {libvirt} with QEMU {qemu}"


def _named(prefix: str, names: Iterable[str]) -> list[str]:
    return [prefix + name.replace("-", "_").upper() for name in names]
