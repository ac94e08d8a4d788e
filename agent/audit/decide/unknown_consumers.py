"""
Classify consumers that have allocations on a host but are no guest of it, and find the guest of each migration.

Placement does not tell to which guest a migration belongs. Nova tells it where the agent can ask nova, and how far a
finding may rest on that. Else project, user and allocations tell it in most cases; where a doubt is left, a person
decides.
"""

from dataclasses import replace

from agent.allocations.decide.sets import INSTANCE, MIGRATION
from agent.audit.decide.findings import Finding, Kind, Repair, changed_rows, of_each_row
from agent.audit.decide.snapshot import Snapshot
from agent.nova.answers import AT_REST, FINISHED, NovaServer
from reportclient.allocations import Consumer
from reportclient.errors import few
from reportclient.ownership import is_cyborgs
from reportclient.plan import Rewrite

GUEST_TYPES = (None, INSTANCE, MIGRATION)  # consumers of other types belong to other services


def why_undecided(snapshot: Snapshot, uuid: str) -> str:
    """Return why a finding is not certain without nova's answer, as the end of a sentence; empty if it needs none."""
    nova = snapshot.nova
    if not nova.asked and snapshot.beside_nova:
        return (
            f"; nova manages this host and may know {uuid}, and the agent cannot ask nova: set [nova] auth_type and "
            f"the other options of its login"
        )
    left = nova.asked - nova.migrations.keys() - nova.servers.keys() - nova.unknown
    return f"; nova did not answer whether it knows {uuid}" if uuid in left else ""


def rests_here(snapshot: Snapshot, guest: str) -> bool:
    """Return whether nova has a guest at rest on this host, and moves it nowhere."""
    server = snapshot.nova.servers.get(guest)
    if server is None or guest not in snapshot.doubted or doubt_of(snapshot, guest):
        return False
    return server.status in AT_REST and not snapshot.nova.open_moves(guest)


def doubt_of(snapshot: Snapshot, guest: str) -> str:
    """
    Return why a guest without allocations here need not have any by nova's word, as the end of a sentence.

    Empty where nova has it on this host and does nothing with it now, or where there is no nova.
    """
    nova, server = snapshot.nova, snapshot.nova.servers.get(guest)
    if not snapshot.beside_nova and not nova.asked:
        return ""
    if server is None:
        return why_undecided(snapshot, guest) or f"; nova does not know {guest}"
    if server.host != nova.host:
        return f"; nova has it on host {server.host or 'none'}"
    moving = any(one.status != FINISHED for one in nova.open_moves(guest))
    busy = server.in_action or server.status == "UNKNOWN" or moving
    return f"; nova has it in the state {server.status}, and may still work on it" if busy else ""


def is_migration_of(snapshot: Snapshot, uuid: str, guest: str) -> bool | None:
    """Return whether a consumer is a migration of a guest here, by nova's answer; None where nova does not say."""
    nova = snapshot.nova
    if move := nova.migrations.get(uuid):
        return move.server == guest if move.server else None
    return False if uuid in nova.servers or uuid in nova.unknown else None


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
    for one in keepers:
        if is_migration_of(snapshot, one.uuid, guest):
            return one, True
    exact = [one for one in keepers if _keeps(snapshot, one, guest)]
    if not keepers:
        return None, True
    keeper, sole = (exact or keepers)[0], len(exact or keepers) == 1
    compared = bool(snapshot.told(guest))  # False: only its owner speaks for this keeper
    return keeper, sole and compared and not _alike(snapshot, keeper, but=guest)


def audit_strangers(snapshot: Snapshot) -> list[Finding]:
    """Return the findings of consumers that should have nothing here."""
    found: list[Finding] = []
    several = strangers(snapshot)
    for one in several:
        server = snapshot.nova.servers.get(one.uuid)
        if one.uuid in snapshot.nova.migrations or (server and server.in_action):
            continue
        if _is_explained(snapshot, one, several):
            continue
        judged = replace(_judge(snapshot, one), consumer=one.uuid, untyped=one.kind is None)
        if judged.kind is Kind.GUEST_LOST:
            found += of_each_row(judged, {row: (None, amount) for row, amount in snapshot.rows(one.uuid).items()})
        else:
            repair = _take_away(snapshot, one)
            found += of_each_row(replace(judged, repair=repair), changed_rows(repair.rewrites[0], snapshot.names))
    return found


def _is_explained(snapshot: Snapshot, one: Consumer, several: list[Consumer]) -> bool:
    """
    Return whether a stranger is the migration of a guest here, so that it is no finding of its own.

    A guest that runs is a finding, ``missing``, which names the stranger if it is certain. A guest that is shut off or
    moves is none: it explains as many strangers as there are such guests, if they have just what these guests use.
    """
    if any(snapshot.is_settled(guest) and keeper_of(snapshot, guest) == (one, True) for guest in snapshot.without_rows):
        return True
    waiting = {uuid for uuid in snapshot.without_rows if not snapshot.is_settled(uuid) and snapshot.told(uuid)}
    guests = {uuid for uuid in waiting if _fits(snapshot, one, uuid)}
    rivals = [other for other in several if any(_fits(snapshot, other, uuid) for uuid in guests)]
    return 0 < len(rivals) <= len(guests)


def _fits(snapshot: Snapshot, stranger: Consumer, guest: str) -> bool:
    return _may_keep(snapshot, stranger, guest) and _keeps(snapshot, stranger, guest)


def _take_away(snapshot: Snapshot, one: Consumer) -> Repair:
    """Return the repair that takes away what a stranger has here."""
    rest = snapshot.besides(one) if snapshot.elsewhere(one) else {}  # its guest may need that on another host
    text = f"remove all allocations of consumer {one.uuid}"
    if rest:
        part = "on this host in classes that this agent reports; the rest stays"
        text = f"remove the allocations of consumer {one.uuid} {part}"
    return Repair(text=text, rewrites=(Rewrite.of(one, rest),))


def _stored(snapshot: Snapshot, one: Consumer) -> str:
    """
    Return what to do about what a consumer has on shared storage, as the end of a sentence; empty: it has nothing.

    Its data may still be there, and no host's audit sees a consumer that has nothing else any more.
    """
    if one.slots.keys() <= snapshot.tree.by_uuid.keys():
        return ""
    return (
        f"; it has something on shared storage too, where its disk may still be: look there. If there is no disk of "
        f"it, run compute-node-agent release {one.uuid}"
    )


def explains(snapshot: Snapshot, guest: str) -> bool:
    """
    Return whether a migration here explains why a guest's allocations differ from what it has: it is between two sizes.

    Nova says of which guest a migration is. Without nova's answer, a consumer of the same owner that has just what the
    guest still has explains it.
    """
    for one in strangers(snapshot):
        told = is_migration_of(snapshot, one.uuid, guest)
        if told and (move := snapshot.nova.migrations.get(one.uuid)) and move.is_open:
            return True
        if told is None and snapshot.told(guest) and _fits(snapshot, one, guest):
            return True
    return False


def may_move_with(snapshot: Snapshot, guest: str) -> bool:
    """Return whether a consumer here may be a migration of a guest, for all that is known."""
    return any(guest in _doubtful(snapshot, one) for one in strangers(snapshot))


def surely_stays(snapshot: Snapshot, guest: str) -> bool:
    """Return whether no consumer here can be a migration of a guest, whoever owns that consumer."""
    return not any(
        one.kind != INSTANCE and is_migration_of(snapshot, one.uuid, guest) is not False for one in strangers(snapshot)
    )


def _judge(snapshot: Snapshot, one: Consumer) -> Finding:
    """Classify a consumer that has no guest on this host; ``safe``: its allocations may go."""
    by_nova, abroad = one.uuid in snapshot.nova.unknown, bool(snapshot.elsewhere(one))
    if server := snapshot.nova.servers.get(one.uuid):
        return _judge_server(snapshot, server, abroad=abroad)
    doubt = why_undecided(snapshot, one.uuid)
    if not doubt and _doubtful(snapshot, one):
        doubt = _next_step(one, abroad=abroad)
    told = ", and nova has neither a server nor a migration of this uuid" if by_nova else doubt
    if one.kind == MIGRATION:
        kind, seen = Kind.LEAKED, "the migration's guest is not on this host"
        told = told or "; nova was not asked, and its user may still confirm or revert it: look before it is repaired"
    elif abroad:
        kind = Kind.DOUBLED
        seen = "its guest is not on this host, and the consumer has allocations on another host too"
    else:
        stored = "" if by_nova else _stored(snapshot, one)
        kind, seen = Kind.ORPHANED, f"its guest is neither defined nor running on this host{stored}"
        doubt += stored
    bound = _bound_by_cyborg(snapshot, one, abroad=abroad)
    # Without nova's word, a resize that awaits its confirmation, or a claim, may look the same.
    return Finding(
        kind=kind, seen=seen + told + bound, safe=not (doubt or bound), arriving=not by_nova, by_nova=by_nova
    )


def _bound_by_cyborg(snapshot: Snapshot, one: Consumer, *, abroad: bool) -> str:
    """Return which of Cyborg's devices a consumer has, as part of a sentence; empty: none. Cyborg may not be done."""
    root = snapshot.tree.providers[0].name
    if not (names := [seen.name for seen in snapshot.tree if seen.uuid in one.slots and is_cyborgs(seen, root)]):
        return ""
    return (
        f"; it has some of {few(names)}, which Cyborg reports: once openstack accelerator arq list has none of its "
        f"server, run {_end_of(one, abroad=abroad)}"
    )


def _judge_server(snapshot: Snapshot, server: NovaServer, *, abroad: bool) -> Finding:
    """Classify a consumer of which nova has a server, and that has no guest on this host."""
    place, nova = f"on host {server.host}" if server.host else "on no host", snapshot.nova
    elsewhere = nova.host and server.host not in (None, nova.host)
    if abroad and elsewhere and server.status in AT_REST and not nova.open_moves(server.uuid):
        seen = f"nova has its server {place} ({server.status}), and the consumer has allocations here too"
        return Finding(kind=Kind.DOUBLED, seen=seen, safe=True, by_nova=True)
    seen = (
        f"nova has server {server.uuid} {place} ({server.status}), and its guest is neither defined nor running on "
        f"this host: run openstack server show {server.uuid}. If nova has the server on this host and does not move "
        f"it, openstack server reboot --hard {server.uuid} makes its guest again (start it instead if it is SHUTOFF)"
    )
    return Finding(kind=Kind.GUEST_LOST, seen=seen, arriving=True, by_nova=True)


def _doubtful(snapshot: Snapshot, stranger: Consumer) -> list[str]:
    """Return the guests here whose migration a stranger may be, for all that is known."""
    if stranger.kind == INSTANCE:
        return []
    return [
        guest for guest in _alike(snapshot, stranger) if is_migration_of(snapshot, stranger.uuid, guest) is not False
    ]


def _next_step(stranger: Consumer, *, abroad: bool) -> str:
    """Return why a stranger may still be in use, and what a person can do about it."""
    return (
        f"; consumer {stranger.uuid} may be the migration of a guest of the same project and user on this host, such "
        f"as a resize that awaits its confirmation. Run openstack server show {stranger.uuid} and openstack "
        f"--os-compute-api-version 2.59 server migration list --limit 1 --marker {stranger.uuid}. If both answer that "
        f"{stranger.uuid} is not found, run {_end_of(stranger, abroad=abroad)}"
    )


def _end_of(stranger: Consumer, *, abroad: bool) -> str:
    """Return the command that takes from a stranger what it has here."""
    if abroad:
        return f"openstack resource provider allocation set {stranger.uuid} with all that it has on other hosts"
    return f"compute-node-agent release {stranger.uuid}"


def _may_keep(snapshot: Snapshot, stranger: Consumer, guest: str) -> bool:
    """
    Return whether a stranger may be the migration that keeps what a guest without allocations here had.

    A stranger of type MIGRATION may keep another amount: what the guest was to have when it was moved. A stranger that
    has something on another host too is not that migration.
    """
    told = is_migration_of(snapshot, stranger.uuid, guest)
    if told is not None:
        return told
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
