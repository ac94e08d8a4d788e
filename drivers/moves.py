"""
Who must move where when a tree changes its shape: one stateless function for every class.

What an allocation stands for decides, in this order: the only provider of its class above or below, the unit that the
hypervisor says the guest has, the provider that the guest's other units went to; what floats goes where there is room.
Amounts never change. What has no such place makes the whole plan ``Unplaceable``; what is of a device that is gone is
no move, and stays for ``reportclient.hold``.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from drivers.packing import Load, limit, pack
from drivers.parcels import Parcel, Slot, amounts, assemble, deal, relabel, staying
from drivers.standing import HUGE
from reportclient.allocations import Allocation, Float, Holdings, Move, Observed, usages
from reportclient.errors import Unplaceable
from reportclient.hold import NO_DEVICES
from reportclient.ownership import Ownership
from reportclient.tree import Inventory, ObservedTree, ProviderTree

CPUS = frozenset({"VCPU", "PCPU"})  # classes of one thing, between which pinning decides
SHOWN = 3  # of the reasons in one message


def plan_moves(
    observed: Observed,
    desired: ProviderTree,
    holdings: Holdings,
    ours: Ownership,
    *,
    stand_ins: Mapping[str, str] | None = None,
) -> tuple[Move, ...]:
    """
    The moves that lead from what consumers have to what ``desired`` offers; none when all of it has its place.

    Providers are called by the same names in both trees. ``stand_ins`` gives the guest of a consumer that is not a
    guest itself: a migration.

    Raises:
        Unplaceable: what a consumer has finds no place, or several and nobody tells which.
    """
    return _Planning(observed, desired, holdings, ours, stand_ins or {}).moves()


def displaced(observed: Observed, desired: ProviderTree, ours: Ownership) -> frozenset[str]:
    """The consumers with something that has no place in ``desired`` where it is, or has to share it with others."""
    leaving = _leaving(observed.tree, desired)
    return frozenset(one.consumer for one in _own(observed, ours) if leaving((one.provider, one.resource_class)))


class _Planning:
    """The facts of one question, looked up in many ways."""

    def __init__(
        self,
        observed: Observed,
        desired: ProviderTree,
        holdings: Holdings,
        ours: Ownership,
        stand_ins: Mapping[str, str],
    ) -> None:
        self._observed = observed
        self._ours = ours
        self._stock = _stock(desired)
        self._leaving = _leaving(observed.tree, desired)
        self._before = {
            (seen.name, name): one.total for seen in observed.tree for name, one in seen.provider.inventories.items()
        }
        self._parents = {seen.name: seen.provider.parent for seen in observed.tree}
        self._parents |= {provider.name: provider.parent for provider in desired}
        self._huge = {provider.name for provider in desired if HUGE in provider.traits}
        self._guests = holdings.guests
        self._stand_ins = stand_ins
        self._units: dict[str, dict[Slot, int]] = {}
        for unit in holdings.units:
            units = self._units.setdefault(unit.consumer, {})
            units[unit.provider, unit.resource_class] = units.get((unit.provider, unit.resource_class), 0) + unit.amount
        self._floats: dict[str, dict[str, Float]] = {}
        for one in holdings.floats:
            self._floats.setdefault(one.consumer, {})[one.resource_class] = one
        self._problems: list[str] = []

    def moves(self) -> tuple[Move, ...]:
        by_consumer: dict[str, list[Parcel]] = {}
        for one in sorted(_own(self._observed, self._ours)):
            parcel = Parcel(
                consumer=one.consumer,
                provider=one.provider,
                resource_class=one.resource_class,
                amount=one.amount,
                to_class=one.resource_class,
            )
            by_consumer.setdefault(one.consumer, []).append(parcel)
        decided: list[Parcel] = []
        floating: list[Load] = []
        for consumer, parcels in by_consumer.items():
            sure, loads = self._decide(consumer, self._convert(consumer, parcels))
            decided += sure
            floating += [loads] if loads.demands else []
        room = self._room(decided)
        packed, homeless = pack(floating, room, self._stock, self._parents, amounts(decided))
        self._problems += homeless
        if self._problems:
            more = f"; and {len(self._problems) - SHOWN} more" if len(self._problems) > SHOWN else ""
            raise Unplaceable(f"{'; '.join(self._problems[:SHOWN])}{more}: nothing was sent")
        decided += [
            Parcel(
                consumer=one.consumer,
                provider=source,
                resource_class=source_class,
                amount=amount,
                to_class=one.resource_class,
                to_provider=one.provider,
                because=one.because,
            )
            for one in packed
            for source, source_class, amount in one.sources
        ]
        return assemble(decided)

    def _convert(self, consumer: str, parcels: list[Parcel]) -> list[Parcel]:
        """Parcels of which the guest has another class in truth, or whose class goes by another name now."""
        guest = self._stand_ins.get(consumer, consumer)
        if guest not in self._guests:
            return [self._renamed(parcel) for parcel in parcels]
        has: dict[str, int] = {}
        for parcel in parcels:
            has[parcel.to_class] = has.get(parcel.to_class, 0) + parcel.amount
        holds: dict[str, int] = {}
        for (_, name), amount in self._units.get(guest, {}).items():
            holds[name] = holds.get(name, 0) + amount
        for name, one in self._floats.get(guest, {}).items():
            holds[name] = holds.get(name, 0) + one.amount
        for name in sorted(has):
            surplus = has[name] - holds.get(name, 0)
            fitting = [
                other
                for other in sorted(holds)
                if surplus > 0 and holds[other] - has.get(other, 0) == surplus and self._becomes(name, other, parcels)
            ]
            if len(fitting) == 1:
                has[name], has[fitting[0]] = has[name] - surplus, has.get(fitting[0], 0) + surplus
                parcels = relabel(parcels, name, fitting[0], surplus, self._stock)
        return parcels

    def _becomes(self, name: str, other: str, parcels: Iterable[Parcel]) -> bool:
        """Whether what a guest has of one class can be another: CPUs by pinning, devices where the name is new."""
        if {name, other} == CPUS:
            return True
        if {name, other} & NO_DEVICES or self._candidates(name):
            return False
        return all(self._renames(parcel.provider, name, other) for parcel in parcels if parcel.to_class == name)

    def _renames(self, provider: str, name: str, other: str) -> bool:
        """Whether on a provider a class of devices came and another went; on a root only if it is as much of it."""
        slot = provider, other
        if slot not in self._stock or slot in self._before:
            return False
        return bool(self._parents.get(provider)) or self._stock[slot].total == self._before.get((provider, name))

    def _renamed(self, parcel: Parcel) -> Parcel:
        """For a consumer that nobody knows: on a device's provider one class of as much stock came for the one gone."""
        here, name = parcel.provider, parcel.resource_class
        if name in NO_DEVICES or self._candidates(name) or not self._parents.get(here):
            return parcel
        total = self._before.get((here, name))
        gone = [slot for slot, stood in self._before.items() if slot[0] == here and stood == total]
        gone = [slot for slot in gone if slot not in self._stock]
        new = [slot for slot, stock in self._stock.items() if slot[0] == here and stock.total == total]
        new = [slot for slot in new if slot not in self._before and slot[1] not in NO_DEVICES]
        return replace(parcel, to_class=new[0][1]) if len(gone) == len(new) == 1 else parcel

    def _decide(self, consumer: str, parcels: list[Parcel]) -> tuple[list[Parcel], Load]:
        """What is sure about a consumer's parcels, and the load of those that go wherever there is room."""
        guest = self._stand_ins.get(consumer, consumer)
        sure: list[Parcel] = []
        waiting: list[list[Parcel]] = []
        load = Load(consumer)
        names = sorted({parcel.to_class for parcel in parcels})
        for name in names:
            mine = [parcel for parcel in parcels if parcel.to_class == name]
            out = [parcel for parcel in mine if self._leaving((parcel.provider, name))]
            units = {slot[0]: amount for slot, amount in self._units.get(guest, {}).items() if slot[1] == name}
            floating = self._floats.get(guest, {}).get(name)
            told = sum(units.values()) + (floating.amount if floating else 0)
            fits = told == sum(parcel.amount for parcel in mine)
            offered = all((provider, name) in self._stock for provider in units)
            if not out and not (units and fits and offered and self._is_reshaped(mine)):
                sure += [staying(parcel) for parcel in mine]
            elif only := self._only_place(name, out):
                sure += [
                    replace(parcel, to_provider=only, because=f"the only provider of {name}")
                    if parcel in out
                    else staying(parcel)
                    for parcel in mine
                ]
            elif units and fits and offered:
                dealt, rest = deal(mine, units, self._said(consumer, guest))
                sure += dealt
                if rest:
                    self._float(guest, rest, load)
            else:
                waiting.append(mine)
        for mine in waiting:
            stay, rest = self._follow(mine, sure)
            sure += stay
            if rest:
                self._float(guest, rest, load)
        return sure, load

    def _is_reshaped(self, parcels: Iterable[Parcel]) -> bool:
        """Whether a parcel's class changes: then what stays of it is looked at too."""
        return any(parcel.to_class != parcel.resource_class for parcel in parcels)

    def _only_place(self, name: str, out: Collection[Parcel]) -> str | None:
        """The only provider of a class, where it is above or below all that has to go; a sibling is another device."""
        candidates = self._candidates(name)
        if len(candidates) != 1 or not out:
            return None
        return (
            candidates[0] if all(is_related(parcel.provider, candidates[0], self._parents) for parcel in out) else None
        )

    def _follow(self, mine: list[Parcel], sure: Iterable[Parcel]) -> tuple[list[Parcel], list[Parcel]]:
        """Of one class, what stays or goes where its source's other classes went by their units; and the rest."""
        stay: list[Parcel] = []
        rest: list[Parcel] = []
        for parcel in mine:
            went = {one.to_provider for one in sure if one.provider == parcel.provider != one.to_provider}
            beside = {provider for provider in went if (provider, parcel.to_class) in self._stock}
            if not self._leaving((parcel.provider, parcel.to_class)):
                stay.append(staying(parcel))
            elif len(beside) == 1:
                stay.append(replace(parcel, to_provider=beside.pop(), because="goes with what the guest has there"))
            else:
                rest.append(parcel)
        return stay, rest

    def _float(self, guest: str, rest: list[Parcel], load: Load) -> None:
        """Let parcels of one class go where there is room, or say why they cannot."""
        name = rest[0].to_class
        floats = self._floats.get(guest, {}).get(name)
        candidates = self._candidates(name)
        sources = tuple((parcel.provider, parcel.resource_class, parcel.amount) for parcel in rest)
        if floats:
            places = [provider for provider in floats.providers if provider in candidates]
            if places:
                load.add(name, sources, places, floats.because)
            elif candidates:
                self._problems.append(self._missing(guest, rest))
        elif not candidates or not any(is_related(rest[0].provider, place, self._parents) for place in candidates):
            pass  # no place or another device's: what guests hold of a device that is gone stays where it is
        elif guest in self._guests:
            self._problems.append(self._missing(guest, rest))
        elif self._is_somebodys(name):
            self._problems.append(
                f"consumer {load.consumer} has {sum(parcel.amount for parcel in rest)} {name}, no guest here is it, "
                f"and guests without allocations hold {name}: end the migration or evacuation that it is of, or "
                f"delete its allocations if it is gone"
            )
        else:
            usual = [place for place in candidates if place not in self._huge] or candidates
            load.add(name, sources, usual, "no guest here is it, so it has no unit in particular: where there is room")

    def _missing(self, guest: str, rest: list[Parcel]) -> str:
        """Why what a guest has of a class cannot be placed: what the hypervisor says instead."""
        name = rest[0].to_class
        units = {slot[0]: amount for slot, amount in self._units.get(guest, {}).items() if slot[1] == name}
        said = ", ".join(f"{amount} on {provider}" for provider, amount in sorted(units.items())) or "none"
        unoffered = sorted(provider for provider in units if (provider, name) not in self._stock)
        if unoffered:
            said += f", and {unoffered[0]} offers none"
        amount = sum(parcel.amount for parcel in rest)
        return (
            f"consumer {rest[0].consumer} has {amount} {name} on {rest[0].provider}, and the hypervisor gives its "
            f"guest {said}: put right what differs (a resize or migration to end, a device to attach again), then plan "
            f"again"
        )

    def _is_somebodys(self, name: str) -> bool:
        """Whether a guest without any allocation here holds units of a class."""
        here = {one.consumer for one in self._observed.allocations} | set(self._stand_ins.values())
        return any(guest not in here and any(slot[1] == name for slot in units) for guest, units in self._units.items())

    def _said(self, consumer: str, guest: str) -> str:
        return "the guest has it there" if consumer == guest else f"its guest {guest} has it there, and migrates"

    def _candidates(self, name: str) -> list[str]:
        return [provider for provider, each in self._stock if each == name]

    def _room(self, decided: Iterable[Parcel]) -> dict[Slot, int]:
        """What is left of each slot once all that is sure is in its place; finds out what does not fit."""
        used: dict[Slot, int] = {}
        arriving: dict[tuple[str, str, str], int] = {}
        moved: set[tuple[str, str, str]] = set()
        for parcel in decided:
            slot = parcel.to_provider, parcel.to_class
            used[slot] = used.get(slot, 0) + parcel.amount
            key = parcel.consumer, *slot
            arriving[key] = arriving.get(key, 0) + parcel.amount
            if slot != (parcel.provider, parcel.resource_class):
                moved.add(key)
        before = usages(self._observed.allocations)
        for (consumer, provider, name), amount in sorted(arriving.items()):
            stock = self._stock.get((provider, name))
            if stock is None or (consumer, provider, name) not in moved:
                continue
            if used[provider, name] > max(stock.capacity, before.get((provider, name), 0)):
                self._problems.append(
                    f"consumer {consumer} has {amount} {name} that belong on {provider}, and {used[provider, name]} "
                    f"would be used there of {stock.capacity} ({stock.total} less {stock.reserved} reserved, times "
                    f"{stock.allocation_ratio:g}): make room or lower what is reserved"
                )
            elif not limit(stock).takes(amount):
                self._problems.append(
                    f"consumer {consumer} has {amount} {name} that belong on {provider}, which gives {stock.min_unit} "
                    f"to {stock.max_unit} in steps of {stock.step_size}: resize or move that guest first"
                )
        return {slot: stock.capacity - used.get(slot, 0) for slot, stock in self._stock.items()}


def _stock(desired: ProviderTree) -> dict[Slot, Inventory]:
    return {(provider.name, name): stock for provider in desired for name, stock in provider.inventories.items()}


def _leaving(observed: ObservedTree, desired: ProviderTree) -> Callable[[Slot], bool]:
    """Whether what is allocated of a slot is to be placed anew: it is gone, or dealt out above or below."""
    stock = _stock(desired)
    parents = {seen.name: seen.provider.parent for seen in observed} | {one.name: one.parent for one in desired}
    before = {(seen.name, name): one.total for seen in observed for name, one in seen.provider.inventories.items()}

    def leaves(slot: Slot) -> bool:
        if slot not in stock:
            return True
        shrank = stock[slot].total < before.get(slot, 0)
        return shrank and any(
            name == slot[1] and (provider, name) not in before and is_related(provider, slot[0], parents)
            for provider, name in stock
        )

    return leaves


def is_related(one: str, other: str, parents: Mapping[str, str | None]) -> bool:
    """Whether one provider is the other, above it or below it."""
    return one in _line(other, parents) or other in _line(one, parents)


def _line(provider: str | None, parents: Mapping[str, str | None]) -> list[str]:
    found = []
    while provider:
        found.append(provider)
        provider = parents.get(provider)
    return found


def _own(observed: Observed, ours: Ownership) -> list[Allocation]:
    """What is allocated of stock that is ours."""
    classes = {seen.name: ours.classes(seen) for seen in observed.tree}
    return [one for one in observed.allocations if one.resource_class in classes.get(one.provider, frozenset())]
