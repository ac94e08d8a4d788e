"""
Consumers with allocations on a host that are no guest of it: what each of them is, and which guest a migration is of.

Placement does not say whose a migration is. Its project and user, and what it holds, do in most cases; where they
leave a doubt, a person decides.
"""

from agent.allocations.decide.sets import INSTANCE, MIGRATION, rewrite, settled
from agent.audit.decide.findings import Finding, Kind, Repair
from agent.audit.decide.snapshot import Scene
from reportclient.allocations import Consumer
from reportclient.plan import ReplaceAllocations

FIRST = 1  # the generation of a consumer that was written once
CLOCKS_S = 60  # by which the clocks of placement's servers may differ
_OF_HOSTS = frozenset({"VCPU", "PCPU", "MEMORY_MB"})
_ALL = "take away all that {} has"
GUEST_TYPES = (None, INSTANCE, MIGRATION)  # consumers of other types are other services' to judge


def strangers(scene: Scene) -> list[Consumer]:
    """The consumers with allocations here that are no guest here, and that are guests' or migrations'."""
    return [
        one
        for uuid, one in sorted(scene.consumers.items())
        if uuid not in scene.holdings.guests and one.kind in GUEST_TYPES and scene.rows(uuid)
    ]


def keeper_of(scene: Scene, guest: str) -> tuple[Consumer | None, bool]:
    """
    The migration that keeps what a guest without allocations here had, and whether that is certain.

    None where nobody can be it.
    """
    keepers = [one for one in strangers(scene) if _may_keep(scene, one, guest)]
    exact = [one for one in keepers if _keeps(scene, one, guest)]
    if not keepers:
        return None, True
    keeper, sole = (exact or keepers)[0], len(exact or keepers) == 1
    compared = bool(scene.told(guest))  # else nothing speaks for this keeper but its owner
    return keeper, sole and compared and not _alike(scene, keeper, but=guest)


def audit_strangers(scene: Scene) -> list[Finding]:
    """Findings of consumers that should have nothing here."""
    found: list[Finding] = []
    for one in strangers(scene):
        if any(_may_keep(scene, one, guest) for guest in scene.without_rows):
            continue  # its guest is here: it migrates, awaits its confirmation, or is a finding of its own
        kind, seen, safe = _judge(scene, one)
        rest = _rest(scene, one) if scene.elsewhere(one) else _beyond(scene, one)
        of = "of this host's own" if scene.elsewhere(one) else "on this host, others' providers below it too"
        text = f"take away what {one.uuid} has {of}; the rest stays" if rest else _ALL.format(one.uuid)
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
            for (place, name), amount in sorted(scene.rows(one.uuid).items())
        ]
    return found


def _beyond(scene: Scene, one: Consumer) -> dict[str, dict[str, int]]:
    """What a consumer has outside of this tree, as of storage that hosts share: its data may still be there."""
    return {uuid: dict(resources) for uuid, resources in one.slots.items() if uuid not in scene.tree.by_uuid}


def _rest(scene: Scene, one: Consumer) -> dict[str, dict[str, int]]:
    """What a consumer has besides this host's own stock: its guest may be on another host, and need it there."""
    return settled(
        {
            uuid: {
                name: amount
                for name, amount in resources.items()
                if uuid not in scene.tree.by_uuid or name not in scene.classes[scene.tree.by_uuid[uuid].name]
            }
            for uuid, resources in one.slots.items()
        }
    )


def may_resize_here(scene: Scene, guest: Consumer) -> bool:
    """Whether a migration of the same project and user is here too: then the guest may be between two sizes."""
    return any((one.project, one.user) == (guest.project, guest.user) for one in strangers(scene))


def _judge(scene: Scene, one: Consumer) -> tuple[Kind, str, bool]:
    """Classify a consumer that has no guest on this host: the kind, what was seen, and whether it may go."""
    abroad = bool(scene.elsewhere(one))
    doubtful = _doubtful(scene, one)
    doubt = _next_step(one, doubtful, abroad=abroad) if doubtful else ""
    if one.kind == MIGRATION:
        return Kind.LEAKED, f"the migration's guest is not on this host{doubt}", not doubt
    if abroad:
        return Kind.DOUBLED, f"its guest is not on this host, and it has allocations on another too{doubt}", not doubt
    return Kind.ORPHANED, f"its guest is neither defined nor running on this host{doubt}", not doubt


def _doubtful(scene: Scene, stranger: Consumer) -> list[str]:
    """The guests here of which a stranger may be the migration."""
    if stranger.kind == INSTANCE or _is_on_two_hosts(scene, stranger):
        return []
    return [guest for guest in _alike(scene, stranger) if not _is_older(scene.consumers.get(guest), stranger)]


def _is_on_two_hosts(scene: Scene, stranger: Consumer) -> bool:
    """Whether a stranger has CPUs or memory of another host too: a migration keeps the set of one host."""
    return any(not _OF_HOSTS.isdisjoint(stranger.slots[uuid]) for uuid in scene.elsewhere(stranger))


def _is_older(guest: Consumer | None, stranger: Consumer) -> bool:
    """
    Whether a guest's set was last written before a stranger was made, so that the two are not one move.

    A migration is made of the guest's set, and the guest is given its new set after that. A stranger of another
    generation than the first was written again, by a conversion for instance, and does not tell when it was made.
    """
    if guest is None or guest.age_s is None or stranger.age_s is None or stranger.generation != FIRST:
        return False
    return guest.age_s > stranger.age_s + CLOCKS_S


def _next_step(stranger: Consumer, guests: list[str], *, abroad: bool) -> str:
    """Why a stranger is not certain to be left over, and what a person can do about it."""
    others = f" or of {len(guests) - 1} more of its owner" if len(guests) > 1 else ""
    release = f"compute-node-agent release {stranger.uuid}"
    if abroad:
        release = f"openstack resource provider allocation set {stranger.uuid} with what it has elsewhere"
    return (
        f"; it may be a resize of {guests[0]}{others}, which is here: if neither openstack server show "
        f"{stranger.uuid} nor openstack server migration list --server {guests[0]} (its UUIDs) knows it, run {release}"
    )


def _may_keep(scene: Scene, stranger: Consumer, guest: str) -> bool:
    """
    Whether a stranger may be the migration that keeps what a guest without allocations here had.

    One that says it is a migration may keep another amount: what the guest was to have when it was moved. One that
    has something on another host too is none.
    """
    if stranger.kind == INSTANCE or scene.owner(guest) != (stranger.project, stranger.user):
        return False
    if scene.elsewhere(stranger):
        return False
    return stranger.kind == MIGRATION or _keeps(scene, stranger, guest)


def _keeps(scene: Scene, stranger: Consumer, guest: str) -> bool:
    """Whether a stranger of a guest's owner has here what the guest really has."""
    kept: dict[str, int] = {}
    for (_, name), amount in scene.rows(stranger.uuid).items():
        kept[name] = kept.get(name, 0) + amount
    has = {name: sum((scene.truth(guest, name, {}) or {}).values()) for name in scene.told(guest)}
    besides = {name: sum(port.amount for port in scene.ports(guest, name)) for name in has}
    return all(amount <= kept.get(name, 0) <= amount + besides[name] for name, amount in has.items())


def _alike(scene: Scene, stranger: Consumer, *, but: str = "") -> list[str]:
    """The guests here, ``but`` for one, that are of a stranger's project and user, or nobody tells whose."""
    return [
        uuid
        for uuid in sorted(scene.holdings.guests - {but})
        if None in (owner := scene.owner(uuid)) or owner == (stranger.project, stranger.user)
    ]
