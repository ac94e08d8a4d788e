"""Allocations as placement records them, holdings as the hypervisor reports them, and moves between providers."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from reportclient.tree import ObservedTree

Slots = Mapping[str, Mapping[str, int]]
"""Amounts by provider uuid and resource class; providers and classes without an amount are left out."""


@dataclass(frozen=True, slots=True, order=True)
class Allocation:
    """Amount of one class that one consumer has on one provider (by name), as placement records it."""

    consumer: str
    provider: str
    resource_class: str
    amount: int


@dataclass(frozen=True, slots=True, order=True)
class Holding:
    """Amount of one class that a guest really has on one provider (by name), as the driver found it on the host."""

    consumer: str
    provider: str
    resource_class: str
    amount: int
    seen: str = field(default="", compare=False)  # what shows it, for people; empty: only that the guest has it there


@dataclass(frozen=True, slots=True)
class Float:
    """Amount of one class that a guest has without a place of its own: it can be on any of these providers."""

    consumer: str
    resource_class: str
    amount: int
    providers: tuple[str, ...]  # names, the likeliest first
    because: str  # reason for the order of the providers
    hidden: bool = False  # True: the order tells nothing, as a container hides the place


@dataclass(frozen=True, slots=True)
class AllocationRequest:
    """One allocation request as allocation candidates gave it: its JSON text, passed on unchanged."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestState:
    """What the hypervisor reports about one guest, apart from the amounts that it holds."""

    active: bool  # neither shut off nor crashed
    migrating: bool = False  # to or from this host, at this moment
    project: str | None = None  # None: the hypervisor does not know it
    user: str | None = None  # None: the hypervisor does not know it
    disk_gb: int | None = None  # GiB on this host's disk, by the guest's flavor; None: unknown
    untold: frozenset[str] = frozenset()  # classes of which the hypervisor does not report this guest's amount
    overridden: frozenset[str] = frozenset()  # those of ``untold`` whose amount the flavor sets, but not the place
    # amounts that the flavor sets, by class; None: unknown
    named: Mapping[str, int | None] = field(default_factory=dict)
    unread: bool = False  # True: the guest is not understood, so nothing is done by what is known of it
    flavor_unseen: bool = False  # True: a guest of nova's whose metadata does not show what its flavor sets
    mediated: frozenset[str] = frozenset()  # classes that its mediated devices are offered as


@dataclass(frozen=True, slots=True, kw_only=True)
class OddStock:
    """What providers may have of devices that are undecided; empty: no device is."""

    sentences: Mapping[str, str] = field(default_factory=dict)  # on each such device, by provider
    most: Mapping[str, int] = field(default_factory=dict)  # how much of a provider these are at most
    slots: frozenset[tuple[str, str]] = frozenset()  # (provider, class) of which these may be a part


@dataclass(frozen=True, slots=True, kw_only=True)
class Backing:
    """The hardware behind the providers of the tree that a driver gives, and what is not as it is expected."""

    elsewhere: frozenset[str] = frozenset()  # names of providers, if they exist, of hardware offered in another form
    silent: frozenset[str] = frozenset()  # names of providers whose card is present and shows none of what it offers
    untyped: frozenset[str] = frozenset()  # names of providers whose VFs are there and have no type
    shown: Mapping[str, int] = field(default_factory=dict)  # VFs that a card shows, offered or not, by its provider
    away: frozenset[str] = frozenset()  # classes that the root has, partly reserved, and that no device has now
    withdrawn: frozenset[str] = frozenset()  # classes that the root has, and that the configuration no longer offers
    odd: OddStock = OddStock()
    kinds: Mapping[str, frozenset[str]] = field(default_factory=dict)  # classes of the devices in a total, by suffix
    hardware: frozenset[str] = frozenset()  # PCI addresses of all devices that count in what is offered
    novas: frozenset[str] = frozenset()  # names of the providers that nova-compute makes too, where it reports the host
    # PCI addresses of each device not in ``novas``
    addresses: Mapping[str, frozenset[str]] = field(default_factory=dict)
    offered: Mapping[str, frozenset[str]] = field(default_factory=dict)  # PCI addresses that each provider offers


@dataclass(frozen=True, slots=True)
class Holdings:
    """What the hypervisor reports about all its guests."""

    guests: frozenset[str] = frozenset()  # uuids of all guests that it knows, also of those that hold nothing
    units: tuple[Holding, ...] = ()  # amounts with a place of their own
    floats: tuple[Float, ...] = ()  # amounts without one
    known: Mapping[str, GuestState] = field(default_factory=dict)  # state of each of ``guests``, by uuid
    ports: tuple[Holding, ...] = ()  # those of ``units`` that belong to ports of networks: allocated or not
    told: frozenset[str] = frozenset()  # classes of which ``units`` and ``floats`` have all that guests hold
    # by guest: devices that this host does not offer now, so that their class is not known: PCI addresses, uuids of
    # mediated devices ...; such a guest has all classes of devices in ``untold``
    undecided: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    backing: Backing = Backing()
    notes: tuple[str, ...] = ()  # a sentence on each choice that a person should make
    of_guests: tuple[str, ...] = ()  # a sentence on each guest that a person should look at
    twice: tuple[str, ...] = ()  # a sentence on each device of which a part is left out, as others report it too
    lacking: tuple[str, ...] = ()  # a sentence on each part that the configuration names and that the host lacks now


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """A consumer with all its allocations, on our tree and elsewhere, at one generation."""

    uuid: str
    generation: int
    project: str
    user: str
    kind: str | None  # consumer type; None: unknown, or not reported (before 1.38)
    slots: Slots
    age_s: float | None = field(default=None, compare=False)  # seconds since its last write; None: unknown

    @property
    def amounts(self) -> dict[str, int]:
        """Sum of each class over all providers."""
        return sums(self.slots.values())


@dataclass(frozen=True, slots=True)
class Observed:
    """The tree under one root in placement, with the allocations on those providers whose allocations were read."""

    tree: ObservedTree
    allocations: tuple[Allocation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Amounts by class that one consumer moves from one provider (by name) to another; their sum stays the same."""

    consumer: str
    from_provider: str
    to_provider: str
    moved_resources: Mapping[str, int]
    to_resources: Mapping[str, int] = field(default_factory=dict)  # at the target; empty: as ``moved_resources``
    because: str

    def __post_init__(self) -> None:
        if not self.moved_resources or min(self.moved_resources.values()) < 1:
            raise ValueError(f"a move takes at least 1 of each class, got {dict(self.moved_resources)}")
        if self.to_resources and sum(self.to_resources.values()) != sum(self.moved_resources.values()):
            raise ValueError(
                f"a move must not change the sum of its amounts, got {dict(self.moved_resources)} to "
                f"{dict(self.to_resources)}"
            )

    @property
    def arriving(self) -> Mapping[str, int]:
        """Amounts by class that the target gets."""
        return self.to_resources or self.moved_resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """All moves from one source to one target, of all consumers: a move instruction in the form that drivers return."""

    from_resource_provider: str
    to_resource_provider: str
    moved_resources: Mapping[str, int]  # sums over ``parts``, at the source
    to_resources: Mapping[str, int]  # sums over ``parts``, at the target
    parts: tuple[Move, ...]  # the moves of single consumers


def instructions(moves: Iterable[Move]) -> tuple[Instruction, ...]:
    """Return the moves grouped by source and target, in the order of their names; empty without moves."""
    routes: dict[tuple[str, str], list[Move]] = {}
    for move in moves:
        routes.setdefault((move.from_provider, move.to_provider), []).append(move)
    found = []
    for (source, target), parts in sorted(routes.items()):
        found.append(
            Instruction(
                from_resource_provider=source,
                to_resource_provider=target,
                moved_resources=sums(part.moved_resources for part in parts),
                to_resources=sums(part.arriving for part in parts),
                parts=tuple(parts),
            )
        )
    return tuple(found)


def sums(several: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sum of each class over several amounts by class."""
    return dict(sum(map(Counter, several), Counter[str]()))


def usages(allocations: Iterable[Allocation]) -> dict[tuple[str, str], int]:
    """Return the sum of allocations by (provider name, resource class); pairs without allocations are left out."""
    used: dict[tuple[str, str], int] = {}
    for allocation in allocations:
        slot = allocation.provider, allocation.resource_class
        used[slot] = used.get(slot, 0) + allocation.amount
    return used


def apply_moves(allocations: Iterable[Allocation], moves: Iterable[Move]) -> tuple[Allocation, ...]:
    """
    Return the allocations after all moves, merged with what the consumers have on the targets already.

    Raises:
        ValueError: the moves take more than is held.
    """
    after = {(one.consumer, one.provider, one.resource_class): one.amount for one in allocations}
    for move in moves:
        for name, amount in move.moved_resources.items():
            slot = move.consumer, move.from_provider, name
            after[slot] = after.get(slot, 0) - amount
        for name, amount in move.arriving.items():
            slot = move.consumer, move.to_provider, name
            after[slot] = after.get(slot, 0) + amount
    if overdrawn := sorted(slot for slot, amount in after.items() if amount < 0):
        raise ValueError(f"moves take more than is held: {overdrawn}")
    return tuple(sorted(Allocation(*slot, amount) for slot, amount in after.items() if amount))
