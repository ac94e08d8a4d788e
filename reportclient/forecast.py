"""What a plan makes of a tree, except for generations, which only placement assigns, and what it takes away there."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from reportclient.allocations import Allocation, usages
from reportclient.errors import UnsafePlan, few
from reportclient.names import NO_DEVICES
from reportclient.plan import (
    Create,
    Delete,
    EnsureClasses,
    EnsureTraits,
    Operation,
    Plan,
    Rename,
    Reparent,
    Reshape,
    Rewrite,
    SetAggregates,
    SetInventories,
    SetTraits,
)
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider, total_of


def forecast(plan: Plan, observed: ObservedTree) -> ObservedTree:
    """
    Return the tree after all operations, parents before children; providers that the plan creates have generation 0.

    Raises:
        KeyError: an operation names a provider that does not exist at that point of the plan.
    """
    return ObservedTree(_parents_first(tuple(_after(plan, observed).values())), observed.last_modified)


def stock_after(plan: Plan, observed: ObservedTree) -> dict[str, Mapping[str, Inventory]]:
    """Return the inventories of each provider that a plan leaves or creates, by uuid; errors as ``forecast``."""
    return {uuid: seen.provider.inventories for uuid, seen in _after(plan, observed).items()}


def _after(plan: Plan, observed: ObservedTree) -> dict[str, ObservedProvider]:
    stands = observed.by_uuid
    for operation in plan.operations:
        apply(operation, stands)
    return stands


def apply(operation: Operation, stands: dict[str, ObservedProvider]) -> None:
    """Carry out one operation on what stands, by uuid; generations stay, and a new provider has 0."""
    match operation:
        case EnsureClasses() | EnsureTraits():
            pass
        case Create(uuid, name, parent):
            above = stands[parent].name if parent else None
            stands[uuid] = ObservedProvider(uuid=uuid, generation=0, provider=Provider(name=name, parent=above))
        case Rename(uuid, name, old):
            stands[uuid] = stands[uuid].changed(name=name)
            for key, seen in stands.items():
                if seen.provider.parent == old:
                    stands[key] = seen.changed(parent=name)
        case Reparent(uuid, _, parent_uuid):
            stands[uuid] = stands[uuid].changed(parent=stands[parent_uuid].name)
        case SetTraits(uuid, _, traits):
            stands[uuid] = stands[uuid].changed(traits=traits)
        case SetAggregates(uuid, _, aggregates):
            stands[uuid] = stands[uuid].changed(aggregates=aggregates)
        case SetInventories(uuid, _, inventories):
            stands[uuid] = stands[uuid].changed(inventories=inventories)
        case Reshape(several):
            for one in several:
                apply(one, stands)
        case Delete(uuid):
            del stands[uuid]
        case _:
            assert_never(operation)


def _parents_first(providers: tuple[ObservedProvider, ...]) -> tuple[ObservedProvider, ...]:
    ordered: list[ObservedProvider] = []
    waiting = list(providers)
    while waiting:
        placed = {seen.name for seen in ordered}
        ready = [seen for seen in waiting if seen.provider.parent is None or seen.provider.parent in placed]
        ordered += ready or waiting
        waiting = [seen for seen in waiting if seen not in ordered]
    return tuple(ordered)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much one pass may take away without a person's approval."""

    fraction: float = 0.3  # of a class's total over the tree
    providers: int = 4  # deleted ones
    withdrawn: Mapping[str, frozenset[str]] = field(default_factory=dict)  # by an operator: classes, by provider name
    present: frozenset[str] = frozenset()  # names of providers whose device the survey saw


def lessened(plan: Plan, observed: ObservedTree) -> frozenset[str]:
    """
    Return the uuids of providers of which guests may lose something: to judge the plan, their allocations must be read.

    These are the providers that lose stock, and those with stock that get a class they did not have, or more dedicated
    CPUs: guests may have it by another name.
    """
    final = stock_after(plan, observed)
    return frozenset(seen.uuid for seen in observed if _may_lose(seen.provider.inventories, final.get(seen.uuid, {})))


def _may_lose(before: Mapping[str, Inventory], after: Mapping[str, Inventory]) -> bool:
    comes = after.keys() - before.keys() or total_of(after, "PCPU") > total_of(before, "PCPU")
    return bool(before and comes) or any(
        # the capacity alone does not show it: stock that is all reserved has none, and can still be removed
        name not in after or after[name].total < stock.total or after[name].capacity < stock.capacity
        for name, stock in before.items()
    )


def shrinkage(plan: Plan, observed: ObservedTree, limits: Limits) -> tuple[str, ...]:
    """
    Return a sentence for each way in which a plan takes away more than ``limits`` allow in one pass; empty: none.

    A provider's loss counts unless its class was withdrawn or its device was seen; gains elsewhere make up for it.
    """
    final = stock_after(plan, observed)
    before: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    excused: Counter[str] = Counter()
    gained: Counter[str] = Counter()
    stood = {provider.uuid: provider.provider.inventories for provider in observed}
    names = {provider.uuid: provider.name for provider in observed}
    for uuid in stood.keys() | final.keys():
        stands = _totals(stood.get(uuid, {}))
        stays = _totals(final.get(uuid, {}))
        before += stands
        gained += stays - stands
        for name, amount in (stands - stays).items():
            withdrawn = name in limits.withdrawn.get(names[uuid], frozenset())
            side = excused if withdrawn or names[uuid] in limits.present else lost
            side[name] += amount
    # Gains make up first for stock that was removed on purpose, and only then for stock that may be a real loss.
    loss = {name: lost[name] - max(0, gained[name] - excused[name]) for name in before}
    after = {name: before[name] - lost[name] - excused[name] + gained[name] for name in before}
    sentences = [
        f"{name} would shrink from {before[name]} to {after[name]}, more than {limits.fraction:.0%}"
        for name in sorted(loss)
        if loss[name] > before[name] * limits.fraction
    ]
    gone = [one for one in plan.operations if isinstance(one, Delete) and one.name not in limits.present]
    losing = [one for one in gone if any(loss[name] > 0 for name in _totals(stood[one.uuid]))]
    if len(losing) > limits.providers:
        sentences.append(f"{len(losing)} providers would be deleted, more than {limits.providers}")
    return tuple(sentences)


def losses(plan: Plan, observed: ObservedTree) -> dict[str, tuple[int, int]]:
    """Return how many units a plan takes away, and of how many, by provider and class; all that stands is in it."""
    final = stock_after(plan, observed)
    return {
        f"{seen.name} {name}": (max(0, stock.total - total_of(final.get(seen.uuid, {}), name)), stock.total)
        for seen in sorted(observed, key=lambda one: one.name)
        for name, stock in sorted(seen.provider.inventories.items())
    }


def _totals(inventories: Mapping[str, Inventory]) -> Counter[str]:
    """Return totals by class; PCPU counts as VCPU, as a CPU that becomes dedicated is not lost."""
    totals: Counter[str] = Counter()
    for name, stock in inventories.items():
        totals["VCPU" if name == "PCPU" else name] += stock.total
    return totals


def check_use(plan: Plan, observed: ObservedTree, allocations: Iterable[Allocation], *, force: bool) -> None:
    """
    Refuse a plan that takes away what guests hold.

    ``allocations`` are those on the providers that ``lessened`` returns.

    Raises:
        UnsafePlan: a class would have less capacity than is used (``force`` allows that), or a class or a provider
            with allocations would be removed, or a consumer of which something moves has an amount that a provider
            gives to nobody (never allowed).
    """
    final = stock_after(plan, observed)
    names = {one.uuid: one.name for one in (*observed, *(step for step in plan.operations if isinstance(step, Create)))}
    for one in (each for step in plan.operations if isinstance(step, Reshape) for each in step.rewrites):
        _check_units(one, final, names)
    by_name, held = observed.by_name, tuple(allocations)
    for (name, resource_class), used in sorted(usages(held).items()):
        provider = by_name.get(name)
        if provider is None:
            continue
        stands = provider.provider.inventories.get(resource_class)
        after = final.get(provider.uuid, {}).get(resource_class)
        if after is None:
            raise UnsafePlan(
                f"{used} {resource_class} on {name} are allocated{_to(held, (name, resource_class))}, and the "
                f"plan would remove that stock: move the guests away first; of consumers without a guest "
                f"compute-node-agent audit says what to do"
            )
        # A reservation of devices that guests hold keeps them from other guests; it takes nothing away.
        of_devices = resource_class not in NO_DEVICES
        kept = of_devices and after.total >= used
        # Stock that was all reserved has no capacity to lose; a lower total can still remove units that guests hold.
        fewer = stands is None or after.capacity < stands.capacity or (of_devices and after.total < stands.total)
        if not force and after.capacity < used and not kept and fewer:
            raise UnsafePlan(
                f"{used} {resource_class} on {name} are allocated, and the plan would leave room for "
                f"{after.capacity}: move guests away, correct the configuration, or say --force"
            )


def _check_units(rewrite: Rewrite, final: Mapping[str, Mapping[str, Inventory]], names: Mapping[str, str]) -> None:
    """Refuse what placement does: it judges each allocation of a consumer anew, also one that stays."""
    for uuid, name in ((uuid, name) for uuid, slots in rewrite.after.items() for name in slots):
        amount, stock = rewrite.after[uuid][name], final.get(uuid, {}).get(name)
        if stock and not stock.fits(amount):
            raise UnsafePlan(
                f"consumer {rewrite.consumer} has {amount} {name} of {names[uuid]}, which gives {stock.min_unit} to "
                f"{stock.max_unit} in steps of {stock.step_size}: resize or move that guest first"
            )


def _to(allocations: Iterable[Allocation], slot: tuple[str, str]) -> str:
    """Return to which consumers a class of a provider is allocated, as words."""
    found = sorted({one.consumer for one in allocations if (one.provider, one.resource_class) == slot})
    return f" to {few(found)}"
