"""Keep everything that a verb reads of a host and of placement, and write it as a case."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent import VERSION
from agent.errors import StateError
from agent.settings.read import Settings
from agent.settings.saved import encode_options
from agent.state.clock import Clock, StoppedClock, probe_clock
from agent.state.files import read_whole
from agent.state.identity import FILE, read_identity
from agent.state.node_records import MEMORY_NAME
from agent.sync.archive_files import archive_files
from agent.sync.case_archive import pack_case, write_packed
from agent.sync.case_form import FORMAT, CaseFailureForm, CaseForm, LookForm
from drivers.base import Driver, Survey, SurveyedElsewhere
from drivers.errors import DiscoveryError, MalformedFact, PolicyError, Vanished
from drivers.facts import ServiceSigns
from drivers.host.services import probe_service
from reportclient.errors import mask
from reportclient.recording import Exchange, encode_exchanges

FAILURES = {one.__name__: one for one in (DiscoveryError, MalformedFact, Vanished, PolicyError)}  # errors of a look
_MEMORY = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.json")  # what the agent remembers of one root


@dataclass(slots=True)
class Recorder:
    """Everything that a verb reads, and the files of the state directory as the verb found them."""

    clock: Clock
    state: Mapping[str, bytes] = field(default_factory=dict)  # by file name
    placement: list[Exchange] = field(default_factory=list)
    ironic: list[Exchange] = field(default_factory=list)
    nova: list[Exchange] = field(default_factory=list)
    nodes: tuple[str, ...] = ()
    unlisted: Exception | None = None  # why the nodes could not be listed; None: they were, or nobody asked
    looks: list[tuple[str, Survey | Exception]] = field(default_factory=list)
    services: dict[str, ServiceSigns] = field(default_factory=dict)  # by program
    called: dict[str, str] = field(default_factory=dict)  # names of services, for messages and the memory

    def probe(self, program: str) -> ServiceSigns:
        """Look for another service, as ``probe_service``, and keep what was found."""
        self.services[program] = probe_service(program)
        return self.services[program]

    def driver(self, driver: Driver) -> Driver:
        """Return the driver in a form that keeps its lists of nodes and its looks, or how they failed."""

        def nodes() -> tuple[str, ...]:
            try:
                self.nodes = driver.nodes()
            except tuple(FAILURES.values()) as error:
                self.unlisted = error
                raise
            return self.nodes

        def look(node: str) -> Survey:
            try:
                survey = driver.survey(node)
            except tuple(FAILURES.values()) as error:
                self.looks.append((node, error))
                raise
            self.looks.append((node, survey))
            return survey

        return SurveyedElsewhere(driver, nodes, look)


def new_recorder() -> Recorder:
    """Return an empty recorder, whose clock stands still from now on."""
    return Recorder(_stopped())


def begin_anew(kept: Recorder) -> None:
    """Forget what was kept, before a pass begins; the names of placement and Ironic stay, like the connections."""
    for old in (kept.placement, kept.ironic, kept.nova, kept.looks, kept.services):
        old.clear()
    kept.clock, kept.state, kept.nodes, kept.unlisted = _stopped(), {}, (), None


def keep_state(kept: Recorder, settings: Settings) -> None:
    """
    Keep the time and the state directory of now, before a look begins.

    Raises:
        StateError: a file of the state directory, or the host's identity, cannot be read.
    """
    kept.state = {}
    kept.clock, kept.state = _stopped(), _state(settings)


def _stopped() -> StoppedClock:
    noted = probe_clock()
    return StoppedClock(noted.boot, noted.offset_s, noted.now_s())


def _state(settings: Settings) -> dict[str, bytes]:
    """Read what the agent remembers, and the host's identity: content by file name below the state directory."""
    directory, found = str(settings.state_directory), {}
    try:
        for folder, below in ((directory, ""), (f"{directory}/audits", "audits/")):
            for name in _entries(folder):
                if name == MEMORY_NAME or _MEMORY.fullmatch(name):
                    found[below + name] = read_whole(f"{folder}/{name}")
        if not settings.recorded and (identity := read_identity(settings.identity_folders)):
            found[FILE] = f"{identity}\n".encode()
    except OSError as error:
        raise StateError(f"cannot read {error.filename}: {error.strerror}") from error
    return found


def _entries(folder: str) -> list[str]:
    """Return the names in a folder; empty if there is no such folder, as before the first pass."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - a Path for each name would cost more than the listing
    except FileNotFoundError:
        return []


def save_case(path: Path, kept: Recorder, settings: Settings, verb: str, options: Mapping[str, object]) -> None:
    """
    Write a case; a file of this name is replaced in full or not at all. Errors as ``packed_case``, and:

    Raises:
        StateError: the file cannot be written.
    """
    write_packed(path, packed_case(kept, settings, verb, options))


def packed_case(kept: Recorder, settings: Settings, verb: str, options: Mapping[str, object]) -> bytes:
    """
    Return the content of a case's file.

    ``options`` are the verb's options that affect decisions, as JSON values.

    Raises:
        StateError: a provider.yaml file cannot be read, or the case is too large.
    """
    files = {f"state/{name}": data for name, data in kept.state.items()}
    files |= _files_of_operators(settings)
    looks: list[LookForm] = []
    for number, (node, seen) in enumerate(kept.looks):
        if isinstance(seen, Exception):
            failure = _failure(seen)
            looks.append({"node": node, "failed": failure["failed"], "kind": failure["kind"]})
            continue
        archive = archive_files(seen, node, seen.compute_id)
        files |= {f"hosts/{number}/{name}": text.encode() for name, text in archive.items()}
        looks.append({"node": node, "host": number})
    files["agent.conf"] = encode_options(settings).encode()
    files["placement.jsonl"] = encode_exchanges(kept.placement).encode()
    files["ironic.jsonl"] = encode_exchanges(kept.ironic).encode()
    files["nova.jsonl"] = encode_exchanges(kept.nova).encode()
    about = _about(kept, settings, verb, options) | {"looks": looks, "members": sorted(files)}
    return pack_case({**files, "case.json": f"{json.dumps(about, indent=1)}\n".encode()})


def _about(kept: Recorder, settings: Settings, verb: str, options: Mapping[str, object]) -> CaseForm:
    """Return the contents of ``case.json``, still without looks and members."""
    about: CaseForm = {
        "format": FORMAT,
        "version": VERSION,
        "verb": verb,
        "options": dict(options),
        "nodes": kept.nodes,
        "looks": (),
        "processes": {program: signs.processes for program, signs in kept.services.items()},
        "units": {program: signs.units for program, signs in kept.services.items()},
        "hidden": any(signs.hidden for signs in kept.services.values()),
        "called": kept.called,
        "recorded": settings.recorded,
        "provider_config": str(settings.provider_config),
        "provider_config_is_there": settings.provider_config.is_dir(),
        "provider_config_named": settings.provider_config_named,
        "clock": {"boot": kept.clock.boot, "offset_s": kept.clock.offset_s, "now_s": kept.clock.now_s()},
    }
    if kept.unlisted is not None:
        about["unlisted"] = _failure(kept.unlisted)
    return about


def _failure(error: Exception) -> CaseFailureForm:
    return {"failed": mask(str(error)), "kind": type(error).__name__}


def _files_of_operators(settings: Settings) -> dict[str, bytes]:
    """
    Read the operator's provider.yaml files: content by file name in the case; empty where there is no folder.

    Raises:
        StateError: a file cannot be read; a case without it would give another plan.
    """
    folder = settings.provider_config
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".yaml") if folder.is_dir() else []
        return {f"provider_config/{one.name}": one.read_bytes() for one in paths if not one.name.startswith(".")}
    except OSError as error:
        raise StateError(f"no case is saved, as {error.filename} cannot be read: {error.strerror}") from error
