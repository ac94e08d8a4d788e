"""One agent that reports a fleet of made-up hosts to a placement in memory, which a test may disturb."""

import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from agent.errors import USER_ERRORS
from agent.settings.read import Settings, load_settings
from agent.state.memory import NodeState
from agent.sync.in_bulk import report_new
from agent.sync.node import ComputeNode
from agent.sync.outcome import Outcome, Status
from agent.sync.run import run_pass
from beds.histories import Crash
from beds.memory import MemoryAnswer, MemoryPlacement
from beds.upgrades import write_config
from drivers import DRIVERS, DriverOptions, HostDriver
from drivers.base import Driver, Survey
from drivers.fake.driver import FakeDriver
from drivers.fake.fleet import generate_fleet
from drivers.fake.shapes import SHAPES, options_of
from drivers.policy import Layout
from reportclient.client import PlacementClient
from reportclient.transport import Transport
from reportclient.tree import Provider

MOST = 30  # hosts of a shape
Hook = Callable[[str, str, Any], MemoryAnswer | None]  # answers instead of placement; None: placement answers
Tree = tuple[Provider, ...]


@cache
def shaped(shape: str) -> tuple[Settings, dict[str, Driver]]:
    """The settings for hosts of a shape, and drivers of ``MOST`` of them, by name; each is read once for all tests."""
    folder = Path(tempfile.mkdtemp())
    groups = {"DEFAULT": {"compute_driver": "fake.FakeDriver"}, **options_of(SHAPES[shape])}
    settings = replace(load_settings([write_config(groups, folder / "agent.conf")]), recorded=True)
    row = DRIVERS["fake.FakeDriver"]
    assert isinstance(row, HostDriver)
    drivers = {}
    for archive in generate_fleet(folder / "fleet", MOST, seed=0, shape=shape):
        driver = row.load(DriverOptions(uri="", disk=settings.disk, guests=settings.policy.guests, fleet=(archive,)))
        drivers[driver.nodes()[0]] = driver
    return settings, drivers


@dataclass
class Twin:
    """A host with the identity of another one, as a cloned disk gives it."""

    host: Driver
    uuid: str

    def __getattr__(self, name: str) -> Any:
        return getattr(self.host, name)

    def survey(self, node: str) -> Survey:
        return replace(self.host.survey(node), compute_id=self.uuid)


@dataclass
class Watched:
    """A placement that counts its requests, and that a test may disturb."""

    placement: MemoryPlacement = field(default_factory=MemoryPlacement)
    hook: Hook = lambda _method, _url, _body: None
    seen: Counter[str] = field(default_factory=Counter)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def request(self, url: str, method: str, **kwargs: Any) -> MemoryAnswer:
        with self._turn:
            self.seen[f"{method} {url.partition('?')[0].split('/')[1]}"] += 1
            return self.hook(method, url, kwargs.get("json")) or self.placement.request(url, method, **kwargs)

    def write(self, method: str, url: str, body: Any = None) -> MemoryAnswer:
        """A write of somebody else."""
        return self.placement.request(url, method, microversion="1.37", headers={}, json=body)

    @property
    def requests(self) -> int:
        return sum(self.seen.values())


@dataclass
class FleetWorld:
    """``hosts`` made-up hosts of a shape, reported in a layout."""

    folder: Path  # of the agent's memory
    hosts: int
    shape: str = "small"
    layout: Layout = "devices"
    workers: int = 1
    twins: tuple[int, int] | None = None  # two hosts of which the second has the first one's identity
    watched: Watched = field(default_factory=Watched)

    @property
    def names(self) -> list[str]:
        return [*shaped(self.shape)[1]][: self.hosts]

    @property
    def settings(self) -> Settings:
        settings = shaped(self.shape)[0]
        return replace(settings, state_directory=self.folder, policy=replace(settings.policy, layout=self.layout))

    def nodes(self) -> list[ComputeNode]:
        """The nodes of a process that begins now."""
        drivers = shaped(self.shape)[1]
        hosts = [drivers[name] for name in self.names]
        if self.twins:
            first, second = self.twins
            hosts[second] = Twin(hosts[second], self.uuid(first))
        driver = FakeDriver(hosts, lambda _: None)
        client = PlacementClient(Transport(self.watched, where="placement"), self.workers)
        return [
            ComputeNode(name=name, driver=driver, client=client, settings=self.settings, where="placement")
            for name in self.names
        ]

    def uuid(self, host: int) -> str:
        name = self.names[host]
        return str(shaped(self.shape)[1][name].survey(name).compute_id).strip()

    def sync(self, *, bulk: bool = True) -> dict[str, Outcome]:
        """A pass over all hosts, as the verb ``sync`` takes it; ``bulk`` False: host by host."""
        nodes = self.nodes()
        found = report_new(nodes) if bulk else {}
        for node in nodes:
            if node.name not in found:
                try:
                    found[node.name] = run_pass(node)
                except USER_ERRORS as error:
                    found[node.name] = Outcome(node=node.name, status=Status.FAILED, notes=(str(error),))
        return found

    def sync_until(self, left: int, *, after: bool) -> None:
        """
        A pass that ends before this request, or after it.

        Raises:
            Crash: it ended there.
        """

        def hook(method: str, url: str, body: Any) -> MemoryAnswer | None:
            if self.watched.requests > left:
                if after and method != "GET":
                    self.watched.write(method, url, body)
                raise Crash
            return None

        self.watched.seen.clear()
        self.watched.hook = hook
        try:
            self.sync()
        finally:
            self.watched.hook = lambda _method, _url, _body: None

    def statuses(self, **how: bool) -> Counter[str]:
        return Counter(one.status.value for one in self.sync(**how).values())

    def tree(self, host: int) -> Tree:
        """What placement has of a host."""
        client = PlacementClient(Transport(self.watched.placement, where="placement"))
        return tuple(seen.provider for seen in client.observe(self.uuid(host)))

    def memory(self, host: int) -> NodeState:
        """What is remembered of a host, without what placement numbers and dates, and without the time."""
        (node,) = [one for one in self.nodes() if one.name == self.names[host]]
        state = node.state_file(self.uuid(host)).read(node.where)
        tree = state.observed
        providers = tuple(replace(seen, generation=0) for seen in tree) if tree else ()
        return replace(state, whole_s=0.0, observed=tree and replace(tree, providers=providers, last_modified=""))


@contextmanager
def fleet(hosts: int, **how: Any) -> Iterator[FleetWorld]:
    with tempfile.TemporaryDirectory() as folder:
        yield FleetWorld(Path(folder), hosts, **how)


def refuse(status: int, code: str = "placement.undefined_code") -> MemoryAnswer:
    body = {"errors": [{"status": status, "code": code, "detail": "refused"}]}
    return MemoryAnswer(status, {"Content-Type": "application/json"}, body)
