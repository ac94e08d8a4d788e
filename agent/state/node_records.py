"""
What the agent remembers of bare-metal nodes: each provider as the last pass left it.

One file with a checksum holds all nodes, and is replaced whole. If it is missing, damaged, or of another placement or
Ironic, the agent begins with an empty memory: it reads each provider before it writes to it, and providers of nodes
that Ironic no longer has stay. A mark that another agent removed is not noticed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent.state.clock import Clock, probe_clock
from agent.state.files import read_trusted, seal, unseal, write_state
from agent.state.memory import same_place
from reportclient.json_text import decode_as, encode
from reportclient.payload import decode_observed, encode_observed
from reportclient.tree import ObservedProvider

_FORMAT = 4
MEMORY_NAME = "nodes.json"


@dataclass(frozen=True, slots=True)
class KnownNode:
    """The provider of one node as the last pass left it."""

    seen: ObservedProvider
    gone_s: float | None = None  # since when (seconds since the epoch) Ironic lacks the node; None: Ironic has it
    spelling: str | None = None  # the node's resource class, as Ironic spells it; None: not known
    may_go: bool = False  # the node is gone, and the limit of changes allowed its removal: what is left is in use


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesMemory:
    """Memory that one pass leaves for the next; the default is that of an agent that never ran."""

    where: str = ""  # name of the placement
    ironic: str = ""  # name of the Ironic
    lacked: frozenset[str] = frozenset()  # standard traits that this placement is too old to know
    nodes: Mapping[str, KnownNode] = field(default_factory=dict)  # by uuid
    left: Mapping[str, float | None] = field(default_factory=dict)  # of nodes outside the share: ``gone_s`` by uuid
    whole_s: float = 0.0  # when (seconds since the epoch) all providers were last read, also the remembered ones
    behind: frozenset[str] = frozenset()  # uuids of nodes whose provider's generation was below the remembered one
    elsewhere: "NodesMemory | None" = None  # of another placement, for the same Ironic; never written as part of this


def read_nodes(directory: Path, where: str, ironic: str, *, clock: Clock | None = None) -> NodesMemory:
    """
    Read the memory about this placement and this Ironic; an empty one if no file can be trusted.

    A memory of another placement becomes part of an empty one: it only adds doubt.

    ``clock`` is the clock now, by default this host's. If the wall clock was set since the file was written, the
    moments are corrected. After a reboot the wait for nodes that Ironic lacks starts again.

    Raises:
        StateError: the file exists and cannot be read.
    """
    fresh = NodesMemory(where=where, ironic=ironic)

    def decode(text: str) -> NodesMemory:
        body = unseal(text, form=_FORMAT)
        rows = body.pop("nodes")
        said, noted, now = decode_as(NodesMemory, body), decode_as(Clock, body["clock"]), clock or probe_clock()
        if not same_place(said.ironic, ironic):
            raise ValueError(f"it was written for another Ironic: {said.ironic}")
        found = replace(
            said,
            ironic=ironic,
            nodes={
                uuid: KnownNode(decode_observed(seen), _since(gone_s, noted, now), spelling, may_go)
                for uuid, (seen, gone_s, spelling, may_go) in rows.items()
            },
            left={uuid: _since(gone_s, noted, now) for uuid, gone_s in said.left.items()},
            whole_s=_since(said.whole_s, noted, now) or 0.0,
        )
        return replace(found, where=where) if same_place(found.where, where) else replace(fresh, elsewhere=found)

    doubt = "the saved data of bare-metal nodes is not valid, all nodes are read"
    return read_trusted(directory / MEMORY_NAME, decode, fresh, doubt)


def write_nodes(directory: Path, memory: NodesMemory, *, clock: Clock | None = None) -> None:
    """
    Replace the memory, whole or not at all.

    Raises:
        StateError: the file cannot be written; the old one stays.
    """
    body = {
        **encode(replace(memory, nodes={}, elsewhere=None)),
        "clock": encode(clock or probe_clock()),
        "nodes": {
            uuid: (encode_observed(one.seen), one.gone_s, one.spelling, one.may_go)
            for uuid, one in memory.nodes.items()
        },
    }
    write_state(directory / MEMORY_NAME, seal(body, form=_FORMAT))


def _since(moment_s: float | None, noted: Clock, now: Clock) -> float | None:
    return None if moment_s is None else now.since(float(moment_s), noted)
