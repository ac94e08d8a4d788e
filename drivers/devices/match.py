"""Which PCI functions are offered, by which rule and as what; and what nova refuses of rules."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from drivers.errors import MalformedFact, PolicyError
from drivers.facts import HostFacts, PciFunction
from drivers.pci import PciAddress
from drivers.policy import DevicePolicy, DeviceRule
from drivers.rules import matches
from reportclient.names import normalise_class, normalise_trait
from reportclient.ownership import MANAGED

PHYSNET = "CUSTOM_PHYSNET_"  # followed by the name of a physical network, as Neutron has it
OF_DEVICES = frozenset({MANAGED, "HW_NIC_SRIOV", "HW_PCI_LIVE_MIGRATABLE", "HW_PCI_ONE_TIME_USE"})
BRIDGE, NETWORK = 0x06, 0x02  # PCI base classes
LIBVIRT_LIVE_VFIO, QEMU_LIVE_VFIO = 10_000_000, 8_002_002  # from which on variant drivers migrate guests
NO_TYPE = "0"  # what NVIDIA's driver shows in nvidia/current_vgpu_type of a VF that is no vGPU


@dataclass(frozen=True, slots=True)
class Match:
    """A function that is offered, the rule that says so (None: ``discover = all``), and the class it counts as."""

    function: PciFunction
    rule: DeviceRule | None
    resource_class: str


def rules_by_function(
    functions: Mapping[PciAddress, PciFunction], policy: DevicePolicy
) -> dict[PciAddress, DeviceRule]:
    """The first rule about each function, as in nova; bridges are never meant."""
    pfs = {address for address, function in functions.items() if function.is_pf}
    found = {}
    for function in functions.values():
        if (function.device_class or 0) >> 16 == BRIDGE:
            continue
        for rule in policy.rules:
            if matches(rule, function, pf_exists=rule.exact in pfs):
                found[function.address] = rule
                break
    return found


def by_rule(function: PciFunction, rule: DeviceRule) -> Match | None:
    """A function as its rule offers it; None when its class comes from a file that names none."""
    resource_class = _class_of(function, rule)
    return Match(function, rule, resource_class) if resource_class else None


def by_itself(
    function: PciFunction,
    functions: Mapping[PciAddress, PciFunction],
    spoken_of: Container[PciAddress],
    policy: DevicePolicy,
) -> Match | None:
    """A VF of a network card, with ``discover = all``, unless a rule speaks of its card: that was on purpose then."""
    if not (policy.discover_all and function.pf) or function.pf in spoken_of:
        return None
    pf = functions.get(function.pf)
    is_nic = any((one.device_class or 0) >> 16 == NETWORK for one in (function, pf) if one)
    return Match(function, None, "SRIOV_NET_VF") if is_nic else None


def check_group(address: PciAddress, matched: list[Match], facts: HostFacts) -> None:
    """
    Refuse what nova refuses of the functions of one provider.

    Raises:
        PolicyError: a PF together with its VFs, different classes or traits, a one-time VF, no live migration here.
    """
    whole = [match for match in matched if match.function.address == address]
    parts = [match for match in matched if match.function.address != address]
    if whole and parts:
        raise PolicyError(
            f"[pci] device_spec, rule {_numbers(matched)}, offers both {address} and its VF "
            f"{parts[0].function.address}: a PF is offered whole or as its VFs, never both: "
            f"{_tell_apart(whole[0].function, parts[0].function)}"
        )
    for match in parts:
        if match.rule and match.rule.one_time_use is not None:
            raise PolicyError(
                f"[pci] device_spec rule {match.rule.number} has one_time_use for {match.function.address}, a VF: "
                f"only PFs and plain devices can have it"
            )
    fixed = {match.resource_class for match in matched if not (match.rule and match.rule.class_attribute)}
    if len(fixed) > 1:
        raise PolicyError(
            f"[pci] device_spec offers VFs of {address} as {' and '.join(sorted(fixed))}: all VFs of one PF have one "
            f"resource class: correct the rules {_numbers(matched)}"
        )
    if len({traits_of(match) for match in matched}) > 1:
        raise PolicyError(
            f"[pci] device_spec gives VFs of {address} different traits: all VFs of one PF have the same: correct "
            f"the rules {_numbers(matched)}"
        )
    wants_live = any(match.rule and match.rule.live_migratable for match in matched)
    versions = facts.versions
    if wants_live and (versions.libvirt < LIBVIRT_LIVE_VFIO or versions.hypervisor < QEMU_LIVE_VFIO):
        raise PolicyError(
            f"[pci] device_spec has live_migratable, which libvirt 10.0.0 and QEMU 8.2.2 brought and this host does "
            f"not have: take it out of the rules {_numbers(matched)}"
        )


def traits_of(match: Match) -> frozenset[str]:
    """The traits of the provider of a function, but for what its health adds."""
    return traits_by(match.rule) if match.rule else frozenset({"HW_NIC_SRIOV"})


def traits_by(rule: DeviceRule) -> frozenset[str]:
    """The traits that a rule gives to the provider of what it offers."""
    own = {
        "HW_PCI_LIVE_MIGRATABLE": rule.live_migratable,
        "HW_PCI_ONE_TIME_USE": bool(rule.one_time_use),
        # What nova asks for with its own PCI requests, which shall not be given the devices of Neutron's ports.
        MANAGED: rule.physical_network is None,
        "HW_NIC_SRIOV": rule.physical_network is not None,
    }
    network = {normalise_trait(f"PHYSNET_{rule.physical_network}")} if rule.physical_network else set()
    return rule.traits | {name for name, given in own.items() if given} | network


def listed(matched: list[Match]) -> str:
    """``8 VFs of 0000:81:00.0`` or ``device 0000:81:00.0 (8086:1533)``."""
    first = matched[0].function
    ids = f"{first.vendor_id}:{first.product_id}"
    if first.pf is None:
        return f"{'PF' if first.is_pf else 'device'} {first.address} ({ids})"
    return f"{len(matched)} VF{'s' if len(matched) > 1 else ''} of {first.pf} ({ids}), {first.address} the first"


def rule_text(match: Match) -> str:
    """Which rule offers a function, for people."""
    return f"[pci] device_spec, rule {match.rule.number}" if match.rule else "[pci] discover = all"


def _class_of(function: PciFunction, rule: DeviceRule) -> str | None:
    """The class a function counts as; None when its class comes from an attribute that names none."""
    if rule.class_attribute is None:
        return rule.resource_class or f"CUSTOM_PCI_{function.vendor_id}_{function.product_id}".upper()
    kind = dict(function.attributes).get(rule.class_attribute, NO_TYPE)
    if not (kind.isdecimal() and len(kind) < 10):
        raise MalformedFact(f"{function.address}: {rule.class_attribute} shows {kind[:40]!r}, which is no number")
    return None if int(kind) == int(NO_TYPE) else normalise_class(f"{rule.class_attribute.split('/')[0]}_{int(kind)}")


def _tell_apart(pf: PciFunction, vf: PciFunction) -> str:
    """What to write into a rule that it means either a PF or its VFs."""
    if pf.product_id == vf.product_id:
        return (
            f"both have the product_id {pf.product_id}: to offer only its VFs, name each in a rule of its own by its "
            f'address, as "address": "{vf.address}"; to offer only the PF, set its sriov_numvfs to 0'
        )
    return (
        f'to offer only its VFs, give that rule "product_id": "{vf.product_id}"; to offer only the PF, '
        f'"product_id": "{pf.product_id}"; if this card alone is meant, "address": "{pf.address}" too (without a '
        f"product_id it means the PF and its VFs)"
    )


def _numbers(matched: Iterable[Match]) -> str:
    return ", ".join(str(number) for number in sorted({match.rule.number for match in matched if match.rule}))
