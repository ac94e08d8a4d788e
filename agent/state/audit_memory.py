"""
What an audit remembers of the previous one: allocations, their providers' generations, and since when findings exist.

If the file is missing, damaged, or of another placement, the audit begins with an empty memory and reads everything.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent.state.clock import Clock
from agent.state.files import read_trusted, remove_state, seal, unseal, write_state
from agent.state.memory import same_place
from reportclient.allocations import Allocation
from reportclient.json_text import decode_as, encode

FAR_FUTURE_S = 253402300800.0  # the year 10000
_FORMAT = 2


@dataclass(frozen=True, slots=True)
class Sighting:
    """How long a finding exists."""

    first_s: float  # when an audit first found it, in seconds since the epoch
    looks: int = 1  # audits in a row that found it; 0: it is no finding yet, as it may pass
    shown: str = ""  # digest of the repair that they showed; empty: none, or an older version did not note it


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditMemory:
    """Memory that one audit leaves for the next; the default is that of a host never audited."""

    where: str = ""  # name of the placement
    generations: Mapping[str, int] = field(default_factory=dict)  # by provider uuid, when its allocations were read
    names: Mapping[str, str] = field(default_factory=dict)  # names of the same providers, which ``allocations`` use
    allocations: tuple[Allocation, ...] = ()
    sightings: Mapping[str, Sighting] = field(default_factory=dict)  # by ``Finding.key``


def read_memory(directory: Path, root_uuid: str, where: str, *, clock: Clock) -> AuditMemory:
    """
    Read the memory about this placement; an empty one if no file can be trusted.

    ``clock`` is the clock now. If the wall clock was set since the file was written, the moments are corrected. After a
    reboot the findings count as seen for the first time.

    Raises:
        StateError: the file exists and cannot be read.
    """
    fresh = AuditMemory(where=where)

    def decode(text: str) -> AuditMemory:
        body = unseal(text, form=_FORMAT)
        if not same_place(body["where"], where):
            return fresh
        # Older files have no names: everything is then read once, as providers may have other names by now.
        names = {str(uuid): str(name) for uuid, name in body.get("names", {}).items()}
        noted = decode_as(Clock, body["clock"])
        sightings = {key: _decode_sighting(*row, noted=noted, now=clock) for key, row in body["sightings"].items()}
        return AuditMemory(
            where=where,
            generations={
                str(uuid): int(generation) for uuid, generation in body["generations"].items() if uuid in names
            },
            names=names,
            allocations=tuple(
                Allocation(str(consumer), str(provider), str(name), int(amount))
                for consumer, provider, name, amount in body["allocations"]
            ),
            sightings={key: one for key, one in sightings.items() if one is not None},
        )

    doubt = "the saved data of the last audit is not valid, everything is read"
    return read_trusted(_path(directory, root_uuid), decode, fresh, doubt)


def write_memory(directory: Path, root_uuid: str, memory: AuditMemory, *, clock: Clock) -> None:
    """
    Replace the memory, whole or not at all.

    Raises:
        StateError: the file cannot be written; the old one stays.
    """
    body: dict[str, object] = {
        "where": memory.where,
        "generations": dict(memory.generations),
        "names": dict(memory.names),
        "allocations": [
            [one.consumer, one.provider, one.resource_class, one.amount] for one in sorted(memory.allocations)
        ],
        "clock": encode(clock),
        "sightings": {key: [one.first_s, one.looks, one.shown] for key, one in sorted(memory.sightings.items())},
    }
    write_state(_path(directory, root_uuid), seal(body, form=_FORMAT))


def forget_memory(directory: Path, root_uuid: str) -> None:
    """
    Delete the memory of this host's audits.

    Raises:
        StateError: the file cannot be removed.
    """
    remove_state(_path(directory, root_uuid))


def _decode_sighting(first_s: float, looks: int, shown: str = "", *, noted: Clock, now: Clock) -> Sighting | None:
    if not 0 <= first_s < FAR_FUTURE_S or looks < 0:
        raise ValueError(f"seen since {first_s} in {looks} audits")
    since_s = now.since(float(first_s), noted)
    return None if since_s is None else Sighting(max(0.0, since_s), int(looks), str(shown))


def _path(directory: Path, root_uuid: str) -> Path:
    return directory / f"audits/{root_uuid}.json"
