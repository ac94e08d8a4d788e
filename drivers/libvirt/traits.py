"""Finds the traits of a libvirt host's root: what its CPU, emulators and versions let a guest have."""

from collections.abc import Collection, Iterable, Iterator

from drivers.facts import HostFacts, dotted
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
TPMS = frozenset({"tis", "crb", "1.2", "2.0"})
OF_ALL_RELEASES = frozenset({  # of libvirt and QEMU that this agent supports
    "COMPUTE_ADDRESS_SPACE_PASSTHROUGH", "COMPUTE_ADDRESS_SPACE_EMULATED", "COMPUTE_SECURITY_STATELESS_FIRMWARE",
    *(f"COMPUTE_SOUND_MODEL_{name}" for name in ("AC97", "ES1370", "ICH6", "ICH9", "PCSPK", "SB16", "USB")),
    *(f"COMPUTE_NET_VIF_MODEL_{name}" for name in ("E1000", "E1000E", "NE2K_PCI", "PCNET", "RTL8139", "SPAPR_VLAN")),
    "COMPUTE_NET_VIF_MODEL_VIRTIO", "COMPUTE_NET_VIF_MODEL_VMXNET3", "COMPUTE_VIOMMU_MODEL_AUTO",
    "COMPUTE_VIOMMU_MODEL_VIRTIO",
})  # fmt: skip
SINCE = {  # the first libvirt and QEMU with it, as these count: major * 1,000,000 + minor * 1,000 + release
    "COMPUTE_NET_VIF_MODEL_IGB": (9_003_000, 8_000_000),
    "COMPUTE_SOUND_MODEL_VIRTIO": (10_004_000, 8_002_000),
    "COMPUTE_STORAGE_VIRTIO_FS": (0, 6_002_000),
}
VIOMMU_BY_ARCH = {"aarch64": "COMPUTE_VIOMMU_MODEL_SMMUV3", "x86_64": "COMPUTE_VIOMMU_MODEL_INTEL"}
PACKED, VIFS = "COMPUTE_NET_VIRTIO_PACKED", "COMPUTE_NET_VIF_MODEL_"
ONLY_QEMU = "COMPUTE_NET_VIF_MODEL_LAN9118"  # of guests without KVM
ALWAYS = "reported on every host that has it, as nova does"
_OFFERS = "libvirt's domain capabilities"

_Ground = tuple[str, str, Iterable[str]]  # a fact, a rule, and the traits that these give


def emitted_traits() -> frozenset[str]:
    """Return every trait that ``root_traits`` can ever give; on a root the agent may remove these and no others."""
    models = (
        *_named("COMPUTE_STORAGE_BUS_", DISK_BUSES),
        *_named("COMPUTE_GRAPHICS_MODEL_", VIDEO_MODELS),
        *_named("COMPUTE_IMAGE_TYPE_", IMAGE_TYPES),
        *_named("COMPUTE_SECURITY_TPM_SECRET_SECURITY_", {"user", "host", "deployment"}),
        *_named("COMPUTE_SECURITY_TPM_", TPMS),
        *_named("HW_CPU_X86_", (name for names in CPU_FEATURES.values() for name in names)),
    )
    single = {"COMPUTE_NODE", PACKED, "HW_CPU_HYPERTHREADING", "COMPUTE_SECURITY_UEFI_SECURE_BOOT"}
    of_versions = {*OF_ALL_RELEASES, *SINCE, *VIOMMU_BY_ARCH.values(), ONLY_QEMU}
    archs = standard_traits("HW_ARCH_") | standard_traits("COMPUTE_ARCH_")
    return archs.union(filter(is_standard_trait, (*models, *single, *of_versions)))


def root_traits(facts: HostFacts, policy: GuestPolicy) -> dict[str, Reason]:
    """Return the traits of a host's root with their reasons; leaves out names that the installed os-traits lacks."""
    grounds = (*_of_host(facts, policy), *_of_emulators(facts, policy))
    found = {name: Reason(fact, rule) for fact, rule, names in grounds for name in names} | _cpu_traits(facts, policy)
    return {name: reason for name, reason in found.items() if is_standard_trait(name)}


def _of_host(facts: HostFacts, policy: GuestPolicy) -> Iterator[_Ground]:
    """Yield the grounds but for domain capabilities: formats of images, the kind of CPU, and versions."""
    libvirt, qemu = facts.hypervisor.versions.libvirt, facts.hypervisor.versions.hypervisor
    known = {name for name, first in SINCE.items() if libvirt >= first[0] and qemu >= first[1]} | OF_ALL_RELEASES
    known |= {VIOMMU_BY_ARCH[one.arch] for one in facts.hypervisor.domain_capabilities if one.arch in VIOMMU_BY_ARCH}
    vifs = {name for name in known if name.startswith(VIFS)} | ({ONLY_QEMU} if policy.virt_type == "qemu" else set())
    versions = f"libvirt {dotted(libvirt)} with QEMU {dotted(qemu)}"
    images = _named("COMPUTE_IMAGE_TYPE_", IMAGE_TYPES - policy.excluded_image_types)
    siblings = any(cell.has_siblings for cell in facts.cells)
    yield "this is a compute node", ALWAYS, ["COMPUTE_NODE"]
    yield "every supported release of libvirt and QEMU can do this", ALWAYS, [PACKED]
    yield "the formats that nova's libvirt driver takes", "[compute] image_type_exclude_list", images
    yield f"libvirt's capabilities: the host is {facts.cpu.arch}", ALWAYS, _named("HW_ARCH_", [facts.cpu.arch])
    yield "libvirt's capabilities: CPUs with siblings", ALWAYS, ["HW_CPU_HYPERTHREADING"] if siblings else []
    yield versions, ALWAYS, known - vifs
    yield versions, f"[libvirt] virt_type is {policy.virt_type}", vifs


def _of_emulators(facts: HostFacts, policy: GuestPolicy) -> Iterator[_Ground]:
    """Yield the grounds in the domain capabilities; secure boot and TPM as guests of the host's architecture have."""
    offered = facts.hypervisor.domain_capabilities
    native = [one for one in offered if one.arch == facts.cpu.arch]
    archs = sorted({one.arch for one in offered})
    buses = DISK_BUSES & {bus for one in offered for bus in one.disk_buses}
    videos = VIDEO_MODELS & {model for one in offered for model in one.video_models}
    secure = ["COMPUTE_SECURITY_UEFI_SECURE_BOOT"] if any(one.secure_boot for one in native) else []
    yield f"{_OFFERS}: guests of {', '.join(archs)}", ALWAYS, _named("COMPUTE_ARCH_", archs)
    yield f"{_OFFERS}: disk buses", ALWAYS, _named("COMPUTE_STORAGE_BUS_", buses)
    yield f"{_OFFERS}: video models", ALWAYS, _named("COMPUTE_GRAPHICS_MODEL_", videos)
    yield f"{_OFFERS}: a loader with secure boot", ALWAYS, secure
    if policy.tpm:
        kinds = {one.removeprefix("tpm-") for offer in native for one in offer.tpm_models | offer.tpm_versions}
        secrets = _named("COMPUTE_SECURITY_TPM_SECRET_SECURITY_", policy.tpm_secret_security)
        yield f"{_OFFERS}: TPM", "[libvirt] swtpm_enabled", _named("COMPUTE_SECURITY_TPM_", TPMS & kinds)
        yield "configured by the operator", "[libvirt] supported_tpm_secret_security", secrets


def _cpu_traits(facts: HostFacts, policy: GuestPolicy) -> dict[str, Reason]:
    """
    Return the traits for CPU features that guests can have under ``cpu_mode``.

    A flag that ``cpu_model_extra_flags`` takes away (``-flag``) gives no trait here, unlike in nova.
    """
    flags = {} if policy.cpu_mode == "none" else policy.cpu_flags
    features = (facts.cpu.guest_features - _withheld(facts, policy)) | flags.keys()
    features -= {name for name, wanted in flags.items() if not wanted}
    if policy.cpu_mode == "none" and policy.virt_type == "kvm":
        features -= {"svm"}  # QEMU's default CPU has it, and KVM's defaults take it away (target/i386/kvm/kvm-cpu.c)
    mode = f"[libvirt] cpu_mode is {policy.cpu_mode or 'unset, so host-model'}"
    return {
        f"HW_CPU_X86_{name}": Reason(
            f"a guest's CPU has {feature}"
            + (" by cpu_model_extra_flags" if flags.get(feature) else ", as libvirt expands it"),
            mode,
        )
        for feature in sorted(features)
        for name in _traits_of(feature, features, facts.cpu.vendor)
    }


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


def _named(prefix: str, names: Iterable[str]) -> list[str]:
    return [prefix + name.replace("-", "_").replace(".", "_").upper() for name in names]
