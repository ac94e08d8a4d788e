"""Keep everything that a verb reads of a host and of placement, and write it as a case, or a host as an archive."""

import json
import platform
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from agent import VERSION
from agent.errors import StateError
from agent.settings.read import Settings
from agent.settings.saved import encode_options
from agent.state.clock import Clock, StoppedClock, probe_clock
from agent.state.files import read_state, state_files
from agent.state.identity import FILE, read_identity
from agent.state.node_records import MEMORY_NAME
from agent.sync.case import CASE_FORMAT, SERVICES, SavedCase, SavedClock, Surroundings, pack_case
from agent.sync.json_form import encode
from drivers.base import Survey, Watchable
from drivers.facts import ServiceSigns
from drivers.host.archive import Document, with_index
from drivers.host.services import probe_service
from drivers.libvirt.driver import SurveyedElsewhere
from drivers.libvirt.prune import prune_domain
from drivers.libvirt.recorded import DOMAINS
from reportclient.keystone import Sender
from reportclient.recording import Exchange, RecordingSender, encode_exchanges

_MEMORY = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.json")  # what the agent remembers of one root


@dataclass(slots=True)
class Recorder:
    """Everything that a verb reads, and the files of the state directory as the verb found them."""

    clock: Clock = field(default_factory=lambda: _stopped())  # stands still
    state: Mapping[str, bytes] = field(default_factory=dict)  # by file name
    exchanges: Mapping[str, list[Exchange]] = field(default_factory=lambda: {name: [] for name in SERVICES})
    node: str = ""  # the host's name; empty: it was not read
    looks: list[Survey] = field(default_factory=list)  # without those that failed
    services: dict[str, ServiceSigns] = field(default_factory=dict)  # by program
    called: dict[str, str] = field(default_factory=dict)  # names of services, for messages and the memory

    def sender(self, service: str, sender: Sender, reduced: Callable[[str], str] = str) -> Sender:
        """Return the sender to a service in a form that keeps each request; ``reduced`` as ``RecordingSender``."""
        return RecordingSender(sender, self.exchanges[service], reduced)

    def probe(self, program: str) -> ServiceSigns:
        """Look for another service, as ``probe_service``, and keep what was found."""
        self.services[program] = probe_service(program)
        return self.services[program]

    def driver(self, driver: Watchable) -> Watchable:
        """Return the driver in a form that keeps its name and its looks."""

        def name() -> str:
            self.node = driver.name()
            return self.node

        def look(node: str) -> Survey:
            self.looks.append(driver.survey(node))
            return self.looks[-1]

        return SurveyedElsewhere(name, look, driver.watching)


def begin_anew(kept: Recorder) -> None:
    """Forget what was kept, before a pass begins; the names of placement and Ironic stay, like the connections."""
    for sent in kept.exchanges.values():
        sent.clear()
    kept.looks.clear()
    kept.services.clear()
    kept.clock, kept.state, kept.node = _stopped(), {}, ""


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
    found: dict[str, bytes] = {}
    for below in ("", "audits/"):
        for path in state_files(settings.folders.state / below, ".json"):
            if path.name == MEMORY_NAME or _MEMORY.fullmatch(path.name):
                with suppress(FileNotFoundError):  # removed in between
                    found[below + path.name] = read_state(path)
    if not settings.recorded and (identity := read_identity(settings.folders.identity)):
        found[FILE] = f"{identity}\n".encode()
    return found


def packed_case(kept: Recorder, settings: Settings, verb: str, options: Mapping[str, object]) -> bytes:
    """
    Return the content of a case's file.

    ``options`` are the verb's options that affect decisions, as JSON values.

    Raises:
        StateError: a provider.yaml file cannot be read.
    """
    files = {f"state/{name}": data for name, data in kept.state.items()}
    files |= _files_of_operators(settings)
    for number, seen in enumerate(kept.looks):
        archive = archive_files(seen, kept.node)
        files |= {f"hosts/{number}/{name}": text.encode() for name, text in archive.items()}
    files["agent.conf"] = encode_options(settings).encode()
    files |= {f"{name}.jsonl": encode_exchanges(sent).encode() for name, sent in kept.exchanges.items()}
    saved = SavedCase(
        format=CASE_FORMAT,
        version=VERSION,
        verb=verb,
        options=options,
        called=kept.called,
        clock=SavedClock(kept.clock.boot, kept.clock.offset_s, kept.clock.now_s()),
        recorded=settings.recorded,
        members=tuple(sorted(files)),
        nodes=(kept.node,) if kept.node else (),
        looks=tuple({"host": number} for number in range(len(kept.looks))),
    )
    around = Surroundings(
        processes={program: signs.processes for program, signs in kept.services.items()},
        units={program: signs.units for program, signs in kept.services.items()},
        hidden=any(signs.hidden for signs in kept.services.values()),
        provider_config=str(settings.operator_files.folder),
        provider_config_is_there=settings.operator_files.folder.is_dir(),
        provider_config_named=settings.operator_files.named,
    )
    return pack_case({**files, "case.json": f"{json.dumps({**encode(saved), **encode(around)}, indent=1)}\n".encode()})


def _files_of_operators(settings: Settings) -> dict[str, bytes]:
    """
    Read the operator's provider.yaml files: content by file name in the case; empty where there is no folder.

    Raises:
        StateError: a file cannot be read; a case without it would give another plan.
    """
    folder = settings.operator_files.folder
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".yaml") if folder.is_dir() else []
        return {f"provider_config/{one.name}": one.read_bytes() for one in paths if not one.name.startswith(".")}
    except OSError as error:
        raise StateError(f"no case is saved, as {error.filename} cannot be read: {error.strerror}") from error


def archive_files(survey: Survey, node: str) -> dict[str, str]:
    """Return a host archive of a survey: file name -> text; of its guests only what the agent reads."""
    files = {**survey.files, **({FILE: survey.compute_id + "\n"} if survey.compute_id else {})}
    guests = {name: text for name, text in files.items() if name.startswith(f"{DOMAINS}/") and name.endswith(".xml")}
    files |= {name: prune_domain(Document(text, name)) for name, text in guests.items()}
    now, uname = datetime.now(UTC).isoformat(timespec="seconds"), platform.uname()
    return with_index(files, node, now, {"sysname": uname.system, "release": uname.release, "machine": uname.machine})
