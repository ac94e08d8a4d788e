"""PCI devices: which functions are offered, by which rule, as what; and what nova refuses of them."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from drivers.devices.stock import RESERVED_ILL, UNHEALTHY, DeviceStock, silenced
from drivers.errors import PolicyError
from drivers.facts import HostFacts, PciFunction
from drivers.health import ills
from drivers.pci import PciAddress
from drivers.policy import Bandwidth, DevicePolicy, DeviceRule
from drivers.reasons import Reason
from drivers.rules import matches
from drivers.standing import Standing
from reportclient.names import normalise_class, normalise_trait
from reportclient.tree import Inventory, ObservedProvider

MANAGED = "COMPUTE_MANAGED_PCI_DEVICE"
EGRESS, INGRESS = "NET_BW_EGR_KILOBIT_PER_SEC", "NET_BW_IGR_KILOBIT_PER_SEC"
BRIDGE, NETWORK = 0x06, 0x02  # PCI base classes
LIBVIRT_LIVE_VFIO, QEMU_LIVE_VFIO = 10_000_000, 8_002_002  # from which on variant drivers migrate guests
NO_TYPE = "0"  # what NVIDIA's driver shows in nvidia/current_vgpu_type of a VF that is no vGPU


@dataclass(frozen=True, slots=True)
class _Match:
    """A function that is offered, the rule that says so (None: ``discover = all``), and the class it counts as."""

    function: PciFunction
    rule: DeviceRule | None
    resource_class: str


def pci_stock(facts: HostFacts, policy: DevicePolicy, standing: Standing) -> list[DeviceStock]:
    """
    A provider for each PF whose VFs are offered, and for each function that is offered whole.

    Raises:
        PolicyError: the rules contradict each other or this host.
    """
    if not policy.report and not policy.discover_all:
        _refuse_turning_off(standing)
        return []
    functions = {function.address: function for function in facts.devices.functions}
    ruled = _rules_by_function(functions, policy)
    spoken_of = {functions[address].pf or address for address in ruled}
    groups: dict[PciAddress, list[_Match]] = {}
    for function in facts.devices.functions:
        rule = ruled.get(function.address)
        match = _by_rule(function, rule) if rule else _by_itself(function, functions, spoken_of, policy)
        if match:
            groups.setdefault(function.pf or function.address, []).append(match)
    held = frozenset().union(*(guest.pci for guest in facts.guests))
    stock = []
    for address, matched in sorted(groups.items()):
        _check_group(address, matched, facts)
        stock.append(_pci_provider(address, matched, functions, held, policy, standing))
    return stock + _silent_vfs(groups, functions, ruled, standing)


def _rules_by_function(
    functions: Mapping[PciAddress, PciFunction], policy: DevicePolicy
) -> dict[PciAddress, DeviceRule]:
    """The first rule about each function, as in nova; bridges are never meant."""
    pfs = {address for address, function in functions.items() if function.is_pf}
    found = {}
    for function in functions.values() if policy.report else ():
        if (function.device_class or 0) >> 16 == BRIDGE:
            continue
        for rule in policy.rules:
            if matches(rule, function, pf_exists=rule.exact in pfs):
                found[function.address] = rule
                break
    return found


def _by_rule(function: PciFunction, rule: DeviceRule) -> _Match | None:
    resource_class = _class_of(function, rule)
    return _Match(function, rule, resource_class) if resource_class else None


def _by_itself(
    function: PciFunction,
    functions: Mapping[PciAddress, PciFunction],
    spoken_of: Container[PciAddress],
    policy: DevicePolicy,
) -> _Match | None:
    """A VF of a network card, with ``discover = all``, unless a rule speaks of its card: that was on purpose then."""
    if not (policy.discover_all and function.pf) or function.pf in spoken_of:
        return None
    pf = functions.get(function.pf)
    is_nic = any((one.device_class or 0) >> 16 == NETWORK for one in (function, pf) if one)
    return _Match(function, None, "SRIOV_NET_VF") if is_nic else None


def _class_of(function: PciFunction, rule: DeviceRule) -> str | None:
    """The class a function counts as; None when its class comes from an attribute that names none."""
    if rule.class_attribute is None:
        return rule.resource_class or f"CUSTOM_PCI_{function.vendor_id}_{function.product_id}".upper()
    kind = dict(function.attributes).get(rule.class_attribute, NO_TYPE)
    return None if kind == NO_TYPE else normalise_class(f"{rule.class_attribute.split('/')[0]}_{kind}")


def _check_group(address: PciAddress, matched: list[_Match], facts: HostFacts) -> None:
    """
    Refuse what nova refuses of the functions of one provider.

    Raises:
        PolicyError: a PF together with its VFs, different classes or traits, a one-time VF, no live migration here.
    """
    whole = [match for match in matched if match.function.address == address]
    parts = [match for match in matched if match.function.address != address]
    if whole and parts:
        raise PolicyError(
            f"[pci] device_spec offers both {address} and its VF {parts[0].function.address}: a PF is offered whole "
            f"or as its VFs, never both: narrow one of the rules {_numbers(matched)}"
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
    if len({_traits_of(match) for match in matched}) > 1:
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


def _numbers(matched: Iterable[_Match]) -> str:
    return ", ".join(str(number) for number in sorted({match.rule.number for match in matched if match.rule}))


def _pci_provider(
    address: PciAddress,
    matched: list[_Match],
    functions: Mapping[PciAddress, PciFunction],
    held: frozenset[PciAddress],
    policy: DevicePolicy,
    standing: Standing,
) -> DeviceStock:
    suffix = str(address)
    owner = functions.get(address, matched[0].function)
    sick = {
        match.function.address: why
        for match in matched
        if (why := ills(match.function, functions.get(address), unruled=match.rule is None))
    }
    inventories: dict[str, tuple[Inventory, Reason]] = {}
    for name in sorted({match.resource_class for match in matched}):
        members = [match for match in matched if match.resource_class == name]
        kept, note = _reserved(name, members, sick, held, standing.provider(suffix))
        stock = Inventory(total=len(members), max_unit=len(members), reserved=min(kept, len(members)))
        inventories[name] = stock, Reason(f"{_listed(members)}{note}", _rule_text(members[0]))
    for name, kbps, reason in _bandwidth(owner, matched, policy, standing.provider(suffix)):
        inventories[name] = Inventory(total=kbps, max_unit=kbps), reason
    traits = dict.fromkeys(_traits_of(matched[0]), Reason(_listed(matched), _rule_text(matched[0])))
    if sick:
        traits[UNHEALTHY] = Reason("; ".join(f"{at}: {why}" for at, why in sorted(sick.items())), RESERVED_ILL)
    once = any(match.rule and match.rule.one_time_use for match in matched)
    return DeviceStock(suffix=suffix, cell=owner.cell, inventories=inventories, traits=traits, once=once)


def _traits_of(match: _Match) -> frozenset[str]:
    rule = match.rule
    if rule is None:
        return frozenset({"HW_NIC_SRIOV"})
    own = {
        "HW_PCI_LIVE_MIGRATABLE": rule.live_migratable,
        "HW_PCI_ONE_TIME_USE": bool(rule.one_time_use),
        # What nova asks for with its own PCI requests, which shall not be given the devices of Neutron's ports.
        MANAGED: rule.physical_network is None,
        "HW_NIC_SRIOV": rule.physical_network is not None,
    }
    network = {normalise_trait(f"PHYSNET_{rule.physical_network}")} if rule.physical_network else set()
    return rule.traits | {name for name, given in own.items() if given} | network


def _reserved(
    name: str,
    members: list[_Match],
    sick: Mapping[PciAddress, str],
    held: frozenset[PciAddress],
    stands: ObservedProvider | None,
) -> tuple[int, str]:
    """
    How many of a class are kept from guests, and a remark on why.

    What stands reserved is somebody's word and stays, unless our mark says that we reserved it for ill health. A
    one-time device that a guest has is reserved, and only somebody else ever gives it back (nova's semantics).
    """
    ill = sum(match.function.address in sick for match in members)
    ours = stands is not None and UNHEALTHY in stands.provider.traits
    stock = stands.provider.inventories.get(name) if stands else None
    once = any(match.rule and match.rule.one_time_use for match in members)
    if once and any(match.function.address in held for match in members):
        return len(members), "; a guest has it, so it is reserved for good"
    said = stock.reserved if stock and (once or not ours) else 0
    note = f"; {ill} of them ill" if ill else ""
    return max(ill, said), note + (f"; {said} reserved in placement" if said > ill else "")


def _bandwidth(
    pf: PciFunction, matched: list[_Match], policy: DevicePolicy, stands: ObservedProvider | None
) -> list[tuple[str, int, Reason]]:
    """(class, kbit/s, reason) of a PF; a link that is down tells no speed, and what stood there stays."""
    rule = next((match.rule for match in matched if match.rule and match.rule.bandwidth), None)
    if rule is None and not (policy.link_bandwidth and pf.is_pf):
        return []
    wish = (rule.bandwidth if rule else None) or Bandwidth()
    because = f"bandwidth in [pci] device_spec, rule {rule.number}" if rule else "[pci] link_bandwidth"
    mbps = sum(net.speed_mbps or 0 for net in pf.net_devices)
    found = []
    for name, kbps in ((EGRESS, wish.egress_kbps), (INGRESS, wish.ingress_kbps)):
        stock = stands.provider.inventories.get(name) if stands else None
        if kbps:
            found.append((name, kbps, Reason(f"{kbps} kbit/s", because)))
        elif mbps:
            found.append((name, mbps * 1000, Reason(f"the link of {pf.address} runs at {mbps} Mbit/s", because)))
        elif stock:
            told = f"the link of {pf.address} tells no speed now: what placement holds stays"
            found.append((name, stock.total, Reason(told, because)))
    return found


def _silent_vfs(
    groups: Mapping[PciAddress, object],
    functions: Mapping[PciAddress, PciFunction],
    ruled: Mapping[PciAddress, DeviceRule],
    standing: Standing,
) -> list[DeviceStock]:
    """PFs whose driver is gone, and with it the attribute that told what their VFs are: what stood there, reserved."""
    pfs = {functions[address].pf for address, rule in ruled.items() if rule.class_attribute}
    found = []
    for address in sorted(pf for pf in pfs - groups.keys() if pf):
        pf = functions.get(address)
        if pf and pf.driver is None:
            found += silenced(str(address), pf, standing)
    return found


def _refuse_turning_off(standing: Standing) -> None:
    for _, seen in standing.children:
        if MANAGED in seen.provider.traits:
            raise PolicyError(
                f"[pci] report_in_placement is off, and placement holds {seen.name}, a device that was reported: set "
                f"it to true; to withdraw devices, take their rules out of device_spec"
            )


def _listed(matched: list[_Match]) -> str:
    """``8 VFs of 0000:81:00.0`` or ``device 0000:81:00.0 (8086:1533)``."""
    first = matched[0].function
    ids = f"{first.vendor_id}:{first.product_id}"
    if first.pf is None:
        return f"{'PF' if first.is_pf else 'device'} {first.address} ({ids})"
    return f"{len(matched)} VF{'s' if len(matched) > 1 else ''} of {first.pf} ({ids}), {first.address} the first"


def _rule_text(match: _Match) -> str:
    return f"[pci] device_spec, rule {match.rule.number}" if match.rule else "[pci] discover = all"
