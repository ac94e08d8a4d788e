"""
One made-up host whose cards, configuration, guests and operators change under the agent, and which knows what is true.

Several things change before a pass sees any of them, and a pass may end at any of its requests. What placement holds
is then held against what is true: ``misplaced`` and ``twice`` say where they differ.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

from agent.audit.audit import witness
from agent.audit.decide.findings import Kind
from agent.audit.heal import HealPolicy, heal
from agent.errors import USER_ERRORS
from agent.settings.read import Settings, load_settings
from agent.state.audit_memory import write_memory
from agent.state.clock import StoppedClock
from agent.sync.decide.view import View, Wishes
from agent.sync.leave import hand_over_node, retire_node
from agent.sync.node import ComputeNode
from agent.sync.outcome import Outcome
from agent.sync.pool_node import pool_nodes
from agent.sync.run import run_pass
from beds.by_hand import ByHand, claim_body
from beds.histories import Clock, Crash, Crashing
from beds.memory import MemoryPlacement
from configured import changed
from drivers.base import Survey
from drivers.facts import (
    CpuMap,
    Devices,
    Guest,
    GuestDevices,
    GuestMemory,
    HostFacts,
    Mdev,
    MdevParent,
    MdevType,
    MemoryPages,
    NetDevice,
    NumaCell,
    PciFunction,
    PoolSpace,
    Tenant,
)
from drivers.libvirt.driver import LibvirtDriver
from drivers.policy import FOUND, OF_CELLS, CpuPolicy, DevicePolicy, DiskPolicy, Layout, MdevRule, Policy
from drivers.pools import aggregate_of, pool_uuid
from drivers.rules import parse_rule
from fakes import FACTS
from hardware import at, card, gpu
from reportclient.client import PlacementClient
from reportclient.ownership import MARKER, OWNER_NOVA
from reportclient.payload import encode_inventory
from reportclient.transport import Transport

ROOT = str(UUID(int=1))
NAMES = ("host", "renamed")  # of the host
CELLS = {0: frozenset(range(4)), 1: frozenset(range(4, 8))}
DEDICATED = {0: (2, 3), 1: (6, 7)}
MIB = 64  # of a guest
KBPS = 5_000_000  # of a guest that has a VF, where bandwidth is reported
BANDWIDTH = ("NET_BW_EGR_KILOBIT_PER_SEC", "NET_BW_IGR_KILOBIT_PER_SEC")
OF_THE_HOST = frozenset({"VCPU", "PCPU", "MEMORY_MB", "DISK_GB", *BANDWIDTH})
HASTY = HealPolicy(kinds=frozenset(Kind), grace_s=0, again_s=0, move_s=0, untyped=True, limit=100)

Offer = Literal["off", "first", "second", "whole", "both"]  # not at all, its parts by one name or another, whole, both
Style = Literal["float", "bound", "pinned", "split", "isolated", "override"]


STYLES: tuple[Style, ...] = ("float", "bound", "pinned", "split", "isolated", "override")


@dataclass(frozen=True, slots=True)
class Card:
    """An SR-IOV network card, or a GPU that makes mediated devices."""

    number: int
    kind: Literal["nic", "gpu"]
    address: str
    cell: int
    units: int  # VFs, or mediated devices

    @property
    def suffixes(self) -> tuple[str, str]:
        """What the names of its providers end in: as a PCI device, and as a parent of mediated devices."""
        return self.address, "pci_" + self.address.replace(":", "_").replace(".", "_")

    def class_of(self, offer: Offer, *, shared: bool) -> str:
        """What its units, or all of it, are called where it is offered so."""
        which = "WHOLE" if offer == "whole" else "SECOND" if offer == "second" else "FIRST"
        if not shared:
            return f"CUSTOM_C{self.number}_{which}"
        return {"nicFIRST": "SRIOV_NET_VF", "gpuFIRST": "VGPU"}.get(
            self.kind + which, f"CUSTOM_{self.kind}_{which}".upper()
        )

    def unit(self, number: int) -> str:
        """The address of a VF, or the uuid of a mediated device."""
        if self.kind == "nic":
            return str(replace(at(self.address), slot=0x10, function=number))
        return str(UUID(int=(self.number << 32) + number + 1))


CARDS = (
    Card(0, "nic", "0000:10:00.0", 0, 2),
    Card(1, "nic", "0000:11:00.0", 1, 2),
    Card(2, "gpu", "0000:20:00.0", 0, 3),
    Card(3, "gpu", "0000:21:00.0", 1, 3),
)


CEPH = PoolSpace("vms", cluster_bytes=3000 << 30, pool_gib=900, fsid="9f4e7c1a-6c0e-4f6f-8a55-2d9b3c1f7e10")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The state of the hardware and of the configuration."""

    layout: Layout = "devices"
    offers: tuple[Offer, ...] = ("first", "first", "first", "first")
    shared: bool = True  # cards of one kind are called alike
    bandwidth: bool = False
    dedicated: bool = False
    seen: tuple[bool, ...] = (True, True, True, True)
    shown: tuple[bool, ...] = (True, True, True, True)  # False: a card that is there shows no VFs, or no types
    up: tuple[bool, ...] = (True, True)
    mbps: tuple[int, ...] = (10_000, 10_000)
    name: str = NAMES[0]
    boot: str = ""  # the kernel's boot id; empty: it cannot be read
    disk: Literal["file", "own", "sharing"] = "file"  # guests' disks: on a file system, or in a pool, counted so

    def policy(self) -> Policy:
        dedicated = frozenset(cpu for cpus in DEDICATED.values() for cpu in cpus)
        cpus = CpuPolicy(shared=frozenset(range(8)) - dedicated, dedicated=dedicated) if self.dedicated else CpuPolicy()
        rules = [rule for one in CARDS for rule in self._rules(one)]
        devices = DevicePolicy(
            report=True,
            rules=tuple(parse_rule(rule, number) for number, rule in enumerate(rules, 1)),
            link_bandwidth=self.bandwidth,
            mdevs=tuple(
                MdevRule(
                    type=f"type-{one.number}",
                    addresses=frozenset({one.address}),
                    resource_class=one.class_of(self.offers[one.number], shared=self.shared),
                )
                for one in CARDS
                if one.kind == "gpu" and self.offers[one.number] in ("first", "second", "both")
            ),
        )
        return Policy(
            layout=self.layout,
            cpus=cpus,
            devices=devices,
            reserved_memory_mib=0,
            disk=DiskPolicy(shared=FOUND if self.disk == "sharing" else ""),
        )

    def _rules(self, one: Card) -> Iterator[dict[str, Any]]:
        offer = self.offers[one.number]
        parts = {"address": one.address, "product_id": "1515"}
        if one.kind == "nic" and offer in ("first", "second", "both"):
            yield parts | {"resource_class": one.class_of(offer, shared=self.shared)}
        if offer in ("whole", "both"):
            product = "1528" if one.kind == "nic" else "1eb8"
            whole = one.class_of("whole", shared=self.shared)
            yield {"address": one.address, "product_id": product, "resource_class": whole}


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """A guest as it is, and how much it was given when it came."""

    guest: Guest
    units: tuple[tuple[int, str], ...]  # (card, unit)
    rows: Mapping[str, int]  # class -> amount, at its start

    @property
    def cells(self) -> frozenset[int]:
        """Those that it is bound to; empty where it floats."""
        return frozenset(cell for part in self.guest.memory for cell in part.cells)

    @property
    def cpus(self) -> int:
        """How many of the host's CPUs are its own or run its vCPUs."""
        return len(self.guest.vcpus) + bool(self.guest.emulator_cpus)


class WorldDriver(LibvirtDriver):
    """The libvirt driver over facts that a world makes up."""

    def __init__(self, world: "World") -> None:
        self.world = world

    def name(self) -> str:
        return self.world.setup.name

    def survey(self, node: str) -> Survey:
        return Survey(self.world.facts(), ROOT)


class _Booted(ComputeNode):
    """A recorded host of which the world knows when it was booted."""

    def view(self, *args: Any, **options: Any) -> View:
        found, clock = ComputeNode.view(self, *args, **options), self.clock()
        return replace(found, terms=replace(found.terms, uptime_s=clock.now_s() - clock.offset_s))


@dataclass
class Watched:
    """Before a placement: looks at what stands after each write."""

    sender: Any
    look: Callable[[], None]

    def request(self, url: str, method: str, **kwargs: Any) -> Any:
        answer = self.sender.request(url, method, **kwargs)
        if method != "GET":
            self.look()
        return answer


@dataclass
class World:
    """A host, an agent on it, and a placement in memory."""

    settings: Settings
    setup: Setup = field(default_factory=Setup)
    guests: dict[str, Truth] = field(default_factory=dict)
    came: int = 0  # guests so far
    clean: bool = False  # the last pass was carried out, and nothing changed since
    outcome: Outcome | None = None  # of the last pass; None: it was cut off or failed
    why: str = ""  # it failed
    misplaced: list[str] = field(default_factory=list)  # what was found of guests' rows, a sentence each
    twice: list[str] = field(default_factory=list)  # and of hardware that is on offer more than once
    cut: bool = False  # somebody else says where the agent ends
    others: dict[str, Any] = field(default_factory=dict)  # what other services and operators put into the tree

    def __post_init__(self) -> None:
        self.clock = Clock()
        self.uptime_s: float | None = None  # of the host, at each moment; None: a day, and what passed since
        self.memory = MemoryPlacement(self.clock)
        self.crashing = Crashing(Watched(self.memory, self._look))
        self.driver = WorldDriver(self)

    # What happens

    def change(self, **changes: Any) -> None:
        self.setup = replace(self.setup, **changes)
        self.clean = False

    def change_card(self, what: str, number: int, value: object) -> None:
        """One card's part of ``offers``, ``seen``, ``shown``, ``up`` or ``mbps``."""
        before = getattr(self.setup, what)
        self.change(**{what: (*before[:number], value, *before[number + 1 :])})

    def take(
        self, *, reshape: bool = True, force: bool = False, crash: tuple[int, bool] | None = None, **asked: Any
    ) -> None:
        """
        One pass, which a person's ``--rename-from`` helps on where the host has another name now.

        No plan breaks a law: what the laws stop is a fault as well. But a hand may take away what shows whose a
        provider is.
        """
        self.clock.now += 60
        if self.setup.disk == "sharing":
            self._report_pool()
        if not self.cut:
            self.crashing.left, self.crashing.after = crash or (None, False)
        stands = self._names().get(ROOT)
        old = stands if stands not in (None, self.setup.name) else None
        self.outcome, self.why = None, ""
        try:
            wishes = Wishes(reshape=reshape, force=force, rename_from=old, asked=asked)
            self.outcome = run_pass(self.node(), wishes)
        except Crash:
            self.why = "cut off"
            if self.cut:
                raise
        except USER_ERRORS as error:
            self.why = str(error)
        finally:
            if not self.cut:
                self.crashing.left = None
        assert not (self.outcome and {*self.outcome.broken} - {"foreign"}), self.told
        self.clean = self.is_well
        self._look()
        if self.clean:
            self.twice += self._spare_cpus()

    def _report_pool(self) -> None:
        """The pass of the agent, on another host, that reports the pool."""
        policy = Policy(disk=DiskPolicy(reports_pool=True))
        client = PlacementClient(Transport(self.memory, where="placement"))
        settings = replace(self.settings, policy=policy)
        (pool,) = pool_nodes(replace(self.node(), client=client, settings=settings))
        with suppress(*USER_ERRORS):  # a hand put it below another provider
            run_pass(pool)

    @property
    def is_well(self) -> bool:
        """Whether the last pass was carried out, or had nothing to do."""
        return self.outcome is not None and self.outcome.status.value in ("changed", "unchanged")

    @property
    def told(self) -> str:
        """What the last pass said of itself."""
        return self.why or f"{self.outcome and (self.outcome.status.value, self.outcome.notes)}"

    def audit(self) -> None:
        """Two audits, the second of which heals all that may be healed."""
        for again in (False, True):
            self.clock.now += 10
            node = self.node()
            try:
                found = witness(node)
                write_memory(self.settings.folders.state, found.root_uuid, found.memory)
                if again:
                    heal(node, found, HASTY)
            except USER_ERRORS as error:
                self.why = str(error)
        self._look()

    def spawn(self, style: Style, cell: int, number: int | None, count: int = 1) -> None:
        """A guest, where placement has room for it, with units of a card if that is on offer to it."""
        if not self.clean:
            return
        truth = self._guest(style, cell, number, count)
        if truth is None:
            return
        slots = self._rows_for(truth, cell)
        body = claim_body(slots, project=f"project of {truth.guest.uuid}", user="user")
        if self._send("PUT", f"/allocations/{truth.guest.uuid}", body).status_code < 300:
            sums: dict[str, int] = {}
            for resources in slots.values():
                for name, amount in resources.items():
                    sums[name] = sums.get(name, 0) + amount
            self.guests[truth.guest.uuid] = replace(truth, rows=sums)
            self.came += 1

    def end(self, index: int) -> None:
        """A guest and its allocations go."""
        if self.guests:
            uuid = sorted(self.guests)[index % len(self.guests)]
            del self.guests[uuid]
            self._send("DELETE", f"/allocations/{uuid}")

    def set_stock(self, suffix: str, resource_class: str, **values: object) -> bool:
        """An operator sets numbers by hand, where there is such stock."""
        uuid = self._uuids().get(self._standing_name(suffix), "")
        stock = self._stock().get(uuid, {}).get(resource_class)
        if stock is None:
            return False
        body = self._send("GET", f"/resource_providers/{uuid}/inventories").json()
        body["inventories"][resource_class].update(values)
        answer = self._send("PUT", f"/resource_providers/{uuid}/inventories", body)
        return bool(answer.status_code < 300)

    def set_aspect(self, index: int, aspect: str, body: Mapping[str, Any]) -> None:
        """A hand writes one aspect of one of the providers, ``aspect`` "" its name or parent; or it cannot be so."""
        uuids = sorted(self._names())
        if uuids:
            where = f"/resource_providers/{uuids[index % len(uuids)]}"
            shown = self._send("GET", where).json()
            now: dict[str, Any] = self._send("GET", f"{where}/{aspect}").json() if aspect else {"name": shown["name"]}
            for name in (*body.get("traits", ()), *body.get("inventories", {})):
                self._send("PUT", f"/{'traits' if aspect == 'traits' else 'resource_classes'}/{name}")
            self._send("PUT", f"{where}/{aspect}".rstrip("/"), {**now, **body})

    def put_trait(self, name: str) -> None:
        """An operator's trait on the root."""
        self._make_root()
        self.by_hand.add_traits(ROOT, name)
        self.others[f"trait {name}"] = True

    def put_class(self, name: str) -> None:
        """An operator's stock on the root."""
        self._make_root()
        self.by_hand.change_stock(ROOT, **{name: {"total": 5, "reserved": 1}})
        self.others[f"class {name}"] = True

    def put_aggregate(self) -> None:
        """Another service's aggregate on the root."""
        self._make_root()
        self.by_hand.set_aggregates(ROOT, str(UUID(int=7)))
        self.others["aggregate"] = True

    def put_child(self, suffix: str, owner: str, resource_class: str) -> None:
        """Another service's provider below the root, whatever it is called."""
        self._make_root()
        name, uuid = f"{self.setup.name}{suffix}", str(UUID(int=500 + len(self.others)))
        if name in self._uuids():
            return  # the agent has one of that name
        self.by_hand.add_provider(name, uuid, parent=ROOT, stock={resource_class: {"total": 2}})
        self.by_hand.add_traits(uuid, owner)
        self.others[f"child {uuid}"] = True

    @contextmanager
    def aside(self, memory: str) -> Iterator[None]:
        """What comes now, with another memory (the text of its file; empty: none), is undone afterwards."""
        kept, now = vars(self).copy(), self.clock.now
        files = {file: file.read_text() for file in self.settings.folders.state.glob("*.json")}
        self.memory = self.memory.copy()
        self.crashing = Crashing(Watched(self.memory, self._look))
        self.misplaced, self.twice = [], []
        self.guests, self.others = self.guests.copy(), self.others.copy()
        try:
            self.remembered = memory
            yield
        finally:
            vars(self).update(kept)
            self.clock.now = now
            for file in self.settings.folders.state.glob("*.json"):
                file.unlink()
            for file, text in files.items():
                file.write_text(text)

    @property
    def remembered(self) -> str:
        """The agent's memory, as the text of its file."""
        file = self.settings.folders.state / f"{ROOT}.json"
        return file.read_text() if file.exists() else ""

    @remembered.setter
    def remembered(self, text: str) -> None:
        file = self.settings.folders.state / f"{ROOT}.json"
        file.unlink(missing_ok=True)
        if text:
            file.write_text(text)

    def stands(self) -> dict[tuple[str, str, str], float]:
        """
        All that a pass could take away or offer: (provider's uuid, aspect, name) -> how much of it.

        Of a class that it stands, what of it is free, and how much of it one guest may have.
        """
        found: dict[tuple[str, str, str], float] = {}
        for uuid, (_, parent) in self.tree().items():
            found[uuid, "provider", str(parent)] = 1
            for aspect in ("traits", "aggregates"):
                found |= {(uuid, aspect, name): 1 for name in self.aspect(uuid, aspect)}
            for name, one in self._stock()[uuid].items():
                found[uuid, "class", name] = 1
                found[uuid, "free", name] = (one["total"] - one["reserved"]) * one["allocation_ratio"]
                found[uuid, "at once", name] = one["max_unit"]
        for consumer, held in self.memory.snapshot()[1].items():
            for uuid, amounts in held.items():
                found |= {(consumer, uuid, name): amount for name, amount in amounts.items()}
        return found

    def leave(self) -> None:
        """What the end of a host under this agent comes to: handed over, or taken away."""
        for end in (hand_over_node, retire_node):
            with suppress(*USER_ERRORS):
                end(self.node())

    def foreign(self) -> dict[str, Any]:
        """What others put there, as it stands; None: it is gone."""
        found: dict[str, Any] = {}
        for what in self.others:
            kind, _, name = what.partition(" ")
            where = f"/resource_providers/{name if kind == 'child' else ROOT}"
            traits, stock, aggregates = (
                self._send("GET", f"{where}/{aspect}").json() for aspect in ("traits", "inventories", "aggregates")
            )
            if kind == "trait":
                found[what] = name in traits.get("traits", ())
            elif kind == "class":
                found[what] = stock.get("inventories", {}).get(name)
            elif kind == "aggregate":
                found[what] = sorted({*aggregates.get("aggregates", ())} - {aggregate_of(pool_uuid(CEPH))})
            else:
                found[what] = traits.get("traits"), stock.get("inventories")
        return found

    def _make_root(self) -> None:
        if ROOT not in self._names():
            self.by_hand.add_provider(self.setup.name, ROOT)

    def lay_down_as_nova(self) -> None:
        """The tree of this host as nova makes it, in the layout devices: children of random uuids, its own marks."""
        desired, _ = self.driver.shape(self.driver.survey(self.setup.name), self.setup.policy(), None)
        self._send("PUT", f"/traits/{MARKER}")  # placement knows it, as another host has it
        for number, one in enumerate(desired):
            uuid = str(UUID(int=900 + number)) if one.parent else ROOT
            stock = {name: encode_inventory(stock) for name, stock in one.inventories.items()}
            self.by_hand.add_provider(one.name, uuid, parent=ROOT if one.parent else None, stock=stock)
            self.by_hand.add_traits(uuid, OWNER_NOVA, *one.traits - {MARKER})

    # What stands

    @property
    def by_hand(self) -> ByHand:
        return ByHand(self.memory)

    def tree(self) -> dict[str, tuple[str, str | None]]:
        """uuid -> (name, parent's uuid)."""
        rows = self._send("GET", "/resource_providers").json()["resource_providers"]
        return {row["uuid"]: (row["name"], row["parent_provider_uuid"]) for row in rows}

    def providers(self) -> dict[str, dict[str, dict[str, Any]]]:
        """All inventories by the name of their provider, as records of placement."""
        names = self._names()
        return {names[uuid]: stock for uuid, stock in self._stock().items()}

    def traits(self) -> dict[str, frozenset[str]]:
        return {name: frozenset(self.aspect(uuid, "traits")) for uuid, name in self._names().items()}

    def aspect(self, uuid: str, name: str) -> list[str]:
        """The traits or the aggregates of a provider."""
        found: list[str] = self._send("GET", f"/resource_providers/{uuid}/{name}").json()[name]
        return found

    def rows(self, uuid: str) -> dict[str, dict[str, int]]:
        """What a guest has by the name of the provider."""
        names = self._names()
        return {names[key]: dict(held) for key, held in self.memory.snapshot()[1].get(uuid, {}).items()}

    @property
    def standing_name(self) -> str:
        """The name of the root in placement."""
        return self._names()[ROOT]

    def free_of(self, what: str) -> dict[tuple[str, str], float]:
        """
        What is free of a card, by its address, or of all of the host: (provider, class) -> units of the host.

        Of a card in a total that is what more than the other cards' units is free of its classes.
        """
        names, found = self._names(), dict[tuple[str, str], float]()
        card = next((one for one in CARDS if one.address == what), None)
        for uuid, stock in self._stock().items():
            if not names[uuid].startswith(self.setup.name):
                continue
            for name, one in stock.items():
                free = one["total"] - one["reserved"] - self._used(uuid).get(name, 0)
                if card is None or self.card_of(names[uuid]) is card:
                    found[names[uuid], name] = free
                elif uuid == ROOT and name in self._classes(card):
                    others = [each for each in CARDS if each is not card and name in self._classes(each)]
                    found[names[uuid], name] = free - sum(1 if "WHOLE" in name else each.units for each in others)
        return found

    def card_of(self, provider: str) -> Card | None:
        """The card that a provider stands for, by its name."""
        return next((one for one in CARDS if provider.endswith(tuple(f"_{end}" for end in one.suffixes))), None)

    # What is true

    def facts(self) -> HostFacts:
        functions: list[PciFunction] = []
        parents: list[MdevParent] = []
        for one in CARDS:
            if not self.setup.seen[one.number]:
                continue
            if one.kind == "nic":
                up = self.setup.up[one.number]
                link = NetDevice("ens1", "up" if up else "down", self.setup.mbps[one.number] if up else None)
                units = one.units if self.setup.shown[one.number] else 0
                functions += card(one.address, units, cell=one.cell, net_devices=(link,))
            else:
                function = gpu(one.address, one.cell)
                functions.append(function)
                if not self.setup.shown[one.number]:
                    continue
                free = one.units - len(self._made(one))
                types = (MdevType(f"type-{one.number}", "", free),)
                parents.append(MdevParent(one.suffixes[1], function.address, types))
        mdevs = tuple(
            Mdev(unit, f"type-{one.number}", one.suffixes[1])
            for one in CARDS
            if one.kind == "gpu" and self.setup.seen[one.number] and self.setup.shown[one.number]
            for unit in sorted(self._made(one))
        )
        return replace(
            FACTS,
            hostname=self.setup.name,
            boot=self.setup.boot or None,
            cpu_map=CpuMap(8, frozenset(range(8))),
            disk=FACTS.disk if self.setup.disk == "file" else CEPH,
            cells=tuple(
                NumaCell(
                    id_,
                    4 << 20,
                    frozenset(cpus),
                    (MemoryPages(4, 0),),
                )
                for id_, cpus in CELLS.items()
            ),
            devices=Devices(
                functions=tuple(sorted(functions, key=lambda function: function.address)),
                mdev_parents=tuple(parents),
                mdevs=mdevs,
            ),
            guests=tuple(self.guests[uuid].guest for uuid in sorted(self.guests)),
        )

    def node(self) -> ComputeNode:
        """The agent, begun anew under the configuration of now."""
        return _Booted(
            name=self.setup.name,
            driver=self.driver,
            client=PlacementClient(Transport(self.crashing, where="placement")),
            settings=replace(self.settings, policy=self.setup.policy()),
            where="placement",
            clock=self._now,
        )

    # Inside

    def _now(self) -> StoppedClock:
        booted_s = -86_400.0 if self.uptime_s is None else self.clock.now - self.uptime_s
        return StoppedClock("", booted_s, self.clock.now)

    def _send(self, method: str, path: str, body: Any = None) -> Any:
        return self.memory.request(path, method, json=body, microversion="1.39")

    def _names(self) -> dict[str, str]:
        rows = self._send("GET", "/resource_providers").json()["resource_providers"]
        return {row["uuid"]: row["name"] for row in rows}

    def _uuids(self) -> dict[str, str]:
        return {name: uuid for uuid, name in self._names().items()}

    def _stock(self) -> dict[str, dict[str, dict[str, Any]]]:
        return self.memory.snapshot()[0]

    def _standing_name(self, suffix: str) -> str:
        root = self._names().get(ROOT, "")
        return f"{root}_{suffix}" if suffix else root

    def _made(self, one: Card) -> set[str]:
        """The units of a card that guests have."""
        return {unit for truth in self.guests.values() for number, unit in truth.units if number == one.number}

    def _used_cpus(self) -> set[int]:
        """CPUs to which somebody is pinned alone."""
        pins = [pin for truth in self.guests.values() for pin in (*truth.guest.vcpus, truth.guest.emulator_cpus)]
        return {cpu for pin in pins if len(pin) == 1 for cpu in pin}

    def _guest(self, style: Style, cell: int, number: int | None, count: int) -> Truth | None:
        free = {id_: [cpu for cpu in cpus if cpu not in self._used_cpus()] for id_, cpus in DEDICATED.items()}
        shared = frozenset(range(8)) if not self.setup.dedicated else frozenset({0, 1, 4, 5})
        cells: tuple[int, ...] = (cell,)
        emulator = frozenset[int]()
        if style == "float":
            vcpus: tuple[frozenset[int], ...] = (frozenset(),)
            cells = ()
        elif style in ("bound", "override"):
            vcpus = (CELLS[cell] & shared,) * 2
        elif style == "split":
            vcpus = tuple(frozenset({cpus[0]}) for cpus in free.values() if cpus)
            cells = tuple(CELLS)
        else:
            vcpus = tuple(frozenset({cpu}) for cpu in free[cell])
            if style == "isolated":
                vcpus, emulator = vcpus[:1], frozenset(free[cell][1:2])
        wanted = {"split": 2, "pinned": 2, "isolated": 1}.get(style, len(vcpus))
        if len(vcpus) != wanted or (style == "isolated" and not emulator):
            return None
        uuid = str(UUID(int=1000 + self.came))
        units = self._units_for(number, count)
        held = {unit for _, unit in units}
        guest = Guest(
            uuid=uuid,
            state="running",
            devices=GuestDevices(
                pci=frozenset(at(unit) for unit in held if ":" in unit),
                mdevs=frozenset(unit for unit in held if ":" not in unit),
            ),
            vcpus=vcpus,
            emulator_cpus=emulator,
            memory=tuple(GuestMemory(MIB // len(cells), frozenset({id_})) for id_ in cells) or (GuestMemory(MIB),),
            tenant=Tenant(f"project of {uuid}", "user", 0, {"VCPU": 1} if style == "override" else {}),
        )
        return Truth(guest=guest, units=units, rows={})

    def _units_for(self, number: int | None, count: int) -> tuple[tuple[int, str], ...]:
        """Free units of a card that is well: on offer in parts, or (not nova's doing) not on offer at all."""
        if number is None or self.setup.offers[number] in ("whole", "both") or not self.setup.seen[number]:
            return ()
        one = CARDS[number]
        if not self.setup.shown[number] or (one.kind == "nic" and not self.setup.up[number]):
            return ()
        free = [unit for unit in map(one.unit, range(one.units)) if unit not in self._made(one)]
        return tuple((number, unit) for unit in free[:count])

    def _rows_for(self, truth: Truth, cell: int) -> dict[str, dict[str, int]]:
        """What a scheduler gives such a guest in the layout that stands: amounts by class, by provider's uuid."""
        uuids, slots = self._uuids(), dict[str, dict[str, int]]()

        def give(suffix: str, name: str, amount: int) -> None:
            mine = slots.setdefault(uuids.get(self._standing_name(suffix), ""), {})
            mine[name] = mine.get(name, 0) + amount

        cells, flat = self.setup.layout in OF_CELLS, self.setup.layout == "flat"
        pages = "_PAGES_4" if self.setup.layout == "numa" else ""
        guest = truth.guest
        alone = [pin for pin in guest.vcpus if len(pin) == 1]
        for pin in guest.vcpus:
            home = next((id_ for id_, cpus in CELLS.items() if pin and pin <= cpus), cell)
            pinned = self.setup.dedicated and pin in alone
            if not (guest.tenant and guest.tenant.overridden) or pin is guest.vcpus[0]:
                give(f"NUMA{home}" if cells else "", "PCPU" if pinned else "VCPU", 1)
        if guest.tenant and guest.tenant.overridden:
            first = next(iter(slots.values()))
            first["VCPU"] = 1  # resources:VCPU=1
        if guest.emulator_cpus and self.setup.dedicated:
            give(f"NUMA{cell}" if cells else "", "PCPU", 1)
        for part in guest.memory:
            home = next(iter(part.cells), cell)
            give(f"NUMA{home}{pages}" if cells else "", "MEMORY_MB", part.mib)
        for number, _ in truth.units:
            one = CARDS[number]
            if self.setup.offers[number] == "off":
                continue
            suffix = "" if flat else one.suffixes[one.kind == "gpu"]
            give(suffix, one.class_of(self.setup.offers[number], shared=self.setup.shared), 1)
            if one.kind == "nic" and self.setup.bandwidth:
                for name in BANDWIDTH:
                    give(suffix, name, KBPS)
        if self.setup.disk == "own":
            give("", "DISK_GB", 10)
        return slots

    # Held against each other

    def _look(self) -> None:
        self.misplaced += [wrong for wrong in self._misplaced() if wrong not in self.misplaced]
        self.twice += [wrong for wrong in self._twice() if wrong not in self.twice]

    def _misplaced(self) -> Iterator[str]:
        """Rows of running guests that are gone, or where the guest has nothing."""
        for uuid, truth in self.guests.items():
            rows = self.rows(uuid)
            sums: dict[str, int] = {}
            for provider, resources in rows.items():
                one = self.card_of(provider)
                for name, amount in resources.items():
                    kind = self._kind(name)
                    sums[kind] = sums.get(kind, 0) + amount
                    if one and kind == "device" and amount > sum(number == one.number for number, _ in truth.units):
                        yield f"{uuid} has {amount} {name} on {provider}, and its units are {truth.units}"
                    if kind == "cpu" and (wrong := self._wrong_cell(truth, provider, amount)):
                        yield f"{uuid} has {amount} {name} on {provider}: {wrong}"
                    if kind == "memory" and truth.cells and self._cell_of(provider) not in (None, *truth.cells):
                        yield f"{uuid} has {amount} {name} on {provider}, and its memory is bound to {truth.cells}"
            laid: dict[str, int] = {}
            for name, amount in truth.rows.items():
                laid[self._kind(name)] = laid.get(self._kind(name), 0) + amount
            for kind in laid.keys() | sums.keys():
                # Where CPUs are dedicated an emulator thread has one of its own, and else none.
                real = {"cpu": {truth.cpus, len(truth.guest.vcpus)}, "device": {len(truth.units)}}.get(kind, set())
                if sums.get(kind, 0) not in {laid.get(kind, 0)} | real:
                    yield f"{uuid} has {sums.get(kind, 0)} of {kind}, and was given {laid.get(kind, 0)}: {rows}"

    def _wrong_cell(self, truth: Truth, provider: str, amount: int) -> str:
        cell = self._cell_of(provider)
        if cell is None:
            return ""
        here = [pin for pin in (*truth.guest.vcpus, truth.guest.emulator_cpus) if pin and pin <= CELLS[cell]]
        floating = [pin for pin in truth.guest.vcpus if not pin]
        return "" if amount <= len(here) + len(floating) else f"{len(here)} of its CPUs are there"

    def _twice(self) -> Iterator[str]:
        """Hardware that is on offer, or in use, more than once."""
        count: dict[str, int] = {}
        whole_cards: dict[str, int] = {}  # that are free, by kind
        uuids, providers = self._uuids(), self.providers()
        for name, stock in providers.items():
            used = self._used(uuids[name])
            for resource_class, record in stock.items():
                owner = self._owner(name, resource_class)
                if self._kind(resource_class) == "device" and owner:
                    free = max(0, record["total"] - record.get("reserved", 0) - used.get(resource_class, 0))
                    whole = resource_class.endswith("_WHOLE")
                    kind, units = owner
                    each = units if whole else 1
                    taken = used.get(resource_class, 0) + free
                    count[kind] = count.get(kind, 0) + each * taken
                    whole_cards[kind] = whole_cards.get(kind, 0) + free * whole
        for kind, number in count.items():
            most = self._capacity(kind)
            if number > most:
                stock = {name: {key: one["total"] for key, one in each.items()} for name, each in providers.items()}
                yield f"{number} units of {kind} are on offer or in use, and there are {most}: {stock}"

        for kind, number in whole_cards.items():
            idle = [one for one in CARDS if kind in (one.kind, str(one.number)) and not self._made(one)]
            if number > len(idle):  # sums over several cards would not tell
                yield f"{number} cards of {kind} are on offer whole, and guests have units of all but {idle}"

    def _spare_cpus(self) -> Iterator[str]:
        """Dedicated CPUs that are on offer while a guest runs on them alone."""
        pinned = self._used_cpus()
        for name, stock in self.providers().items():
            if "PCPU" in stock and name.startswith(self.setup.name):
                cell = self._cell_of(name)
                here = {cpu for id_, cpus in DEDICATED.items() if cell in (None, id_) for cpu in cpus}
                free = stock["PCPU"]["total"] - self._used(self._uuids()[name]).get("PCPU", 0)
                if free > len(here - pinned):
                    yield f"{free} PCPU of {name} are free, and guests have all but {here - pinned} of {here}"

    def _owner(self, provider: str, resource_class: str) -> tuple[str, int] | None:
        """Whose units a class counts: of a card, or of all cards of a kind; and how many one has. None: no card's."""
        one = self.card_of(provider) or next((card for card in CARDS if resource_class in self._classes(card)), None)
        if one is None or resource_class not in self._classes(one):
            return None
        return (one.kind if self.setup.shared else str(one.number)), one.units

    def _classes(self, one: Card) -> set[str]:
        """What a card's units, or all of it, can be called."""
        offers: tuple[Offer, ...] = ("first", "second", "whole")
        return {one.class_of(offer, shared=self.setup.shared) for offer in offers}

    def _capacity(self, kind: str) -> int:
        return sum(one.units for one in CARDS if kind in (one.kind, str(one.number)))

    def _used(self, uuid: str) -> dict[str, int]:
        used: dict[str, int] = {}
        for held in self.memory.snapshot()[1].values():
            for name, amount in held.get(uuid, {}).items():
                used[name] = used.get(name, 0) + amount
        return used

    def _kind(self, resource_class: str) -> str:
        if resource_class in ("VCPU", "PCPU"):
            return "cpu"
        if resource_class == "MEMORY_MB":
            return "memory"
        return resource_class if resource_class in OF_THE_HOST else "device"

    def _cell_of(self, provider: str) -> int | None:
        _, mark, rest = provider.partition("_NUMA")
        return int(rest[0]) if mark else None


@contextmanager
def worlds(kind: type[World] = World) -> Iterator[Callable[..., Any]]:
    """Makes worlds, each of which begins with an agent that remembers nothing; files go with the next one."""
    memory = Path("/dev/shm")
    settings = load_settings([])
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        state = Path(folder) / "state"

        def make(**setup: Any) -> World:
            shutil.rmtree(state, ignore_errors=True)
            return kind(
                replace(changed(settings, folders={"state": state}), recorded=True, audit_grace_s=0), Setup(**setup)
            )

        yield make
