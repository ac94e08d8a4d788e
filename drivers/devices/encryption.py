"""Memory encryption: how many guests of each kind can run at a time."""

from drivers.by_suffix import BySuffix
from drivers.devices.inventories import DeviceStock, short
from drivers.facts import HostFacts, OfferedEncryption
from drivers.policy import DevicePolicy
from drivers.reasons import Reason
from reportclient.reserve import reserved_by_operator_on
from reportclient.tree import Inventory

CONTEXT = "MEM_ENCRYPTION_CONTEXT"
QEMU_SEV_ES = 8_000_000


def encryption_stock(facts: HostFacts, policy: DevicePolicy, standing: BySuffix) -> list[DeviceStock]:
    """Return a provider for each kind of memory encryption that guests can have, with the number of such guests."""
    return [*_sev_stock(facts, standing), *_tdx_stock(facts, policy, standing)]


def _sev_stock(facts: HostFacts, standing: BySuffix) -> list[DeviceStock]:
    """
    Return the kinds of AMD: libvirt reports how many guests, the kernel which kinds.

    SEV-ES is not offered together with SEV-SNP, which uses the same slots (as in nova).
    """
    offers = _offers(facts)
    guests = max((offer.sev_guests for offer in offers), default=0)
    kernel = facts.cpu.sev
    if not guests or (kernel is not None and not kernel.sev):
        return []
    es_guests = max(offer.sev_es_guests for offer in offers)
    snp = kernel is not None and kernel.sev_snp
    can_snp = snp and any("sev-snp" in offer.launch_security for offer in offers)
    es = kernel is not None and kernel.sev_es and not snp and facts.hypervisor.versions.hypervisor >= QEMU_SEV_ES
    kinds = (("amd_sev", guests, True), ("amd_sev_es", es_guests, es), ("amd_sev_snp", es_guests, can_snp))
    reason = "libvirt's domain capabilities: {} guests of {} at a time"
    rule = "kvm_amd was loaded with it, and QEMU and libvirt support it"
    return [
        _provider(suffix, count, Reason(reason.format(count, suffix), rule), standing)
        for suffix, count, offered in kinds
        if offered and count
    ]


def _tdx_stock(facts: HostFacts, policy: DevicePolicy, standing: BySuffix) -> list[DeviceStock]:
    """
    Return Intel TDX, as nova 34 offers it: guests need the host's own CPU, and the kernel tells how many there can be.

    Of the kernel's number and the configured one, the lower counts (nova's documentation of num_intel_tdx_guests).
    """
    offered = any(offer.tdx for offer in _offers(facts))
    known = [count for count in (facts.cpu.tdx_guests, policy.tdx_guests) if count is not None]
    count = min(known, default=0)
    if not (policy.tdx and offered and count):
        return []
    kernel = "does not tell" if facts.cpu.tdx_guests is None else f"has {facts.cpu.tdx_guests}"
    rule = "[libvirt] num_intel_tdx_guests, if it is lower" if policy.tdx_guests is not None else "the kernel's number"
    fact = f"libvirt's domain capabilities have tdx, and the kernel {kernel} (tdx in misc.capacity)"
    return [_provider("intel_tdx", count, Reason(fact, rule), standing)]


def _offers(facts: HostFacts) -> list[OfferedEncryption]:
    return [offer.encryption for offer in facts.hypervisor.domain_capabilities if offer.arch == "x86_64"]


def _provider(suffix: str, count: int, reason: Reason, standing: BySuffix) -> DeviceStock:
    before = reserved_by_operator_on(standing.provider(suffix))
    kept = min(count, before.get(CONTEXT, 0))
    trait = f"HW_CPU_X86_{suffix.upper()}"
    return DeviceStock(
        suffix=suffix,
        inventories={CONTEXT: (Inventory(total=count, max_unit=1, reserved=kept), reason)},
        traits={trait: reason, **short(before, {CONTEXT: count})},
        members={suffix: CONTEXT},
        novas=True,
    )
