"""One made-up host, its passes, and a placement in memory: what stands there after each change."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

from agent.nova.client import NovaClient
from agent.settings.read import Role, Settings, keep_in, load_settings
from agent.state.clock import StoppedClock
from agent.sync.decide.features import FEATURES, Features
from agent.sync.decide.view import Wishes
from agent.sync.leave import hand_over_node, retire_node
from agent.sync.node import ComputeNode
from agent.sync.outcome import Outcome, Status
from agent.sync.run import foresee, run_pass
from beds.by_hand import ByHand
from beds.histories import ModelDriver
from beds.memory import MemoryPlacement
from beds.nova import Direct, FakeNova
from configured import changed
from drivers.facts import HostFacts, ServiceSigns
from drivers.policy import DevicePolicy, Layout, Policy
from reportclient.client import PlacementClient
from reportclient.ownership import OWNER_NOVA
from reportclient.payload import encode_inventory
from reportclient.transport import Transport
from reportclient.tree import Inventory, ObservedProvider, ObservedTree

ROOT = "a4f1c3f0-5d7f-4a3c-9d26-0c1f6b1de201"
GUEST = "6f1f6a0c-4d3c-4b7e-8b9a-2f6b7a1c0d42"
MIGRATION = "6f1f6a0c-4d3c-4b7e-8b9a-2f6b7a1c0d43"
ABROAD = "6f1f6a0c-4d3c-4b7e-8b9a-2f6b7a1c0dff"
FORCE = Wishes(force=True)
RESHAPE = Wishes(reshape=True, force=True)


@cache
def default_settings() -> Settings:
    """Settings without any configuration file."""
    return load_settings([])


class Cut(Exception):
    """The process ends here."""


@dataclass
class Sender:
    """Before a placement in memory: counts what is asked and written, and ends the process at one of the writes."""

    placement: MemoryPlacement = field(default_factory=MemoryPlacement)
    reads: int = 0
    writes: int = 0
    left: int | None = None  # writes until the end; None: it lives

    def request(self, url: str, method: str, **kwargs: Any) -> Any:
        if method != "GET":
            if self.left == 0:
                raise Cut(f"{method} {url}")
            self.left = None if self.left is None else self.left - 1
            self.writes += 1
        self.reads += method == "GET"
        return self.placement.request(url, method, **kwargs)


@dataclass
class OneHost:
    """``facts`` and ``policy`` may be changed between passes."""

    folder: Path
    facts: HostFacts
    policy: Policy
    sender: Sender = field(default_factory=Sender)
    interval_s: int = 60
    role: Role | None = None
    uptime_s: float = 0.0
    expect_s: int = 3600
    signs: ServiceSigns | None = None  # what shows nova-compute on this live host; None: a recorded host
    where: str = "placement"  # name of the placement that the configuration gives
    nova: FakeNova | None = None  # None: no login to nova
    features: Features = FEATURES

    @property
    def settings(self) -> Settings:
        found = default_settings()
        folder = self.folder / "provider_config"
        if self.signs is not None:
            (self.folder / "compute_id").write_text(ROOT)
        found = changed(
            keep_in(found, self.folder),
            operator_files={"folder": folder},
            service={"interval_s": self.interval_s},
            changes={"expect_timeout_s": self.expect_s},
        )
        return replace(found, recorded=self.signs is None, policy=self.policy, role=self.role)

    @property
    def node(self) -> ComputeNode:
        return ComputeNode(
            name=self.facts.hostname,
            driver=ModelDriver(self.facts, ROOT),
            client=PlacementClient(Transport(self.sender, where=self.where)),
            settings=self.settings,
            where=self.where,
            features=self.features,
            probe=lambda _: self.signs or ServiceSigns(),
            nova=lambda: NovaClient(Direct(self.nova), "nova") if self.nova else None,
            clock=lambda: StoppedClock("", 0.0, self.uptime_s or time.time()),  # by default it was booted long ago
        )

    def sync(self, wishes: Wishes = Wishes(), **changes: object) -> Outcome:
        """A pass over the host as it is from now on: ``facts``, ``policy``."""
        for name, value in changes.items():
            setattr(self, name, value)
        return run_pass(self.node, wishes)

    def reshape(self, layout: str, *, force: bool = True) -> Outcome:
        """A conversion to another layout, which is configured from now on."""
        return self.sync(replace(RESHAPE, force=force), policy=replace(self.policy, layout=layout))  # type: ignore[arg-type]

    def hand_over(self) -> Outcome:
        return hand_over_node(self.node, force=True)

    def retire(self) -> Outcome:
        return retire_node(self.node)

    def mark_as_nova(self) -> None:
        """Each provider carries nova's mark too, as our driver inside nova-compute leaves it."""
        for seen in self.tree():
            self.add_traits(seen.name.removeprefix(self.facts.hostname).removeprefix("_"), OWNER_NOVA)

    def give_to_nova(self, *, marked: bool = True) -> None:
        """The tree is nova's from now on: without our marks, and ``marked`` with nova's on each provider."""
        self.hand_over()
        self.forget()
        if marked:
            self.mark_as_nova()

    def tree(self) -> ObservedTree:
        return self.node.client.observe(ROOT)

    def aggregates(self) -> set[str]:
        """The aggregates of the root."""
        root = self.tree().root
        return set(root.provider.aggregates) if root else set()

    def stock(self, suffix: str = "") -> dict[str, tuple[int, int]]:
        """Class -> (total, reserved) of one provider; empty where there is none."""
        seen = self._find(suffix)
        return {name: (one.total, one.reserved) for name, one in seen.provider.inventories.items()} if seen else {}

    def ratios(self, resource_class: str) -> dict[str, float]:
        """Provider -> allocation ratio of a class."""
        found = {seen.name: seen.provider.inventories.get(resource_class) for seen in self.tree()}
        return {name: stock.allocation_ratio for name, stock in found.items() if stock}

    def marks(self, suffix: str = "") -> frozenset[str]:
        """The traits of a provider by which placement knows whose a reservation is."""
        return frozenset(name for name in self.traits(suffix) if name.startswith("CUSTOM_DEVICE_"))

    def set_by_hand(self, suffix: str, resource_class: str, **changes: object) -> None:
        """What an operator sets of one class: ``reserved``, ``allocation_ratio``."""
        self.by_hand.change_stock(self._seen(suffix).uuid, **{resource_class: changes})

    def add_by_hand(self, suffix: str, resource_class: str, total: int) -> None:
        """A class that somebody else puts on a provider."""
        record = encode_inventory(Inventory(total=total))
        self.by_hand.change_stock(self._seen(suffix).uuid, **{resource_class: record})

    def make_as_nova(self, suffix: str, resource_class: str, total: int = 4) -> str:
        """A child that nova makes, in place of ours if there is one; return its uuid."""
        name, tree, above = self._name(suffix), self.tree(), ROOT
        uuid = str(uuid5(NAMESPACE_DNS, name))
        if ours := tree.by_name.get(name):
            above = tree.by_name[ours.provider.parent or ""].uuid
            self.send("DELETE", f"/resource_providers/{ours.uuid}")
        self.by_hand.add_provider(name, uuid, parent=above)
        self.add_by_hand(suffix, resource_class, total)
        self.put_trait(suffix, OWNER_NOVA)
        return uuid

    @contextmanager
    def ending_after(self, writes: int | None) -> Iterator[None]:
        """The process in here ends at the write after so many, or at none (None); the next process lives."""
        self.sender.left = writes
        try:
            yield
        finally:
            self.sender.left = None

    def forget(self) -> None:
        """The state on this host's disk is lost."""
        self.node.state_file(ROOT).forget()

    def remove_traits(self, suffix: str, *traits: str) -> None:
        """Traits that an operator takes off a provider."""
        self.by_hand.remove_traits(self._seen(suffix).uuid, *traits)

    def add_traits(self, suffix: str, *traits: str) -> None:
        """Traits that another service, or an operator, puts on a provider."""
        self.by_hand.add_traits(self._seen(suffix).uuid, *traits)

    def traits(self, suffix: str = "") -> frozenset[str]:
        """All traits of a provider; empty where there is none."""
        seen = self._find(suffix)
        return seen.provider.traits if seen else frozenset()

    def put_trait(self, suffix: str, name: str, *, away: bool = False) -> None:
        """Somebody else's trait, put on a provider or taken away."""
        put = self.by_hand.remove_traits if away else self.by_hand.add_traits
        put(self._seen(suffix).uuid, name)

    def write_provider_config(
        self, suffix: str, resource_class: str, total: int, reserved: int = 0, *, traits: Iterable[str] = ()
    ) -> None:
        """A file of the operator's that adds a class, and traits, to a provider."""
        folder = self.settings.operator_files.folder
        folder.mkdir(exist_ok=True)
        entry = {
            "identification": {"name": self._name(suffix)},
            "inventories": {"additional": [{resource_class: {"total": total, "reserved": reserved}}]},
            "traits": {"additional": [*traits]},
        }
        content = {"meta": {"schema_version": "1.0"}, "providers": [entry]}
        (folder / "own.yaml").write_text(json.dumps(content), encoding="utf-8")

    def claim(self, slots: Mapping[str, Mapping[str, int]], consumer: str = GUEST) -> None:
        """What a guest holds from now on: suffix -> class -> amount; nothing: it lets go of all."""
        if not slots:
            self.send("DELETE", f"/allocations/{consumer}")
            return
        stands = self.tree().by_name
        held = {stands[self._name(one)].uuid: each for one, each in slots.items()}
        self.by_hand.claim(consumer, held, "MIGRATION" if consumer == MIGRATION else "INSTANCE")

    def claim_abroad(self, consumer: str, amounts: Mapping[str, int]) -> None:
        """What a guest holds on another host, which this agent does not report."""
        self.by_hand.add_provider("abroad", ABROAD, stock={name: {"total": 1000} for name in amounts})
        self.by_hand.claim(consumer, {ABROAD: amounts})

    def held(self, consumer: str = GUEST) -> dict[str, dict[str, int]]:
        """What a guest holds: provider -> class -> amount."""
        names = {seen.uuid: seen.name for seen in self.tree()}
        slots = self.send("GET", f"/allocations/{consumer}")["allocations"]
        return {names[uuid]: one["resources"] for uuid, one in slots.items()}

    def foresee(self, wishes: Wishes = Wishes()) -> Any:
        return foresee(self.node, wishes)

    def _name(self, suffix: str) -> str:
        return f"{self.facts.hostname}_{suffix}" if suffix else self.facts.hostname

    def _find(self, suffix: str) -> ObservedProvider | None:
        return self.tree().by_name.get(self._name(suffix))

    def _seen(self, suffix: str) -> ObservedProvider:
        return self.tree().by_name[self._name(suffix)]

    def put(self, uuid: str, what: str, **body: object) -> None:
        """What somebody writes by hand of another root: ``inventories``, ``traits``, ``aggregates``."""
        seen = self.node.client.root(uuid)
        assert seen
        generation = {"resource_provider_generation": seen.generation}
        self.send("PUT", f"/resource_providers/{uuid}/{what}", generation | body)

    def send(self, method: str, url: str, body: Any = None) -> Any:
        """Send a request as somebody else than the agent does, and return the answer's body."""
        return self.by_hand.send(method, url, body)

    @property
    def by_hand(self) -> ByHand:
        return ByHand(self.sender.placement)


def begun(folder: Path, facts: HostFacts, devices: DevicePolicy, layout: Layout = "devices", **changes: Any) -> OneHost:
    """A host of these facts after its first pass."""
    one = OneHost(folder, facts, Policy(layout=layout, devices=devices), **changes)
    assert one.sync().status is Status.CHANGED
    return one


def refused(outcome: Outcome, *words: str) -> None:
    assert outcome.status is Status.UNSAFE, outcome
    assert all(any(word in note for note in outcome.notes) for word in words), outcome.notes
