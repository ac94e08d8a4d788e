"""
The request for allocation candidates that nova-scheduler makes of a flavor and an image. Pure.

The rules are those of nova 34: ``ResourceRequest.from_request_spec`` in nova/scheduler/utils.py, and those filters of
nova/scheduler/request_filter.py that look at flavor and image alone. tests/inside/test_novas_flavors.py compares them.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import os_resource_classes

from agent.nova.aliases import ALIASES, Alias, asked_devices

_GROUPED = re.compile("(resources|trait)([a-zA-Z0-9_-]{1,64})?:(.*)")
_OF_PLACEMENT = ("resources", "trait", "required", "member_of", "in_tree", "same_subtree", "root_required", "limit")
_TRUE = frozenset({"1", "t", "true", "on", "y", "yes"})
_ENCRYPTION = {
    "amd-sev": "HW_CPU_X86_AMD_SEV",
    "amd-sev-es": "HW_CPU_X86_AMD_SEV_ES",
    "amd-sev-snp": "HW_CPU_X86_AMD_SEV_SNP",
    "intel-tdx": "HW_CPU_X86_INTEL_TDX",
}
_ADDRESSES = {"passthrough": "COMPUTE_ADDRESS_SPACE_PASSTHROUGH", "emulate": "COMPUTE_ADDRESS_SPACE_EMULATED"}
_TPM = {"tpm-crb": "COMPUTE_SECURITY_TPM_CRB", "2.0": "COMPUTE_SECURITY_TPM_2_0"}
_THREADS = {"isolate": "forbidden", "require": "required"}
_SECRET = "COMPUTE_SECURITY_TPM_SECRET_SECURITY_"
OTHERS = (
    "nova adds more by its own state: OWNER_NOVA once each nova-compute is of 34, aggregates of the project and the "
    "zone, the type of the image, and what ports ask for; of a server that boots from a volume it asks no root disk"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavor:
    """A flavor as nova has it; memory and swap in MiB, disks in GiB."""

    name: str
    vcpus: int
    memory_mb: int
    root_gb: int
    ephemeral_gb: int = 0
    swap_mb: int = 0
    extra_specs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NovaRequest:
    """What nova asks placement for, and what a person should know of that."""

    query: str
    notes: tuple[str, ...] = ()  # keys that nova ignores, and what else it adds; a sentence each


@dataclass(slots=True)
class _Group:
    resources: dict[str, int] = field(default_factory=dict)
    traits: dict[str, str] = field(default_factory=dict)  # "required" or "forbidden"


def parse_flavor(record: Mapping[str, Any]) -> Flavor:
    """Return a flavor of nova's listing (2.61); KeyError, TypeError, ValueError: it is no flavor with extra specs."""
    return Flavor(
        name=str(record["name"]),
        vcpus=int(record["vcpus"]),
        memory_mb=int(record["ram"]),
        root_gb=int(record["disk"]),
        ephemeral_gb=int(record["OS-FLV-EXT-DATA:ephemeral"]),
        swap_mb=int(record["swap"] or 0),
        extra_specs={str(key): str(value) for key, value in record["extra_specs"].items()},
    )


def request_of(flavor: Flavor, image: Mapping[str, str], aliases: Mapping[str, Alias]) -> NovaRequest:
    """
    Return what nova asks for a guest of a flavor that boots from an image with these properties (none: empty).

    ``aliases`` of PCI devices that nova knows, by name.

    Raises:
        ValueError: nova cannot read the flavor's aliases.
    """
    one = _Translation(flavor, image)
    one.read_extra_specs()
    one.pin()
    one.add_devices(aliases)
    one.fill_up()
    one.require_features()
    return NovaRequest(query=one.query(), notes=(*one.ignored, *_asked_elsewhere(flavor), OTHERS))


def _asked_elsewhere(flavor: Flavor) -> Iterator[str]:
    if ALIASES in flavor.extra_specs:
        yield f"{ALIASES}: nova asks placement for its devices with [filter_scheduler] pci_in_placement alone"
    if "accel:device_profile" in flavor.extra_specs:
        yield "accel:device_profile is not in it: nova adds the groups of Cyborg's profile"


class _Translation:
    """One flavor and image on their way to a query; each step as nova takes it."""

    def __init__(self, flavor: Flavor, image: Mapping[str, str]) -> None:
        self._flavor = flavor
        self._image = image
        self._groups: dict[str, _Group] = {}
        self._policy = ""
        self._root = {"COMPUTE_STATUS_DISABLED": "forbidden"}
        self.ignored: list[str] = []

    def _asked(self, key: str, prefix: str = "hw") -> str:
        """Return what flavor or image say of a key, the flavor first; empty: nothing."""
        return self._flavor.extra_specs.get(f"{prefix}:{key}", "") or self._image.get(f"{prefix}_{key}", "")

    def _is_asked(self, key: str) -> bool:
        return self._asked(key).strip().lower() in _TRUE

    def _group(self, suffix: str = "") -> _Group:
        return self._groups.setdefault(suffix, _Group())

    def read_extra_specs(self) -> None:
        for key, value in self._flavor.extra_specs.items():
            match = _GROUPED.fullmatch(key)
            if key == "group_policy" and value in ("none", "isolate"):
                self._policy = value
            elif match:
                self._read_grouped(*match.groups(""), value=value)
            elif key == "group_policy" or key.lower().startswith(_OF_PLACEMENT):
                self.ignored.append(f"nova ignores {key}={value}")
        for key, value in self._image.items():
            if key.startswith("trait:") and value == "required":
                self._group().traits[key.removeprefix("trait:")] = value

    def _read_grouped(self, kind: str, suffix: str, name: str, *, value: str) -> None:
        known = name.startswith("CUSTOM_") or name in os_resource_classes.STANDARDS
        if kind == "trait" and value in ("required", "forbidden"):
            self._group(suffix).traits[name] = value
        elif kind == "resources" and known and value.strip().isdecimal():
            self._group(suffix).resources[name] = int(value)
        else:
            self.ignored.append(f"nova ignores {kind}{suffix}:{name}={value}")

    def pin(self) -> None:
        """Ask for PCPU where CPUs are pinned."""
        policy, vcpus = self._asked("cpu_policy"), self._flavor.vcpus
        if policy in ("dedicated", "mixed"):
            pinned = vcpus
            if policy == "mixed":
                realtime = self._is_asked("cpu_realtime")
                mask = self._asked("cpu_dedicated_mask") or (
                    self._image.get("hw_cpu_realtime_mask") if realtime else ""
                )
                mask = mask or (self._asked("cpu_realtime_mask") if realtime else "")
                pinned = len(_cpus(mask or "", vcpus))
                self._group().resources["VCPU"] = vcpus - pinned
            isolated = self._flavor.extra_specs.get("hw:emulator_threads_policy") == "isolate"
            self._group().resources["PCPU"] = pinned + isolated
        if kind := _THREADS.get(self._asked("cpu_thread_policy")):
            self._group().traits["HW_CPU_HYPERTHREADING"] = kind

    def fill_up(self) -> None:
        """Take CPUs, memory and disk from the flavor where no extra spec says them."""
        said = {name for group in self._groups.values() for name in group.resources}
        flavor = self._flavor
        swap_gb = -(-flavor.swap_mb // 1024)
        plain = {"MEMORY_MB": flavor.memory_mb, "DISK_GB": flavor.root_gb + flavor.ephemeral_gb + swap_gb}
        plain |= {} if {"VCPU", "PCPU"} & said else {"VCPU": flavor.vcpus}
        self._group().resources |= {name: amount for name, amount in plain.items() if name not in said}

    def add_devices(self, aliases: Mapping[str, Alias]) -> None:
        """Ask for each device of an alias in a group of its own."""
        of_flavor = sum(suffix != "" for suffix in self._groups)
        for name, count in asked_devices(self._flavor.extra_specs):
            if name not in aliases:
                self.ignored.append(f"[pci] alias of this host has no {name}, which the flavor asks for {count} times")
                continue
            one = aliases[name]
            for _ in range(count):
                group = self._group(f"_pci{len(self._groups)}")
                group.resources[one.resource_class] = 1
                group.traits |= dict.fromkeys(one.traits, "required")
        if of_flavor <= 1 < sum(suffix != "" for suffix in self._groups):
            self._policy = self._policy or "none"

    def require_features(self) -> None:
        """Ask for what the guest's hardware needs of a host."""
        group, image = self._group(), self._image
        required: list[str] = []
        if self._is_asked("mem_encryption"):
            group.resources["MEM_ENCRYPTION_CONTEXT"] = 1
            required.append(_ENCRYPTION.get(self._asked("mem_encryption_model") or "amd-sev", ""))
        for label in filter(None, map(str.strip, self._flavor.extra_specs.get("hw:pmem", "").split(","))):
            name = os_resource_classes.normalize_name(f"PMEM_NAMESPACE_{label}")
            group.resources[name] = group.resources.get(name, 0) + 1
        if version := self._asked("tpm_version"):
            required.append(_TPM.get(self._asked("tpm_model"), "COMPUTE_SECURITY_TPM_TIS"))
            required.append(_TPM.get(version, "COMPUTE_SECURITY_TPM_1_2"))
            self._require_root(f"{_SECRET}{(self._flavor.extra_specs.get('hw:tpm_secret_security') or 'user').upper()}")
        if self._asked("pci_numa_affinity_policy") == "socket":
            required.append("COMPUTE_SOCKET_PCI_NUMA_AFFINITY")
        if self._asked("secure_boot", "os") == "required":
            required.append("COMPUTE_SECURITY_UEFI_SECURE_BOOT")
        required.append(_ADDRESSES.get(self._asked("maxphysaddr_mode"), ""))
        stateless = image.get("hw_firmware_stateless", "").lower() in _TRUE
        if stateless and image.get("hw_firmware_type") == "uefi":
            required.append("COMPUTE_SECURITY_STATELESS_FIRMWARE")
        group.traits |= dict.fromkeys(filter(None, required), "required")
        self._require_of_root()

    def _require_of_root(self) -> None:
        if self._flavor.extra_specs.get("accel:device_profile"):
            self._require_root("COMPUTE_ACCELERATORS")
        if self._is_asked("virtio_packed_ring"):
            self._require_root("COMPUTE_NET_VIRTIO_PACKED")
        if self._is_asked("ephemeral_encryption"):
            self._require_root("COMPUTE_EPHEMERAL_ENCRYPTION")
            if kind := self._asked("ephemeral_encryption_format"):
                self._require_root(f"COMPUTE_EPHEMERAL_ENCRYPTION_{kind.upper()}")
        if self._asked("sound_model") == "virtio":
            self._require_root("COMPUTE_SOUND_MODEL_VIRTIO")

    def _require_root(self, trait: str) -> None:
        self._root[trait] = "required"

    def query(self) -> str:
        """Return it as nova's report client sends it, but for the limit."""
        pairs = [("group_policy", self._policy)] if self._policy else []
        pairs.append(("root_required", _joined(self._root)))
        for suffix, group in self._groups.items():
            amounts = sorted(f"{name}:{amount}" for name, amount in group.resources.items() if amount)
            if amounts or group.traits:
                pairs.append((f"resources{suffix}", ",".join(amounts)))
                pairs += [(f"required{suffix}", _joined(group.traits))] if group.traits else []
        return urlencode(sorted(pairs), safe=":,!")


def _joined(traits: Mapping[str, str]) -> str:
    required = sorted(name for name, kind in traits.items() if kind == "required")
    return ",".join([*required, *(f"!{name}" for name, kind in sorted(traits.items()) if kind == "forbidden")])


def _cpus(mask: str, vcpus: int) -> frozenset[int]:
    """Return the CPUs of a mask as ``0-3,^1``; one that begins with ^ leaves CPUs out of all."""
    cpus: set[int] = set(range(vcpus)) if mask.strip().startswith("^") or not mask.strip() else set()
    out: set[int] = set()
    for part in filter(None, map(str.strip, mask.split(","))):
        first, _, last = part.removeprefix("^").partition("-")
        (out if part.startswith("^") else cpus).update(range(int(first), int(last or first) + 1))
    return frozenset(cpus - out)
