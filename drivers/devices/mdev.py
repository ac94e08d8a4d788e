"""Mediated devices: how many each card has and can make of the type that is enabled for the card."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from drivers.by_suffix import BySuffix
from drivers.devices.health import ills
from drivers.devices.inventories import DeviceStock, libvirt_name, marks, short
from drivers.devices.odd import undecided_units
from drivers.facts import HostFacts, Mdev, MdevParent, PciFunction
from drivers.policy import MdevRule
from drivers.reasons import Reason
from reportclient.names import device_address
from reportclient.reserve import reserved_by_operator_on
from reportclient.tree import Inventory


def mdev_stock(facts: HostFacts, rules: tuple[MdevRule, ...], standing: BySuffix) -> list[DeviceStock]:
    """Return a provider for each parent that offers an enabled type."""
    if not rules:
        return []
    functions = {function.address: function for function in facts.devices.functions}
    chosen = [(parent, rule) for parent in facts.devices.mdev_parents if (rule := rule_of(parent, rules))]
    given = frozenset[str]().union(*(guest.devices.mdevs for guest in facts.guests))
    made = _made(facts, rules, chosen, given)
    totals = _totals(chosen, made, given, _out_of_sight(facts, rules, chosen, standing), standing)
    found = []
    for parent, rule in chosen:
        if total := totals[parent.name]:
            function = functions.get(parent.address) if parent.address else None
            pf = functions.get(function.pf) if function and function.pf else None
            why = ills(function, pf) if function else None
            found.append(_mdev_provider(parent, rule, function, total, made[parent.name], why, standing))
    return found


def _made(
    facts: HostFacts,
    rules: Iterable[MdevRule],
    chosen: Iterable[tuple[MdevParent, MdevRule]],
    given: Collection[str],
) -> dict[str, list[Mdev]]:
    """
    Return the mediated devices that count for each parent: those of its type, and what guests have of its class.

    Nova gives guests no existing device of another type than its card's (``_get_existing_mdevs_not_assigned`` in
    nova/virt/libvirt/driver.py); a guest may have one from before the configuration changed.
    """
    classes = {rule.type: rule.resource_class for rule in rules}
    found: dict[str, list[Mdev]] = {parent.name: [] for parent, _ in chosen}
    offered = {parent.name: rule for parent, rule in chosen}
    for mdev in facts.devices.mdevs:
        rule, is_given = offered.get(mdev.parent), mdev.uuid in given
        if rule and (mdev.type == rule.type or (is_given and classes.get(mdev.type) == rule.resource_class)):
            found[mdev.parent].append(mdev)
    return found


def rule_of(parent: MdevParent, rules: Iterable[MdevRule]) -> MdevRule | None:
    """Return the rule that enables a type on a card; None: no type is enabled there."""
    return rule_for({parent.name, str(parent.address)}, rules)


def idle_types(facts: HostFacts, rules: Iterable[MdevRule]) -> tuple[str, ...]:
    """Return a sentence for each enabled type without a card on this host, and for each listed card that is none."""
    found = []
    for rule in rules:
        able = [one for one in facts.devices.mdev_parents if any(kind.id == rule.type for kind in one.types)]
        if not able:
            found.append(
                f"[devices] enabled_mdev_types has {rule.type}, which no card of this host can make: correct it or "
                f"load the card's driver"
            )
            continue
        cards = " ".join(str(parent.address or parent.name) for parent in able)
        names = {name for parent in able for name in (parent.name, str(parent.address))}
        found += [
            f"[mdev_{rule.type}] device_addresses has {address}, which is no card of this host that can make "
            f"{rule.type}: the cards that can are {cards}"
            for address in sorted(rule.addresses - names)
        ]
    return tuple(found)


def rule_for(names: Collection[str], rules: Iterable[MdevRule]) -> MdevRule | None:
    """Return the rule that lists a card by address or libvirt's name, else the first rule that lists no cards."""
    by_address = next((rule for rule in rules if not rule.addresses.isdisjoint(names)), None)
    return by_address or next((rule for rule in rules if not rule.addresses), None)


def _out_of_sight(
    facts: HostFacts,
    rules: Collection[MdevRule],
    chosen: Iterable[tuple[MdevParent, MdevRule]],
    standing: BySuffix,
) -> dict[str, int]:
    """
    Return how many devices of each type cards have in placement that show none of their types now.

    A card counts for the type that is enabled for it: several types may have one resource class, and so may VFs of the
    same or another card, whose provider has nova's name for PCI functions.
    """
    speaking = {parent.name for parent, _ in chosen}
    here = {libvirt_name(str(one.address)) for one in facts.devices.functions}
    here |= {name for name in undecided_units(facts.devices) if ":" not in name}
    found = {rule.type: 0 for rule in rules}
    for name in here - speaking:
        rule, seen = rule_for({name, device_address(name) or name}, rules), standing.provider(name)
        if rule and seen and (stock := seen.provider.inventories.get(rule.resource_class)):
            found[rule.type] += stock.total
    return found


def _totals(
    chosen: Iterable[tuple[MdevParent, MdevRule]],
    made: Mapping[str, list[Mdev]],
    given: Collection[str],
    before: Mapping[str, int],
    standing: BySuffix,
) -> dict[str, int]:
    """
    Return how many each parent offers, until ``max_instances`` of its type is reached on the host.

    First come those that guests have (``given``), then what stands in placement, as somebody may have claimed it, then
    what else exists, then what else can be made. ``before`` is how many of each type other cards have.
    """
    used, most, levels = Counter(before), {}, {}
    for parent, rule in chosen:
        exist, stood = len(made[parent.name]), standing.provider(parent.name)
        able = exist + next((kind.available_instances for kind in parent.types if kind.id == rule.type), 0)
        stock = stood.provider.inventories.get(rule.resource_class) if stood else None
        levels[parent.name] = (min(able, stock.total if stock else 0), exist, able)
        most[parent.name] = sum(mdev.uuid in given for mdev in made[parent.name])
        used[rule.type] += most[parent.name]
    for level in range(3):
        for parent, rule in chosen:
            more = max(0, levels[parent.name][level] - most[parent.name])
            if rule.max_instances is not None:
                more = max(0, min(more, rule.max_instances - used[rule.type]))
            most[parent.name] += more
            used[rule.type] += more
    return most


def _mdev_provider(
    parent: MdevParent,
    rule: MdevRule,
    function: PciFunction | None,
    total: int,
    made: list[Mdev],
    why: str | None,
    standing: BySuffix,
) -> DeviceStock:
    before = reserved_by_operator_on(standing.provider(parent.name))
    kept = total if why else min(total, before.get(rule.resource_class, 0))
    stock = Inventory(total=total, max_unit=total, reserved=kept)
    limit = f", and [mdev_{rule.type}] max_instances is {rule.max_instances}" if rule.max_instances is not None else ""
    fact = f"{len(made)} mdevs exist on {parent.name}, {max(0, total - len(made))} more of type {rule.type} can be made"
    reason = Reason(fact, f"[devices] enabled_mdev_types has {rule.type}{limit}")
    return DeviceStock(
        suffix=parent.name,
        cell=function.cell if function else None,
        inventories={rule.resource_class: (stock, reason)},
        traits=marks(f"{parent.name}: {why}", before) if why else short(before, {rule.resource_class: total}),
        members={mdev.uuid: rule.resource_class for mdev in made},
        hardware=frozenset({str(one) for one in (parent.address, function.pf if function else None) if one}),
        ill=f"{parent.name}: {why}" if why else "",
        novas=True,
    )
