"""Who holds what: allocations as placement records them, holdings as the hypervisor sees them, and moves between."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from reportclient.tree import ObservedTree

Slots = Mapping[str, Mapping[str, int]]
"""Provider's uuid -> resource class -> amount; no empty ones in it."""


@dataclass(frozen=True, slots=True, order=True)
class Allocation:
    """One consumer's amount of one class on one provider (by name), as placement records it."""

    consumer: str
    provider: str
    resource_class: str
    amount: int


@dataclass(frozen=True, slots=True, order=True)
class Holding:
    """What a guest really has, in placement's words: the driver's answer to "which unit belongs to whom"."""

    consumer: str
    provider: str
    resource_class: str
    amount: int


@dataclass(frozen=True, slots=True)
class Float:
    """What a guest has of a class without a unit in particular: on any of these providers, the likeliest first."""

    consumer: str
    resource_class: str
    amount: int
    providers: tuple[str, ...]
    because: str  # what the order of the providers rests on


@dataclass(frozen=True, slots=True, order=True)
class Undecided:
    """A unit of hardware that a guest has and that nothing on this host offers now; its class cannot be told."""

    consumer: str
    unit: str  # a PCI address, the uuid of a mediated device, or a kind of memory encryption
    because: str  # why it is not on offer: half a sentence with the option that decides


@dataclass(frozen=True, slots=True)
class AllocationRequest:
    """One allocation request as allocation candidates gave it: its JSON text, passed on as it is."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestState:
    """What the hypervisor says of one guest besides what it holds."""

    active: bool  # it runs, or is paused
    migrating: bool = False  # to or from here, at this moment
    project: str | None = None  # None: nobody told the hypervisor
    user: str | None = None
    disk_gb: int | None = None  # on this host's disk, by the guest's flavor; None: not told
    untold: frozenset[str] = frozenset()  # classes of which the hypervisor does not say what this one has
    overridden: frozenset[str] = frozenset()  # of these: the flavor gives the amount, the hypervisor only the place
    named: frozenset[str] = frozenset()  # classes of which the flavor itself says how much, whoever reports them


@dataclass(frozen=True, slots=True)
class Holdings:
    """What the hypervisor says of all its guests."""

    guests: frozenset[str] = frozenset()  # every guest that it knows, whether it holds anything or not
    units: tuple[Holding, ...] = ()
    floats: tuple[Float, ...] = ()
    known: Mapping[str, GuestState] = field(default_factory=dict)  # by uuid, all of ``guests``
    ports: tuple[Holding, ...] = ()  # those of ``units`` that networks' ports have: allocated or not
    told: frozenset[str] = frozenset()  # the classes of which units and floats are all that guests have
    undecided: tuple[Undecided, ...] = ()  # devices that guests have besides; these are ``untold`` of their guests
    elsewhere: frozenset[str] = frozenset()  # providers whose hardware, if they stand, is on offer in another form
    silent: frozenset[str] = frozenset()  # providers whose card is there and shows nothing of what it can offer
    away: frozenset[str] = frozenset()  # classes that the root has, partly reserved, and no device to have them now
    kinds: Mapping[str, frozenset[str]] = field(default_factory=dict)  # the classes of each device that a total counts
    hardware: frozenset[str] = frozenset()  # the PCI addresses of all that counts in what is offered


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """A consumer with its whole set of allocations, on our tree and elsewhere, at one generation."""

    uuid: str
    generation: int
    project: str
    user: str
    kind: str | None  # consumer type; None where placement does not tell (before 1.38)
    slots: Slots
    age_s: float | None = field(default=None, compare=False)  # since it was last written; None: not told

    @property
    def amounts(self) -> dict[str, int]:
        """The sum of each class over all providers."""
        found: dict[str, int] = {}
        for resources in self.slots.values():
            for name, amount in resources.items():
                found[name] = found.get(name, 0) + amount
        return found


@dataclass(frozen=True, slots=True)
class Observed:
    """What placement holds under one root, and who holds what of it: of the providers whose allocations were read."""

    tree: ObservedTree
    allocations: tuple[Allocation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What goes from one provider (by name) to another for one consumer, by class; no class changes its amount."""

    consumer: str
    from_provider: str
    to_provider: str
    moved_resources: Mapping[str, int]
    to_resources: Mapping[str, int] = field(default_factory=dict)  # what they are there; empty: the same classes
    because: str

    def __post_init__(self) -> None:
        if not self.moved_resources or min(self.moved_resources.values()) < 1:
            raise ValueError(f"a move takes at least 1 of each class, got {dict(self.moved_resources)}")
        if self.to_resources and sum(self.to_resources.values()) != sum(self.moved_resources.values()):
            raise ValueError(f"a move loses nothing, got {dict(self.moved_resources)} to {dict(self.to_resources)}")

    @property
    def arriving(self) -> Mapping[str, int]:
        """What the provider is given that the move goes to."""
        return self.to_resources or self.moved_resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One source to one target for all consumers at once: a move instruction in the form that drivers return."""

    from_resource_provider: str
    to_resource_provider: str
    moved_resources: Mapping[str, int]  # the sum of its parts
    to_resources: Mapping[str, int]  # what they are there
    parts: tuple[Move, ...]  # which consumer each part belongs to


def instructions(moves: Iterable[Move]) -> tuple[Instruction, ...]:
    """Moves by source and target, in the order of their names; none where nobody moves."""
    routes: dict[tuple[str, str], list[Move]] = {}
    for move in moves:
        routes.setdefault((move.from_provider, move.to_provider), []).append(move)
    found = []
    for (source, target), parts in sorted(routes.items()):
        found.append(
            Instruction(
                from_resource_provider=source,
                to_resource_provider=target,
                moved_resources=_sums(part.moved_resources for part in parts),
                to_resources=_sums(part.arriving for part in parts),
                parts=tuple(parts),
            )
        )
    return tuple(found)


def _sums(several: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for resources in several:
        for name, amount in resources.items():
            total[name] = total.get(name, 0) + amount
    return total


def usages(allocations: Iterable[Allocation]) -> dict[tuple[str, str], int]:
    """The sum of what is allocated, by (provider name, resource class); nothing allocated is no entry."""
    used: dict[tuple[str, str], int] = {}
    for allocation in allocations:
        slot = allocation.provider, allocation.resource_class
        used[slot] = used.get(slot, 0) + allocation.amount
    return used


def apply_moves(allocations: Iterable[Allocation], moves: Iterable[Move]) -> tuple[Allocation, ...]:
    """
    The allocations after all moves: merged with what the targets have already, nothing lost, nothing invented.

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
