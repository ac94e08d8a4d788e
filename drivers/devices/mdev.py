"""Mediated devices: how many each card has and can make of the type that is enabled for the card."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from drivers.by_suffix import BySuffix
from drivers.devices.inventories import DeviceStock, libvirt_name, marks, short
from drivers.devices.odd import undecided_units
from drivers.devices.use import ills
from drivers.facts import HostFacts, Mdev, MdevParent, PciFunction
from drivers.pci import PciAddress
from drivers.policy import MdevRule
from drivers.reasons import Reason
from reportclient.errors import few
from reportclient.names import device_address
from reportclient.tree import Inventory, total_of


@dataclass(frozen=True, slots=True)
class _Card:
    """A card that offers a type, with the mediated devices that count for it."""

    parent: MdevParent
    rule: MdevRule
    made: tuple[Mdev, ...]
    given: int  # how many of them guests have


def mdev_stock(facts: HostFacts, rules: tuple[MdevRule, ...], standing: BySuffix) -> list[DeviceStock]:
    """Return a provider for each parent that offers an enabled type."""
    functions = {function.address: function for function in facts.devices.functions}
    cards = _cards(facts, rules)
    before = _out_of_sight(facts, rules, {card.parent.name for card in cards}, standing)
    totals = _totals(cards, before, standing)
    return [
        _mdev_provider(card, total, functions, standing) for card, total in zip(cards, totals, strict=True) if total
    ]


def _cards(facts: HostFacts, rules: Collection[MdevRule]) -> list[_Card]:
    """
    Return the cards that offer an enabled type; of their devices those of the type, and what guests have of its class.

    Nova gives guests no existing device of another type than its card's (``_get_existing_mdevs_not_assigned`` in
    nova/virt/libvirt/driver.py); a guest may have one from before the configuration changed.
    """
    classes = {rule.type: rule.resource_class for rule in rules}
    given = frozenset[str]().union(*(guest.devices.mdevs for guest in facts.guests))
    found = []
    for parent, rule in ((parent, rule_of(parent, rules)) for parent in facts.devices.mdev_parents):
        if rule:
            own = [mdev for mdev in facts.devices.mdevs if mdev.parent == parent.name]
            alike = {mdev.uuid for mdev in own if classes.get(mdev.type) == rule.resource_class}
            made = tuple(mdev for mdev in own if mdev.type == rule.type or mdev.uuid in alike & given)
            found.append(_Card(parent, rule, made, sum(mdev.uuid in given for mdev in made)))
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
            others = sorted({kind.id for one in facts.devices.mdev_parents for kind in one.types})
            what = f"correct it (they make {few(others)})" if others else "correct it"
            found.append(
                f"[devices] enabled_mdev_types has {rule.type}, which no card of this host can make: {what} or load "
                f"the card's driver"
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
    facts: HostFacts, rules: Collection[MdevRule], speaking: Collection[str], standing: BySuffix
) -> dict[str, int]:
    """
    Return how many devices of each type cards have in placement that show none of their types now.

    ``speaking`` are the names of those that show some. A card counts for the type that is enabled for it: several types
    may have one resource class, and so may VFs of the same or another card, whose provider has nova's name for PCI
    functions.
    """
    here = {libvirt_name(str(one.address)) for one in facts.devices.functions}
    here |= {name for name in undecided_units(facts.devices) if ":" not in name}
    found = {rule.type: 0 for rule in rules}
    for name in here.difference(speaking):
        if rule := rule_for({name, device_address(name) or name}, rules):
            found[rule.type] += total_of(standing.stock(name), rule.resource_class)
    return found


def _totals(cards: Collection[_Card], before: Mapping[str, int], standing: BySuffix) -> list[int]:
    """
    Return how many each card offers, until ``max_instances`` of its type is reached on the host.

    First come those that guests have, then what stands in placement, as somebody may have claimed it, then what else
    exists, then what else can be made. ``before`` is how many of each type other cards have.
    """
    used, most, levels = Counter(before), [card.given for card in cards], []
    for card in cards:
        exist, stood = len(card.made), total_of(standing.stock(card.parent.name), card.rule.resource_class)
        able = exist + next((kind.available_instances for kind in card.parent.types if kind.id == card.rule.type), 0)
        levels.append((min(able, stood), exist, able))
        used[card.rule.type] += card.given
    for level in range(3):
        for number, card in enumerate(cards):
            more = max(0, levels[number][level] - most[number])
            if card.rule.max_instances is not None:
                more = max(0, min(more, card.rule.max_instances - used[card.rule.type]))
            most[number] += more
            used[card.rule.type] += more
    return most


def _mdev_provider(
    card: _Card, total: int, functions: Mapping[PciAddress, PciFunction], standing: BySuffix
) -> DeviceStock:
    parent, rule, made = card.parent, card.rule, card.made
    function = functions.get(parent.address) if parent.address else None
    pf = functions.get(function.pf) if function and function.pf else None
    why = next(ills(function, pf), "") if function else ""
    before = standing.reserved(parent.name)
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
