"""Find the PCI functions that are offered, with their rules and classes; refuse the rules that nova refuses."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from drivers.by_suffix import BySuffix
from drivers.errors import PolicyError
from drivers.facts import Devices, HostFacts, OddDevice, PciFunction, Versions
from drivers.pci import PciAddress
from drivers.policy import DevicePolicy, DeviceRule
from drivers.rules import matches, network_trait
from reportclient.names import normalise_class, spelled
from reportclient.ownership import MANAGED
from reportclient.tree import total_of

PHYSNET = "CUSTOM_PHYSNET_"  # followed by the name of a physical network in Neutron
OF_DEVICES = frozenset({MANAGED, "HW_NIC_SRIOV", "HW_PCI_LIVE_MIGRATABLE", "HW_PCI_ONE_TIME_USE"})
NETWORK = 0x02  # PCI base class
LIBVIRT_LIVE_VFIO = 10_000_000  # the first version that migrates guests with VFIO variant drivers
QEMU_LIVE_VFIO = 8_002_002  # the same
ITSELF = DeviceRule(number=0, resource_class="SRIOV_NET_VF", traits=frozenset({"HW_NIC_SRIOV"}))
"""What ``[pci] discover = all`` offers, as if an operator's rule did."""
NO_TYPE = "0"  # in NVIDIA's nvidia/current_vgpu_type: the VF is no vGPU


@dataclass(frozen=True, slots=True)
class Match:
    """A function that is offered, its rule, and the class that it counts as."""

    function: PciFunction
    rule: DeviceRule
    resource_class: str

    @property
    def by_itself(self) -> bool:
        """Return whether no rule of the operator's matches the function."""
        return self.rule is ITSELF

    @property
    def network(self) -> str | None:
        """Return the physical network whose ports get the function; None: it is not Neutron's."""
        return self.rule.network.name

    @property
    def once(self) -> bool:
        """Return whether its first guest uses it up for good; it is the only function of its provider then."""
        return bool(self.rule.one_time_use)


@dataclass(frozen=True, slots=True)
class Ruled:
    """The PCI functions of a host by address, and the first rule that matches each, as in nova."""

    functions: Mapping[PciAddress, PciFunction]
    rules: Mapping[PciAddress, DeviceRule]  # without functions that no guest can be given
    offered: Mapping[PciAddress, DeviceRule]  # the same; none where no device is reported
    hidden: Mapping[PciAddress, DeviceRule]  # of VFs that would be offered if their card showed a serial number now

    @property
    def groups(self) -> dict[PciAddress, list[Match]]:
        """The functions that are offered and have a class, by the address of their PF, else by their own."""
        found: dict[PciAddress, list[Match]] = {}
        for address, rule in sorted(self.offered.items()):
            if match := by_rule(self.functions[address], rule):
                found.setdefault(match.function.counted_on, []).append(match)
        return found

    @property
    def fitting(self) -> dict[PciAddress, list[Match]]:
        """The groups without what is left to Neutron, whose rules do not fit the others of their card."""
        return {address: _fitting(address, matched) for address, matched in self.groups.items()}


def find_rules(devices: Devices, policy: DevicePolicy) -> Ruled:
    """
    Return the functions of a host with their rules.

    A rule with ``remote_managed`` matches only what has a serial number, or whose PF has one: Neutron finds the card by
    it (nova/pci/devspec.py). A card whose VPD cannot be read for a while shows none.

    Raises:
        PolicyError: such a rule matches a function that is no VF.
    """
    functions = {function.address: function for function in devices.functions}
    found = {}
    for function in functions.values():
        for rule in policy.rules if function.can_be_given else ():
            if matches(rule, function) and _card_fits(function, functions, rule, policy):
                found[function.address] = rule
                break
    hidden = {
        function.address: rule
        for rule in reversed(policy.rules if policy.report else ())
        for function in functions.values()
        if rule.remote_managed and function.pf and function.address not in found and matches(rule, function)
    }
    return Ruled(functions, found, offered=found if policy.report else {}, hidden=hidden)


def beyond_nova(facts: HostFacts, policy: DevicePolicy) -> tuple[PciAddress, ...]:
    """Return the functions that the policy would offer if their PCI domains were lower, lowest address first."""
    far = [one for one in facts.devices.functions if not (one.ids.is_bridge or one.can_be_given)]
    rules = policy.rules if policy.report else ()
    return tuple(
        one.address for one in far if (policy.discover_all and one.is_vf) or any(matches(rule, one) for rule in rules)
    )


def _card_fits(
    function: PciFunction, functions: Mapping[PciAddress, PciFunction], rule: DeviceRule, policy: DevicePolicy
) -> bool:
    """
    Return whether a function or its PF shows the serial number that a rule with ``remote_managed`` needs.

    Raises:
        PolicyError: the function is no VF, and nova refuses it.
    """
    if not rule.remote_managed:
        return True
    counts = policy.report and rule.network.name is None  # nova leaves out what is Neutron's
    if function.pf is None and (counts or (function.is_pf and function.address == rule.place.exact)):
        raise PolicyError(
            f"[pci] device_spec rule {rule.number} has remote_managed for {function.address}, which is no VF: only VFs "
            f"can have it: add their product_id to the rule"
        )
    card = functions.get(function.counted_on)
    return bool(function.serial_number or (card and card.serial_number))


def by_rule(function: PciFunction, rule: DeviceRule) -> Match | None:
    """Return a function as its rule offers it; None when its class comes from a file that names no type."""
    if rule.class_attribute is None:
        ids = f"CUSTOM_PCI_{function.ids.vendor}_{function.ids.product}".upper()
        return Match(function, rule, rule.resource_class or ids)
    kind = int(dict(function.attributes).get(rule.class_attribute, NO_TYPE))
    vendors = rule.class_attribute.split("/")[0]
    return Match(function, rule, normalise_class(f"{vendors}_{kind}")) if kind else None


def by_itself(
    function: PciFunction,
    functions: Mapping[PciAddress, PciFunction],
    spoken_of: Container[PciAddress | None],
    policy: DevicePolicy,
) -> Match | None:
    """Return a VF of a network card, with ``discover = all``; None where a rule is about its card, on purpose then."""
    if not (policy.discover_all and function.pf and function.can_be_given) or function.pf in spoken_of:
        return None
    pf = functions.get(function.pf)
    is_nic = any(one.ids.device_class >> 16 == NETWORK for one in (function, pf) if one)
    return by_rule(function, ITSELF) if is_nic else None


def offered_together(address: PciAddress, matched: list[Match], facts: HostFacts) -> list[Match]:
    """
    Return what one provider offers of the functions that rules match: all, or all but Neutron's.

    Nova never reports what a rule with a physical_network matches (``_add_dev`` in its pci_placement_translator), so
    it accepts such a rule whatever else it matches. Here it is reported where it fits with the rest.

    Raises:
        PolicyError: the functions are such that nova refuses to offer them together, or cannot migrate live here.
    """
    matched = _fitting(address, matched)
    if refusal := _refusal(address, matched):
        raise PolicyError(refusal)
    _check_live(matched, facts)
    return matched


def left_to_neutron(ruled: Ruled) -> list[str]:
    """Return a sentence for each card of which devices are left out, as Neutron's rules do not fit the others."""
    return [
        f"{refusal}. What a rule with physical_network matches of this card is left to Neutron and is not reported, "
        f"as in nova"
        for address, matched in ruled.groups.items()
        if (refusal := _refusal(address, matched)) and len(_fitting(address, matched)) < len(matched)
    ]


def of_the_host(ruled: Ruled) -> list[str]:
    """Return a sentence for each rule that offers devices whose interfaces carry the host's own traffic."""
    found: dict[int, list[str]] = {}
    for matched in ruled.fitting.values():
        for match in matched:
            names = ", ".join(net.name for net in match.function.links if net.carries_host_traffic)
            if names:
                found.setdefault(match.rule.number, []).append(f"{match.function.address} ({names})")
    return [
        f"[pci] device_spec rule {number} offers {', '.join(devices)}, whose interfaces carry this host's own traffic: "
        f"a guest that gets such a device takes it from the host. Leave it out of the rule, as by naming the addresses "
        f"of the others"
        for number, devices in sorted(found.items())
    ]


def offered_twice(facts: HostFacts, policy: DevicePolicy, standing: BySuffix) -> list[OddDevice]:
    """
    Return the PFs that are on offer whole and that rules offer as their VFs too, each as odd: somebody made the VFs.

    What is left to Neutron does not count.
    """
    found = []
    for address, offered in find_rules(facts.devices, policy).fitting.items():
        whole, parts = _forms(address, offered)
        if whole and parts and _stands_whole(whole[0], standing):
            vf = parts[0].function.address
            why = (
                f"[pci] device_spec, rule {_numbers(offered)}, offers both it and its VF {vf} (take its VFs away by "
                f"sriov_numvfs, or correct the rules)"
            )
            found.append(OddDevice(str(address), why, address=address))
    return found


def _stands_whole(match: Match, standing: BySuffix) -> bool:
    """Return whether placement has the PF as one unit, or, in the layout flat, units of its class."""
    suffix, name = spelled(str(match.function.address)), match.resource_class
    if standing.provider(suffix) is None:
        return name in standing.stock("")
    return total_of(standing.stock(suffix), name) == 1


def _fitting(address: PciAddress, matched: list[Match]) -> list[Match]:
    """Return all functions where they can be offered together, else those whose rule names no physical network."""
    return [match for match in matched if not match.network] if _refusal(address, matched) else matched


def _forms(address: PciAddress, matched: list[Match]) -> tuple[list[Match], list[Match]]:
    """Return what is offered whole, and the VFs."""
    whole = [match for match in matched if match.function.address == address]
    return whole, [match for match in matched if match.function.address != address]


def _refusal(address: PciAddress, matched: list[Match]) -> str:
    """Return why these functions cannot be offered by one provider; empty: they can."""
    whole, parts = _forms(address, matched)
    if whole and parts:
        pf, vf = whole[0].function, parts[0].function
        return (
            f"[pci] device_spec, rule {_numbers(matched)}, offers both {address} and its VF {vf.address}: a PF is "
            f'offered whole or as its VFs, never both: to offer only its VFs, give that rule "product_id": '
            f'"{vf.ids.product}"; to offer only the PF, "product_id": "{pf.ids.product}". If both have the same, name '
            f"each VF by its own address, or set sriov_numvfs of the PF to 0"
        )
    for match in parts:
        if match.rule.one_time_use is not None:
            return (
                f"[pci] device_spec rule {match.rule.number} has one_time_use for {match.function.address}, a VF: "
                f"only PFs and plain devices can have it"
            )
    networks = sorted({match.network for match in matched if match.network})
    if nameless := [name for name in networks if not network_trait(name)]:
        return (
            f"[pci] device_spec has {nameless[0][:40]!r} as a physical_network, and no trait can be made of it: use "
            f"letters or digits"
        )
    fixed = {match.resource_class for match in matched if not match.rule.class_attribute}
    if len(fixed) > 1:
        return (
            f"[pci] device_spec offers VFs of {address} as {' and '.join(sorted(fixed))}: all VFs of one PF have one "
            f"resource class: correct the rules {_numbers(matched)}"
        )
    if len({traits_of(match) for match in matched}) > 1:
        return (
            f"[pci] device_spec gives VFs of {address} different traits, but all VFs of one PF must have the same "
            f"traits: correct the rules {_numbers(matched)}"
        )
    return ""


def has_live_vfio(versions: Versions) -> bool:
    """Return whether guests with PCI devices can move while they run."""
    return versions.libvirt >= LIBVIRT_LIVE_VFIO and versions.hypervisor >= QEMU_LIVE_VFIO


def _check_live(matched: list[Match], facts: HostFacts) -> None:
    wants_live = any(match.rule.live_migratable for match in matched)
    if wants_live and not has_live_vfio(facts.hypervisor.versions):
        raise PolicyError(
            f"[pci] device_spec has live_migratable, which needs libvirt 10.0.0 and QEMU 8.2.2, but this host has "
            f"an older version: remove live_migratable from the rules {_numbers(matched)}"
        )


def traits_of(match: Match) -> frozenset[str]:
    """Return the traits of a function's provider, without those that its health adds."""
    rule = match.rule
    if match.by_itself:
        return rule.traits
    own = {
        "HW_PCI_LIVE_MIGRATABLE": rule.live_migratable,
        "HW_PCI_ONE_TIME_USE": bool(rule.one_time_use),
        # Nova requires this trait in its own PCI requests, so that they never get the devices of Neutron's ports.
        MANAGED: rule.network.name is None,
        "HW_NIC_SRIOV": rule.network.name is not None,
    }
    network = {network_trait(rule.network.name)} if rule.network.name else set()
    return rule.traits | {name for name, given in own.items() if given} | network


def listed(matched: list[Match]) -> str:
    """Describe functions for people: ``8 VFs of 0000:81:00.0 ...`` or ``device 0000:81:00.0 (8086:1533)``."""
    first = matched[0].function
    if first.pf is None:
        return f"{'PF' if first.is_pf else 'device'} {first.address} ({first.ids})"
    return (
        f"{len(matched)} VF{'s' if len(matched) > 1 else ''} of {first.pf} ({first.ids}), starting at {first.address}"
    )


def rule_text(match: Match) -> str:
    """Name the rule or option that offers a function, for people."""
    return "[pci] discover = all" if match.by_itself else f"[pci] device_spec, rule {match.rule.number}"


def _numbers(matched: Iterable[Match]) -> str:
    return ", ".join(str(number) for number in sorted({match.rule.number for match in matched}))
