"""Mediated devices: how many vGPUs each card has and can make, of the type that is enabled for it."""

from collections.abc import Iterable, Mapping

from drivers.devices.stock import RESERVED_ILL, UNHEALTHY, DeviceStock, libvirt_name, silenced
from drivers.facts import HostFacts, MdevParent, PciFunction
from drivers.health import ills
from drivers.policy import MdevRule
from drivers.reasons import Reason
from drivers.standing import Standing
from reportclient.tree import Inventory


def mdev_stock(facts: HostFacts, rules: tuple[MdevRule, ...], standing: Standing) -> list[DeviceStock]:
    """A provider for each parent that offers an enabled type."""
    if not rules:
        return []
    functions = {function.address: function for function in facts.devices.functions}
    chosen = [(parent, rule) for parent in facts.devices.mdev_parents if (rule := _mdev_rule(parent, rules))]
    enabled = {rule.type for rule in rules}
    made: dict[str, int] = {}
    for mdev in facts.devices.mdevs:
        if mdev.type in enabled:
            made[mdev.parent] = made.get(mdev.parent, 0) + 1
    room = _room(chosen, made)
    found = []
    for parent, rule in chosen:
        total = made.get(parent.name, 0) + room[parent.name]
        if total:
            function = functions.get(parent.address) if parent.address else None
            found.append(_mdev_provider(parent, rule, function, total, made.get(parent.name, 0), standing))
    speaking = {parent.name for parent in facts.devices.mdev_parents}
    for function in facts.devices.functions:
        name = libvirt_name(str(function.address))
        if function.driver is None and name not in speaking:
            found += silenced(name, function, standing)
    return found


def _mdev_rule(parent: MdevParent, rules: Iterable[MdevRule]) -> MdevRule | None:
    """The rule that names a parent by its address or name, else the first that names none."""
    names = {parent.name, str(parent.address)}
    by_address = next((rule for rule in rules if rule.addresses & names), None)
    return by_address or next((rule for rule in rules if not rule.addresses), None)


def _room(chosen: Iterable[tuple[MdevParent, MdevRule]], made: Mapping[str, int]) -> dict[str, int]:
    """How many more each parent can make, card by card until ``max_instances`` of its type is reached on the host."""
    chosen = list(chosen)
    used: dict[str, int] = {}
    for parent, rule in chosen:
        used[rule.type] = used.get(rule.type, 0) + made.get(parent.name, 0)
    room = {}
    for parent, rule in chosen:
        available = next((kind.available_instances for kind in parent.types if kind.id == rule.type), 0)
        if rule.max_instances is not None:
            available = max(0, min(available, rule.max_instances - used[rule.type]))
        used[rule.type] += available
        room[parent.name] = available
    return room


def _mdev_provider(
    parent: MdevParent, rule: MdevRule, function: PciFunction | None, total: int, made: int, standing: Standing
) -> DeviceStock:
    why = ills(function, None) if function else None
    stands = standing.provider(parent.name)
    ours = stands is not None and UNHEALTHY in stands.provider.traits
    stock = stands.provider.inventories.get(rule.resource_class) if stands else None
    kept = total if why else min(total, stock.reserved) if stock and not ours else 0
    fact = f"{made} mdevs exist on {parent.name}, {total - made} more of type {rule.type} can be made"
    reason = Reason(fact, f"[devices] enabled_mdev_types has {rule.type}{_limit(rule)}")
    return DeviceStock(
        suffix=parent.name,
        cell=function.cell if function else None,
        inventories={rule.resource_class: (Inventory(total=total, max_unit=total, reserved=kept), reason)},
        traits={UNHEALTHY: Reason(f"{parent.name}: {why}", RESERVED_ILL)} if why else {},
    )


def _limit(rule: MdevRule) -> str:
    return f", and [mdev_{rule.type}] max_instances is {rule.max_instances}" if rule.max_instances is not None else ""
