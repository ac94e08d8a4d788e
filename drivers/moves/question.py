"""
The facts of one plan of moves: what changes between two trees, what guests have, and the guest behind each consumer.

Lookups are by slot: a class on a provider.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from drivers.parcels import Parcel, Slot
from reportclient.allocations import Allocation, Consumer, Float, Holding, Holdings, Observed
from reportclient.names import CPUS, HUGE, NO_DEVICES
from reportclient.reserve import reserved_by_operator
from reportclient.tree import ObservedTree, ProviderTree

_MEMORY = "MEMORY_MB"
_Likeness = tuple[str, str, int, int]  # project, user, CPUs of both classes, MiB of memory


class Change:
    """What changes from the tree in placement to the desired one; a provider has the same name in both."""

    def __init__(self, observed: ObservedTree, desired: ProviderTree) -> None:
        standing = [seen.provider for seen in observed]
        self.before = {(one.name, name): stock.total for one in standing for name, stock in one.inventories.items()}
        self.stock = {(one.name, name): stock for one in desired for name, stock in one.inventories.items()}
        self.parents = {one.name: one.parent for one in (*standing, *desired)}  # in ``desired``, where it is in both
        self.huge = frozenset(one.name for one in (*standing, *desired) if HUGE in one.traits)  # those of huge pages

    def related(self, one: str, other: str) -> bool:
        """
        Return whether one provider is, or was, the other, above it or below it: then they have the same hardware.

        Huge pages are related to the root only, which counts all memory: a cell's own memory is its small pages.
        """
        if (one in self.huge) != (other in self.huge) and self.parents.get(one) and self.parents.get(other):
            return False
        return one in self._line(other) or other in self._line(one)

    def leaving(self, slot: Slot) -> bool:
        """Return whether allocations of a slot need a new place, as it is gone, or divided above or below."""
        if slot not in self.stock:
            return True
        return self.stock[slot].total < self.before.get(slot, 0) and any(
            name == slot[1] and (provider, name) not in self.before and self.related(provider, slot[0])
            for provider, name in self.stock
        )

    def _line(self, provider: str | None) -> list[str]:
        """Return a provider and those above it, the root last."""
        found = []
        while provider:
            found.append(provider)
            provider = self.parents.get(provider)
        return found


@dataclass(frozen=True, slots=True)
class Word:
    """What one guest has of one class, as the hypervisor reports it; empty for a consumer that it does not know."""

    units: Mapping[str, int]  # provider's name -> amount
    floating: Float | None
    undecided: tuple[str, ...]  # devices of the guest that may or may not be of this class
    seen: Mapping[str, str]  # provider's name -> what shows its units; left out: nothing
    overridden: bool  # the flavor gives the amount, so only the places count

    @property
    def amount(self) -> int:
        """Amount of the class that the guest has, with or without a place of its own."""
        return sum(self.units.values()) + (self.floating.amount if self.floating else 0)

    @property
    def places(self) -> tuple[str, ...]:
        """Providers where the guest may have some of the class: most units first, then those of its float."""
        units = sorted(self.units, key=lambda provider: (-self.units[provider], provider))
        return tuple(dict.fromkeys((*units, *(self.floating.providers if self.floating else ()))))

    def allows(self, provider: str) -> bool:
        """Return whether all of it may be on this one provider."""
        floats = self.floating is None or provider in self.floating.providers
        return floats and not self.undecided and self.units.keys() <= {provider}


class Question(Change):
    """
    The facts of one plan: the trees, the holdings of guests, and the guests that consumers stand for.

    ``pinned_anew`` and ``former`` are as in ``plan_moves``; ``problems`` gets a sentence for each refusal.
    """

    def __init__(
        self,
        observed: Observed,
        desired: ProviderTree,
        holdings: Holdings,
        stand_ins: Mapping[str, str],
        recast_as: Collection[tuple[str, str]],
        pinned_anew: Collection[str],
        former: Mapping[tuple[str, str, str], str],
    ) -> None:
        super().__init__(observed.tree, desired)
        self.problems: list[str] = []
        self.observed = observed
        self._ours = {
            (provider.name, name): stock.reserved - reserved_by_operator(provider).get(name, 0)
            for provider in desired
            for name, stock in provider.inventories.items()
        }
        self.holdings = holdings
        self._units: dict[Slot, list[Holding]] = {}  # by guest and class
        self.sums: dict[str, Counter[str]] = {guest: Counter() for guest in holdings.guests}  # of units and floats
        for unit in holdings.units:
            self._units.setdefault((unit.consumer, unit.resource_class), []).append(unit)
        self._floats = {(one.consumer, one.resource_class): one for one in holdings.floats}
        held: tuple[Holding | Float, ...] = (*holdings.units, *holdings.floats)
        for one in held:
            self.sums.setdefault(one.consumer, Counter())[one.resource_class] += one.amount
        self.stand_ins = stand_ins
        self.former = former
        self._pinned_anew = pinned_anew
        self.exchanged = frozenset(recast_as)
        root = desired.root.name  # where the root has less of a class, the loss itself is enough to tell
        self.recast = {(old, new) for old, new in recast_as if not self._lacks(root, old, 0)}

    def word(self, guest: str, name: str) -> Word:
        """Return what a guest has of a class."""
        units, counts = self._units.get((guest, name), ()), Counter[str]()
        for one in units:
            counts[one.provider] += one.amount
        known = self.holdings.known.get(guest)
        return Word(
            units=counts,
            floating=self._floats.get((guest, name)),
            undecided=() if name in NO_DEVICES else self.holdings.undecided.get(guest, ()),
            seen={one.provider: one.seen for one in units if one.seen},
            overridden=known is not None and name in known.overridden,
        )

    def speaks_of(self, name: str) -> bool:
        """Return whether the hypervisor reports where each guest has, or could have, a class."""
        return name in NO_DEVICES or name in self.holdings.told

    def offers_less(self, provider: str, name: str) -> bool:
        """Return whether a provider will have less of a class than its total was, without what this agent reserves."""
        return self._lacks(provider, name, self._ours.get((provider, name), 0))

    def _lacks(self, provider: str, name: str, reserved: int) -> bool:
        stock = self.stock.get((provider, name))
        return stock is None or stock.total - reserved < self.before.get((provider, name), 0)

    def grows(self, provider: str, name: str) -> bool:
        """
        Return whether a provider offers more of a class than it and the providers above and below it did before.

        What was on a provider above counts for all that have their part of it now: for one cell with all that the root
        had, another cell offers more.
        """
        if (provider, name) not in self.stock:
            return False
        before = {one: total for (one, each), total in self.before.items() if each == name}
        related = {one for one in before if self.related(one, provider)}
        now = {one for one in self.candidates(name) if any(self.related(each, one) for each in related)} | {provider}
        return sum(self.stock[one, name].total for one in now) > sum(before[one] for one in related)

    def dedicates(self, guest: str) -> dict[str, int]:
        """Return the CPUs to which a guest is pinned on providers that offer more PCPU, or other CPUs: amounts."""
        units = self.word(guest, "PCPU").units
        return {one: units[one] for one in sorted(units) if guest in self._pinned_anew or self.grows(one, "PCPU")}

    def totals(self, provider: str) -> tuple[dict[str, int], dict[str, int]]:
        """Return the totals of a provider by class, before and now."""
        before = {name: total for (one, name), total in self.before.items() if one == provider}
        return before, {name: stock.total for (one, name), stock in self.stock.items() if one == provider}

    def candidates(self, name: str) -> list[str]:
        """Return the providers that offer a class."""
        return [provider for provider, each in self.stock if each == name]

    def heir(self, parcel: Parcel) -> str:
        """
        Return the provider that gets the CPUs or the memory of a slot that goes: the only one in the same cell.

        Empty where the slot stays, is of the root or of devices, or where there is no such provider, or several.
        """
        provider, name = parcel.provider, parcel.to_class
        if name not in NO_DEVICES or not self.parents.get(provider) or not self.leaving((provider, name)):
            return ""
        found = [one for one in self.candidates(name) if self.parents.get(one) and self.related(one, provider)]
        return found[0] if len(found) == 1 else ""

    def absent(self) -> frozenset[str]:
        """Return the guests without CPUs and memory allocated here, neither their own nor by a migration."""
        return without_host_classes(self.holdings.guests, self.observed.allocations) - frozenset(
            self.stand_ins.values()
        )


def named(consumer: str, guest: str) -> str:
    """Name a consumer for people, with its guest where that is another uuid."""
    return f"consumer {consumer}" if consumer == guest else f"consumer {consumer} (its guest is {guest})"


def without_host_classes(guests: Iterable[str], allocations: Iterable[Allocation]) -> frozenset[str]:
    """
    Return the guests that have neither CPUs nor memory allocated here, by uuid: a migration may have these.

    A guest that moves keeps its disk on shared storage, and what other services gave it here.
    """
    return frozenset(guests) - {one.consumer for one in allocations if one.resource_class in CPUS | {_MEMORY}}


def find_stand_ins(
    strangers: Iterable[Consumer], guests: Iterable[Consumer], holdings: Holdings, allocations: Iterable[Allocation]
) -> dict[str, str]:
    """
    Return the guest of each stranger, by uuid; without strangers whose guest is in doubt.

    While a guest migrates away, its migration has the allocations on this host. The guest fits if it runs here, has no
    CPUs and no memory on our tree, has the same project and user, and has elsewhere as many CPUs and as much memory as
    the migration here. As many strangers as guests that fit them are no doubt, if the hypervisor gives these guests the
    same: then it makes no difference which stranger is whose. ``guests`` are those that have allocations elsewhere;
    ``allocations`` are all of our tree.
    """
    absent = without_host_classes(holdings.guests, allocations)
    fitting = _by_likeness(one for one in guests if one.uuid in absent)
    found: dict[str, str] = {}
    for likeness, alike in _by_likeness(strangers).items():
        theirs = fitting.get(likeness, [])
        if len(theirs) == len(alike) and len({_has(holdings, guest) for guest in theirs}) == 1:
            found |= zip(alike, theirs, strict=True)
    return found


def _by_likeness(consumers: Iterable[Consumer]) -> Mapping[_Likeness, list[str]]:
    """Return the uuids of consumers that look alike, sorted; without those that have neither CPUs nor memory."""
    found: dict[_Likeness, list[str]] = {}
    for one in sorted(consumers, key=lambda one: one.uuid):
        amounts = one.amounts
        cpus, memory_mib = sum(amounts.get(name, 0) for name in CPUS), amounts.get(_MEMORY, 0)
        if cpus or memory_mib:
            found.setdefault((one.project, one.user, cpus, memory_mib), []).append(one.uuid)
    return found


def _has(holdings: Holdings, guest: str) -> frozenset[tuple[str, int, tuple[str, ...]]]:
    """Return all that the hypervisor gives a guest: class, amount, and the providers where it is or may be."""
    units = {(one.resource_class, one.amount, (one.provider,)) for one in holdings.units if one.consumer == guest}
    floats = {(one.resource_class, one.amount, one.providers) for one in holdings.floats if one.consumer == guest}
    return frozenset(units | floats)
