"""
A case: everything that one look at a host and at placement read, in one ``.tar.gz``, to be replayed elsewhere.

It holds the options that affect decisions (``agent.conf``, ``provider_config/``), the files that the agent remembered
(``state/``), a host archive for each look (``hosts/N/``), and the requests with their answers (``placement.jsonl``,
``ironic.jsonl``, ``nova.jsonl``). It holds no secrets: logins and locations are left out of the options, tokens out of
the requests, and from the guests' XML and from nova's answers only what the agent reads is kept.
``agent/sync/recorder.py`` writes cases.
"""

import io
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from agent.errors import StateError
from agent.settings.read import Folders, OperatorFiles, Settings
from agent.settings.saved import check_options
from agent.state.clock import Clock, StoppedClock
from agent.state.files import replace_file
from drivers.base import Survey, Watchable
from drivers.errors import DiscoveryError
from drivers.facts import ServiceSigns
from drivers.host.archive import HostArchive
from drivers.host.unpack import unpack
from drivers.libvirt.driver import SurveyedElsewhere
from drivers.libvirt.recorded import unwatched
from reportclient.json_text import decode_as, decode_json
from reportclient.recording import Exchange, RecordedSender, Unrecorded, decode_exchanges

CASE_FORMAT = 1
MAX_MEMBER_BYTES = 256 << 20  # limit for one file: the answers about 10,000 nodes have about 50 MiB
SERVICES = ("placement", "ironic", "nova")  # the requests to each with their answers are in NAME.jsonl


@dataclass(frozen=True, slots=True)
class SavedClock:
    """The clock when a case was saved."""

    boot: str
    offset_s: float
    now_s: float  # seconds since the epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedCase:
    """What was carried out, when and where: with ``Surroundings`` the content of ``case.json``."""

    format: int
    version: str  # of the agent that saved the case
    verb: str
    options: Mapping[str, object]
    called: Mapping[str, str]  # names of services
    clock: SavedClock
    recorded: bool
    members: tuple[str, ...]  # all files of the case without this one
    nodes: tuple[str, ...]  # the host's name; empty: it could not be read
    looks: tuple[Mapping[str, object], ...]  # one for each look at the host that did not fail

    def __post_init__(self) -> None:
        if self.format != CASE_FORMAT:
            raise ValueError(f"its format is {self.format}, and this version reads {CASE_FORMAT}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What was found of other services, and where the operator's files are."""

    processes: Mapping[str, tuple[int, ...]]  # of other services, by program
    units: Mapping[str, tuple[str, ...]]  # the same
    hidden: bool  # whether some processes could not be seen
    provider_config: str  # the folder of the operator's files
    provider_config_is_there: bool
    provider_config_named: bool


@dataclass(frozen=True, slots=True)
class Case:
    """A saved case, unpacked in ``folder``."""

    folder: Path
    saved: SavedCase
    around: Surroundings
    exchanges: Mapping[str, tuple[Exchange, ...]]  # by service

    @property
    def clock(self) -> Clock:
        """The clock as it stood when the case was saved."""
        noted = self.saved.clock
        return StoppedClock(noted.boot, noted.offset_s, noted.now_s)

    def settings(self, settings: Settings) -> Settings:
        """Return settings (of the case's own ``agent.conf``) with the files of the case instead of this host's."""
        state = self.folder / "state"
        return replace(
            settings,
            folders=Folders(state=state, identity=(state,), of_nova=()),
            recorded=self.saved.recorded,
            operator_files=OperatorFiles(
                folder=self.folder / "provider_config",
                named=self.around.provider_config_named,
                shown=Path(self.around.provider_config),
            ),
        )

    def sender(self, service: str) -> RecordedSender:
        """Return a sender that gives the answers of a service again."""
        return RecordedSender(self.exchanges[service])

    def name_of(self, service: str) -> str:
        """
        Return the name of a service that the verb used: "placement" or "ironic"; "where": placement, in the memory.

        Raises:
            Unrecorded: the verb failed before it had chosen one.
        """
        name = self.saved.called.get(service)
        if name is None:
            raise Unrecorded(
                f"the case has no {'Ironic' if service == 'ironic' else 'placement'}: the command that saved it failed "
                f"before it had chosen one; see what that command printed"
            )
        return name

    def probe(self, program: str) -> ServiceSigns:
        """Return what was found of another service when the case was saved; empty if nothing."""
        processes, units = self.around.processes.get(program, ()), self.around.units.get(program, ())
        return ServiceSigns(processes=processes, units=units, hidden=self.around.hidden)

    def driver(self, load: Callable[[HostArchive], Watchable]) -> Watchable:
        """Return a driver that gives the saved looks in their order; ``load`` makes a driver from a host archive."""
        hosts = [load(HostArchive(self.folder / f"hosts/{number}")) for number in range(len(self.saved.looks))]
        why = "the command that saved it could not read the host; see what that command printed"

        def name() -> str:
            if not self.saved.nodes:
                raise Unrecorded(f"the case has no node: {why}")
            return self.saved.nodes[0]

        def look(node: str) -> Survey:
            if not hosts:
                raise Unrecorded(f"the case has no data of node {node}: {why}")
            return (hosts.pop(0) if len(hosts) > 1 else hosts[0]).survey(node)

        return SurveyedElsewhere(name, look, unwatched)


@contextmanager
def open_case(path: Path) -> Iterator[Case]:
    """
    Unpack a saved case into a temporary folder, for as long as it is used.

    Raises:
        DiscoveryError: the file cannot be unpacked, or is not a whole case of this format.
    """
    with tempfile.TemporaryDirectory(prefix="compute-node-agent-", ignore_cleanup_errors=True) as scratch:
        folder = unpack(path, Path(scratch), most_bytes=MAX_MEMBER_BYTES)
        try:
            case = _read(folder)
        except (OSError, ValueError, RecursionError) as error:
            raise DiscoveryError(
                f"{path} is not a case in the form that --save and the service write: {error}"
            ) from error
        yield case


def _read(folder: Path) -> Case:
    told = decode_json((folder / "case.json").read_text(encoding="utf-8"))
    saved, around = decode_as(SavedCase, told), decode_as(Surroundings, told)
    if lost := [name for name in saved.members if not (folder / name).is_file()]:
        raise ValueError(f"it lacks {', '.join(lost[:5])}: copy the whole file again")
    check_options(folder / "agent.conf")
    (folder / "state").mkdir(exist_ok=True)
    if around.provider_config_is_there:
        (folder / "provider_config").mkdir(exist_ok=True)
    sent = {name: (folder / f"{name}.jsonl").read_text(encoding="utf-8") for name in SERVICES}
    exchanges = {name: decode_exchanges(text) for name, text in sent.items()}
    return Case(folder, saved, around, exchanges)


def pack_case(files: Mapping[str, bytes], top: str = "case") -> bytes:
    """Return a ``.tar.gz`` with these files, by their names in the case; all are in one folder, ``top``."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, data in sorted(files.items()):
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size, member.mode = len(data), 0o600
            tar.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def write_packed(path: Path, data: bytes, what: str = "case", *, named: bool = True) -> None:
    """
    Write a file that only its owner can read; ``named`` is as for ``replace_file``.

    Raises:
        StateError: the file cannot be written; nothing is left of it.
    """
    try:
        replace_file(path, data, 0o600, named=named)
    except OSError as error:
        raise StateError(f"cannot write the {what} {path}: {error.strerror}: name another file") from error
