"""
A case: everything that one look at a host and at placement read, in one ``.tar.gz``, to be replayed elsewhere.

It holds the options that affect decisions (``agent.conf``, ``provider_config/``), the files that the agent remembered
(``state/``), a host archive for each look (``hosts/N/``), and the requests with their answers (``placement.jsonl``,
``ironic.jsonl``, ``nova.jsonl``). It holds no secrets: logins and locations are left out of the options, tokens out of
the requests, and from the guests' XML and from nova's answers only what the agent reads is kept.
``agent/sync/recorder.py`` writes cases.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from agent.settings.read import Settings
from agent.settings.saved import check_options
from agent.state.clock import Clock, StoppedClock
from agent.sync.case_archive import unpacked
from agent.sync.case_form import CaseFailureForm, CaseForm, decode_about
from agent.sync.recorder import FAILURES
from drivers.base import Driver, Survey, SurveyedElsewhere
from drivers.errors import DiscoveryError
from drivers.facts import ServiceSigns
from drivers.host.archive import HostArchive
from reportclient.recording import Exchange, Unrecorded, decode_exchanges


@dataclass(slots=True)
class Case:
    """A saved case, unpacked in ``folder``."""

    folder: Path
    about: CaseForm
    placement: tuple[Exchange, ...]
    ironic: tuple[Exchange, ...]
    nova: tuple[Exchange, ...]

    @property
    def clock(self) -> Clock:
        """The clock as it stood when the case was saved."""
        told = self.about["clock"]
        return StoppedClock(told["boot"], float(told["offset_s"]), float(told["now_s"]))

    def settings(self, settings: Settings) -> Settings:
        """Return settings (of the case's own ``agent.conf``) with the files of the case instead of this host's."""
        state = self.folder / "state"
        named = Path(self.about["provider_config"])
        return replace(
            settings,
            state_directory=state,
            identity_folders=(state,),
            recorded=self.about["recorded"],
            provider_config=self.folder / "provider_config",
            provider_config_shown=named,
            provider_config_named=self.about["provider_config_named"],
        )

    def name_of(self, service: str) -> str:
        """
        Return the name of a service that the verb used: "placement" or "ironic"; "where": placement, in the memory.

        Raises:
            Unrecorded: the verb failed before it had chosen one.
        """
        name = self.about["called"].get(service)
        if name is None:
            raise Unrecorded(
                f"the case has no {'Ironic' if service == 'ironic' else 'placement'}: the command that saved it failed "
                f"before it had chosen one; see what that command printed"
            )
        return name

    def probe(self, program: str) -> ServiceSigns:
        """Return what was found of another service when the case was saved; empty if nothing."""
        return ServiceSigns(
            processes=tuple(self.about["processes"].get(program, ())),
            units=tuple(self.about.get("units", {}).get(program, ())),
            hidden=self.about.get("hidden", False),
        )

    def driver(self, load: Callable[[HostArchive], Driver]) -> Driver:
        """Return a driver that gives the saved looks in their order; ``load`` makes a driver from a host archive."""
        looks = list(self.about["looks"])
        hosts = {one["host"]: load(HostArchive(self.folder / f"hosts/{one['host']}")) for one in looks if "host" in one}

        def nodes() -> tuple[str, ...]:
            if unlisted := self.about.get("unlisted"):
                raise _error(unlisted)
            if not self.about["nodes"]:
                raise Unrecorded(
                    "the case has no nodes: the command that saved it failed before it had listed them; see what that "
                    "command printed"
                )
            return tuple(self.about["nodes"])

        def look(node: str) -> Survey:
            mine = [one for one in looks if one["node"] == node]
            if not mine:
                raise Unrecorded(f"the case has no data of node {node}")
            if len(mine) > 1:
                looks.remove(mine[0])
            if "host" not in mine[0]:
                raise _error({"failed": mine[0]["failed"], "kind": mine[0]["kind"]})
            return hosts[mine[0]["host"]].survey(node)

        return SurveyedElsewhere(next(iter(hosts.values()), None), nodes, look)


def _error(failure: CaseFailureForm) -> Exception:
    return FAILURES.get(failure["kind"], DiscoveryError)(failure["failed"])


@contextmanager
def open_case(path: Path) -> Iterator[Case]:
    """
    Unpack a saved case into a temporary folder, for as long as it is used.

    Raises:
        DiscoveryError: the file cannot be unpacked, or is not a whole case of this format.
    """
    with unpacked(path) as folder:
        yield _read(folder, path)


def _read(folder: Path, path: Path) -> Case:
    try:
        about = decode_about((folder / "case.json").read_text(encoding="utf-8"))
        lost = [name for name in about.get("members", ()) if not (folder / name).is_file()]
        if lost:
            raise ValueError(f"it lacks {', '.join(lost[:5])}: copy the whole file again")
        check_options(folder / "agent.conf")
        (folder / "state").mkdir(exist_ok=True)
        if about["provider_config_is_there"]:
            (folder / "provider_config").mkdir(exist_ok=True)
        placement, ironic = (
            decode_exchanges((folder / f"{name}.jsonl").read_text(encoding="utf-8")) for name in ("placement", "ironic")
        )
        novas = folder / "nova.jsonl"  # a case of a version that did not ask nova has none
        nova = decode_exchanges(novas.read_text(encoding="utf-8")) if novas.exists() else ()
    except (OSError, ValueError, RecursionError) as error:
        raise DiscoveryError(f"{path} is not a case in the form that --save and the service write: {error}") from error
    return Case(folder, about, placement, ironic, nova)
