"""PCI devices: which functions are offered, by which rule, as what; and what nova refuses of them."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from drivers.devices.reserve import RULE, marks, own_traits, said
from drivers.devices.stock import DeviceStock
from drivers.errors import MalformedFact, PolicyError
from drivers.facts import HostFacts, PciFunction
from drivers.health import ills
from drivers.pci import PciAddress
from drivers.policy import Bandwidth, DevicePolicy, DeviceRule
from drivers.reasons import Reason
from drivers.rules import matches
from drivers.standing import Standing
from reportclient.names import normalise_class, normalise_trait
from reportclient.ownership import MANAGED
from reportclient.tree import Inventory, ObservedProvider

EGRESS, INGRESS = "NET_BW_EGR_KILOBIT_PER_SEC", "NET_BW_IGR_KILOBIT_PER_SEC"
PHYSNET = "CUSTOM_PHYSNET_"  # followed by the name of a physical network, as Neutron has it
OF_DEVICES = frozenset({MANAGED, "HW_NIC_SRIOV", "HW_PCI_LIVE_MIGRATABLE", "HW_PCI_ONE_TIME_USE"})
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
    if not policy.report:
        _refuse_turning_off(standing)
    functions = {function.address: function for function in facts.devices.functions}
    ruled = rules_by_function(functions, policy)
    spoken_of = {functions[address].pf or address for address in ruled}
    ruled = ruled if policy.report else {}
    groups: dict[PciAddress, list[_Match]] = {}
    for function in facts.devices.functions:
        rule = ruled.get(function.address)
        match = _by_rule(function, rule) if rule else _by_itself(function, functions, spoken_of, policy)
        if match:
            groups.setdefault(function.pf or function.address, []).append(match)
    held = frozenset().union(*(guest.pci for guest in facts.guests))
    stock = {}
    for address, matched in sorted(groups.items()):
        _check_group(address, matched, facts)
        stock[address] = _pci_provider(address, matched, functions, held, policy, standing)
    for address, silent in _silent_vfs(functions, ruled).items():
        kept = _with_silent(stock.get(address), address, silent, standing)
        if kept:
            stock[address] = kept
    return [stock[address] for address in sorted(stock)]


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
    if not (kind.isdecimal() and len(kind) < 10):
        raise MalformedFact(f"{function.address}: {rule.class_attribute} shows {kind[:40]!r}, which is no number")
    return None if int(kind) == int(NO_TYPE) else normalise_class(f"{rule.class_attribute.split('/')[0]}_{int(kind)}")


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
            f"[pci] device_spec, rule {_numbers(matched)}, offers both {address} and its VF "
            f"{parts[0].function.address}: a PF is offered whole or as its VFs, never both (the address of a PF means "
            f"its VFs too): name a product_id, {whole[0].function.product_id} for the PF or "
            f"{parts[0].function.product_id} for its VFs"
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
    stands = standing.provider(suffix)
    inventories: dict[str, tuple[Inventory, Reason]] = {}
    for name in sorted({match.resource_class for match in matched}):
        members = [match for match in matched if match.resource_class == name]
        kept, note = _reserved(members, sick, held, said(stands, name))
        stock = Inventory(total=len(members), max_unit=len(members), reserved=min(kept, len(members)))
        inventories[name] = stock, Reason(f"{_listed(members)}{note}", _rule_text(members[0]))
    all_ill = len(sick) == len(matched)
    for name, kbps, reason in _bandwidth(owner, matched, policy, stands):
        kept = kbps if all_ill else min(kbps, said(stands, name))
        inventories[name] = Inventory(total=kbps, max_unit=kbps, reserved=kept), reason
    why = _told(sick)
    traits = dict.fromkeys(_traits_of(matched[0]), Reason(_listed(matched), _rule_text(matched[0])))
    return DeviceStock(
        suffix=suffix,
        cell=owner.cell,
        inventories=inventories,
        traits=traits | (marks(why, {name: said(stands, name) for name in inventories}) if sick else {}),
        once=any(match.rule and match.rule.one_time_use for match in matched),
        ill=why,
    )


def _told(sick: Mapping[PciAddress, str]) -> str:
    """Each reason once, with the first function that it is about."""
    first: dict[str, PciAddress] = {}
    for address, why in sorted(sick.items()):
        first.setdefault(why, address)
    return "; ".join(f"{address}: {why}" for why, address in first.items())


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
    members: list[_Match], sick: Mapping[PciAddress, str], held: frozenset[PciAddress], others: int
) -> tuple[int, str]:
    """
    How many of a class are kept from guests, and a remark on why; ``others`` is what somebody else reserved.

    A one-time device that a guest has is reserved, and only somebody else ever gives it back (nova's semantics).
    """
    ill = sum(match.function.address in sick for match in members)
    once = any(match.rule and match.rule.one_time_use for match in members)
    if once and any(match.function.address in held for match in members):
        return len(members), "; a guest has it, so it is reserved for good"
    note = f"; {ill} of them ill" if ill else ""
    return max(ill, others), note + (f"; {others} reserved in placement" if others > ill else "")


def _bandwidth(
    pf: PciFunction, matched: list[_Match], policy: DevicePolicy, stands: ObservedProvider | None
) -> list[tuple[str, int, Reason]]:
    """(class, kbit/s, reason) of a PF; a link that is down tells no speed, and what stood there stays."""
    rule = next((match.rule for match in matched if match.rule and match.rule.bandwidth), None)
    if rule is None and not (policy.link_bandwidth and pf.is_pf):
        return []
    wish = (rule.bandwidth if rule else None) or Bandwidth()
    because = f"bandwidth in [pci] device_spec, rule {rule.number}" if rule else "[pci] link_bandwidth"
    speeds = [net.speed_mbps for net in pf.net_devices if net.speed_mbps]
    mbps = max(speeds, default=0)  # interfaces of one card may be views of the same link
    whole = len(speeds) == len(pf.net_devices)
    found = []
    for name, kbps in ((EGRESS, wish.egress_kbps), (INGRESS, wish.ingress_kbps)):
        stock = stands.provider.inventories.get(name) if stands else None
        if kbps:
            found.append((name, kbps, Reason(f"{kbps} kbit/s", because)))
        elif mbps and (whole or not stock):
            found.append((name, mbps * 1000, Reason(f"the link of {pf.address} runs at {mbps} Mbit/s", because)))
        elif stock:
            told = f"the link of {pf.address} tells no speed now: what placement holds stays"
            found.append((name, stock.total, Reason(told, because)))
    return found


def _silent_vfs(
    functions: Mapping[PciAddress, PciFunction], ruled: Mapping[PciAddress, DeviceRule]
) -> dict[PciAddress, list[PciFunction]]:
    """By provider: the functions whose driver does not show the file that a rule takes their class from."""
    found: dict[PciAddress, list[PciFunction]] = {}
    for address, rule in sorted(ruled.items()):
        function = functions[address]
        if rule.class_attribute and rule.class_attribute not in dict(function.attributes):
            found.setdefault(function.pf or address, []).append(function)
    return found


def _with_silent(
    stock: DeviceStock | None, address: PciAddress, silent: list[PciFunction], standing: Standing
) -> DeviceStock | None:
    """
    A provider's stock and, reserved, what stood there of functions that tell nothing now.

    No such file is not the same as a file that says 0: a driver that is gone comes back with its vGPUs.
    """
    stands = standing.provider(str(address))
    if stands is None:
        return stock
    why = f"{silent[0].address}: its driver does not show what it is"
    inventories = dict(stock.inventories) if stock else {}
    left = len(silent)
    for name, stood in sorted(stands.provider.inventories.items()):
        now = inventories[name][0] if name in inventories else None
        missing = min(left, stood.total - (now.total if now else 0))
        if missing > 0:
            total = missing + (now.total if now else 0)
            kept = missing + (now.reserved if now else 0)
            inventories[name] = Inventory(total=total, max_unit=total, reserved=kept), Reason(why, RULE)
            left -= missing
    if not inventories:
        return stock
    before = {name: said(stands, name) for name in inventories}
    traits = stock.traits if stock else dict.fromkeys(own_traits(stands), Reason(why, RULE))
    return DeviceStock(
        suffix=str(address),
        cell=silent[0].cell,
        inventories=inventories,
        traits={**traits, **marks(why, before)},
        ill=why,
    )


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
