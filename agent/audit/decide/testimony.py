"""How far a finding may rest on what nova says of a consumer."""

from agent.audit.decide.snapshot import Snapshot
from agent.nova.answers import AT_REST, FINISHED, NovaServer


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


def lives_elsewhere(snapshot: Snapshot, server: NovaServer) -> bool:
    """Return whether nova has a server on another host for good: at rest there, and in no open migration from here."""
    nova = snapshot.nova
    if not nova.host or server.host in (None, nova.host):
        return False
    return server.status in AT_REST and not nova.open_moves(server.uuid)


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
    return f"; nova has it in the state {server.status}, and not at rest" if busy else ""


def is_migration_of(snapshot: Snapshot, uuid: str, guest: str) -> bool | None:
    """Return whether a consumer is a migration of a guest here, by nova's answer; None where nova does not say."""
    nova = snapshot.nova
    if move := nova.migrations.get(uuid):
        return move.server == guest if move.server else None
    return False if uuid in nova.servers or uuid in nova.unknown else None
