"""
Classify consumers that have allocations on a host but are no guest of it, and find the guest of each migration.

Placement does not tell to which guest a migration belongs. Project, user and allocations tell it in most cases; where
a doubt is left, a person decides.
"""

from agent.allocations.decide.sets import INSTANCE, MIGRATION, rewrite, settled
from agent.audit.decide.findings import Finding, Kind, Repair
from agent.audit.decide.snapshot import Snapshot
from reportclient.allocations import Consumer
from reportclient.plan import ReplaceAllocations

_FIRST = 1  # the generation of a consumer that was written once
CLOCKS_S = 60  # seconds by which the clocks of placement's servers may differ
_OF_HOSTS = frozenset({"VCPU", "PCPU", "MEMORY_MB"})
_ALL = "remove all allocations of consumer {}"
GUEST_TYPES = (None, INSTANCE, MIGRATION)  # consumers of other types belong to other services


def strangers(snapshot: Snapshot) -> list[Consumer]:
    """Return the consumers with allocations here that are no guest here, and by their type a guest or a migration."""
    return [
        one
        for uuid, one in sorted(snapshot.consumers.items())
        if uuid not in snapshot.holdings.guests and one.kind in GUEST_TYPES and snapshot.rows(uuid)
    ]


def keeper_of(snapshot: Snapshot, guest: str) -> tuple[Consumer | None, bool]:
    """
    Return the migration that keeps what a guest without allocations here had, and whether that is certain.

    None where no consumer can be that migration.
    """
    keepers = [one for one in strangers(snapshot) if _may_keep(snapshot, one, guest)]
    exact = [one for one in keepers if _keeps(snapshot, one, guest)]
    if not keepers:
        return None, True
    keeper, sole = (exact or keepers)[0], len(exact or keepers) == 1
    compared = bool(snapshot.told(guest))  # False: only its owner speaks for this keeper
    return keeper, sole and compared and not _alike(snapshot, keeper, but=guest)


def audit_strangers(snapshot: Snapshot) -> list[Finding]:
    """Return the findings of consumers that should have nothing here."""
    found: list[Finding] = []
    for one in strangers(snapshot):
        if any(_may_keep(snapshot, one, guest) for guest in snapshot.without_rows):
            continue  # its guest is here: it migrates, awaits its confirmation, or is a finding of its own
        kind, seen, safe = _judge(snapshot, one)
        rest = _rest(snapshot, one) if snapshot.elsewhere(one) else _beyond(snapshot, one)
        part = (
            "on this host in classes that this agent reports"
            if snapshot.elsewhere(one)
            else "in this host's tree, on all providers"
        )
        text = (
            f"remove the allocations of consumer {one.uuid} {part}; the rest stays" if rest else _ALL.format(one.uuid)
        )
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
                arriving=kind is not Kind.LEAKED,
                untyped=one.kind is None,
            )
            for (place, name), amount in sorted(snapshot.rows(one.uuid).items())
        ]
    return found


def _beyond(snapshot: Snapshot, one: Consumer) -> dict[str, dict[str, int]]:
    """Return what a consumer has outside of this tree, such as shared storage: its data may still be there."""
    return {uuid: dict(resources) for uuid, resources in one.slots.items() if uuid not in snapshot.tree.by_uuid}


def _rest(snapshot: Snapshot, one: Consumer) -> dict[str, dict[str, int]]:
    """Return what a consumer has besides this host's own stock: its guest may need that on another host."""
    return settled(
        {
            uuid: {
                name: amount
                for name, amount in resources.items()
                if uuid not in snapshot.tree.by_uuid or name not in snapshot.classes[snapshot.tree.by_uuid[uuid].name]
            }
            for uuid, resources in one.slots.items()
        }
    )


def may_resize_here(snapshot: Snapshot, guest: Consumer) -> bool:
    """Return whether a migration of the same project and user is here too: the guest may be between two sizes."""
    return any((one.project, one.user) == (guest.project, guest.user) for one in strangers(snapshot))


def _judge(snapshot: Snapshot, one: Consumer) -> tuple[Kind, str, bool]:
    """Classify a consumer that has no guest on this host: the kind, what was seen, and whether it may go."""
    abroad = bool(snapshot.elsewhere(one))
    doubtful = _doubtful(snapshot, one)
    doubt = _next_step(one, doubtful, abroad=abroad) if doubtful else ""
    if one.kind == MIGRATION:
        return Kind.LEAKED, f"the migration's guest is not on this host{doubt}", not doubt
    if abroad:
        return (
            Kind.DOUBLED,
            f"its guest is not on this host, and the consumer has allocations on another host too{doubt}",
            not doubt,
        )
    return Kind.ORPHANED, f"its guest is neither defined nor running on this host{doubt}", not doubt


def _doubtful(snapshot: Snapshot, stranger: Consumer) -> list[str]:
    """Return the guests here whose migration a stranger may be."""
    if stranger.kind == INSTANCE or _is_on_two_hosts(snapshot, stranger):
        return []
    return [guest for guest in _alike(snapshot, stranger) if not _is_older(snapshot.consumers.get(guest), stranger)]


def _is_on_two_hosts(snapshot: Snapshot, stranger: Consumer) -> bool:
    """Return whether a stranger has CPUs or memory of another host too: a migration keeps the set of one host."""
    return any(not _OF_HOSTS.isdisjoint(stranger.slots[uuid]) for uuid in snapshot.elsewhere(stranger))


def _is_older(guest: Consumer | None, stranger: Consumer) -> bool:
    """
    Return whether a guest's set was last written before a stranger was made, so that the two are not one move.

    A migration is made from the guest's set, and the guest gets its new set after that. A stranger of another
    generation than the first was written again, for instance by a conversion, and does not tell when it was made.
    """
    if guest is None or guest.age_s is None or stranger.age_s is None or stranger.generation != _FIRST:
        return False
    return guest.age_s > stranger.age_s + CLOCKS_S


def _next_step(stranger: Consumer, guests: list[str], *, abroad: bool) -> str:
    """Return why a stranger may still be in use, and what a person can do about it."""
    more = len(guests) - 1
    others = (
        f", or {'one of ' * (more > 1)}{more} other guest{'s' * (more > 1)} of the same project and user"
        if more
        else ""
    )
    release = f"compute-node-agent release {stranger.uuid}"
    if abroad:
        release = (
            f"openstack resource provider allocation set {stranger.uuid}, with one --allocation for each allocation "
            f"that this consumer has outside this host, so that only those allocations stay"
        )
    return (
        f"; consumer {stranger.uuid} may be the migration of a guest that is resized on this host. That guest may be "
        f"{guests[0]}{others}. Run openstack server show {stranger.uuid}. Then run openstack server migration list "
        f"--server {guests[0]}, and look at the column UUID. If neither shows consumer {stranger.uuid}, run {release}"
    )


def _may_keep(snapshot: Snapshot, stranger: Consumer, guest: str) -> bool:
    """
    Return whether a stranger may be the migration that keeps what a guest without allocations here had.

    A stranger of type MIGRATION may keep another amount: what the guest was to have when it was moved. A stranger that
    has something on another host too is not that migration.
    """
    if stranger.kind == INSTANCE or snapshot.owner(guest) != (stranger.project, stranger.user):
        return False
    if snapshot.elsewhere(stranger):
        return False
    return stranger.kind == MIGRATION or _keeps(snapshot, stranger, guest)


def _keeps(snapshot: Snapshot, stranger: Consumer, guest: str) -> bool:
    """Return whether a stranger of the guest's owner has here what the guest really has."""
    kept: dict[str, int] = {}
    for (_, name), amount in snapshot.rows(stranger.uuid).items():
        kept[name] = kept.get(name, 0) + amount
    has = {name: sum((snapshot.truth(guest, name, {}) or {}).values()) for name in snapshot.told(guest)}
    besides = {name: sum(port.amount for port in snapshot.ports(guest, name)) for name in has}
    return all(amount <= kept.get(name, 0) <= amount + besides[name] for name, amount in has.items())


def _alike(snapshot: Snapshot, stranger: Consumer, *, but: str = "") -> list[str]:
    """Return the guests here, except ``but``, of a stranger's project and user, or of an unknown one."""
    return [
        uuid
        for uuid in sorted(snapshot.holdings.guests - {but})
        if None in (owner := snapshot.owner(uuid)) or owner == (stranger.project, stranger.user)
    ]
