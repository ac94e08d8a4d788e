"""Everything that an audit judges, and the differences between what guests really have and their allocations."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from agent.allocations.decide.sets import settled
from agent.nova.answers import NovaWitness
from reportclient.allocations import Allocation, Consumer, Float, Holding, Holdings
from reportclient.names import CPUS, NO_DEVICES
from reportclient.tree import ObservedTree

T = TypeVar("T", Holding, Float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Providers:
    """Whose the providers of the tree are, and which of them this host has; all by name."""

    classes: Mapping[str, frozenset[str]]  # the classes that are ours, of each provider of the tree
    foreign: frozenset[str] = frozenset()  # those of the tree that belong to others
    novas: frozenset[str] = frozenset()  # in the role beside: the children that are left to nova
    present: frozenset[str] = frozenset()  # those whose hardware is here or awaited, or that are wanted
    wanted: frozenset[str] = frozenset()  # those that this host is to have
    cards: Mapping[str, str] = field(default_factory=dict)  # PCI address of each VF -> that of its PF, as in names


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """State of one host in placement and in the hypervisor."""

    tree: ObservedTree
    allocations: tuple[Allocation, ...]  # on the whole tree; those of ``consumers`` as they were read
    holdings: Holdings
    providers: Providers
    layout: str = ""  # the configured one
    standing: str = ""  # the layout that the tree has
    disputed: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # as the function of the owner's module
    consumers: Mapping[str, Consumer] = field(default_factory=dict)  # those read whole that have anything, by uuid
    sharing: frozenset[str] = frozenset()  # uuids of shared providers; read only if a consumer is elsewhere too
    doubted: frozenset[str] = frozenset()  # guests of ``without_rows_of_nova`` that nova is asked about too
    nova: NovaWitness = field(default_factory=NovaWitness)  # what nova says of strangers; nothing: it was not asked
    beside_nova: bool = False  # True: nova-compute manages this host

    def rows(self, consumer: str) -> dict[tuple[str, str], int]:
        """Return what a consumer has of our stock: (provider name, class) -> amount; empty if nothing."""
        return self._rows.get(consumer, {})

    @cached_property
    def _rows(self) -> dict[str, dict[tuple[str, str], int]]:
        found: dict[str, dict[tuple[str, str], int]] = {}
        for one in self.allocations:
            if one.resource_class in self.providers.classes.get(one.provider, frozenset()):
                found.setdefault(one.consumer, {})[one.provider, one.resource_class] = one.amount
        return found

    @cached_property
    def names(self) -> dict[str, str]:
        """The names of this host's providers, by uuid."""
        return {uuid: seen.name for uuid, seen in self.tree.by_uuid.items()}

    @property
    def holders(self) -> frozenset[str]:
        """The consumers that have some of our stock, by uuid."""
        return frozenset(self._rows)

    def others(self, consumer: Consumer) -> dict[str, dict[str, int]]:
        """Return what a consumer has of others' stock, shared or below our root: provider's uuid -> class -> amount."""
        besides, near = self.besides(consumer), self.names.keys() | self.sharing
        return {uuid: resources for uuid, resources in besides.items() if uuid in near}

    def besides(self, consumer: Consumer) -> dict[str, dict[str, int]]:
        """Return what a consumer has besides our stock, on other hosts too: provider's uuid -> class -> amount."""
        ours = {uuid: self.providers.classes[name] for uuid, name in self.names.items()}
        return settled(
            {
                uuid: {name: amount for name, amount in resources.items() if name not in ours.get(uuid, ())}
                for uuid, resources in consumer.slots.items()
            }
        )

    @property
    def without_rows(self) -> frozenset[str]:
        """The guests here that have none of our stock, by uuid."""
        return self.holdings.guests - self.holders

    def without_rows_of_nova(self, *, running: bool) -> frozenset[str]:
        """
        Return nova's guests here that have none of our stock; ``running`` leaves out those that are shut off.

        Of those only nova can tell whether they moved away.
        """
        known = self.holdings.known
        nova = {uuid for uuid in self.without_rows if known[uuid].project}
        return frozenset(uuid for uuid in nova if known[uuid].active or not running)

    def elsewhere(self, consumer: Consumer) -> frozenset[str]:
        """Return the uuids of other hosts' providers on which a consumer has allocations."""
        return frozenset(consumer.slots) - self.tree.by_uuid.keys() - self.sharing

    def owner(self, guest: str) -> tuple[str | None, str | None]:
        """Return project and user of a guest here, by placement or else by the hypervisor; None where unknown."""
        consumer, known = self.consumers.get(guest), self.holdings.known[guest]
        return (consumer.project, consumer.user) if consumer else (known.project, known.user)

    def is_settled(self, uuid: str) -> bool:
        """Return whether a guest runs here, does not migrate and is understood; then it is to have what it has now."""
        known = self.holdings.known[uuid]
        return known.active and not known.migrating and not known.unread

    def told(self, uuid: str) -> list[str]:
        """Return our classes in this tree for which the hypervisor tells all that a guest has, sorted."""
        return sorted((self.holdings.told & self._offered) - self.undecided(uuid))

    def undecided(self, uuid: str) -> frozenset[str]:
        """
        Return the classes for which the agent cannot tell now what a guest has.

        A device that no provider here offers may be of any device class. Where the tree lacks the class or the provider
        of a unit, the configuration is ahead of the tree: there the unit is of another class of the same kind.
        """
        devices = (self.holdings.told | self._offered) - NO_DEVICES
        return (
            self.holdings.known[uuid].untold
            | self._ahead(uuid, devices)
            | (devices if uuid in self.holdings.undecided else frozenset())
        )

    def _ahead(self, uuid: str, devices: frozenset[str] = frozenset()) -> frozenset[str]:
        """Return the classes, by kind, of which a guest has a unit that the tree does not offer yet."""
        kinds = CPUS, frozenset({"MEMORY_MB"}), devices
        return frozenset[str]().union(
            *(kind for kind in kinds if any(self.truth(uuid, name, {}) is None for name in kind))
        )

    @cached_property
    def _offered(self) -> frozenset[str]:
        """The classes of ours that the tree has."""
        return frozenset(
            name
            for seen in self.tree
            for name in seen.provider.inventories
            if name in self.providers.classes[seen.name]
        )

    def truth(self, uuid: str, name: str, rows: Mapping[tuple[str, str], int]) -> dict[str, int] | None:
        """
        Return what a guest has of a class: provider name -> amount; ``rows`` is what it has allocated.

        A device of a network port counts only as far as it is allocated: nova allocates none for Neutron's ports. None
        where the tree does not offer the class on a provider that the hypervisor names.
        """
        offered = self._offering.get(name, set())
        wanted: dict[str, int] = {}
        for unit in self._units.get((uuid, name), ()):
            wanted[unit.provider] = wanted.get(unit.provider, 0) + unit.amount
        for port in self.ports(uuid, name):
            least = wanted[port.provider] - port.amount
            wanted[port.provider] = min(wanted[port.provider], max(least, rows.get((port.provider, name), 0)))
        if not wanted.keys() <= offered:
            return None
        for floating in self._floats.get((uuid, name), ()):
            places = [place for place in floating.providers if place in offered]
            if not places:
                return None
            rest = floating.amount
            for place in places:  # what is allocated on a possible provider stays there
                kept = min(rest, max(0, rows.get((place, name), 0) - wanted.get(place, 0)))
                wanted[place] = wanted.get(place, 0) + kept
                rest -= kept
            wanted[places[0]] += rest
        return {place: amount for place, amount in wanted.items() if amount}

    @cached_property
    def _offering(self) -> dict[str, set[str]]:
        """The providers that have stock of a class."""
        found: dict[str, set[str]] = {}
        for seen in self.tree:
            for name in seen.provider.inventories:
                found.setdefault(name, set()).add(seen.name)
        return found

    def ports(self, uuid: str, name: str) -> list[Holding]:
        """Return the devices of a class that a guest has by network ports, allocated or not."""
        return self._ports.get((uuid, name), [])

    @cached_property
    def _ports(self) -> dict[tuple[str, str], list[Holding]]:
        return _by_guest_and_class(self.holdings.ports)

    @cached_property
    def _units(self) -> dict[tuple[str, str], list[Holding]]:
        return _by_guest_and_class(self.holdings.units)

    @cached_property
    def _floats(self) -> dict[tuple[str, str], list[Float]]:
        return _by_guest_and_class(self.holdings.floats)

    def differences(self, uuid: str) -> dict[str, dict[str, tuple[int, int]]]:
        """Return class -> provider -> (what a guest has, what is allocated), only where the two differ."""
        rows = self.rows(uuid)
        found: dict[str, dict[str, tuple[int, int]]] = {}
        truths = {name: self.truth(uuid, name, rows) for name in self.told(uuid)}
        truths |= {name: self._truth_by_flavor(uuid, name, rows) for name in self.holdings.known[uuid].overridden}
        for name, truth in sorted(truths.items()):
            if truth is None or self._is_as_named(uuid, name, sum(truth.values())):
                continue
            places = truth.keys() | {provider for provider, _ in rows}
            pairs = {place: (truth.get(place, 0), rows.get((place, name), 0)) for place in sorted(places)}
            if wrong := {place: pair for place, pair in pairs.items() if pair[0] != pair[1]}:
                found[name] = wrong
        return found

    def _truth_by_flavor(self, uuid: str, name: str, rows: Mapping[tuple[str, str], int]) -> dict[str, int] | None:
        """
        Return the one provider to which a guest is bound with all that it has of a class, and what is allocated of it.

        Where the flavor gives the amount, only the place can be judged. None where the guest is not bound to one, or
        has CPUs of the other class too, or where that provider cannot give the amount.
        """
        kind = CPUS if name in CPUS else frozenset({name})
        places = {unit.provider for each in kind for unit in self._units.get((uuid, each), ())}
        mixed = any((uuid, each) in self._units for each in kind - {name})
        floats = any((uuid, each) in self._floats for each in kind)
        if len(places) != 1 or mixed or floats or name in self._ahead(uuid):
            return None
        (place,) = places
        booked = sum(amount for (_, each), amount in rows.items() if each == name)
        return {place: booked} if self.tree.by_name[place].provider.inventories[name].fits(booked) else None

    def _is_as_named(self, uuid: str, name: str, has: int) -> bool:
        """
        Return whether the flavor accounts for what a guest has allocated of a class beyond the devices that it ``has``.

        nova allocates what a flavor names, whether or not the guest gets a device for it. A flavor that is not shown
        may name any class of devices; one that gives another amount of CPUs or memory is rare.
        """
        booked = sum(amount for (_, each), amount in self.rows(uuid).items() if each == name)
        known = self.holdings.known[uuid]
        named = None if known.flavor_unseen and name not in NO_DEVICES else known.named.get(name, 0)
        return has < booked and (named is None or booked <= named)


def _by_guest_and_class(several: Iterable[T]) -> dict[tuple[str, str], list[T]]:
    found: dict[tuple[str, str], list[T]] = {}
    for one in several:
        found.setdefault((one.consumer, one.resource_class), []).append(one)
    return found


def suspects(snapshot: Snapshot) -> frozenset[str]:
    """
    Return the consumers whose whole set must be read before they can be judged; empty on a sound host.

    Where there are strangers, guests of unknown project or user are among them: a stranger may be their migration.
    """
    strangers = snapshot.holders - snapshot.holdings.guests
    settled = {uuid for uuid in snapshot.holdings.guests if snapshot.is_settled(uuid)}
    differing = {uuid for uuid in settled if snapshot.differences(uuid)}
    unfounded = snapshot.without_rows if strangers else snapshot.without_rows & settled
    unowned = {uuid for uuid in snapshot.holdings.guests if strangers and None in snapshot.owner(uuid)}
    return strangers | differing | unfounded | unowned | snapshot.doubted


def kin(snapshot: Snapshot) -> frozenset[str]:
    """Return the guests with the same owner as a stranger: their sets tell whether they are moving with it."""
    strangers = [one for uuid, one in snapshot.consumers.items() if uuid not in snapshot.holdings.guests]
    owners = {(one.project, one.user) for one in strangers if snapshot.rows(one.uuid)}
    return frozenset(uuid for uuid in snapshot.holdings.guests if snapshot.owner(uuid) in owners)
