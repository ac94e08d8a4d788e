"""
Plan the reservations that a pass makes although the rest of its plan is refused. Pure.

They are of devices that are lost, awaited, ill, undecided or used, in the layout in which the tree stands. They take
units off offer, and change nothing else: so no doubt about the rest is a reason to wait.
"""

from collections.abc import Mapping
from dataclasses import replace

from agent.sync.decide.layout import layout_of
from agent.sync.decide.shaped import Shaped, settle, with_lost
from agent.sync.decide.standing import Standing
from agent.sync.decide.view import Needs, Shaper, View
from drivers.errors import MalformedFact, PolicyError
from reportclient.names import NO_DEVICES, ONE_TIME
from reportclient.plan import EnsureTraits, Plan, SetInventories, SetTraits, stock_writes
from reportclient.reserve import is_mark, is_reserved_by_us
from reportclient.tree import Inventory, ObservedTree, Provider


def plan_reservations(view: View, shaper: Shaper, standing: Standing, shaped: Shaped) -> Plan | Needs:
    """Return the plan that only reserves, on the providers that stand, what this host shows less of."""
    stands_in = layout_of(standing.observed, standing.memory, shaper.emitted, view.policy.layout)
    if not view.beside and stands_in != view.policy.layout:
        view = replace(view, policy=replace(view.policy, layout=stands_in))
        try:
            found = settle(view, shaper, standing)
        except (MalformedFact, PolicyError):  # this host has no such layout any more
            return Plan()
        if isinstance(found, Needs):
            return found
        shaped = found
    wanted = {one.name: one for one in with_lost(view, shaper, standing, shaped)}
    said = standing.with_reservations(shaped.reserved).by_uuid
    new: set[str] = set()
    steps: list[SetTraits | SetInventories] = []
    for seen in standing.observed:
        one = wanted.get(seen.name)
        if one is None or not shaped.ours.writes(seen) or not (is_reserved_by_us(one.traits) or ONE_TIME in one.traits):
            continue
        apart = NO_DEVICES | (standing.named[seen.name].classes if seen.name in standing.named else frozenset())
        stock = {name: _reserved(name, each, one, apart) for name, each in seen.provider.inventories.items()}
        if stock == seen.provider.inventories:
            continue
        before = seen.provider.traits
        traits = said[seen.uuid].provider.traits | frozenset(filter(is_mark, one.traits))
        if traits != before:  # before the stock: an amount without a mark would be an operator's
            new |= traits - before
            steps.append(SetTraits(seen.uuid, seen.name, traits, traits - before, before - traits))
        steps.append(SetInventories(seen.uuid, seen.name, stock))
    return Plan((*((EnsureTraits(tuple(sorted(new))),) if new else ()), *steps))


def _reserved(name: str, stands: Inventory, wanted: Provider, apart: frozenset[str]) -> Inventory:
    """Return the standing stock of a class with as few free units as are wanted, if these are fewer."""
    now = wanted.inventories.get(name)
    if now is None or name in apart:
        return stands
    return replace(stands, reserved=max(stands.reserved, stands.total - max(0, now.total - now.reserved)))


def tell_reserved(plan: Plan, observed: ObservedTree) -> tuple[str, ...]:
    """Return a sentence on each amount that such a plan reserves."""
    after: Mapping[str, Mapping[str, Inventory]] = stock_writes(plan.operations)
    return tuple(
        f"{seen.name}: {more} more {name} are reserved, as this host does not show them as usable: plan "
        f"{plan.digest}, carried out although the rest is not"
        for seen in observed
        for name, stock in sorted(seen.provider.inventories.items())
        if seen.uuid in after and (more := after[seen.uuid][name].reserved - stock.reserved)
    )
