"""
What an audit remembers of the previous one: allocations, their providers' generations, and since when findings exist.

If the file is missing, damaged, or of another placement, the audit begins with an empty memory and reads everything.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent.state.clock import Clock
from agent.state.files import read_trusted, remove_state, seal, unseal, write_state
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
    generations: Mapping[str, int] = field(default_factory=dict)  # by provider uuid, when its allocations were read
    names: Mapping[str, str] = field(default_factory=dict)  # names of the same providers, which ``allocations`` use
    allocations: tuple[Allocation, ...] = ()
    sightings: Mapping[str, Sighting] = field(default_factory=dict)  # by ``Finding.key``


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """Contents of the file: fields of ``AuditMemory``, with rows of allocations and sightings, and the clock."""

    where: str
    generations: Mapping[str, int]
    names: Mapping[str, str]
    allocations: tuple[tuple[str, str, str, int], ...]
    sightings: Mapping[str, tuple[float, int, str]]
    clock: Clock


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
        file = decode_as(_File, unseal(text, form=_FORMAT))
        if not same_place(file.where, where):
            return fresh
        seen = {key: Sighting(*row) for key, row in file.sightings.items()}
        since = {key: clock.since(one.first_s, file.clock) for key, one in seen.items()}
        return AuditMemory(
            where=where,
            generations=file.generations,
            names=file.names,
            allocations=tuple(Allocation(*row) for row in file.allocations),
            sightings={key: replace(seen[key], first_s=max(0.0, at)) for key, at in since.items() if at is not None},
        )

    doubt = "the saved data of the last audit is not valid, everything is read"
    return read_trusted(_path(directory, root_uuid), decode, fresh, doubt)


def write_memory(directory: Path, root_uuid: str, memory: AuditMemory, *, clock: Clock) -> None:
    """
    Replace the memory, whole or not at all.

    Raises:
        StateError: the file cannot be written; the old one stays.
    """
    file = _File(
        where=memory.where,
        generations=memory.generations,
        names=memory.names,
        allocations=tuple(
            (one.consumer, one.provider, one.resource_class, one.amount) for one in sorted(memory.allocations)
        ),
        sightings={key: (one.first_s, one.looks, one.shown) for key, one in sorted(memory.sightings.items())},
        clock=clock,
    )
    write_state(_path(directory, root_uuid), seal(encode(file), form=_FORMAT))


def forget_memory(directory: Path, root_uuid: str) -> None:
    """
    Delete the memory of this host's audits.

    Raises:
        StateError: the file cannot be removed.
    """
    remove_state(_path(directory, root_uuid))


def _path(directory: Path, root_uuid: str) -> Path:
    return directory / f"audits/{root_uuid}.json"
