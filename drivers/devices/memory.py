"""Memory of special kinds: how many guests can be encrypted at a time, and namespaces of persistent memory."""

from collections.abc import Iterable, Mapping

from drivers.by_suffix import BySuffix
from drivers.devices.inventories import DeviceStock, short
from drivers.errors import PolicyError
from drivers.facts import HostFacts, OfferedEncryption, SevKernel
from drivers.policy import DevicePolicy
from drivers.reasons import Reason
from reportclient.tree import Inventory

CONTEXT = "MEM_ENCRYPTION_CONTEXT"
TDX = "intel_tdx"
ENCRYPTED = frozenset({"amd_sev", "amd_sev_es", "amd_sev_snp", TDX})  # suffixes of providers of contexts
QEMU_SEV_ES = 8_000_000
PMEM = "[libvirt] pmem_namespaces"


def supported(facts: HostFacts, policy: DevicePolicy) -> frozenset[str]:
    """
    Return the kinds of encryption that guests can have, as suffixes of providers, however many there can be.

    The kernel tells which kinds of AMD's. SEV-ES is not offered together with SEV-SNP, which uses the same slots. These
    are the rules of ``supports_amd_sev`` and so on in nova/virt/libvirt/host.py.
    """
    offers, kernel = _offers(facts), facts.cpu.sev or SevKernel(sev=True, sev_es=False, sev_snp=False)
    sev = kernel.sev and any(offer.sev_guests or offer.sev_es_guests for offer in offers)
    can_es = kernel.sev_es and not kernel.sev_snp and facts.hypervisor.versions.hypervisor >= QEMU_SEV_ES
    can_snp = kernel.sev_snp and any("sev-snp" in offer.launch_security for offer in offers)
    kinds = {
        "amd_sev": sev,
        "amd_sev_es": sev and can_es,
        "amd_sev_snp": sev and can_snp,
        TDX: policy.tdx and any(offer.tdx for offer in offers),
    }
    return frozenset(kind for kind, is_there in kinds.items() if is_there)


def sev_stock(facts: HostFacts, policy: DevicePolicy, standing: BySuffix) -> list[DeviceStock]:
    """Return a provider for each kind of AMD's encryption: libvirt reports how many guests can have it."""
    offers, kinds = _offers(facts), supported(facts, policy)
    guests = max((offer.sev_guests for offer in offers), default=0)
    es_guests = max((offer.sev_es_guests for offer in offers), default=0)
    reason = "libvirt's domain capabilities: {} guests of {} at a time"
    rule = "kvm_amd was loaded with it, and QEMU and libvirt support it"
    return [
        _provider(kind, count, Reason(reason.format(count, kind), rule), standing)
        for kind, count in (("amd_sev", guests), ("amd_sev_es", es_guests), ("amd_sev_snp", es_guests))
        if kind in kinds and count
    ]


def tdx_stock(facts: HostFacts, policy: DevicePolicy, standing: BySuffix) -> list[DeviceStock]:
    """
    Return Intel TDX, as nova 34 offers it: guests need the host's own CPU, and the kernel tells how many there can be.

    Of the kernel's number and the configured one, the lower counts (nova's documentation of num_intel_tdx_guests).
    Where the kernel's number is hidden, that in placement stays, which the root has in the layout flat; the configured
    one is the only source where placement has none (as above).
    """
    number = facts.cpu.tdx_guests
    kernel = "does not tell" if number is None else f"has {number}"
    if facts.cpu.tdx_hidden:
        stands = standing.stock(TDX).get(CONTEXT) or standing.stock("").get(CONTEXT)
        number, kernel = stands.total if stands else None, "shows no number here, so placement's number stays"
    count = min((each for each in (number, policy.tdx_guests) if each is not None), default=0)
    if not (_wants_tdx(facts, policy) and count):
        return []
    rule = "[libvirt] num_intel_tdx_guests, if it is lower" if policy.tdx_guests is not None else "the kernel's number"
    fact = f"libvirt's domain capabilities have tdx, and the kernel {kernel} (tdx in misc.capacity)"
    return [_provider(TDX, count, Reason(fact, rule), standing)]


def _wants_tdx(facts: HostFacts, policy: DevicePolicy) -> bool:
    return policy.tdx_guests != 0 and TDX in supported(facts, policy)


def hidden_stock(facts: HostFacts, policy: DevicePolicy) -> tuple[str, ...]:
    """Return a sentence on stock whose amount is hidden; empty where none is."""
    if not (facts.cpu.tdx_hidden and _wants_tdx(facts, policy)):
        return ()
    return (
        f"nothing shows how many guests can have Intel TDX: its {CONTEXT} stays as placement has it, and where it has "
        f"none, [libvirt] num_intel_tdx_guests counts. Give a container the control groups of the host, /sys/fs/cgroup "
        f"(podman: --cgroupns=host)",
    )


def _offers(facts: HostFacts) -> list[OfferedEncryption]:
    return [offer.encryption for offer in facts.hypervisor.domain_capabilities if offer.arch == "x86_64"]


def _provider(suffix: str, count: int, reason: Reason, standing: BySuffix) -> DeviceStock:
    before = standing.reserved(suffix)
    kept = min(count, before.get(CONTEXT, 0))
    trait = f"HW_CPU_X86_{suffix.upper()}"
    return DeviceStock(
        suffix=suffix,
        inventories={CONTEXT: (Inventory(total=count, max_unit=1, reserved=kept), reason)},
        traits={trait: reason, **short(before, {CONTEXT: count})},
        members={suffix: CONTEXT},
        novas=True,
    )


def pmem_stock(facts: HostFacts, policy: DevicePolicy) -> list[DeviceStock]:
    """
    Return the stock of each class that the option names: one unit for each of its namespaces, on the root as in nova.

    The units of namespaces that this host does not have, or not in the mode devdax, are reserved: they may come back.

    Raises:
        PolicyError: the option names a namespace that this host has twice.
    """
    paths = {name: path for name in policy.pmem if (path := _path_of(name, facts))}
    return [
        _pmem_of(resource_class, [name for name, each in policy.pmem.items() if each == resource_class], paths, facts)
        for resource_class in sorted(set(policy.pmem.values()))
    ]


def _pmem_of(resource_class: str, names: list[str], paths: Mapping[str, str], facts: HostFacts) -> DeviceStock:
    there, gone = [name for name in names if name in paths], [name for name in names if name not in paths]
    stock = Inventory(total=len(names), max_unit=len(names), reserved=len(gone))
    return DeviceStock(
        suffix=resource_class,
        inventories={resource_class: (stock, Reason(f"ndctl lists the namespaces {', '.join(there) or 'none'}", PMEM))},
        members={paths[name]: resource_class for name in there},
        of_root=True,
        ill=_lacking(resource_class, gone, facts) if gone else "",
    )


def _lacking(resource_class: str, gone: Iterable[str], facts: HostFacts) -> str:
    there = ", ".join(one.name for one in facts.devices.namespaces if one.path) or "none with a name"
    return (
        f"{PMEM} names {', '.join(gone)}, and this host has {there} for guests (ndctl list --device-dax): "
        f"{resource_class} of that is reserved. Bring the namespace back in the mode devdax (ndctl create-namespace or "
        f"daxctl reconfigure-device), or correct the option"
    )


def _path_of(name: str, facts: HostFacts) -> str:
    """Return the path of a namespace; empty: this host does not have it for guests. Errors as ``pmem_stock``."""
    found = [one for one in facts.devices.namespaces if one.name == name]
    if len(found) > 1:
        raise PolicyError(
            f"{PMEM} names {name}, and this host has {len(found)} of this name (ndctl list): correct the option"
        )
    return next((one.path for one in found if one.path), "")
