"""
Random hosts as an audit sees them, the same for a number at each run, and what the audit says of each.

``python -m beds.audits NUMBER`` in ``tests`` prints one of them whole: run it before and after a change, and compare.
"""

import hashlib
import sys
from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import TypeVar

from agent.audit.decide.guests import find_all
from agent.audit.decide.snapshot import Providers, Snapshot, kin, suspects
from agent.nova.answers import NovaMigration, NovaServer, NovaWitness
from reportclient.allocations import (
    Allocation,
    Backing,
    Consumer,
    Float,
    GuestState,
    Holding,
    Holdings,
    OddStock,
)
from reportclient.names import BANDWIDTH, ONE_TIME
from reportclient.ownership import MARKER, OWNER_NOVA, Names, Ownership
from reportclient.reserve import HELD, KEEP
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider

AWAY, SHARED, OTHERS = "another-host", "storage", "host:agent"
CELLS, CARDS = ("host_NUMA0", "host_NUMA1"), ("host_0000:81:00.0", "host_0000:82:00.0")
OURS = Ownership(emitted=Names(frozenset({"VCPU", "PCPU", "MEMORY_MB", "DISK_GB"})))
STATES = ("ACTIVE", "BUILD", "MIGRATING", "RESCUE", "SHUTOFF", "UNKNOWN", "VERIFY_RESIZE")
ENDS = ("finished", "migrating", "error", "confirmed")
OF_GUESTS = ("VCPU", "PCPU", "MEMORY_MB", "VF")
Rows = dict[tuple[str, str], int]  # amounts by provider and class
T = TypeVar("T")


class Audited:
    """One random host: ``number`` decides it."""

    def __init__(self, number: int) -> None:
        self.dice = Random(number)
        self.units: list[Holding] = []
        self.ports: list[Holding] = []
        self.floats: list[Float] = []
        self.known: dict[str, GuestState] = {}
        self.consumers: dict[str, Consumer] = {}

    def odds(self, chance: float) -> bool:
        return self.dice.random() < chance

    def some(self, several: Iterable[T], chance: float) -> list[T]:
        return [one for one in several if self.odds(chance)]

    # -- guests and other consumers on a host whose providers are all in order -----------------------------------------

    def guests(self) -> Snapshot:
        dice, layout = self.dice, self.dice.choice(("flat", "devices", "cells"))
        places = ("host",) if layout != "cells" else CELLS
        has = {f"guest{number}": self._guest(places, f"guest{number}") for number in range(dice.randint(1, 3))}
        booked = [each if self.odds(0.4) else self._changed(each, places) for each in has.values()]
        if is_exchange := self.odds(0.3):  # each has what another one is to have, and there is no room beside that
            booked = [*has.values()][1:] + [*has.values()][:1]
            self.known = {uuid: replace(one, active=True, migrating=False) for uuid, one in self.known.items()}
        for uuid, each in zip(has, booked, strict=True):
            self._book(uuid, each, dice.choice(("INSTANCE", "INSTANCE", None, "OTHER")))
        for number in range(dice.choice((0, 1, 1, 2, 2))):
            kept = dice.choice([*has.values(), *has.values(), *booked, {("host", "VCPU"): 1}])
            kind = dice.choice((None, "INSTANCE", "MIGRATION", "MIGRATION", "VOLUME"))
            self._book(f"stranger{number}", kept, kind, beside=0.15)
        rows = _rows(self.consumers.values())
        tree = self._tree(places, rows, (0, 0, 1) if is_exchange else (0, 0, 1, 64))
        for uuid, one in self.consumers.items():
            if self.odds(0.05):  # it moves away while the audit reads
                self.consumers[uuid] = replace(one, slots={AWAY: {"VCPU": 2}})
        holdings = Holdings(
            guests=frozenset(self.known),
            units=tuple(self.units),
            floats=tuple(self.floats),
            known=self.known,
            ports=tuple(self.ports),
            told=frozenset(self.some(OF_GUESTS, self.dice.choice((0.97,) * 9 + (0,)))),
            undecided=dict.fromkeys(self.some(self.known, 0.05), ("a device",)),
        )
        everything = Snapshot(
            tree=tree,
            allocations=rows,
            holdings=holdings,
            providers=Providers(
                classes={seen.name: OURS.classes(seen) for seen in tree},
                foreign=frozenset({OTHERS}),
                present=frozenset(tree.by_name),
            ),
            disputed=dict.fromkeys(self.some(OF_GUESTS[:3], dice.choice((0, 0, 0.7))), (8, 4)),
            beside_nova=self.odds(0.3),
        )
        return self._read(everything)

    def _guest(self, places: tuple[str, ...], uuid: str) -> Rows:
        """Make a guest; return what it has on this host."""
        dice = self.dice
        cpus, cell, size = dice.choice(("VCPU", "VCPU", "PCPU")), dice.choice(places), dice.choice((1, 2, 2, 4))
        is_bound = self.odds(0.7)
        units = [Holding(uuid, cell, cpus, size)] if is_bound else []
        self.floats += [] if is_bound else [Float(uuid, cpus, size, places, "")]
        units += [Holding(uuid, dice.choice(places), dice.choice(("VCPU", "PCPU")), 1)] if self.odds(0.35) else []
        units += [Holding(uuid, place, "MEMORY_MB", 64) for place in places if place == cell or self.odds(0.2)]
        cards = [Holding(uuid, card, "VF", 1) for card in self.some(2 * CARDS, 0.25)]
        self.ports += self.some(cards, 0.3)
        self.units += [*units, *cards]
        rows: Rows = {} if is_bound else {(cell, cpus): size}
        for one in (*units, *cards):
            rows[one.provider, one.resource_class] = rows.get((one.provider, one.resource_class), 0) + one.amount
        disk_gb = dice.choice((0, 0, 10, 10, None))
        untold = frozenset(self.some(OF_GUESTS, dice.choice((0.1, 0.1, 0.1, 0.9))))
        self.known[uuid] = GuestState(
            active=self.odds(0.7),
            migrating=self.odds(0.08),
            project=None if self.odds(0.1) else "p",
            user=None if self.odds(0.1) else "u",
            disk_gb=disk_gb,
            untold=untold,
            overridden=untold - {"VF"} if self.odds(0.8) else frozenset(),
            named={name: dice.choice((1, 2, None)) for name in self.some(("CUSTOM_X", "DISK_GB", "VF"), 0.07)},
            flavor_unseen=self.odds(0.15),
        )
        return {**rows, ("host", "DISK_GB"): disk_gb} if disk_gb else rows

    def _changed(self, rows: Rows, places: tuple[str, ...]) -> Rows:
        """Return what is allocated in place of what a guest has."""
        changed: Rows = {}
        for (place, name), amount in self.some(rows.items(), self.dice.choice((0, 0.85, 0.85))):
            others = CARDS if name == "VF" else places
            here = self.dice.choice(others) if name != "DISK_GB" and self.odds(0.3) else place
            changed[here, name] = max(1, amount + (self.dice.choice((-1, 1)) if self.odds(0.15) else 0))
        return changed

    def _book(self, uuid: str, rows: Rows, kind: str | None, *, beside: float = 0.08) -> None:
        """Allocate this to a consumer, and perhaps something that is not of our stock."""
        others = ((SHARED, "DISK_GB", 5), (AWAY, "VCPU", 2), (OTHERS, "CUSTOM_X", 1))
        more = {(place, name): amount for place, name, amount in self.some(others, beside)}
        slots: dict[str, dict[str, int]] = {}
        for (place, name), amount in {**rows, **more}.items():
            slots.setdefault(place, {})[name] = amount
        user = self.dice.choice(("u", "u", "u", "u", "v"))
        if slots:
            self.consumers[uuid] = Consumer(uuid=uuid, generation=7, project="p", user=user, kind=kind, slots=slots)

    def _tree(self, places: tuple[str, ...], rows: tuple[Allocation, ...], rooms: tuple[int, ...]) -> ObservedTree:
        """Return a tree that has room for what is allocated of it, and here and there for more."""
        stock: dict[str, dict[str, Inventory]] = {place: {} for place in ("host", *places, *CARDS, OTHERS)}
        slots = [("host", "DISK_GB"), *((card, "VF") for card in CARDS), (OTHERS, "CUSTOM_X")]
        slots = self.some([*slots, *((place, name) for place in places for name in OF_GUESTS[:3])], 0.9)
        for place, name in dict.fromkeys((*slots, *((one.provider, one.resource_class) for one in rows))):
            used = sum(one.amount for one in rows if (one.provider, one.resource_class) == (place, name))
            stock[place][name] = Inventory(
                total=max(1, used + self.dice.choice(rooms)),
                min_unit=self.dice.choice((1, 1, 2)),
                max_unit=self.dice.choice((2, 64, 512)),
                step_size=self.dice.choice((1, 1, 2)),
            )
        marks = {name: frozenset({MARKER} if name != OTHERS else ()) for name in stock}
        parents = {name: None if name == "host" else "host" for name in stock}
        return _observed(
            Provider(name=name, parent=parents[name], inventories=several, traits=marks[name])
            for name, several in stock.items()
        )

    def _read(self, everything: Snapshot) -> Snapshot:
        """Return the host with the consumers that an audit reads, and with what nova says of them."""
        doubted = everything.without_rows_of_nova(running=self.odds(0.3)) if self.odds(0.5) else frozenset()
        come = self.some(self.known, 0.05) if doubted else []  # their rows came meanwhile
        here = replace(everything, doubted=doubted.union(come))
        known: set[str] = set()
        while unread := (suspects(here) | kin(here)) - known:
            known |= unread
            read = {uuid: one for uuid, one in self.consumers.items() if uuid in known}
            rows = [one for one in everything.allocations if one.consumer not in known]
            here = replace(here, allocations=(*rows, *_rows(read.values())), consumers=read)
        if any(here.elsewhere(one) for one in here.consumers.values()):
            here = replace(here, sharing=frozenset({SHARED}))
        several = {uuid for uuid in here.consumers if uuid not in self.known}
        nova = self._nova(several | doubted) if self.odds(0.5) else NovaWitness()
        return replace(here, nova=nova if nova.asked else NovaWitness())

    def _nova(self, asked: set[str]) -> NovaWitness:
        dice = self.dice
        servers: dict[str, NovaServer] = {}
        migrations: dict[str, NovaMigration] = {}
        for uuid in sorted({*asked, *self.known}):
            if self.odds(0.7 if uuid in self.known else 0.3):
                place = dice.choice(("nova-host", "nova-host", "another-nova-host", None))
                status = dice.choice(("ACTIVE", "SHUTOFF", *STATES))
                servers[uuid] = NovaServer(
                    uuid=uuid, status=status, host=place, task=dice.choice((*9 * [None], "deleting"))
                )
            if self.odds(0.15 if uuid in self.known else 0.4):
                name = uuid if uuid not in self.known else f"move of {uuid}"
                of = uuid if uuid in self.known else dice.choice((*self.known, "gone", ""))
                migrations[name] = NovaMigration(uuid=name, status=dice.choice(ENDS), server=of)
        unknown = frozenset(self.some(sorted(asked - servers.keys() - migrations.keys()), 0.8))
        return NovaWitness(
            asked=frozenset(self.some(sorted(asked), 0.9)) | unknown,
            host="nova-host",
            servers=servers,
            migrations=migrations,
            unknown=unknown,
        )

    # -- providers, with some allocations ------------------------------------------------------------------------------

    def providers(self) -> Snapshot:
        dice = self.dice
        names = self.some((*CELLS, *CARDS, OTHERS), 0.6)
        names += self.some(("host_pci_0000_81_00_0", "x_0000:81:10.1", "x_0000:82:00.0", "x_0000:81:10.0"), 0.3)
        host = "host" if self.odds(0.9) else "rack_0000_81_00_0"  # a name that ends like a device's
        several = [self._provider(host, None)]
        several += [self._provider(name, dice.choice((host, *names[:at]))) for at, name in enumerate(names)]
        tree = _observed(several)
        slots = [(one.name, name, stock.total) for one in several for name, stock in one.inventories.items()]
        rows = [(place, name, dice.choice((1, most, most + 1))) for place, name, most in self.some(slots, 0.3)]
        present = self.some((host, *names), 0.7)
        functions = ("0000:81:00.0", "0000:81:10.0", "0000:81:10.1", "0000:82:00.0")
        backing = Backing(
            offered={name: frozenset(self.some(functions, 0.4)) for name in self.some((*CARDS, "host_gone"), 0.5)},
            odd=OddStock(sentences={name: f"{name} is odd" for name in self.some(names, 0.1)}),
        )
        standing = dice.choice(("devices", "devices", "devices", "cells"))
        ours = replace(OURS, adopted=frozenset(self.some(names, 0.3)))
        return Snapshot(
            tree=tree,
            allocations=tuple(Allocation("guest", *row) for row in rows),
            holdings=Holdings(
                units=tuple(Holding("guest", place, name, 1) for place, name, _ in self.some(slots, 0.1)),
                backing=backing,
            ),
            providers=Providers(
                classes={seen.name: ours.classes(seen) for seen in tree},
                foreign=frozenset(seen.name for seen in tree if not ours.writes(seen)),
                novas=frozenset(self.some(names, 0.05)),
                wanted=frozenset(self.some(present, 0.7)),
                present=frozenset(present) | self._awaited(tree, slots),
                cards=dict.fromkeys(functions[1:3], functions[0]) if self.odds(0.8) else {},
            ),
            layout="devices",
            standing=standing,
            disputed={"VCPU": (8, 4)} if self.odds(0.2) else {},
        )

    def _awaited(self, tree: ObservedTree, slots: list[tuple[str, str, int]]) -> frozenset[str]:
        """Return the providers of some devices that a boot took away, and that are reserved."""
        some = [place for place, name, _ in self.some(slots, 0.2) if name not in BANDWIDTH]
        return frozenset(place for place in some if HELD in tree.by_name[place].provider.traits)

    def _provider(self, name: str, parent: str | None) -> Provider:
        dice = self.dice
        of_devices = ("VF", "CUSTOM_X", "VGPU", "NET_BW_EGR_KILOBIT_PER_SEC")
        stock = {}
        for each in self.some(OF_GUESTS if parent is None or name in CELLS else of_devices, 0.5):
            total, ratio = dice.choice((1, 4, 4)), dice.choice((1.0, 1.0, 2.0, 0.5))
            stock[each] = Inventory(total=total, reserved=dice.choice((0, 0, 1, total)), allocation_ratio=ratio)
        others = (ONE_TIME, HELD, f"{KEEP}1_VF", "OWNER_CYBORG", "CUSTOM_OWNER_X", OWNER_NOVA, "CUSTOM_RACK")
        traits = self.some([MARKER], 0.7) + self.some(others, 0.2)
        return Provider(name=name, parent=parent, inventories=stock, traits=frozenset(traits))


def _rows(consumers: Iterable[Consumer]) -> tuple[Allocation, ...]:
    """Return what consumers have of the host."""
    return tuple(
        Allocation(one.uuid, place, name, amount)
        for one in consumers
        for place, resources in one.slots.items()
        if place.startswith("host")
        for name, amount in resources.items()
    )


def _observed(several: Iterable[Provider]) -> ObservedTree:
    return ObservedTree(tuple(ObservedProvider(uuid=one.name, generation=1, provider=one) for one in several))


def told_of(number: int) -> tuple[str, str]:
    """What an audit says of the guests of a host, and of the providers of another one."""
    hosts = Audited(number).guests(), Audited(number).providers()
    first, second = ("".join(f"{one.key} {sorted(one.consumers)} {one}\n" for one in find_all(host)) for host in hosts)
    return f"reads {sorted(suspects(hosts[0]) | kin(hosts[0]))}\n{first}", second


def line_of(number: int) -> str:
    """The same in a line: the kinds of the findings, and eight digits that differ where anything of them does."""
    words = []
    for text in told_of(number):
        kinds = dict.fromkeys(line.partition("/")[0] for line in text.splitlines() if "reads" not in line)
        words.append(f"{','.join(kinds)}={hashlib.sha256(text.encode()).hexdigest()[:8]}")
    return " ".join([str(number), *words])


if __name__ == "__main__":
    sys.stdout.write("\n".join(told_of(int(sys.argv[1]))))
