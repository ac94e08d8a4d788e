"""Many clients on one placement at once, each with guests of its own on the same hosts, and an auditor on each host."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from agent.allocations.operations import Operations, Result
from agent.audit.audit import witness
from agent.audit.decide.findings import Kind
from agent.audit.heal import Healed, HealPolicy, RepairOutcome, heal
from agent.settings.read import Settings
from agent.state.audit_memory import write_memory
from agent.sync.node import ComputeNode
from agent.sync.run import run_pass
from beds.histories import Crash, Crashing, ModelDriver, guests_of, request_for, set_for
from drivers.base import Survey
from fakes import FACTS
from reportclient.allocations import AllocationRequest, Slots
from reportclient.client import PlacementClient
from reportclient.errors import PlacementError
from reportclient.transport import Transport

Place = tuple[int, int]  # (host, VCPU)
GRACE_S = 10  # longer than an operation that nobody interrupts takes
POLICY = HealPolicy(kinds=frozenset(Kind), grace_s=GRACE_S, again_s=1, move_s=GRACE_S, limit=100)
EACH = 2  # guests of a client
SIZES = (1, 2)
CRASHES = 0.2  # of a client's operations, at one of their first requests
LATE_S = 120.0  # for the audits to find the truth once nobody does anything any more


@dataclass
class Truth:
    """Which guest runs where and how large it is, and since when."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    places: dict[str, tuple[Place, float]] = field(default_factory=dict)

    def set(self, guest: str, place: Place | None) -> None:
        with self.lock:
            if place is None:
                self.places.pop(guest, None)
            else:
                self.places[guest] = place, time.monotonic()

    def running(self, since: float | None = None) -> dict[str, Place]:
        """Where each guest runs; with ``since`` those only of which that was so at that moment already."""
        with self.lock:
            return {guest: place for guest, (place, at) in self.places.items() if since is None or at <= since}


@dataclass
class TruthfulDriver(ModelDriver):
    """A host's hypervisor, asked at the moment."""

    truth: Truth = field(default_factory=Truth)
    number: int = 0

    def survey(self, node: str) -> Survey:
        return Survey(replace(self.facts, guests=guests_of(self.truth.running(), self.number)), self.uuid)


class Crowd:
    """All of them; ``open_sender`` gives an adapter that nobody else uses."""

    def __init__(self, open_sender: Callable[[], Any], settings: Settings, seed: int, *, clients: int = 8) -> None:
        self.truth = Truth()
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.longest_s = 0.0  # of an operation that nobody interrupted
        self._settings = settings
        self._seed = seed
        self._open_sender = open_sender
        self._lock = threading.Lock()
        self._closing, self._closed = threading.Event(), threading.Event()
        self._roots = [str(UUID(int=(seed << 32) + host + 1)) for host in (0, 1)]
        self._nodes = [self._node(host) for host in (0, 1)]
        self._clients = clients
        self._watcher = self._client()
        for node in self._nodes:
            run_pass(node)

    def run(self, seconds: float) -> None:
        """Clients and auditors at once for so long; then the auditors alone, until placement says what is true."""
        clients = [threading.Thread(target=self._guarded, args=(self._claim, n)) for n in range(self._clients)]
        auditors = [threading.Thread(target=self._guarded, args=(self._audit, n)) for n in (0, 1)]
        for thread in (*clients, *auditors):
            thread.start()
        self._closing.wait(seconds)
        self._closing.set()
        for thread in clients:
            thread.join()
        deadline = time.monotonic() + LATE_S
        while time.monotonic() < deadline and self.held() != self.expected():
            time.sleep(0.5)
        self._closed.set()
        for thread in auditors:
            thread.join()

    def expected(self) -> dict[str, Slots]:
        """What every guest that runs should hold."""
        return {guest: set_for(self._roots[host], vcpus) for guest, (host, vcpus) in self.truth.running().items()}

    def held(self) -> dict[str, Slots]:
        """What placement holds on the hosts: consumer -> provider -> class -> amount."""
        found: dict[str, dict[str, dict[str, int]]] = {}
        for root in self._roots:
            tree = self._watcher.observe(root)
            for one in self._watcher.allocations(tuple(tree)):
                found.setdefault(one.consumer, {}).setdefault(root, {})[one.resource_class] = one.amount
        return dict(found)

    def _client(self) -> PlacementClient:
        return PlacementClient(Transport(self._open_sender(), where="placement"))

    def _node(self, host: int) -> ComputeNode:
        facts = replace(FACTS, hostname=f"crowded-{self._seed}-{host}")
        driver = TruthfulDriver(facts, self._roots[host], self.truth, host)
        return ComputeNode(
            name=facts.hostname, driver=driver, client=self._client(), settings=self._settings, where="placement"
        )

    def _guarded(self, work: Callable[[int], None], number: int) -> None:
        """A thread that ends with an error ends everything, and says so."""
        try:
            work(number)
        except Exception as error:
            self._say(f"{work.__name__.strip('_')} {number} ended: {error!r}")
            self._closing.set()

    def _claim(self, number: int) -> None:
        """One client: an operation after the other on its own guests, and some of them end in the middle."""
        chance = random.Random(f"{self._seed}/{number}")
        crashing = Crashing(self._open_sender())
        operations = Operations(PlacementClient(Transport(crashing, where="placement")))
        life = _Life(self.truth, operations, self._roots, chance)
        while not self._closing.is_set():
            crashing.left = chance.randrange(4) if chance.random() < CRASHES else None
            crashing.after = chance.random() < 0.5
            began = time.monotonic()
            try:
                told = life.step()
                with self._lock:
                    self.longest_s = max(self.longest_s, time.monotonic() - began)
            except Crash:
                told = "crashed"
            except PlacementError as error:
                told = type(error).__name__
            self._count(told)

    def _audit(self, host: int) -> None:
        """One auditor that heals, until all is over."""
        node = self._nodes[host]
        while not self._closed.is_set():
            node.client.begin()
            began = time.monotonic()
            try:
                result = witness(node)
                write_memory(self._settings.folders.state, result.root_uuid, result.memory)
                outcomes = heal(node, result, POLICY)
            except PlacementError as error:
                self._count(f"audit {type(error).__name__}")
                continue
            self._judge(outcomes, began)
            self._count("audit")
            self._closed.wait(0.2)

    def _judge(self, outcomes: tuple[RepairOutcome, ...], began: float) -> None:
        """No repair takes from a guest that ran all the while what was right."""
        running = self.truth.running(since=began)
        for outcome in outcomes:
            self._count(f"finding {outcome.healed.value}")
            repair = outcome.finding.repair if outcome.healed is Healed.HEALED else None
            for one in repair.rewrites if repair else ():
                if one.consumer in running:
                    host, vcpus = running[one.consumer]
                    right = set_for(self._roots[host], vcpus)
                    if _rows(right) & _rows(one.before) - _rows(one.after):
                        self._say(f"{outcome.finding.kind.value} took from {one.consumer}: {one.before} to {one.after}")

    def _count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1

    def _say(self, sentence: str) -> None:
        with self._lock:
            self.wrong.append(sentence)


def _rows(slots: Slots) -> set[tuple[str, str, int]]:
    return {(uuid, name, amount) for uuid, resources in slots.items() for name, amount in resources.items()}


@dataclass
class _Life:
    """What one client does with its guests; nothing is begun with a guest whose move has not ended."""

    truth: Truth
    operations: Operations
    roots: list[str]
    chance: random.Random
    guests: dict[int, str] = field(default_factory=dict)
    pending: dict[str, str] = field(default_factory=dict)  # guest -> its last migration

    def step(self) -> str:
        """One operation, and what was told of it."""
        number = self.chance.randrange(EACH)
        guest = self.guests.get(number)
        if guest is None or guest not in self.truth.running():
            return self._spawn(number)
        if (last := self.pending.get(guest)) and self.operations.client.consumer(last):
            time.sleep(0.05)
            return "waits for a move"
        act = self.chance.choice((self._resize, self._move, self._move, self._delete))
        return f"{act.__name__.strip('_')} {act(guest).value}"

    def _spawn(self, number: int) -> str:
        guest = self.guests[number] = str(UUID(int=self.chance.getrandbits(128)))
        place = self.chance.randrange(2), self.chance.choice(SIZES)
        told = self.operations.spawn(
            guest, project=f"project of {guest}", user="user", kind="INSTANCE", requests=[self._request(place)]
        ).told
        if told is Result.DONE:
            self.truth.set(guest, place)
        return f"spawn {told.value}"

    def _resize(self, guest: str) -> Result:
        host, _ = self.truth.running()[guest]
        place = host, self.chance.choice(SIZES)
        told = self.operations.replace(guest, [self._request(place)]).told
        if told is Result.DONE:
            self.truth.set(guest, place)
        return told

    def _move(self, guest: str) -> Result:
        host, vcpus = self.truth.running()[guest]
        place = 1 - host, vcpus
        migration = self.pending[guest] = str(UUID(int=self.chance.getrandbits(128)))
        told = self.operations.move(guest, migration, [self._request(place)]).told
        if told is Result.DONE and self.chance.random() < 0.5:
            self.truth.set(guest, place)
            self.operations.confirm(migration)
        elif told is Result.DONE:
            self.operations.revert(guest, migration)
        return told

    def _delete(self, guest: str) -> Result:
        self.truth.set(guest, None)
        return self.operations.release(guest).told

    def _request(self, place: Place) -> AllocationRequest:
        host, vcpus = place
        return request_for(self.roots[host], vcpus)
