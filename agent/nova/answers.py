"""What nova answered about a host's servers and migrations, and the parsers of its answers."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

HOST = "OS-EXT-SRV-ATTR:host"
TASK = "OS-EXT-STS:task_state"
NEXT = "servers_links"  # there only if the listing of servers goes on
FIELDS: Mapping[str, tuple[str, ...]] = {
    "servers": ("id", "status", HOST, "OS-EXT-SRV-ATTR:hypervisor_hostname", TASK),
    "migrations": ("uuid", "status", "instance_uuid", "source_compute", "dest_compute"),
    "hypervisor": ("id", "hypervisor_hostname", "service"),
}
"""Fields that the agent reads, by the part of an answer in which they are."""
_PARTS = {"server": FIELDS["servers"], **FIELDS}
ENDED = frozenset({"cancelled", "completed", "confirmed", "done", "error", "failed", "reverted"})
"""States of a migration that nova has ended."""
FINISHED = "finished"
"""State of a resize whose server runs in its new size, and that a person has to confirm or revert."""
IN_ACTION = frozenset({"BUILD", "MIGRATING", "REBUILD", "RESIZE"})
"""States of a server that nova is making, or moving."""
AT_REST = frozenset({"ACTIVE", "ERROR", "PAUSED", "RESCUE", "SHUTOFF", "SUSPENDED"})
"""States of a server that is not moving to another host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NovaServer:
    """A server as nova reports it."""

    uuid: str
    status: str  # such as ACTIVE or VERIFY_RESIZE; UNKNOWN: the database of its cell does not answer
    host: str | None = None  # nova's name of its host; None: on no host, or not reported
    task: str | None = None  # what nova is doing with it; None: nothing, or not reported

    @property
    def in_action(self) -> bool:
        """Whether nova is doing something with it: its guest may be about to appear on a host, or to leave it."""
        return self.task is not None or self.status in IN_ACTION


@dataclass(frozen=True, slots=True, kw_only=True)
class NovaMigration:
    """A migration as nova reports it: also a resize or an evacuation."""

    uuid: str
    status: str
    server: str  # uuid of the server that it is of

    @property
    def is_open(self) -> bool:
        """True if nova still has to end the migration, or a person has to confirm or revert it."""
        return self.status not in ENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class NovaWitness:
    """What nova answered about one host, and about consumers that are no guests of that host; by default nothing."""

    asked: frozenset[str] = frozenset()  # consumers that nova was asked about, by uuid
    host: str = ""  # nova's name of this host; empty: nova did not tell it
    servers: Mapping[str, NovaServer] = field(default_factory=dict)  # of this host, and ``asked`` of others; by uuid
    migrations: Mapping[str, NovaMigration] = field(default_factory=dict)  # likewise
    unknown: frozenset[str] = frozenset()  # those of ``asked`` that are neither servers nor migrations of nova
    silence: str = ""  # why the others of ``asked`` are undecided, and what to do; empty: none is

    def open_moves(self, server: str) -> list[NovaMigration]:
        """Return the migrations of a server that nova still has to end, or a person."""
        return [one for one in self.migrations.values() if one.server == server and one.is_open]


@dataclass(frozen=True, slots=True, kw_only=True)
class NovaRecord:
    """What nova answered about the hypervisor with a root provider's uuid."""

    host: str = ""  # host of the nova-compute that reports it, as nova calls it; empty: nova shows no such hypervisor
    silence: str = ""  # why nova did not answer, and what to do; empty: it did
    unknown: bool = False  # True: nova answered that it shows no such hypervisor


def parse_host(body: Mapping[str, Any]) -> str:
    """Return nova's name of the host of a hypervisor; KeyError, TypeError, ValueError: it is no answer about one."""
    return _text(body["hypervisor"]["service"]["host"])


def parse_server(record: Mapping[str, Any]) -> NovaServer:
    """Return a server, of a listing or of the answer about one; KeyError, TypeError, ValueError: it is no server."""
    return NovaServer(
        uuid=_text(record["id"]), status=_text(record["status"]), host=record.get(HOST), task=record.get(TASK)
    )


def parse_migration(record: Mapping[str, Any]) -> NovaMigration:
    """Return a migration; KeyError, TypeError, ValueError: it is no migration with a uuid."""
    return NovaMigration(
        uuid=_text(record["uuid"]), status=_text(record["status"]), server=_text(record["instance_uuid"])
    )


def essential(text: str) -> str:
    """
    Return an answer of nova with only the fields that the agent reads, for a case.

    A server's record has its metadata and its user data, in which guests' passwords can be. A text that is no answer
    about servers, migrations or a hypervisor, such as an error, is returned as it is.
    """
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(body, dict) or _PARTS.keys().isdisjoint(body):
        return text
    return json.dumps({name: _reduced(name, part) for name, part in body.items() if name in (*_PARTS, NEXT)})


def _reduced(name: str, part: object) -> object:
    if name == NEXT:
        return [{"rel": "next"}] if part else []
    if isinstance(part, list):
        return [_reduced(name, one) for one in part]
    return {key: part[key] for key in _PARTS[name] if key in part} if isinstance(part, dict) else None


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} is no text")
    return value
