"""
A case: all that one look at a host and at placement saw, in one ``.tar.gz``, to be looked at again elsewhere.

It holds the options that decide (``agent.conf``, ``provider_config/``), what was remembered (``state/``), a host
archive for each look (``hosts/N/``), and the requests with their answers (``placement.jsonl``, ``ironic.jsonl``). It
holds no secrets: logins and places are left out of the options, and tokens are in no request that is kept.
"""

import io
import json
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from agent import VERSION
from agent.errors import StateError
from agent.settings.read import Settings
from agent.settings.saved import encode_options
from agent.state.clock import Clock, StoppedClock, encode_clock, probe_clock
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
_FAILURES = {one.__name__: one for one in (DiscoveryError, MalformedFact, Vanished, PolicyError)}  # of a look


@dataclass(slots=True)
class Recorder:
    """Keeps what a verb reads, and the files of the state directory as the verb found them."""

    clock: Clock
    state: Mapping[str, str] = field(default_factory=dict)  # file name -> text
    placement: list[Exchange] = field(default_factory=list)
    ironic: list[Exchange] = field(default_factory=list)
    nodes: tuple[str, ...] = ()
    looks: list[tuple[str, Survey | Exception]] = field(default_factory=list)
    processes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    called: dict[str, str] = field(default_factory=dict)  # what placement and Ironic are called

    def probe(self, name: str) -> tuple[int, ...]:
        """As ``probe_processes``."""
        self.processes[name] = probe_processes(name)
        return self.processes[name]

    def driver(self, driver: Driver) -> Driver:
        """The same driver, each look of which is kept."""
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
    """A driver of which the looks are somebody else's to give; ``pure`` does the rest."""

    def __init__(self, pure: Driver, nodes: tuple[str, ...], look: Callable[[str], Survey]) -> None:
        self._pure = pure
        self._nodes = nodes
        self.survey = look

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
    """A recorder whose clock stands still from now on."""
    return Recorder(_stopped())


def begin_anew(kept: Recorder, settings: Settings) -> None:
    """
    Forget what was kept, for a look that is about to begin.

    Raises:
        StateError: what is remembered cannot be read.
    """
    for old in (kept.placement, kept.ironic, kept.looks, kept.processes):
        old.clear()
    kept.clock, kept.state = _stopped(), {}
    kept.state = _state(settings)


def _stopped() -> StoppedClock:
    noted = probe_clock()
    return StoppedClock(noted.boot, noted.offset_s, noted.now_s())


def _state(settings: Settings) -> dict[str, str]:
    """What the agent remembers, and the host's identity: file name below the state directory -> text."""
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


def save_case(path: Path, kept: Recorder, settings: Settings, verb: str, options: Mapping[str, Any]) -> None:
    """
    Write a case; a file of this name is replaced, whole or not at all.

    ``options`` are those of the verb that decide, as JSON has them.

    Raises:
        StateError: it cannot be written.
    """
    files = {f"state/{name}": text for name, text in kept.state.items()}
    files |= _files_of_operators(settings)
    looks: list[dict[str, Any]] = []
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
    about = {
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
        "clock": {**encode_clock(kept.clock), "now_s": kept.clock.now_s()},
    }
    files["case.json"] = json.dumps(about, indent=1) + "\n"
    try:
        _pack(path, files)
    except OSError as error:
        raise StateError(f"cannot write the case {path}: {error.strerror}: name another file") from error


def _files_of_operators(settings: Settings) -> dict[str, str]:
    """
    The operator's provider.yaml files.

    Raises:
        StateError: one cannot be read, and a case without it would tell of another plan.
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
    about: Mapping[str, Any]
    placement: tuple[Exchange, ...]
    ironic: tuple[Exchange, ...]

    @property
    def clock(self) -> Clock:
        """The clock as it stood then."""
        told = self.about["clock"]
        return StoppedClock(str(told["boot"]), float(told["offset_s"]), float(told["now_s"]))

    def settings(self, settings: Settings) -> Settings:
        """Settings of the case's own ``agent.conf``, with the case's places."""
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
        """The process ids that were found then."""
        return tuple(self.about["processes"].get(name, ()))

    def driver(self, load: Callable[[HostArchive], Driver]) -> Driver:
        """A driver that gives the looks of then, in their order; ``load`` makes one of a host archive."""
        looks = [dict(look) for look in self.about["looks"]]
        hosts = {one["host"]: load(HostArchive(self.folder / f"hosts/{one['host']}")) for one in looks if "host" in one}

        def look(node: str) -> Survey:
            mine = [one for one in looks if one["node"] == node]
            if not mine:
                raise Unrecorded(f"the case has no look at {node}")
            if len(mine) > 1:
                looks.remove(mine[0])
            if "failed" in mine[0]:
                raise _FAILURES.get(mine[0]["kind"], DiscoveryError)(mine[0]["failed"])
            return hosts[mine[0]["host"]].survey(node)

        pure = next(iter(hosts.values()), cast(Driver, None))  # without any host nothing is asked of it
        return SeenDriver(pure, tuple(self.about["nodes"]), look)


@contextmanager
def open_case(path: Path) -> Iterator[Case]:
    """
    A saved case, for as long as it is looked at.

    Raises:
        DiscoveryError: it cannot be unpacked, or is no case of this form.
    """
    with tempfile.TemporaryDirectory(prefix="compute-node-agent-") as scratch:
        yield _read(unpack(path, Path(scratch)), path)


def _read(folder: Path, path: Path) -> Case:
    try:
        about = json.loads((folder / "case.json").read_text(encoding="utf-8"))
        if about["format"] != _FORMAT:
            raise ValueError(f"format {about['format']}, and this version reads {_FORMAT}")
        (folder / "state").mkdir(exist_ok=True)
        if about["provider_config_is_there"]:
            (folder / "provider_config").mkdir(exist_ok=True)
        placement, ironic = (
            decode_exchanges((folder / f"{name}.jsonl").read_text(encoding="utf-8")) for name in ("placement", "ironic")
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DiscoveryError(f"{path} is no case that plan --save wrote: {error}") from error
    return Case(folder, about, placement, ironic)
