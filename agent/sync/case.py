"""
A case: everything that one look at a host and at placement read, in one ``.tar.gz``, to be replayed elsewhere.

It holds the options that affect decisions (``agent.conf``, ``provider_config/``), the files that the agent remembered
(``state/``), a host archive for each look (``hosts/N/``), and the requests with their answers (``placement.jsonl``,
``ironic.jsonl``). It holds no secrets: logins and locations are left out of the options, tokens out of the requests.
"""

import io
import json
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NotRequired, TypedDict

from agent import VERSION
from agent.errors import StateError
from agent.settings.read import Settings
from agent.settings.saved import encode_options
from agent.state.clock import Clock, StoppedClock, probe_clock
from agent.state.files import temporary_path
from agent.state.identity import FILE, read_identity
from agent.sync.archive import archive_files
from drivers.base import Driver, Survey
from drivers.errors import DiscoveryError, MalformedFact, PolicyError, Vanished
from drivers.host.archive import HostArchive
from drivers.host.process import probe_processes
from drivers.host.unpack import unpack
from drivers.policy import Policy
from drivers.reasons import Shaped
from reportclient.allocations import Holdings
from reportclient.ownership import Names
from reportclient.recording import Exchange, Unrecorded, decode_exchanges, encode_exchanges
from reportclient.tree import ObservedTree, ProviderTree

_FORMAT = 1
_FAILURES = {one.__name__: one for one in (DiscoveryError, MalformedFact, Vanished, PolicyError)}  # errors of a look


class LookForm(TypedDict):
    """One look in ``case.json``: the number of its host archive, or how it failed."""

    node: str
    host: NotRequired[int]
    failed: NotRequired[str]  # the message of the error
    kind: NotRequired[str]  # the class of the error


class ClockForm(TypedDict):
    """The clock in ``case.json``."""

    boot: str
    offset_s: float
    now_s: float  # seconds since the epoch


class CaseForm(TypedDict):
    """Contents of ``case.json``."""

    format: int
    version: str  # of the agent that saved the case
    verb: str
    options: Mapping[str, object]
    nodes: Sequence[str]
    looks: Sequence[LookForm]
    processes: Mapping[str, Sequence[int]]
    called: Mapping[str, str]
    recorded: bool
    provider_config: str
    provider_config_is_there: bool
    provider_config_named: bool
    clock: ClockForm


@dataclass(slots=True)
class Recorder:
    """Everything that a verb reads, and the files of the state directory as the verb found them."""

    clock: Clock
    state: Mapping[str, str] = field(default_factory=dict)  # file name -> text
    placement: list[Exchange] = field(default_factory=list)
    ironic: list[Exchange] = field(default_factory=list)
    nodes: tuple[str, ...] = ()
    looks: list[tuple[str, Survey | Exception]] = field(default_factory=list)
    processes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    called: dict[str, str] = field(default_factory=dict)  # names of placement and Ironic, for messages and the memory

    def probe(self, name: str) -> tuple[int, ...]:
        """Find the process ids of a program, as ``probe_processes``, and keep them."""
        self.processes[name] = probe_processes(name)
        return self.processes[name]

    def driver(self, driver: Driver) -> Driver:
        """Return the driver in a form that keeps each of its looks."""
        self.nodes = driver.nodes()

        def look(node: str) -> Survey:
            try:
                survey = driver.survey(node)
            except tuple(_FAILURES.values()) as error:
                self.looks.append((node, error))
                raise
            self.looks.append((node, survey))
            return survey

        return SeenDriver(driver, self.nodes, look)


class SeenDriver:
    """Driver whose looks come from the function ``look``; the driver ``pure`` does the rest."""

    def __init__(self, pure: Driver | None, nodes: tuple[str, ...], look: Callable[[str], Survey]) -> None:
        self._driver = pure
        self._nodes = nodes
        self.survey = look

    @property
    def _pure(self) -> Driver:
        if self._driver is None:  # no look came to a survey, and only surveys are shaped
            raise Unrecorded("the case has no host")
        return self._driver

    @property
    def emitted(self) -> Names:
        return self._pure.emitted

    def nodes(self) -> tuple[str, ...]:
        return self._nodes

    def shape(self, survey: Survey, policy: Policy, observed: ObservedTree | None) -> tuple[ProviderTree, Holdings]:
        return self._pure.shape(survey, policy, observed)

    def explain(self, survey: Survey, policy: Policy, observed: ObservedTree | None) -> Shaped:
        return self._pure.explain(survey, policy, observed)

    def present(self, survey: Survey) -> frozenset[str]:
        return self._pure.present(survey)

    def idle(self, survey: Survey, policy: Policy) -> tuple[str, ...]:
        return self._pure.idle(survey, policy)


def new_recorder() -> Recorder:
    """Return a recorder whose clock stands still from now on."""
    return Recorder(_stopped())


def begin_anew(kept: Recorder, settings: Settings) -> None:
    """
    Forget what was kept, and keep the time and the state of now, before a look begins.

    Raises:
        StateError: a file of the state directory, or the host's identity, cannot be read.
    """
    for old in (kept.placement, kept.ironic, kept.looks, kept.processes):
        old.clear()
    kept.clock, kept.state = _stopped(), {}
    kept.state = _state(settings)


def _stopped() -> StoppedClock:
    noted = probe_clock()
    return StoppedClock(noted.boot, noted.offset_s, noted.now_s())


def _state(settings: Settings) -> dict[str, str]:
    """Read what the agent remembers, and the host's identity: file name below the state directory -> text."""
    directory, found = settings.state_directory, {}
    try:
        for path in (*directory.glob("*.json"), *directory.glob("audits/*.json")):
            if path.name != "status.json":
                found[str(path.relative_to(directory))] = path.read_text(encoding="utf-8", errors="replace")
        if not settings.recorded and (identity := read_identity(settings.identity_folders)):
            found[FILE] = identity + "\n"
    except OSError as error:
        raise StateError(f"cannot read {error.filename}: {error.strerror}") from error
    return found


def save_case(path: Path, kept: Recorder, settings: Settings, verb: str, options: Mapping[str, object]) -> None:
    """
    Write a case; a file of this name is replaced in full or not at all.

    ``options`` are the verb's options that affect decisions, as JSON values.

    Raises:
        StateError: the case cannot be written.
    """
    files = {f"state/{name}": text for name, text in kept.state.items()}
    files |= _files_of_operators(settings)
    looks: list[LookForm] = []
    for number, (node, seen) in enumerate(kept.looks):
        if isinstance(seen, Exception):
            looks.append({"node": node, "failed": str(seen), "kind": type(seen).__name__})
            continue
        archive = archive_files(seen, node, seen.compute_id)
        files |= {f"hosts/{number}/{name}": text for name, text in archive.items()}
        looks.append({"node": node, "host": number})
    files["agent.conf"] = encode_options(settings)
    files["placement.jsonl"] = encode_exchanges(kept.placement)
    files["ironic.jsonl"] = encode_exchanges(kept.ironic)
    about: CaseForm = {
        "format": _FORMAT,
        "version": VERSION,
        "verb": verb,
        "options": dict(options),
        "nodes": kept.nodes,
        "looks": looks,
        "processes": kept.processes,
        "called": kept.called,
        "recorded": settings.recorded,
        "provider_config": str(settings.provider_config),
        "provider_config_is_there": settings.provider_config.is_dir(),
        "provider_config_named": settings.provider_config_named,
        "clock": {"boot": kept.clock.boot, "offset_s": kept.clock.offset_s, "now_s": kept.clock.now_s()},
    }
    files["case.json"] = json.dumps(about, indent=1) + "\n"
    try:
        _pack(path, files)
    except OSError as error:
        raise StateError(f"cannot write the case {path}: {error.strerror}: name another file") from error


def _files_of_operators(settings: Settings) -> dict[str, str]:
    """
    Read the operator's provider.yaml files: file name in the case -> text; empty where there is no folder.

    Raises:
        StateError: a file cannot be read; a case without it would give another plan.
    """
    folder = settings.provider_config
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".yaml") if folder.is_dir() else []
        return {f"provider_config/{one.name}": one.read_text(encoding="utf-8", errors="replace") for one in paths}
    except OSError as error:
        raise StateError(f"no case is kept, as {error.filename} cannot be read: {error.strerror}") from error


def _pack(path: Path, files: Mapping[str, str]) -> None:
    temporary = temporary_path(path)
    with tarfile.open(temporary, "w:gz") as tar:
        for name, text in sorted(files.items()):
            data = text.encode()
            member = tarfile.TarInfo(f"case/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    temporary.rename(path)


@dataclass(slots=True)
class Case:
    """A saved case, unpacked in ``folder``."""

    folder: Path
    about: CaseForm
    placement: tuple[Exchange, ...]
    ironic: tuple[Exchange, ...]

    @property
    def clock(self) -> Clock:
        """The clock as it stood when the case was saved."""
        told = self.about["clock"]
        return StoppedClock(str(told["boot"]), float(told["offset_s"]), float(told["now_s"]))

    def settings(self, settings: Settings) -> Settings:
        """Return settings (of the case's own ``agent.conf``) with the files of the case instead of this host's."""
        state = self.folder / "state"
        named = Path(self.about["provider_config"])
        return replace(
            settings,
            state_directory=state,
            identity_folders=(state,),
            recorded=bool(self.about["recorded"]),
            provider_config=self.folder / "provider_config",
            provider_config_shown=named,
            provider_config_named=bool(self.about["provider_config_named"]),
        )

    def probe(self, name: str) -> tuple[int, ...]:
        """Return the process ids of a program that were found when the case was saved; empty if none."""
        return tuple(self.about["processes"].get(name, ()))

    def driver(self, load: Callable[[HostArchive], Driver]) -> Driver:
        """Return a driver that gives the saved looks in their order; ``load`` makes a driver from a host archive."""
        looks = list(self.about["looks"])
        hosts = {one["host"]: load(HostArchive(self.folder / f"hosts/{one['host']}")) for one in looks if "host" in one}

        def look(node: str) -> Survey:
            mine = [one for one in looks if one["node"] == node]
            if not mine:
                raise Unrecorded(f"the case has no data of node {node}")
            if len(mine) > 1:
                looks.remove(mine[0])
            if "failed" in mine[0]:
                raise _FAILURES.get(mine[0]["kind"], DiscoveryError)(mine[0]["failed"])
            return hosts[mine[0]["host"]].survey(node)

        return SeenDriver(next(iter(hosts.values()), None), tuple(self.about["nodes"]), look)


@contextmanager
def open_case(path: Path) -> Iterator[Case]:
    """
    Unpack a saved case into a temporary folder, for as long as it is used.

    Raises:
        DiscoveryError: the file cannot be unpacked, or is no case of this format.
    """
    with tempfile.TemporaryDirectory(prefix="compute-node-agent-") as scratch:
        yield _read(unpack(path, Path(scratch)), path)


def _read(folder: Path, path: Path) -> Case:
    try:
        about: CaseForm = json.loads((folder / "case.json").read_text(encoding="utf-8"))
        if about["format"] != _FORMAT:
            raise ValueError(f"format {about['format']}, and this version reads {_FORMAT}")
        (folder / "state").mkdir(exist_ok=True)
        if about["provider_config_is_there"]:
            (folder / "provider_config").mkdir(exist_ok=True)
        placement, ironic = (
            decode_exchanges((folder / f"{name}.jsonl").read_text(encoding="utf-8")) for name in ("placement", "ironic")
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DiscoveryError(f"{path} is not a case in the form that --save and the service write: {error}") from error
    return Case(folder, about, placement, ironic)
