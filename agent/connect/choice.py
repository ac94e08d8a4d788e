"""Builds the parts of one run from the command line: settings, driver, client, and a compute node."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agent.bare_metal.context import BareMetalNodes
from agent.connect.adapters import open_service
from agent.connect.senders import Requested, Trace, TracedSender
from agent.errors import ConfigError, StateError
from agent.nova.answers import essential
from agent.nova.client import NovaClient
from agent.settings.read import ONE_LAYOUT, Settings, keep_in, load_settings
from agent.state.clock import probe_clock
from agent.sync.case import Case
from agent.sync.node import ComputeNode
from agent.sync.recorder import Recorder
from drivers import FAKE, IRONIC
from drivers.base import Driver, OnOperation, Survey, Watchable, untold
from drivers.fake import write_host
from drivers.host.archive import HostArchive
from drivers.host.unpack import unpack
from drivers.ironic.client import IronicClient
from drivers.libvirt.connection import LiveConnection
from drivers.libvirt.driver import Connection, LibvirtDriver
from drivers.libvirt.recorded import RecordedConnection
from drivers.looks import look
from drivers.policy import Layout
from reportclient.client import PlacementClient
from reportclient.keystone import Sender
from reportclient.transport import Transport

EMBEDDED_DIR = Path("~/.local/share/compute-node-agent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The options of the command line that choose what to read and where to report."""

    config_files: tuple[Path, ...] = ()
    config_dirs: tuple[Path, ...] = ()
    embedded: bool = False  # report to a placement in this process
    embedded_dir: Path | None = None  # folder of its file; None: EMBEDDED_DIR
    host: Path | None = None  # host archive to read instead of this host
    layout: Layout | None = None  # used instead of the configured one; None: as configured
    service: bool = False  # whether the run is the service, which has options for its log
    recorder: Recorder | None = None  # keeps what is read, for a case; None: nothing is kept
    case: Case | None = None  # saved case to replay instead of reading this host and placement
    database: str | None = None  # URL of the cloud's placement database, for use while its API is down
    trace: Trace = field(default_factory=Trace)  # of the run


def settings_for(choice: Choice) -> Settings:
    """
    Read the settings of a run.

    Raises:
        ConfigError: as ``load_settings``.
    """
    if choice.case:
        settings = choice.case.settings(load_settings([choice.case.folder / "agent.conf"], environment=False))
        return replace(settings, policy=replace(settings.policy, layout=choice.layout or settings.policy.layout))
    settings = load_settings(choice.config_files, choice.config_dirs, service=choice.service)
    settings = replace(settings, recorded=bool(choice.host) or settings.hypervisor.driver == FAKE)
    if choice.layout:
        settings = replace(settings, policy=replace(settings.policy, layout=choice.layout))
    if settings.beside_nova and settings.policy.layout != "devices":
        raise ConfigError(f"[agent] role = beside, and {ONE_LAYOUT}: leave out --to {settings.policy.layout}")
    return keep_in(settings, _embedded_dir(choice)) if choice.embedded else settings


@contextmanager
def open_driver(settings: Settings, choice: Choice, told: OnOperation = untold) -> Iterator[Watchable]:
    """
    Open the driver of a run; ``told`` is called after each of its operations.

    An archive that had to be unpacked is removed at the end.

    Raises:
        ConfigError: the driver reports bare-metal nodes.
        DiscoveryError: ``--host`` names no whole host archive.
        StateError: there is no room for temporary files.
    """
    check_hypervisor(settings)

    def driver_of(connection: Connection) -> LibvirtDriver:
        return LibvirtDriver(connection, settings.policy, settings.hypervisor.disk)

    def temporary() -> Path:
        try:
            made = TemporaryDirectory(prefix="compute-node-agent-", ignore_cleanup_errors=True)
        except OSError as error:
            raise StateError(f"cannot make a folder for temporary files: {error}") from error
        return Path(scratch.enter_context(made))

    def recorded(archive: HostArchive) -> LibvirtDriver:
        archive.check()
        return driver_of(RecordedConnection(archive))

    if choice.case:
        yield choice.case.driver(recorded)
        return
    with ExitStack() as scratch:
        if choice.host:
            is_packed = os.path.isfile(choice.host)  # Path.is_file raises where this user may not look
            folder = unpack(choice.host, temporary()) if is_packed else choice.host
            driver = recorded(HostArchive(folder))
        elif settings.hypervisor.driver == FAKE:
            fake = settings.hypervisor
            driver = recorded(write_host(temporary(), seed=fake.seed, shape=fake.shape))
        else:
            driver = driver_of(LiveConnection(settings.hypervisor.libvirt_uri, told))
        yield choice.recorder.driver(driver) if choice.recorder else driver


def read_host(driver: Driver, choice: Choice) -> tuple[str, Survey]:
    """Return name and survey of the host, which is what the run is about; errors as ``Driver.survey``."""
    name = driver.name()
    choice.trace.nodes.append(name)
    return name, look(partial(driver.survey, name))


def check_hypervisor(settings: Settings) -> None:
    """
    Check that the configured driver reports hypervisors.

    Raises:
        ConfigError: it reports bare-metal nodes.
    """
    if lists_nodes(settings):
        raise ConfigError(
            f"[DEFAULT] compute_driver = {settings.hypervisor.driver} is for bare-metal nodes, but this command needs "
            f"a hypervisor: use another configuration file or another command"
        )


def lists_nodes(settings: Settings) -> bool:
    """Return whether the configured driver lists bare-metal nodes; then ``open_nodes`` opens it."""
    return settings.hypervisor.driver == IRONIC


def open_nodes(settings: Settings, choice: Choice, *, told: OnOperation = untold) -> IronicClient:
    """
    Return the client for Ironic, which sends nothing yet; ``told`` is called after each of its requests.

    Raises:
        ConfigError: no Ironic is configured.
    """
    sender, where = _open_service(settings, choice, "ironic", told=lambda *_: told())
    ours = settings.ironic
    return IronicClient(
        sender, where, shard=ours.shard, conductor_group=ours.conductor_group, health=ours.reserve_critical
    )


def open_client(
    settings: Settings, choice: Choice, *, writes: bool = False, told: Requested = lambda *_: None
) -> tuple[PlacementClient, str]:
    """
    Return a client for the chosen placement, and the name of that placement in the state directory.

    An embedded placement without a file is made in its folder if ``writes``; else the client sees an empty one. Each
    request has the request id of the run; ``told`` is called after each.

    Raises:
        ConfigError: no placement is chosen.
        StateError: the file of the embedded placement, or the database, cannot be used.
    """
    sender, where, name = _open_sender(settings, choice, writes)
    choice.trace.placement = name
    sender = TracedSender(sender, choice.trace, told)
    if choice.recorder:
        choice.recorder.called |= {"placement": name, "where": where}
        sender = choice.recorder.sender("placement", sender)
    kept = choice.case or (None if choice.service else choice.recorder)  # the service outlives the moment of a case
    transport = Transport(sender, where=name, now=kept.clock.now_s if kept else time.time)
    one_by_one = choice.case or choice.embedded or choice.database is not None  # in this process, on SQLite
    return PlacementClient(transport, 1 if one_by_one else settings.apis.node_workers), where


def open_nova(settings: Settings, choice: Choice) -> NovaClient | None:
    """
    Return a client for nova, which sends nothing yet; None where no file configures one.

    Raises:
        ConfigError: keystoneauth does not accept the options.
    """
    there = "nova" in choice.case.saved.called if choice.case else settings.apis.nova_chosen
    return NovaClient(*_open_service(settings, choice, "nova", essential)) if there else None


def _open_service(
    settings: Settings,
    choice: Choice,
    service: str,
    reduced: Callable[[str], str] = str,
    told: Requested = lambda *_: None,
) -> tuple[Sender, str]:
    """Return what sends requests to a service, with the request id of the run, and its name; a recorder keeps both."""
    if choice.case:
        return choice.case.sender(service), choice.case.name_of(service)
    adapter, where = open_service(settings, service)
    sender: Sender = TracedSender(adapter, choice.trace, told)
    if choice.recorder:
        choice.recorder.called[service] = where
        sender = choice.recorder.sender(service, sender, reduced)
    return sender, where


def node_of(driver: Driver, client: PlacementClient, settings: Settings, where: str, choice: Choice) -> ComputeNode:
    """Return one compute node with the clock and the processes of this host, of a recorder, or of a case."""
    nova, name = cache(partial(open_nova, settings, choice)), driver.name()
    choice.trace.nodes.append(name)
    node = ComputeNode(name=name, driver=driver, client=client, settings=settings, where=where, nova=nova)
    told = choice.case or choice.recorder
    return replace(node, clock=lambda: told.clock, probe=told.probe) if told else node


def open_bare_metal(
    client: PlacementClient,
    settings: Settings,
    where: str,
    choice: Choice,
    *,
    told: OnOperation = untold,
) -> BareMetalNodes:
    """
    Return the bare-metal nodes of this agent, by the clock of this host, or of a case.

    Parameters and errors as ``open_nodes``; ConfigError also for a role that bare metal does not have.
    """
    if settings.role in ("audit", "beside"):
        raise ConfigError(
            f"[agent] role = {settings.role} is for hypervisors: remove the option where compute_driver is Ironic's"
        )
    kept = choice.case or choice.recorder
    return BareMetalNodes(
        ironic=open_nodes(settings, choice, told=told),
        client=client,
        settings=settings,
        where=where,
        clock=kept.clock if kept else probe_clock(),
    )


def _open_sender(settings: Settings, choice: Choice, writes: bool) -> tuple[Sender, str, str]:
    """Return a sender to the chosen placement, its name in the state directory, and its name in messages."""
    if choice.case:
        return choice.case.sender("placement"), choice.case.name_of("where"), choice.case.name_of("placement")
    if choice.embedded:
        folder = _embedded_dir(choice)
        where = f"the embedded placement in {folder}"
        return _placement_itself("--embedded", "embedded").open_file(folder, writes=writes), where, where
    if choice.database is not None:
        sender, name = _placement_itself("--database", "offline").open_database(choice.database)
        # in the state directory it has the name of the configured API, so that both ways share one memory of the host
        return sender, open_service(settings, "placement")[1] if settings.apis.placement_chosen else name, name
    adapter, where = open_service(settings, "placement")
    return adapter, where, where


def _placement_itself(option: str, extra: str) -> Any:
    """Return the module of placement in this process; imported here, as hosts do without the package of placement."""
    try:
        from agent.connect import embedded
    except ImportError as error:
        raise ConfigError(
            f"{option} needs the package of placement in this Python (no module {error.name}): "
            f"pip install 'compute-node-agent[{extra}]'"
        ) from error
    return embedded


def _embedded_dir(choice: Choice) -> Path:
    return (choice.embedded_dir or EMBEDDED_DIR).expanduser().absolute()
