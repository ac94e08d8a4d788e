"""
What an audit remembers of the previous one: allocations, their providers' generations, and since when findings exist.

If the file is missing, damaged, or of another placement, the audit begins with an empty memory and reads everything.
"""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace
from itertools import starmap
from pathlib import Path

from agent.state.clock import Clock
from agent.state.files import read_trusted, seal, unseal, write_state
from agent.state.memory import same_place
from reportclient.allocations import Allocation
from reportclient.json_text import decode_as, encode

_FAR_FUTURE_S = 253402300800.0  # the year 10000
_FORMAT = 2


@dataclass(frozen=True, slots=True)
class Sighting:
    """How long a finding exists."""

    first_s: float  # when an audit first found it, in seconds since the epoch
    looks: int = 1  # audits in a row that found it; 0: it is no finding yet, as it may pass
    shown: str = ""  # digest of the repair that they showed; empty: none

    def __post_init__(self) -> None:
        if not 0 <= self.first_s < _FAR_FUTURE_S or self.looks < 0:
            raise ValueError(f"seen since {self.first_s} in {self.looks} audits")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditMemory:
    """Memory that one audit leaves for the next; the default is that of a host never audited."""

    where: str = ""  # name of the placement
    clock: Clock = field(default=Clock("", 0.0), compare=False)  # by which the moments of ``sightings`` are
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
        rows, sightings = body.pop("allocations"), body.pop("sightings")
        found = decode_as(AuditMemory, body)
        if not same_place(found.where, where):
            return fresh
        since = {key: (clock.since(first_s, found.clock), *rest) for key, (first_s, *rest) in sightings.items()}
        seen = {key: Sighting(max(0.0, at), *rest) for key, (at, *rest) in since.items() if at is not None}
        allocations = tuple(starmap(Allocation, rows))
        return replace(found, where=where, clock=clock, allocations=allocations, sightings=seen)

    doubt = "the saved data of the last audit is not valid, everything is read"
    return read_trusted(_path(directory, root_uuid), decode, fresh, doubt)


def write_memory(directory: Path, root_uuid: str, memory: AuditMemory) -> None:
    """
    Replace the memory, whole or not at all.

    Raises:
        StateError: the file cannot be written; the old one stays.
    """
    body = {
        **encode(memory),
        "allocations": [*map(astuple, sorted(memory.allocations))],
        "sightings": {key: astuple(one) for key, one in sorted(memory.sightings.items())},
    }
    write_state(_path(directory, root_uuid), seal(body, form=_FORMAT))


def _path(directory: Path, root_uuid: str) -> Path:
    return directory / f"audits/{root_uuid}.json"
