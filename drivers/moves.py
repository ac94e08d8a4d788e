"""
Plan which allocations move where when a tree changes its shape: one stateless function for every class.

An allocation goes, in this order: to the only provider of its class above or below, unless the hypervisor contradicts;
to the unit that the guest has, as the hypervisor reports it; for a class that the hypervisor never reports, to the
provider that the guest's other units went to. Floats go where there is room. Amounts never change. An allocation
without such a place makes the whole plan ``Unplaceable``. An allocation of a device that is gone does not move:
``reportclient.hold`` keeps it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from drivers.packing import Load, limit, pack
from drivers.parcels import Parcel, Slot, amounts, assemble, conversions, deal, relabel, staying
from drivers.words import Word, Words
from reportclient.allocations import Allocation, Holdings, Move, Observed, usages
from reportclient.errors import Unplaceable
from reportclient.names import CPUS, NO_DEVICES
from reportclient.ownership import Ownership
from reportclient.reserve import UNHEALTHY, reserved_by_operator
from reportclient.settings import HUGE
from reportclient.tree import Inventory, ObservedTree, ProviderTree

SHOWN = 3  # of the reasons in one message


def plan_moves(
    observed: Observed,
    desired: ProviderTree,
    holdings: Holdings,
    ours: Ownership,
    *,
    stand_ins: Mapping[str, str] | None = None,
    recast_as: Collection[tuple[str, str]] = (),
) -> tuple[Move, ...]:
    """
    Return the moves from what consumers have to what ``desired`` offers; none when everything has its place.

    Providers have the same names in both trees. ``stand_ins`` gives the guest of a consumer that is not a guest itself:
    a migration. ``recast_as`` is as ``exchanged`` returns it.

    Raises:
        Unplaceable: an allocation finds no place, or several and nothing tells which.
    """
    return _Planning(observed, desired, holdings, ours, stand_ins or {}, recast_as).moves()


def exchanged(before: Mapping[str, Collection[str]], now: Mapping[str, Collection[str]]) -> frozenset[tuple[str, str]]:
    """
    Return (old class, new class) of each device that a total counts and whose class changed.

    ``before`` and ``now`` have the classes of each such device. The total itself does not show that two devices
    exchanged their classes.
    """
    both = before.keys() & now.keys()
    return frozenset(
        (old, new)
        for device in both
        for old in before[device]
        for new in now[device]
        if old not in now[device] and new not in before[device]
    )


def displaced(observed: Observed, desired: ProviderTree, ours: Ownership) -> frozenset[str]:
    """Return the consumers whose allocations need a new place: theirs is gone in ``desired``, or divided."""
    leaving = _leaving(observed.tree, desired)
    return frozenset(one.consumer for one in _own(observed, ours) if leaving((one.provider, one.resource_class)))


class _Planning:
    """The facts of one plan, for lookups, and the problems that were found."""

    def __init__(
        self,
        observed: Observed,
        desired: ProviderTree,
        holdings: Holdings,
        ours: Ownership,
        stand_ins: Mapping[str, str],
        recast_as: Collection[tuple[str, str]],
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
        self._kept = _kept(desired)
        self._words = Words(holdings)
        self._stand_ins = stand_ins
        self._problems: list[str] = []
        root = desired.root.name  # where the root has less of a class, the loss itself is enough to tell
        self._recast = {(old, new) for old, new in recast_as if not self._shrinks(root, old)}

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
        packed, homeless = pack(floating, room, self._stock, self._parents, amounts(decided), kept=self._kept)
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
        """Return the parcels, with the class that the guest really has, or with the new name of their class."""
        guest = self._stand_ins.get(consumer, consumer)
        if guest not in self._words.guests:
            self._check_recast(consumer, guest, parcels)
            return [self._renamed(parcel) for parcel in parcels]
        has, holds = _by_class(parcels), self._words.sums(guest)
        surplus = {name: has[name] - holds.get(name, 0) for name in has if has[name] > holds.get(name, 0)}
        missing = {name: holds[name] - has.get(name, 0) for name in holds if holds[name] > has.get(name, 0)}
        becomes = partial(self._becomes, guest, parcels)
        for name, other, amount in conversions(surplus, missing, becomes):
            units = self._words.of(guest, other).units
            parcels = relabel(parcels, name, other, amount, units, partial(self._distance, units))
        self._check_pinned(consumer, guest, parcels)
        self._check_recast(consumer, guest, parcels)
        return parcels

    def _becomes(self, guest: str, parcels: Iterable[Parcel], name: str, other: str) -> bool:
        """Return whether one class of a guest can become another: CPUs by pinning, devices where the name is new."""
        if {name, other} == CPUS:
            return True
        word = self._words.of(guest, other)
        if {name, other} & NO_DEVICES or not word.units:
            return False
        if (name, other) in self._recast:
            return not word.undecided
        going = {
            parcel.provider for parcel in parcels if parcel.to_class == name and self._shrinks(parcel.provider, name)
        }
        return all(self._is_new_name(provider, other, going, word) for provider in word.units)

    def _is_new_name(self, provider: str, name: str, going: Collection[str], word: Word) -> bool:
        """
        Return whether a class came to a provider for the class that goes from there, or from above or below it.

        For a guest with an undecided device, only a device's own provider counts: elsewhere the allocation may belong
        to the undecided device.
        """
        stock = self._stock.get((provider, name))
        if stock is None or stock.total <= self._before.get((provider, name), 0):
            return False
        if word.undecided:
            return provider in going and bool(self._parents.get(provider))
        return any(is_related(one, provider, self._parents) for one in going)

    def _shrinks(self, provider: str, name: str) -> bool:
        """Return whether a provider has less of a class than before, or none."""
        stock = self._stock.get((provider, name))
        return stock is None or stock.total < self._before.get((provider, name), 0)

    def _distance(self, units: Collection[str], parcel: Parcel) -> int:
        """Return how far a parcel is from a guest's units: 0 above or below one, 1 without a place, 2 elsewhere."""
        if any(is_related(parcel.provider, provider, self._parents) for provider in units):
            return 0
        return 1 if (parcel.provider, parcel.to_class) not in self._stock else 2

    def _check_pinned(self, consumer: str, guest: str, parcels: Iterable[Parcel]) -> None:
        """Refuse to offer CPUs to which a guest is pinned without as many PCPU allocated; other sums do not matter."""
        has, word = _by_class(parcels), self._words.of(guest, "PCPU")
        lacking = word.amount - has.get("PCPU", 0)
        grown = [provider for provider in sorted(word.units) if self._grows(provider, "PCPU")]
        if lacking <= 0 or not grown or word.overridden or not has.keys() & CPUS:
            return
        needed = self._words.of(guest, "VCPU").amount + lacking
        self._problems.append(
            f"{self._named(consumer, guest)} has {has.get('VCPU', 0)} VCPU and {has.get('PCPU', 0)} PCPU allocated, "
            f"and really has {word.amount} PCPU (one for each pinned vCPU, and one for an emulator thread of its own), "
            f"and {', '.join(grown)} would offer these CPUs to other guests: allocate {needed} VCPU for it first "
            f"(compute-node-agent claim {guest} --replace --request FILE), or resize it or move it away"
        )

    def _check_recast(self, consumer: str, guest: str, parcels: Iterable[Parcel]) -> None:
        """Refuse allocations of a class that some devices changed, where nothing tells their devices."""
        has = _by_class(parcels)
        for old, new in sorted(self._recast):
            word = self._words.of(guest, old)
            if has.get(old, 0) > word.amount or (word.undecided and old in has):
                self._problems.append(
                    f"{self._named(consumer, guest)} has {has[old]} {old}, devices that were {old} are {new} now, and "
                    f"the hypervisor gives its guest {word.amount} {old}: move that guest away, end its migration, or "
                    f"release its allocations if it is gone (compute-node-agent release {consumer}); or undo the "
                    f"change of classes"
                )

    def _grows(self, provider: str, name: str) -> bool:
        """Return whether a provider offers more of a class than it and the providers above and below it did before."""
        stock = self._stock.get((provider, name))
        before = (
            total
            for (one, each), total in self._before.items()
            if each == name and is_related(one, provider, self._parents)
        )
        return stock is not None and stock.total > sum(before)

    def _renamed(self, parcel: Parcel) -> Parcel:
        """Rename an unknown consumer's parcel, if only one class left its device and one with the same total came."""
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
        """Return a consumer's parcels with a certain destination, and the load of those that go where there is room."""
        guest = self._stand_ins.get(consumer, consumer)
        sure: list[Parcel] = []
        waiting: list[list[Parcel]] = []
        load = Load(consumer)
        changed = [parcel for parcel in parcels if parcel.to_class != parcel.resource_class]
        anew = {name for parcel in changed for name in (parcel.resource_class, parcel.to_class)}
        for name in sorted({parcel.to_class for parcel in parcels}):
            mine = [parcel for parcel in parcels if parcel.to_class == name]
            out = [parcel for parcel in mine if self._leaving((parcel.provider, name))]
            word = self._words.of(guest, name)
            decides = self._decides(word, mine, out)
            if not out and not (name in anew and (decides or word.overridden)):
                sure += [staying(parcel) for parcel in mine]
            elif (only := self._only_place(name, out)) and self._allows(guest, name, only):
                sure += [
                    replace(parcel, to_provider=only, because=f"the only provider of {name}")
                    if parcel in out
                    else staying(parcel)
                    for parcel in mine
                ]
            elif word.overridden:
                bound = self._bound(guest, name)
                astray = [parcel for parcel in changed if bound and parcel.provider not in bound]
                going = [parcel for parcel in mine if parcel in out or parcel in astray]
                sure += [staying(parcel) for parcel in mine if parcel not in going]
                self._spread(going, bound or self._candidates(name), load)
            elif decides:
                dealt, rest = deal(mine, word.units, self._said(consumer, guest))
                kept = [parcel for parcel in rest if self._may_stay(parcel, word, name in anew)]
                sure += dealt + [staying(parcel) for parcel in kept]
                self._float(guest, [parcel for parcel in rest if parcel not in kept], load)
            else:
                waiting.append(mine)
        for mine in waiting:
            stay, rest = self._follow(mine, sure)
            sure += stay
            self._float(guest, rest, load)
        return sure, load

    def _may_stay(self, parcel: Parcel, word: Word, anew: bool) -> bool:
        """Return whether a parcel may stay: with ``anew``, only where the hypervisor reports a place of the guest."""
        return not self._leaving((parcel.provider, parcel.to_class)) and (not anew or parcel.provider in word.places)

    def _decides(self, word: Word, mine: Iterable[Parcel], out: Iterable[Parcel]) -> bool:
        """
        Return whether the hypervisor reports exactly what is allocated, and all of that is on offer.

        Where the guest has an undecided device too, what leaves a card may belong to that device: then it may only go
        above or below.
        """
        if word.overridden or not word.places or word.amount != sum(parcel.amount for parcel in mine):
            return False
        if any((provider, parcel.to_class) not in self._stock for provider in word.units for parcel in mine):
            return False
        pairs = ((parcel.provider, provider) for parcel in out for provider in word.units)
        return not word.undecided or all(is_related(*pair, self._parents) for pair in pairs)

    def _allows(self, guest: str, name: str, only: str) -> bool:
        """Return whether the only provider of a class may take all that a consumer has of it."""
        if guest in self._words.guests:
            return self._words.of(guest, name).allows(only)
        return not any(self._words.of(absent, name).undecided for absent in self._absent())

    def _bound(self, guest: str, name: str) -> list[str]:
        """Return the providers of a class that a guest is bound to; a class of CPUs counts for the other one too."""
        names = [name, *sorted(CPUS - {name})] if name in CPUS else [name]
        places = [place for each in names for place in self._words.of(guest, each).places]
        return [place for place in dict.fromkeys(places) if (place, name) in self._stock]

    def _spread(self, going: list[Parcel], places: Sequence[str], load: Load) -> None:
        """Send parcels whose amount the flavor gives to the first of these places with room, whole if possible."""
        if going and places:
            sources = tuple((parcel.provider, parcel.resource_class, parcel.amount) for parcel in going)
            load.add(going[0].to_class, sources, places, "its flavor gives the amount, and the guest is bound there")

    def _only_place(self, name: str, out: Collection[Parcel]) -> str | None:
        """Return the only provider of a class, if it is above or below all that goes; a sibling is another device."""
        candidates = self._candidates(name)
        if len(candidates) != 1 or not out:
            return None
        return (
            candidates[0] if all(is_related(parcel.provider, candidates[0], self._parents) for parcel in out) else None
        )

    def _follow(self, mine: list[Parcel], sure: Iterable[Parcel]) -> tuple[list[Parcel], list[Parcel]]:
        """
        Return the parcels of one class that stay, or follow the guest's other resources; and the rest.

        A class does not follow where the hypervisor itself reports which provider a guest has it on.
        """
        stay: list[Parcel] = []
        rest: list[Parcel] = []
        for parcel in mine:
            went = {one.to_provider for one in sure if one.provider == parcel.provider != one.to_provider}
            beside = {provider for provider in went if (provider, parcel.to_class) in self._stock}
            if not self._leaving((parcel.provider, parcel.to_class)):
                stay.append(staying(parcel))
            elif len(beside) == 1 and not self._words.speaks_of(parcel.to_class):
                stay.append(replace(parcel, to_provider=beside.pop(), because="goes with what the guest has there"))
            else:
                rest.append(parcel)
        return stay, rest

    def _float(self, guest: str, rest: list[Parcel], load: Load) -> None:
        """Send parcels of one class where there is room, or note why they cannot go."""
        if not rest:
            return
        name = rest[0].to_class
        floats = self._words.of(guest, name).floating
        candidates = self._candidates(name)
        if not floats:  # parcels of a device that is gone stay where they are, whatever other devices offer
            rest = [parcel for parcel in rest if self._has_place(parcel, candidates)]
        sources = tuple((parcel.provider, parcel.resource_class, parcel.amount) for parcel in rest)
        if not rest:
            return
        if floats:
            places = [provider for provider in floats.providers if provider in candidates]
            if places:
                load.add(name, sources, places, floats.because)
            elif candidates:
                self._problems.append(self._missing(guest, rest))
        elif guest in self._words.guests:
            self._problems.append(self._missing(guest, rest))
        elif any(self._words.may_hold(absent, name) for absent in self._absent()):
            self._problems.append(
                f"consumer {load.consumer} has {sum(parcel.amount for parcel in rest)} {name} and matches no guest on "
                f"this host, and guests without allocations hold {name}: end the migration or evacuation of that "
                f"consumer, or delete its allocations if it is gone (compute-node-agent release {load.consumer})"
            )
        else:
            usual = [place for place in candidates if place not in self._huge] or candidates
            load.add(name, sources, usual, "the consumer matches no guest on this host: any provider with room serves")

    def _has_place(self, parcel: Parcel, candidates: Iterable[str]) -> bool:
        """Return whether a candidate is the parcel's provider, or above or below it."""
        return any(is_related(parcel.provider, place, self._parents) for place in candidates)

    def _missing(self, guest: str, rest: list[Parcel]) -> str:
        """Return why a guest's parcels of one class have no place: what the hypervisor reports instead."""
        name = rest[0].to_class
        word = self._words.of(guest, name)
        said = ", ".join(f"{amount} on {provider}" for provider, amount in sorted(word.units.items())) or "none"
        unoffered = sorted(provider for provider in word.units if (provider, name) not in self._stock)
        if unoffered:
            said += f", and {unoffered[0]} offers none"
        amount = sum(parcel.amount for parcel in rest)
        has = f"{self._named(rest[0].consumer, guest)} has {amount} {name} on {rest[0].provider}"
        if not word.undecided:
            return (
                f"{has}, and the hypervisor gives its guest {said}: correct the difference (end a resize or migration, "
                f"or attach a device again), then plan again"
            )
        lost = ", ".join(f"{one.unit} ({one.because})" for one in word.undecided[:SHOWN])
        return (
            f"{has}, and the hypervisor gives its guest {said}, and devices that may count as {name}: {lost}: bring "
            f"the card, type or rule back, or move the guest away, then plan again"
        )

    def _named(self, consumer: str, guest: str) -> str:
        return f"consumer {consumer}" if consumer == guest else f"consumer {consumer} (its guest is {guest})"

    def _absent(self) -> frozenset[str]:
        """Return the guests that have no allocation here, neither their own nor by a migration."""
        here = {one.consumer for one in self._observed.allocations} | set(self._stand_ins.values())
        return self._words.guests - here

    def _said(self, consumer: str, guest: str) -> str:
        return "the guest has it there" if consumer == guest else f"its guest {guest} has it there, and migrates"

    def _candidates(self, name: str) -> list[str]:
        return [provider for provider, each in self._stock if each == name]

    def _room(self, decided: Iterable[Parcel]) -> dict[Slot, int]:
        """Return what each slot has left after all certain parcels arrived; note what does not fit."""
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
                advice = self._kept.get((provider, name))
                self._problems.append(
                    f"consumer {consumer} has {amount} {name} that belong on {provider}, and {used[provider, name]} "
                    f"would be used there of {stock.capacity} ({stock.total} less {stock.reserved} reserved, times "
                    f"{stock.allocation_ratio:g})"
                    + (f", {advice}" if advice else ": make room there, or lower the reserved amount")
                )
            elif not limit(stock).takes(amount):
                self._problems.append(
                    f"consumer {consumer} has {amount} {name} that belong on {provider}, which gives {stock.min_unit} "
                    f"to {stock.max_unit} in steps of {stock.step_size}: resize or move that guest first"
                )
        return {slot: stock.capacity - used.get(slot, 0) for slot, stock in self._stock.items()}


def _by_class(parcels: Iterable[Parcel]) -> dict[str, int]:
    found: dict[str, int] = {}
    for parcel in parcels:
        found[parcel.to_class] = found.get(parcel.to_class, 0) + parcel.amount
    return found


def _stock(desired: ProviderTree) -> dict[Slot, Inventory]:
    return {(provider.name, name): stock for provider in desired for name, stock in provider.inventories.items()}


def _kept(desired: ProviderTree) -> dict[Slot, str]:
    """Return advice for each slot of which this agent reserves some for ill devices: how much, and what to do."""
    found = {}
    for provider in desired:
        said = reserved_by_operator(provider)
        for name, stock in provider.inventories.items():
            ours = stock.reserved - said.get(name, 0)
            if ours > 0 and UNHEALTHY in provider.traits:
                found[provider.name, name] = (
                    f"where this agent reserves {ours} {name} of {provider.name} while devices are ill: wait until "
                    f"they are well, or move that guest away (compute-node-agent explain {provider.name} {name} shows "
                    f"what is wrong with them)"
                )
    return found


def _leaving(observed: ObservedTree, desired: ProviderTree) -> Callable[[Slot], bool]:
    """Return a test of slots: whether allocations need a new place, as the slot is gone, or divided above or below."""
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
    """Return whether one provider is the other, above it or below it."""
    return one in _line(other, parents) or other in _line(one, parents)


def _line(provider: str | None, parents: Mapping[str, str | None]) -> list[str]:
    found = []
    while provider:
        found.append(provider)
        provider = parents.get(provider)
    return found


def _own(observed: Observed, ours: Ownership) -> list[Allocation]:
    """Return the allocations of stock that is ours."""
    classes = {seen.name: ours.classes(seen) for seen in observed.tree}
    return [one for one in observed.allocations if one.resource_class in classes.get(one.provider, frozenset())]
