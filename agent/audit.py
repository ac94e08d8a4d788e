"""
What placement says of a host's guests against what the hypervisor really runs: findings, each with its repair.

A finding about a consumer rests on its whole set as it is at this moment (``Scene.consumers``), never on a row that
was remembered: some writes move no generation. What has an innocent explanation is no finding: a guest that migrates,
a migration whose guest awaits its confirmation, a consumer that another service owns.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from agent.migrations import MIGRATION, replace_set, rewrite
from reportclient.allocations import Allocation, Consumer, Guest, Holdings, Slots, usages
from reportclient.hold import ONE_TIME
from reportclient.ownership import MARKER, is_novas
from reportclient.plan import Delete, ReplaceAllocations, Rewrite, SetInventories
from reportclient.tree import ObservedProvider, ObservedTree

INSTANCE = "INSTANCE"
GUEST_TYPES = (None, INSTANCE, MIGRATION)  # consumers of other types are other services' to judge


class Kind(Enum):
    """What can be wrong."""

    ORPHANED = "orphaned"
    MISSING = "missing"
    WRONG_AMOUNT = "wrong-amount"
    WRONG_PROVIDER = "wrong-provider"
    LEAKED = "leaked-migration"
    DOUBLED = "doubled"
    TO_BE_RESERVED = "to-be-reserved"
    OWNERLESS = "ownerless"
    DUPLICATE = "duplicate-provider"
    GHOST = "ghost-provider"
    OVER = "over-capacity"


MEANINGS = {
    Kind.ORPHANED: "a consumer has allocations here, and its guest is nowhere on this host, defined or running",
    Kind.MISSING: "a guest runs here without allocations here",
    Kind.WRONG_AMOUNT: "a running guest has more or less of a class than is allocated for it",
    Kind.WRONG_PROVIDER: "a running guest has a unit of one provider, and it is allocated on another",
    Kind.LEAKED: "a migration has allocations here, and its guest is not here any more",
    Kind.DOUBLED: "a consumer has allocations here and on another host, and its guest is not here",
    Kind.TO_BE_RESERVED: "a one-time-use device was used, and is still on offer",
    Kind.OWNERLESS: "a provider is below this host's root, and nobody marked it as theirs",
    Kind.DUPLICATE: "two providers below this host's root stand for one device",
    Kind.GHOST: "a provider of ours stands for hardware that this host does not have",
    Kind.OVER: "more of a class is allocated than its provider can give",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What would put a finding right."""

    text: str
    operation: ReplaceAllocations | SetInventories | Delete


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong: of a consumer, or of a provider."""

    kind: Kind
    consumer: str | None = None
    provider: str | None = None
    resource_class: str | None = None
    expected: int | None = None  # what it should be, by the hypervisor or by the inventory
    actual: int | None = None  # what placement has
    seen: str  # what was seen where
    repair: Repair | None = None  # None: a person must decide
    safe: bool = False  # nothing speaks against the repair

    @property
    def key(self) -> str:
        """The same for the same wrong at every look."""
        return "/".join(map(str, (self.kind.value, self.consumer, self.provider, self.resource_class)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """All that an audit looks at."""

    tree: ObservedTree
    allocations: tuple[Allocation, ...]  # on all of the tree; those of ``consumers`` as they were read
    holdings: Holdings
    classes: Mapping[str, frozenset[str]]  # which are ours, by provider's name
    present: frozenset[str] = frozenset()  # providers whose hardware is here, or that are wanted
    consumers: Mapping[str, Consumer] = field(default_factory=dict)  # of ``suspects`` those that hold anything
    sharing: frozenset[str] = frozenset()  # the uuids of providers that share what they have

    def rows(self, consumer: str) -> dict[tuple[str, str], int]:
        """What a consumer has of stock that is ours: (provider, class) -> amount."""
        return {
            (one.provider, one.resource_class): one.amount
            for one in self.allocations
            if one.consumer == consumer and one.resource_class in self.classes.get(one.provider, frozenset())
        }

    @property
    def kept(self) -> frozenset[str]:
        """The uuids of providers that no repair of ours takes a guest off: shared ones, and others' below our root."""
        return self.sharing | {seen.uuid for seen in self.tree if not self.classes[seen.name]}

    def elsewhere(self, consumer: Consumer) -> frozenset[str]:
        """The uuids of providers of other hosts that a consumer has something of."""
        return frozenset(consumer.slots) - self.tree.by_uuid.keys() - self.sharing


def suspects(scene: Scene) -> frozenset[str]:
    """The consumers of which the whole set must be read before anything can be said; empty on a sound host."""
    holders = {one.consumer for one in scene.allocations if scene.rows(one.consumer)}
    strangers = holders - scene.holdings.guests
    absent = scene.holdings.guests - holders
    settled = {uuid for uuid in scene.holdings.guests if _is_settled(scene, uuid)}
    differing = {uuid for uuid in settled & holders if _differences(scene, uuid)}
    unfounded = absent if strangers else absent & settled
    return frozenset(strangers | differing | unfounded)


def audit(scene: Scene) -> tuple[Finding, ...]:
    """All that is wrong, consumers first; ``scene.consumers`` has been read for ``suspects``."""
    return (*_of_guests(scene), *_of_strangers(scene), *_of_providers(scene))


def _is_settled(scene: Scene, uuid: str) -> bool:
    """Whether a guest runs here and is not on its way: then what it has is what it is to have."""
    known = scene.holdings.known.get(uuid)
    return known is not None and known.active and not known.migrating


def _truth(scene: Scene, uuid: str, name: str, rows: Mapping[tuple[str, str], int]) -> dict[str, int] | None:
    """What a guest has of a class by provider; None where the tree does not have what the hypervisor speaks of."""
    offered = {seen.name for seen in scene.tree if name in seen.provider.inventories}
    wanted: dict[str, int] = {}
    for unit in scene.holdings.units:
        if (unit.consumer, unit.resource_class) == (uuid, name):
            wanted[unit.provider] = wanted.get(unit.provider, 0) + unit.amount
    if not wanted.keys() <= offered:
        return None
    for floating in scene.holdings.floats:
        if (floating.consumer, floating.resource_class) != (uuid, name):
            continue
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


def _told(scene: Scene, uuid: str) -> list[str]:
    """The classes of ours of which the hypervisor says all that a guest has."""
    offered = {name for seen in scene.tree for name in seen.provider.inventories if name in scene.classes[seen.name]}
    return sorted((scene.holdings.told & offered) - scene.holdings.known[uuid].untold)


def _differences(scene: Scene, uuid: str) -> dict[str, dict[str, tuple[int, int]]]:
    """Class -> provider -> (what the guest has, what is allocated), where they differ."""
    rows = scene.rows(uuid)
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for name in _told(scene, uuid):
        truth = _truth(scene, uuid, name, rows)
        if truth is None:
            continue
        places = truth.keys() | {provider for provider, each in rows if each == name}
        pairs = {place: (truth.get(place, 0), rows.get((place, name), 0)) for place in sorted(places)}
        if wrong := {place: pair for place, pair in pairs.items() if pair[0] != pair[1]}:
            found[name] = wrong
    return found


def _of_guests(scene: Scene) -> list[Finding]:
    found: list[Finding] = []
    for uuid in sorted(scene.holdings.guests):
        if not _is_settled(scene, uuid):
            continue
        if not scene.rows(uuid):
            found += _missing(scene, uuid)
        elif uuid in scene.consumers and not _resizing(scene, scene.consumers[uuid]):
            found += _wrong(scene, scene.consumers[uuid])
    return found


def _wrong(scene: Scene, consumer: Consumer) -> list[Finding]:
    """A guest that has allocations here, and not those of what it really has."""
    differences = _differences(scene, consumer.uuid)
    if not differences:
        return []
    slots = {uuid: dict(resources) for uuid, resources in consumer.slots.items()}
    for name, places in differences.items():
        for place, (has, _) in places.items():
            slots.setdefault(scene.tree.by_name[place].uuid, {})[name] = has
    text = f"allocate for {consumer.uuid} what it has"
    repair = Repair(text=text, operation=ReplaceAllocations((rewrite(consumer, _settled(slots)),)))
    return [
        Finding(
            kind=Kind.WRONG_AMOUNT if sum(has - booked for has, booked in places.values()) else Kind.WRONG_PROVIDER,
            consumer=consumer.uuid,
            provider=place,
            resource_class=name,
            expected=has,
            actual=booked,
            seen=f"the hypervisor gives it {has} {name} of {place}, and {booked} are allocated",
            repair=repair,
            safe=True,
        )
        for name, places in differences.items()
        for place, (has, booked) in places.items()
    ]


def _resizing(scene: Scene, guest: Consumer) -> bool:
    """Whether a migration of the same project and user is here too: then the guest may be between two sizes."""
    return any((one.project, one.user) == (guest.project, guest.user) for one in _strangers(scene))


def _missing(scene: Scene, uuid: str) -> list[Finding]:
    """A guest that runs here without allocations here: its migration has them, or nobody."""
    rows: dict[tuple[str, str], int] = {}
    for name in _told(scene, uuid):
        for place, amount in (_truth(scene, uuid, name, {}) or {}).items():
            rows[place, name] = amount
    known, consumer = scene.holdings.known[uuid], scene.consumers.get(uuid)
    keepers = [one for one in _strangers(scene) if _may_keep(scene, one, uuid)]
    exact = [one for one in keepers if _keeps(scene, one, uuid)]
    rivals = _without_rows(scene) - {uuid}
    keeper = next(iter(exact or keepers), None)
    sole = len(exact or keepers) == 1
    if keeper and sole and not any((_keeps if exact else _may_keep)(scene, keeper, rival) for rival in rivals):
        repair: Repair | None = _swap_back(scene, keeper, uuid)
        safe = True
        seen = f"it runs here and does not migrate, and {keeper.uuid} keeps what it had here"
    else:
        repair = _claim_again(scene, uuid, known, consumer, rows)
        safe = repair is not None and not keepers and (consumer is None or not scene.elsewhere(consumer))
        seen = "it runs here, and has no allocations here" + (
            ", only on another host" if consumer and scene.elsewhere(consumer) else ""
        )
    slots = sorted(rows) or [(scene.tree.providers[0].name, "VCPU")]
    return [
        Finding(
            kind=Kind.MISSING,
            consumer=uuid,
            provider=place,
            resource_class=name,
            expected=rows.get((place, name)),
            actual=0,
            seen=seen,
            repair=repair,
            safe=safe,
        )
        for place, name in slots
    ]


def _without_rows(scene: Scene) -> frozenset[str]:
    return frozenset(uuid for uuid in scene.holdings.guests if not scene.rows(uuid))


def _strangers(scene: Scene) -> list[Consumer]:
    """The consumers with allocations here that are no guest here, and that are guests' or migrations'."""
    return [
        one
        for uuid, one in sorted(scene.consumers.items())
        if uuid not in scene.holdings.guests and one.kind in GUEST_TYPES and scene.rows(uuid)
    ]


def _may_keep(scene: Scene, stranger: Consumer, guest: str) -> bool:
    """
    Whether a stranger may be the migration that keeps what a guest without allocations here had.

    One that says it is a migration may keep another amount: what the guest was to have when it was moved.
    """
    if stranger.kind == INSTANCE or _owner(scene, guest) != (stranger.project, stranger.user):
        return False
    return stranger.kind == MIGRATION or _keeps(scene, stranger, guest)


def _keeps(scene: Scene, stranger: Consumer, guest: str) -> bool:
    """Whether a stranger of a guest's owner has here what the guest really has."""
    if stranger.kind == INSTANCE or _owner(scene, guest) != (stranger.project, stranger.user):
        return False
    kept: dict[str, int] = {}
    for (_, name), amount in scene.rows(stranger.uuid).items():
        kept[name] = kept.get(name, 0) + amount
    has = {name: sum((_truth(scene, guest, name, {}) or {}).values()) for name in _told(scene, guest)}
    return all(kept.get(name, 0) == amount for name, amount in has.items())


def _swap_back(scene: Scene, keeper: Consumer, guest: str) -> Repair:
    consumer = scene.consumers.get(guest)
    if consumer is None:
        back = Rewrite(
            consumer=guest,
            generation=None,
            project=keeper.project,
            user=keeper.user,
            kind=INSTANCE if keeper.kind else None,
            before={},
            after=keeper.slots,
        )
    else:
        back = rewrite(consumer, replace_set(consumer.slots, keeper.slots, scene.kept))
    return Repair(
        text=f"revert the migration: what {keeper.uuid} keeps goes back to {guest}",
        operation=ReplaceAllocations((rewrite(keeper, {}), back)),
    )


def _claim_again(
    scene: Scene, uuid: str, known: Guest, consumer: Consumer | None, rows: Mapping[tuple[str, str], int]
) -> Repair | None:
    """A claim for what a guest has; None where nobody says whose it is, or not all that it has."""
    root = scene.tree.providers[0]
    project, user = (consumer.project, consumer.user) if consumer else (known.project, known.user)
    undecided = any(_truth(scene, uuid, name, {}) is None for name in _told(scene, uuid))
    if project is None or user is None or undecided or not rows:
        return None
    slots: dict[str, dict[str, int]] = {}
    for (place, name), amount in rows.items():
        slots.setdefault(scene.tree.by_name[place].uuid, {})[name] = amount
    if known.disk_gb and "DISK_GB" in root.provider.inventories:
        slots.setdefault(root.uuid, {})["DISK_GB"] = known.disk_gb
    claim = Rewrite(
        consumer=uuid,
        generation=consumer.generation if consumer else None,
        project=project,
        user=user,
        kind=consumer.kind if consumer else INSTANCE,
        before=consumer.slots if consumer else {},
        after=replace_set(consumer.slots, slots, scene.kept) if consumer else slots,
    )
    return Repair(text=f"allocate for {uuid} what it has", operation=ReplaceAllocations((claim,)))


def _of_strangers(scene: Scene) -> list[Finding]:
    found: list[Finding] = []
    absent = _without_rows(scene)
    for one in _strangers(scene):
        if any(_may_keep(scene, one, guest) for guest in absent):
            continue  # its guest is here: it migrates, awaits its confirmation, or is a finding of its own
        kind, seen, safe = _judge_stranger(scene, one)
        rest = _settled(
            {
                uuid: {
                    name: amount
                    for name, amount in resources.items()
                    if uuid not in scene.tree.by_uuid or name not in scene.classes[scene.tree.by_uuid[uuid].name]
                }
                for uuid, resources in one.slots.items()
            }
        )
        text = f"take away what {one.uuid} has here" + ("; what it has elsewhere stays" if rest else "")
        repair = Repair(text=text, operation=ReplaceAllocations((rewrite(one, rest),)))
        found += [
            Finding(
                kind=kind,
                consumer=one.uuid,
                provider=place,
                resource_class=name,
                expected=0,
                actual=amount,
                seen=seen,
                repair=repair,
                safe=safe,
            )
            for (place, name), amount in sorted(scene.rows(one.uuid).items())
        ]
    return found


def _judge_stranger(scene: Scene, one: Consumer) -> tuple[Kind, str, bool]:
    """What a consumer is of which no guest here is it: the kind, what was seen, and whether it may go."""
    alike = [
        uuid
        for uuid in sorted(scene.holdings.guests)
        if one.kind != INSTANCE and _owner(scene, uuid) == (one.project, one.user)
    ]
    doubt = f"; it may be a resize of {alike[0]}, of the same project and user" if alike else ""
    if one.kind == MIGRATION:
        return Kind.LEAKED, f"it is a migration, and no guest here is the one that it is of{doubt}", not doubt
    if scene.elsewhere(one):
        return Kind.DOUBLED, f"no guest here is it, and it has allocations on another host{doubt}", not doubt
    return Kind.ORPHANED, f"no guest here, running or not, is it{doubt}", not doubt


def _owner(scene: Scene, guest: str) -> tuple[str | None, str | None]:
    consumer, known = scene.consumers.get(guest), scene.holdings.known[guest]
    return (consumer.project, consumer.user) if consumer else (known.project, known.user)


def _of_providers(scene: Scene) -> list[Finding]:
    booked = usages(scene.allocations)
    used = {name for (name, _), amount in booked.items() if amount}
    used |= {unit.provider for unit in scene.holdings.units}
    parents = {seen.provider.parent for seen in scene.tree}
    found: list[Finding] = []
    for seen in scene.tree:
        name, provider = seen.name, seen.provider
        found += _over(seen, booked)
        if provider.parent is None:
            continue
        if MARKER in provider.traits and ONE_TIME in provider.traits and name in used:
            found += _to_be_reserved(seen)
        if MARKER in provider.traits and name not in scene.present:
            free = name not in parents and not any(amount for (each, _), amount in booked.items() if each == name)
            repair = Repair(text=f"delete {name}", operation=Delete(seen.uuid, name)) if free else None
            why = "no hardware of this host is it" + ("" if free else ", and it is in use")
            found.append(Finding(kind=Kind.GHOST, provider=name, seen=why, repair=repair, safe=free))
        if not _is_owned(seen, scene.tree.providers[0].name):
            found.append(Finding(kind=Kind.OWNERLESS, provider=name, seen="it carries no owner's mark"))
    return [*found, *_duplicates(scene)]


def _over(seen: ObservedProvider, booked: Mapping[tuple[str, str], int]) -> list[Finding]:
    found = []
    for name, stock in sorted(seen.provider.inventories.items()):
        taken = booked.get((seen.name, name), 0)
        # What is reserved of a device that guests hold is kept from others, and taken from nobody.
        most = stock.capacity if seen.provider.parent is None else max(stock.total, stock.capacity)
        if taken > most:
            sentence = f"it can give {most} {name}, and {taken} are allocated: move guests away"
            found.append(
                Finding(
                    kind=Kind.OVER, provider=seen.name, resource_class=name, expected=most, actual=taken, seen=sentence
                )
            )
    return found


def _to_be_reserved(seen: ObservedProvider) -> list[Finding]:
    open_ = {name: stock for name, stock in seen.provider.inventories.items() if stock.reserved < stock.total}
    after = {name: replace(stock, reserved=stock.total) for name, stock in seen.provider.inventories.items()}
    repair = Repair(text=f"reserve all of {seen.name}", operation=SetInventories(seen.uuid, seen.name, after))
    return [
        Finding(
            kind=Kind.TO_BE_RESERVED,
            provider=seen.name,
            resource_class=name,
            expected=stock.total,
            actual=stock.reserved,
            seen=f"it can be used once, a guest has or had it, and {stock.reserved} of {stock.total} are reserved",
            repair=repair,
            safe=True,
        )
        for name, stock in sorted(open_.items())
    ]


def _is_owned(seen: ObservedProvider, root: str) -> bool:
    """By a mark of ours, of nova, of Cyborg or another; or by its name, as Neutron's agents call theirs."""
    marked = any(trait == MARKER or trait.startswith(("OWNER_", "CUSTOM_OWNER_")) for trait in seen.provider.traits)
    return marked or is_novas(seen) or seen.name.startswith(f"{root}:")


def _duplicates(scene: Scene) -> list[Finding]:
    """Children whose names end in one PCI address, however that is written."""
    devices: dict[str, list[str]] = {}
    for seen in scene.tree:
        if seen.provider.parent is not None and seen.provider.inventories:
            suffix = seen.name.replace("pci_", "").replace(":", "_").replace(".", "_")[-12:]
            if suffix.count("_") == 3 and all(part.isalnum() for part in suffix.split("_")):
                devices.setdefault(suffix, []).append(seen.name)
    return [
        Finding(kind=Kind.DUPLICATE, provider=name, seen=f"{' and '.join(names)} stand for one device: whose is each?")
        for names in devices.values()
        if len(names) > 1
        for name in names
    ]


def _settled(slots: Slots) -> dict[str, dict[str, int]]:
    kept = {uuid: {name: amount for name, amount in each.items() if amount} for uuid, each in slots.items()}
    return {uuid: each for uuid, each in kept.items() if each}
