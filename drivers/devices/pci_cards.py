"""The stock of PCI devices: a provider for each PF or plain device; VFs are counted on their PF."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

from drivers.by_suffix import BySuffix
from drivers.devices.inventories import DeviceStock, marks, nova_name, short
from drivers.devices.match import (
    Match,
    by_itself,
    find_rules,
    listed,
    offered_together,
    rule_text,
    traits_of,
)
from drivers.devices.use import Use, unfit, use_of
from drivers.errors import PolicyError
from drivers.facts import HostFacts, PciFunction
from drivers.pci import PciAddress
from drivers.policy import Bandwidth, DevicePolicy
from drivers.reasons import Reason
from drivers.rules import matches
from reportclient.ownership import MANAGED
from reportclient.tree import Inventory

IN_A_PORT = "a guest has it through a port of Neutron, for which nova allocates nothing"
NEUTRONS = ":NIC Switch agent:"  # between the names of the host and of the interface (neutron_lib.placement)
EGRESS, INGRESS = "NET_BW_EGR_KILOBIT_PER_SEC", "NET_BW_IGR_KILOBIT_PER_SEC"


def pci_stock(facts: HostFacts, policy: DevicePolicy, standing: BySuffix) -> list[DeviceStock]:
    """
    Return a provider for each PF whose VFs are offered, and for each function that is offered whole.

    Raises:
        PolicyError: the rules contradict each other or this host.
    """
    if not policy.report:
        _refuse_turning_off(standing)
    ruled = find_rules(facts.devices, policy)
    functions = ruled.functions
    spoken_of = _perhaps_ruled(facts, policy).union(functions[at].counted_on for at in (*ruled.rules, *ruled.hidden))
    groups = ruled.groups
    for function in facts.devices.functions:
        if match := by_itself(function, functions, spoken_of, policy):
            groups.setdefault(function.counted_on, []).append(match)
    together = {address: offered_together(address, matched, facts) for address, matched in sorted(groups.items())}
    use = use_of(facts, chain.from_iterable(together.values()))
    return [
        _pci_provider(address, matched, functions, use, policy, standing)
        for address, matched in together.items()
        if matched
    ]


def _pci_provider(
    address: PciAddress,
    matched: list[Match],
    functions: Mapping[PciAddress, PciFunction],
    use: Use,
    policy: DevicePolicy,
    standing: BySuffix,
) -> DeviceStock:
    suffix = nova_name(str(address))
    owner = functions.get(address, matched[0].function)
    sick = unfit(matched, functions.get(address), use)
    away = {one.address: IN_A_PORT for match in matched if (one := match.function).address in use.unbooked} | sick
    # A used one-time device counts as reserved by an operator, as in nova.
    used_up = {one.resource_class: 1 for one in matched if one.once and one.function.address in use.held}
    before = standing.reserved(suffix) | used_up
    inventories: dict[str, tuple[Inventory, Reason]] = {}
    for name in sorted({match.resource_class for match in matched}):
        members = [match for match in matched if match.resource_class == name]
        kept, note = _reserved(members, sick, away, use.held, before.get(name, 0))
        stock = Inventory(total=len(members), max_unit=len(members), reserved=min(kept, len(members)))
        inventories[name] = stock, Reason(f"{listed(members)}{note}", rule_text(members[0]))
    all_ill = len(sick) == len(matched)
    bandwidth, untold = _bandwidth(owner, matched, policy, standing.stock(suffix))
    twice = _neutrons_bandwidth(owner, standing) if bandwidth or untold else ""
    if twice and not _in_total(standing):
        bandwidth, untold = [], frozenset()
    for name, kbps, reason in bandwidth:
        kept = kbps if all_ill else min(kbps, before.get(name, 0))
        inventories[name] = Inventory(total=kbps, max_unit=kbps, reserved=kept), reason
    why = _told(away)
    totals = {name: stock.total for name, (stock, _) in inventories.items()}
    traits = dict.fromkeys(traits_of(matched[0]), Reason(listed(matched), rule_text(matched[0])))
    return DeviceStock(
        suffix=suffix,
        cell=owner.cell,
        inventories=inventories,
        traits=traits | (marks(why, before) if away else short(before, totals)),
        members={str(match.function.address): match.resource_class for match in matched},
        hardware=frozenset(map(str, (address, *(one.function.address for one in matched), *matched[0].function.vfs))),
        once=matched[0].once,
        ill=why,
        untold=untold,
        twice=twice,
        novas=any(match.rule.novas and not match.by_itself for match in matched),
    )


def _perhaps_ruled(facts: HostFacts, policy: DevicePolicy) -> frozenset[PciAddress | None]:
    """Return the cards with a VF that is odd, and that a rule would match if it were like another VF of its card."""
    alike = {one.pf: one for one in facts.devices.functions if one.pf}
    odd = (replace(alike[one.pf], address=one.address) for one in facts.devices.odd if one.address and one.pf in alike)
    return frozenset(one.pf for one in odd if any(matches(rule, one) for rule in policy.rules))


def _told(sick: Mapping[PciAddress, str]) -> str:
    """Return each reason once, with the first function that it applies to."""
    first: dict[str, PciAddress] = {}
    for address, why in sorted(sick.items()):
        first.setdefault(why, address)
    return "; ".join(f"{address}: {why}" for why, address in first.items())


def _reserved(
    members: list[Match],
    sick: Mapping[PciAddress, str],
    away: Mapping[PciAddress, str],
    held: frozenset[PciAddress],
    others: int,
) -> tuple[int, str]:
    """
    Return how many of a class are reserved, and a remark for people; ``others`` is what others reserved in placement.

    ``away`` are the functions that no guest can get now: those that are ``sick``, and those in ports of networks.

    A reservation names no device: it may mean other devices than the unhealthy ones. So both count, and the sum may
    exceed the number of members. A one-time device that a guest has is reserved; this agent never releases it, only
    others do (as in nova).
    """
    ill = sum(match.function.address in sick for match in members)
    if members[0].once and members[0].function.address in held:
        return len(members), "; a guest has it, so it is reserved for good"
    gone = sum(match.function.address in away for match in members)
    note = f"; {ill} of them unhealthy" if ill else ""
    note += f"; {gone - ill} of them in ports of Neutron" if gone > ill else ""
    return gone + others, note + (f"; {others} reserved in placement" if others else "")


def _bandwidth(
    pf: PciFunction, matched: list[Match], policy: DevicePolicy, stands: Mapping[str, Inventory]
) -> tuple[list[tuple[str, int, Reason]], frozenset[str]]:
    """
    Return (class, kbit/s, reason) of a PF, and the classes of which it has an unknown amount.

    A link that is down shows no speed; then what ``stands``, the stock in placement, stays.
    """
    rule = next((match.rule for match in matched if match.rule.network.bandwidth), None)
    if rule is None and not (policy.link_bandwidth and pf.is_pf):
        return [], frozenset()
    wish = (rule.network.bandwidth if rule else None) or Bandwidth()
    because = f"bandwidth in [pci] device_spec, rule {rule.number}" if rule else "[pci] link_bandwidth"
    speeds = [net.speed_mbps for net in pf.links if net.speed_mbps]
    mbps = max(speeds, default=0)  # interfaces of one card may be views of the same link
    whole = len(speeds) == len(pf.links)
    found = []
    untold = set()
    for name, kbps in ((EGRESS, wish.egress_kbps), (INGRESS, wish.ingress_kbps)):
        stock = stands.get(name)
        if kbps:
            found.append((name, kbps, Reason(f"{kbps} kbit/s", because)))
        elif mbps and (whole or not stock):
            found.append((name, mbps * 1000, Reason(f"the link of {pf.address} runs at {mbps} Mbit/s", because)))
        elif stock:
            told = f"the link of {pf.address} shows no speed now, so the amount in placement stays"
            found.append((name, stock.total, Reason(told, because)))
        elif pf.net_devices or pf.driver is None:
            untold.add(name)
    return found, frozenset(untold)


def _in_total(standing: BySuffix) -> bool:
    """Return whether bandwidth is in a total of the root, as in the layout flat, from which guests may have it."""
    return bool(standing.stock("").keys() & {EGRESS, INGRESS})


def _neutrons_bandwidth(pf: PciFunction, standing: BySuffix) -> str:
    """Return a sentence on the provider that Neutron's SR-IOV agent made of a PF's interface; empty: there is none."""
    what = "stays on offer, also though" if _in_total(standing) else "is left out, as"
    for _, seen in standing.children:
        for net in pf.links:
            if seen.name.endswith(f"{NEUTRONS}{net.name}") and seen.provider.inventories.keys() & {EGRESS, INGRESS}:
                return (
                    f"{pf.address}: its bandwidth {what} {seen.name} has that of {net.name}. Take one of both "
                    f"away: [pci] link_bandwidth or the rule's bandwidth here, or the interface in Neutron's "
                    f"resource_provider_bandwidths"
                )
    return ""


def _refuse_turning_off(standing: BySuffix) -> None:
    """Refuse to report no devices while placement has some, as in nova."""
    for _, seen in standing.children:
        if MANAGED in seen.provider.traits:
            raise PolicyError(
                f"[pci] report_in_placement is off, and placement holds {seen.name}, a device that was reported: set "
                f"the option to true; to withdraw devices, remove their rules from device_spec"
            )
