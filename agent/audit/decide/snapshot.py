"""All that an audit looks at, and where what guests really have differs from what is allocated for them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from reportclient.allocations import Allocation, Consumer, Float, Holding, Holdings
from reportclient.names import CPUS, NO_DEVICES
from reportclient.tree import ObservedTree


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """What placement and the hypervisor say of one host."""

    tree: ObservedTree
    allocations: tuple[Allocation, ...]  # on all of the tree; those of ``consumers`` as they were read
    holdings: Holdings
    classes: Mapping[str, frozenset[str]]  # which are ours, by provider's name
    foreign: frozenset[str] = frozenset()  # providers below the root that are others', by name
    present: frozenset[str] = frozenset()  # providers whose hardware is here, or that are wanted
    wanted: frozenset[str] = frozenset()  # providers that this host is to have, by name
    consumers: Mapping[str, Consumer] = field(default_factory=dict)  # of ``suspects`` those that hold anything
    sharing: frozenset[str] = frozenset()  # the uuids of providers that share what they have
    layout: str = ""  # in which the tree stands
    configured_layout: str = ""
    typed: bool = False  # placement tells consumer types
    asked: frozenset[str] = frozenset()  # guests whose consumers were asked for, to be judged by name and type too

    def rows(self, consumer: str) -> dict[tuple[str, str], int]:
        """What a consumer has of stock that is ours: (provider, class) -> amount."""
        return self._rows.get(consumer, {})

    @cached_property
    def _rows(self) -> dict[str, dict[tuple[str, str], int]]:
        found: dict[str, dict[tuple[str, str], int]] = {}
        for one in self.allocations:
            if one.resource_class in self.classes.get(one.provider, frozenset()):
                found.setdefault(one.consumer, {})[one.provider, one.resource_class] = one.amount
        return found

    @property
    def holders(self) -> frozenset[str]:
        """The consumers that have something of stock that is ours."""
        return frozenset(self._rows)

    def others(self, consumer: Consumer) -> dict[str, dict[str, int]]:
        """What a consumer has of stock that is not this host's own: shared, or of others below our root."""
        rest: dict[str, dict[str, int]] = {}
        for uuid, resources in consumer.slots.items():
            ours = self.classes[self.tree.by_uuid[uuid].name] if uuid in self.tree.by_uuid else frozenset()
            if uuid in self.tree.by_uuid or uuid in self.sharing:
                rest[uuid] = {name: amount for name, amount in resources.items() if name not in ours}
        return {uuid: resources for uuid, resources in rest.items() if resources}

    @property
    def without_rows(self) -> frozenset[str]:
        """The guests here that have nothing of stock that is ours."""
        return self.holdings.guests - self.holders

    def elsewhere(self, consumer: Consumer) -> frozenset[str]:
        """The uuids of providers of other hosts that a consumer has something of."""
        return frozenset(consumer.slots) - self.tree.by_uuid.keys() - self.sharing

    def owner(self, guest: str) -> tuple[str | None, str | None]:
        """Project and user of a guest here, by placement or else by the hypervisor."""
        consumer, known = self.consumers.get(guest), self.holdings.known[guest]
        return (consumer.project, consumer.user) if consumer else (known.project, known.user)

    def is_settled(self, uuid: str) -> bool:
        """Whether a guest runs here and is not on its way: then what it has is what it is to have."""
        known = self.holdings.known.get(uuid)
        return known is not None and known.active and not known.migrating

    def told(self, uuid: str) -> list[str]:
        """The classes of ours of which the hypervisor says all that a guest has, in the words of this tree."""
        return sorted((self.holdings.told & self._offered) - self.undecided(uuid))

    def undecided(self, uuid: str) -> frozenset[str]:
        """
        The classes of which nobody can tell now what a guest has.

        A device that nothing here offers may be of any class of devices. Where the tree does not have the class or the
        place of a unit, the configuration is ahead of it: it stands there as another class of the same kind.
        """
        devices = (self.holdings.told | self._offered) - NO_DEVICES
        doubtful = any(one.consumer == uuid for one in self.holdings.undecided)
        kinds = CPUS, frozenset({"MEMORY_MB"}), devices
        ahead = [kind for kind in kinds if any(self.truth(uuid, name, {}) is None for name in kind)]
        return self.holdings.known[uuid].untold.union(*ahead, devices if doubtful else ())

    @cached_property
    def _offered(self) -> frozenset[str]:
        """The classes of ours that the tree has."""
        return frozenset(
            name for seen in self.tree for name in seen.provider.inventories if name in self.classes[seen.name]
        )

    def truth(self, uuid: str, name: str, rows: Mapping[tuple[str, str], int]) -> dict[str, int] | None:
        """
        What a guest has of a class, by provider, with ``rows`` as what it has allocated.

        A device of a network's port counts as far as it is allocated: nova allocates none for Neutron's ports. None
        where the tree does not have what the hypervisor speaks of.
        """
        offered = self._offering.get(name, set())
        wanted: dict[str, int] = {}
        for unit in self._units.get((uuid, name), ()):
            wanted[unit.provider] = wanted.get(unit.provider, 0) + unit.amount
        for port in self.ports(uuid, name):
            least = wanted.get(port.provider, 0) - port.amount
            wanted[port.provider] = min(wanted[port.provider], max(least, rows.get((port.provider, name), 0)))
        if not wanted.keys() <= offered:
            return None
        for floating in self._floats.get((uuid, name), ()):
            places = [place for place in floating.providers if place in offered]
            if not places:
                return None
            rest = floating.amount
            for place in places:  # what is allocated where it may be stays there
                kept = min(rest, max(0, rows.get((place, name), 0) - wanted.get(place, 0)))
                wanted[place] = wanted.get(place, 0) + kept
                rest -= kept
            wanted[places[0]] = wanted.get(places[0], 0) + rest
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
        """The devices of a class that a guest has by ports of networks, allocated or not."""
        return self._ports.get((uuid, name), [])

    @cached_property
    def _ports(self) -> dict[tuple[str, str], list[Holding]]:
        return _by_guest_and_class(self.holdings.ports)

    @cached_property
    def _units(self) -> dict[tuple[str, str], list[Holding]]:
        return _by_guest_and_class(self.holdings.units)

    @cached_property
    def _floats(self) -> dict[tuple[str, str], list[Float]]:
        """What floats, by guest and class."""
        found: dict[tuple[str, str], list[Float]] = {}
        for one in self.holdings.floats:
            found.setdefault((one.consumer, one.resource_class), []).append(one)
        return found

    def differences(self, uuid: str) -> dict[str, dict[str, tuple[int, int]]]:
        """Class -> provider -> (what a guest has, what is allocated), where they differ."""
        rows = self.rows(uuid)
        found: dict[str, dict[str, tuple[int, int]]] = {}
        for name in self.told(uuid):
            truth = self.truth(uuid, name, rows)
            if truth is None:
                continue
            places = truth.keys() | {provider for provider, each in rows if each == name}
            pairs = {place: (truth.get(place, 0), rows.get((place, name), 0)) for place in sorted(places)}
            if wrong := {place: pair for place, pair in pairs.items() if pair[0] != pair[1]}:
                found[name] = wrong
        return found


def _by_guest_and_class(several: Iterable[Holding]) -> dict[tuple[str, str], list[Holding]]:
    found: dict[tuple[str, str], list[Holding]] = {}
    for one in several:
        found.setdefault((one.consumer, one.resource_class), []).append(one)
    return found


def suspects(snapshot: Snapshot) -> frozenset[str]:
    """
    The consumers of which the whole set must be read before anything can be said; empty on a sound host.

    Where a stranger may be a migration, guests of which the hypervisor does not say whose they are are among them.
    """
    strangers = snapshot.holders - snapshot.holdings.guests
    settled = {uuid for uuid in snapshot.holdings.guests if snapshot.is_settled(uuid)}
    differing = {uuid for uuid in settled & snapshot.holders if snapshot.differences(uuid)}
    unfounded = snapshot.without_rows if strangers else snapshot.without_rows & settled
    unowned = {uuid for uuid in snapshot.holdings.guests if strangers and None in snapshot.owner(uuid)}
    return strangers | differing | unfounded | unowned


def kin(snapshot: Snapshot) -> frozenset[str]:
    """The guests with the owner of a stranger, which may be on their way with it: their sets tell whether they are."""
    strangers = [one for uuid, one in snapshot.consumers.items() if uuid not in snapshot.holdings.guests]
    owners = {(one.project, one.user) for one in strangers if snapshot.rows(one.uuid)}
    return frozenset(uuid for uuid in snapshot.holdings.guests if owners and snapshot.owner(uuid) in owners)
