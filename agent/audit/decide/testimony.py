"""What nova says of a consumer that is no guest of this host, and how far a finding may rest on it."""

from enum import Enum

from agent.audit.decide.snapshot import Snapshot
from agent.nova.answers import AT_REST, FINISHED, NovaMigration, NovaServer, NovaWitness


class Testimony(Enum):
    """What nova says of a consumer."""

    SERVER = "nova has a server of this uuid"
    MIGRATION = "nova has a migration of this uuid"
    NEITHER = "nova has neither a server nor a migration of this uuid"
    UNDECIDED = "nova manages this host, and its answer is missing"
    NOT_NEEDED = "there is no nova to ask, or the consumer changed too lately to be judged"


def word_of(snapshot: Snapshot, uuid: str) -> Testimony:
    """Return what nova says of a consumer."""
    nova = snapshot.nova
    if nova is None:
        return Testimony.UNDECIDED if snapshot.beside_nova else Testimony.NOT_NEEDED
    if uuid in nova.migrations:
        return Testimony.MIGRATION
    if uuid in nova.servers:
        return Testimony.SERVER
    if uuid not in nova.asked:
        return Testimony.NOT_NEEDED
    return Testimony.NEITHER if uuid in nova.unknown else Testimony.UNDECIDED


def why_undecided(snapshot: Snapshot, uuid: str) -> str:
    """Return why a finding is not certain without nova's answer, as the end of a sentence; empty if it needs none."""
    if word_of(snapshot, uuid) is not Testimony.UNDECIDED:
        return ""
    if snapshot.nova is None:
        return (
            f"; nova manages this host and may know {uuid}, and the agent cannot ask nova: set [nova] auth_type and "
            f"the other options of its login"
        )
    return f"; nova did not answer whether it knows {uuid}"


def server_of(snapshot: Snapshot, uuid: str) -> NovaServer | None:
    """Return nova's server of a consumer; None where nova has none, or was not asked."""
    return snapshot.nova.servers.get(uuid) if snapshot.nova else None


def move_of(snapshot: Snapshot, uuid: str) -> NovaMigration | None:
    """Return nova's migration of a consumer; None where nova has none, or was not asked."""
    return snapshot.nova.migrations.get(uuid) if snapshot.nova else None


def lives_elsewhere(snapshot: Snapshot, server: NovaServer) -> bool:
    """Return whether nova has a server on another host for good: at rest there, and in no open migration from here."""
    nova = snapshot.nova
    if nova is None or not nova.host or server.host in (None, nova.host):
        return False
    return server.status in AT_REST and not _open_moves(nova, server.uuid)


def rests_here(snapshot: Snapshot, guest: str) -> bool:
    """Return whether nova has a guest at rest on this host, and moves it nowhere."""
    nova, server = snapshot.nova, server_of(snapshot, guest)
    if nova is None or server is None or guest not in snapshot.doubted or doubt_of(snapshot, guest):
        return False
    return server.status in AT_REST and not _open_moves(nova, guest)


def doubt_of(snapshot: Snapshot, guest: str) -> str:
    """
    Return why a guest without allocations here need not have any by nova's word, as the end of a sentence.

    Empty where nova has it on this host and does nothing with it now, or where there is no nova.
    """
    nova = snapshot.nova
    server = server_of(snapshot, guest)
    if not snapshot.beside_nova and nova is None:
        return ""
    if nova is None or server is None:
        return why_undecided(snapshot, guest) or f"; nova does not know {guest}"
    if server.host != nova.host:
        return f"; nova has it on host {server.host or 'none'}"
    moving = any(one.status != FINISHED for one in _open_moves(nova, guest))
    busy = server.in_action or server.status == "UNKNOWN" or moving
    return f"; nova has it in the state {server.status}, and not at rest" if busy else ""


def _open_moves(nova: NovaWitness, server: str) -> list[NovaMigration]:
    return [one for one in nova.migrations.values() if one.server == server and one.is_open]


def is_migration_of(snapshot: Snapshot, uuid: str, guest: str) -> bool | None:
    """Return whether a consumer is a migration of a guest here, by nova's answer; None where nova does not say."""
    if move := move_of(snapshot, uuid):
        return move.server == guest if move.server else None
    return False if word_of(snapshot, uuid) in (Testimony.SERVER, Testimony.NEITHER) else None
