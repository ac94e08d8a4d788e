"""Memory encryption: how many guests of each kind can run at a time."""

from drivers.devices.reserve import short
from drivers.devices.stock import DeviceStock
from drivers.facts import HostFacts
from drivers.reasons import Reason
from drivers.standing import Standing
from reportclient.reserve import reserved_by_operator_on
from reportclient.tree import Inventory

CONTEXT = "MEM_ENCRYPTION_CONTEXT"
QEMU_SEV_ES = 8_000_000


def sev_stock(facts: HostFacts, standing: Standing) -> list[DeviceStock]:
    """
    Return a provider for each kind of memory encryption: libvirt reports how many guests, the kernel which kinds.

    SEV-ES is not offered together with SEV-SNP, which uses the same slots (as in nova).
    """
    offers = [offer for offer in facts.domain_capabilities if offer.arch == "x86_64"]
    guests = max((offer.sev_guests for offer in offers), default=0)
    es_guests = max((offer.sev_es_guests for offer in offers), default=0)
    kernel = facts.sev
    snp = kernel is not None and kernel.sev_snp
    can_snp = snp and any("sev-snp" in offer.launch_security for offer in offers)
    es = kernel is not None and kernel.sev_es and not snp and facts.versions.hypervisor >= QEMU_SEV_ES
    kinds = (("amd_sev", guests, True), ("amd_sev_es", es_guests, es), ("amd_sev_snp", es_guests, can_snp))
    if not guests or (kernel is not None and not kernel.sev):
        return []
    return [_sev_provider(suffix, count, standing) for suffix, count, offered in kinds if offered and count]


def _sev_provider(suffix: str, count: int, standing: Standing) -> DeviceStock:
    before = reserved_by_operator_on(standing.provider(suffix))
    kept = min(count, before.get(CONTEXT, 0))
    trait = f"HW_CPU_X86_{suffix.upper()}"
    reason = Reason(
        f"libvirt's domain capabilities: {count} guests of {suffix} at a time",
        "kvm_amd was loaded with it, and QEMU and libvirt support it",
    )
    return DeviceStock(
        suffix=suffix,
        inventories={CONTEXT: (Inventory(total=count, max_unit=1, reserved=kept), reason)},
        traits={trait: reason, **short(before, {CONTEXT: count})},
        novas=True,
    )
