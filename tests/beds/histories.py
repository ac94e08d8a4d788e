"""Two hosts, their guests and a placement through a history: claims, moves, crashes between requests, and audits."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from agent.allocations.operations import Operations, Result
from agent.audit.audit import witness
from agent.audit.decide.findings import Kind
from agent.audit.heal import HealPolicy, heal
from agent.settings.read import Settings, keep_in, load_settings
from agent.state.audit_memory import write_memory
from agent.state.clock import StoppedClock
from agent.sync.node import ComputeNode
from agent.sync.run import run_pass
from drivers.base import Survey
from drivers.facts import Guest, GuestMemory, HostFacts, Tenant
from drivers.libvirt import shape
from drivers.policy import Policy
from fakes import FACTS
from reportclient.allocations import AllocationRequest, Holdings
from reportclient.client import PlacementClient
from reportclient.payload import encode_slots
from reportclient.transport import Transport
from reportclient.tree import ObservedTree, ProviderTree

POLICY = HealPolicy(kinds=frozenset(Kind), grace_s=10, again_s=5, move_s=50, limit=100)
HASTE = replace(POLICY, grace_s=0, move_s=0)  # where consumers have the age of a clock that cannot be set


class Crash(BaseException):
    """The process ends here."""


@dataclass
class Crashing:
    """Before a keystoneauth adapter: ends the process before or after one of its requests."""

    sender: Any
    left: int | None = None  # requests until then; None: it lives
    after: bool = False
    methods: list[str] = field(default_factory=list)  # of all requests, in their order

    def request(self, url: str, method: str, **kwargs: Any) -> Any:
        self.methods.append(method)
        if self.left is not None:
            self.left -= 1
            if self.left < 0 and not self.after:
                raise Crash
        answer = self.sender.request(url, method, **kwargs)
        if self.left is not None and self.left < 0:
            raise Crash
        return answer


@dataclass
class ModelDriver:
    """The libvirt driver's shape over facts that a test makes up."""

    facts: HostFacts
    uuid: str | None  # None: the host was recorded without an identity
    emitted = shape.EMITTED

    def name(self) -> str:
        return self.facts.hostname

    def survey(self, node: str) -> Survey:
        return Survey(self.facts, self.uuid)

    def shape(self, survey: Survey, policy: Policy, observed: ObservedTree | None) -> tuple[ProviderTree, Holdings]:
        shaped = shape.shape(survey.facts, policy, observed)
        return shaped.tree, shaped.holdings


@dataclass
class Clock:
    """A time that passes only when it is told to."""

    now: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def set_for(root: str, vcpus: int) -> dict[str, dict[str, int]]:
    """What a guest of that size holds."""
    return {root: {"VCPU": vcpus, "MEMORY_MB": 64 * vcpus}}


def request_for(root: str, vcpus: int) -> AllocationRequest:
    return AllocationRequest(json.dumps({"allocations": encode_slots(set_for(root, vcpus))}))


def guests_of(running: Mapping[str, tuple[int, int]], host: int) -> tuple[Guest, ...]:
    """What the hypervisor of a host tells of guests that run: guest -> (host, VCPU); each is of its own project."""
    return tuple(
        Guest(
            uuid=guest,
            state="running",
            vcpus=(frozenset(),) * vcpus,
            memory=(GuestMemory(64 * vcpus),),
            tenant=Tenant(f"project of {guest}", "user", None),
        )
        for guest, (where, vcpus) in sorted(running.items())
        if where == host
    )


@dataclass
class GuestWorld:
    """What is true: which guest runs where and how large it is. And what placement holds of it."""

    sender: Any
    settings: Settings
    clock: "Clock"
    policy: HealPolicy = POLICY
    number: int = 0  # of this history, for names of its own
    running: dict[str, tuple[int, int]] = field(default_factory=dict)  # guest -> (host, VCPU)
    migrations: int = 0
    deleted: list[int] = field(default_factory=list)  # the numbers of guests, once for each
    pending: dict[str, str] = field(default_factory=dict)  # guest -> a migration that was begun and not ended
    counts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.crashing = Crashing(self.sender)
        self.roots = [self._uuid(host) for host in (1, 2)]
        self.nodes = []
        for host, root in enumerate(self.roots):
            facts = replace(FACTS, hostname=f"host-{self.number}-{host}")
            client = PlacementClient(Transport(self.crashing, where="placement"))
            node = ComputeNode(
                name=facts.hostname,
                driver=ModelDriver(facts, root),
                client=client,
                settings=self.settings,
                where="placement",
                clock=lambda: StoppedClock("", 0.0, self.clock()),
            )
            self.nodes.append(node)
            run_pass(node)
        self.operations = Operations(PlacementClient(Transport(self.crashing, where="placement")), pause=lambda: None)

    def _uuid(self, number: int) -> str:
        return str(UUID(int=(self.number << 32) + number))

    def guest(self, number: int) -> str:
        """The uuid of the guest that goes by this number now: one that was deleted never comes again."""
        return self._uuid(100 + number + 10 * sum(one == number for one in self.deleted))

    def request(self, host: int, vcpus: int) -> AllocationRequest:
        return request_for(self.roots[host], vcpus)

    @contextmanager
    def crashing_at(self, request: int | None, after: bool) -> Iterator[None]:
        """Inside, the process ends at that request; what was to come after it does not."""
        self.crashing.left, self.crashing.after = request, after
        try:
            yield
        except Crash:
            self._count("crashes")
        finally:
            self.crashing.left = None
        for node in self.nodes:
            node.client.begin()

    def spawn(self, guest: str, host: int, vcpus: int) -> None:
        if guest in self.running:
            return
        project = f"project of {guest}"
        ending = self.operations.spawn(
            guest, project=project, user="user", kind="INSTANCE", requests=[self.request(host, vcpus)]
        )
        if ending.told is Result.DONE:
            self.running[guest] = host, vcpus
        self._count(f"spawn {ending.told.value}")

    def is_free(self, guest: str) -> bool:
        """Whether it runs, and no move of it is under way: a cloud begins nothing else with it before that ended."""
        if self.pending.get(guest) in self.held():
            return False
        return guest in self.running

    def resize(self, guest: str, vcpus: int) -> None:
        if not self.is_free(guest):
            return
        host, _ = self.running[guest]
        ending = self.operations.replace(guest, [self.request(host, vcpus)])
        if ending.told is Result.DONE:
            self.running[guest] = host, vcpus
        self._count(f"resize {ending.told.value}")

    def move(self, guest: str, succeeds: bool) -> None:
        if not self.is_free(guest):
            return
        host, vcpus = self.running[guest]
        self.migrations += 1
        migration = self.pending[guest] = self._uuid(10_000 + self.migrations)
        ending = self.operations.move(guest, migration, [self.request(1 - host, vcpus)])
        self._count(f"move {ending.told.value}")
        if ending.told is not Result.DONE:
            return
        if succeeds:
            self.running[guest] = 1 - host, vcpus
            self.operations.confirm(migration)
        else:
            self.operations.revert(guest, migration)

    def delete(self, guest: str) -> None:
        if self.running.pop(guest, None):
            self.deleted.append((UUID(guest).int & 0xFFFFFFFF) % 10)
            self.operations.release(guest)
            self._count("deleted")

    def audit(self, host: int, seconds: float) -> None:
        """One audit that heals, so long after whatever came before; no right row of a running guest may go by it."""
        self.clock.now += seconds
        right = {guest for guest in self.running if self.is_right(guest)}
        self._see()
        node = self.nodes[host]
        node.client.begin()
        try:
            result = witness(node)
            write_memory(self.settings.folders.state, result.root_uuid, result.memory)
            outcomes = heal(node, result, self.policy)
            self._count("findings", len(outcomes))
            self._count("healed", sum(outcome.healed.value == "healed" for outcome in outcomes))
        finally:
            self.crashing.left = None
            lost = {guest for guest in right if not self.is_right(guest)}
            assert not lost, f"an audit took from {lost}"

    def expected(self, guest: str) -> dict[str, dict[str, int]]:
        host, vcpus = self.running[guest]
        return set_for(self.roots[host], vcpus)

    def is_right(self, guest: str) -> bool:
        return self.held().get(guest) == self.expected(guest)

    def held(self) -> dict[str, dict[str, dict[str, int]]]:
        """What placement holds on the two hosts: consumer -> provider -> class -> amount."""
        found: dict[str, dict[str, dict[str, int]]] = {}
        for root in self.roots:
            answer = self.sender.request(
                f"/resource_providers/{root}/allocations", "GET", raise_exc=False, microversion="1.39"
            )
            for consumer, record in answer.json()["allocations"].items():
                found.setdefault(consumer, {})[root] = record["resources"]
        return found

    def settle(self) -> None:
        """Audits of both hosts until each had its patience, and its turn after the other's repairs."""
        for _ in range(6):
            for host in (0, 1):
                self.audit(host, 100)

    def clear(self) -> None:
        """Nothing of this history stays in a placement that others use too."""
        for consumer in self.held():
            self.sender.request(f"/allocations/{consumer}", "DELETE", raise_exc=False, microversion="1.39")
        for root in self.roots:
            self.sender.request(f"/resource_providers/{root}", "DELETE", raise_exc=False, microversion="1.39")

    def _see(self) -> None:
        """The hypervisors tell what is true now."""
        for host, node in enumerate(self.nodes):
            driver = node.driver
            assert isinstance(driver, ModelDriver)
            driver.facts = replace(driver.facts, guests=guests_of(self.running, host))

    def _count(self, what: str, number: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + number


@contextmanager
def settings_for_histories(grace_s: int) -> Iterator[Settings]:
    """Settings with state in a folder of their own, in memory where the machine has such a place."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        settings = load_settings([])
        yield replace(keep_in(settings, Path(folder)), recorded=True, audit_grace_s=grace_s)
