"""A made-up host beside another one and shared storage: guests move between the two by our own verbs, alike and not."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from uuid import UUID

from agent.allocations.operations import Ending, Operations, Result
from agent.audit.audit import witness
from agent.audit.decide.findings import Finding
from agent.audit.heal import Healed, HealPolicy, RepairOutcome, heal
from agent.state.audit_memory import write_memory
from beds.by_hand import claim_body
from beds.worlds import DEDICATED, ROOT, Style, Truth, World
from drivers.facts import Tenant
from reportclient.allocations import AllocationRequest
from reportclient.client import PlacementClient
from reportclient.payload import encode_slots
from reportclient.transport import Transport

OTHER, STORAGE = (str(UUID(int=number)) for number in (2, 3))
STOCK = {
    OTHER: ("other", {"VCPU": 64, "PCPU": 64, "MEMORY_MB": 65536}),
    STORAGE: ("storage", {"DISK_GB": 1000}),
}
MORE = 32  # MiB of a resize
LICENSE = "CUSTOM_LICENSE"  # of which flavors take one, and which the hypervisor does not tell
How = Literal["live", "cold", "gone", "resize", "here"]  # what the hypervisor shows of a move; a resize here
HOWS: tuple[How, ...] = ("live", "cold", "gone", "resize", "here")
Rows = dict[str, dict[str, dict[str, int]]]  # consumer -> provider's uuid -> class -> amount


@dataclass
class MovingWorld(World):
    """
    A world with another host.

    ``moves`` has of each guest on the move: its migration, its rows and truth before, and its truth here afterwards.
    """

    moves: dict[str, tuple[str, dict[str, dict[str, int]], Truth, Truth]] = field(default_factory=dict)
    numbers: int = 5000  # of consumers so far

    def open(self) -> None:
        """The host as the agent reports it first, the other host, and the storage."""
        self.take()
        assert self.is_well, self.told
        for uuid, (name, totals) in STOCK.items():
            self.by_hand.add_provider(name, uuid, stock={each: {"total": total} for each, total in totals.items()})
        self.by_hand.add_traits(STORAGE, "MISC_SHARES_VIA_AGGREGATE")
        self.operations = Operations(PlacementClient(Transport(self.crashing, where="placement")), pause=lambda: None)

    def _look(self) -> None:
        """Nothing: what stands after each write is the business of other laws."""

    # What happens

    def come(self, style: Style, cell: int, number: int | None, disk: bool, alike: bool = True) -> None:
        """A guest, of the owner whom all alike guests have, perhaps with a disk on the storage."""
        before = set(self.guests)
        self.spawn(style, cell, number)
        for uuid in set(self.guests) - before:
            truth = self.guests[uuid]
            project = "p" if alike else f"project of {uuid}"
            named = dict(truth.guest.tenant.overridden or {}) if truth.guest.tenant else {}
            held = self.held(uuid)
            own_gb = sum(resources.get("DISK_GB", 0) for resources in held.values())
            slots = held | ({STORAGE: {"DISK_GB": 5}} if disk and not own_gb else {})
            disk_gb = sum(resources.get("DISK_GB", 0) for resources in slots.values())
            guest = replace(truth.guest, tenant=Tenant(project, "user", disk_gb, named))
            self.guests[uuid] = replace(truth, guest=guest)
            self.write(uuid, slots, project)

    def move(self, index: int, how: How) -> None:
        """Our own verb; then the hypervisor shows the guest as ``how`` says."""
        if not (uuid := self._pick(index)):
            return
        held, truth = self.held(uuid), self.guests[uuid]
        asked, after = {OTHER: self._request(held, more=how == "resize")}, truth
        if not asked[OTHER]:
            return  # it lost all that another host would give it
        if how == "here":
            asked = {place: dict(resources) for place, resources in held.items() if place != STORAGE}
            place = next((one for one, resources in asked.items() if "MEMORY_MB" in resources), "")
            if not place:
                return
            asked[place]["MEMORY_MB"] += MORE
            after = self._larger(truth, self._cell_of(self._names()[place]))
        self.numbers += 1
        migration = str(UUID(int=self.numbers))
        if self.operations.move(uuid, migration, [request(asked)]).told is not Result.DONE:
            return
        self.moves[uuid] = migration, held, truth, after
        shown = {"live": {"migrating": True}, "resize": {"state": "shutoff"}}.get(how, {})
        self.guests[uuid] = replace(truth, guest=replace(truth.guest, **shown))  # type: ignore[arg-type]
        if how == "gone":
            del self.guests[uuid]

    def confirm(self, index: int) -> None:
        """The move is through: the guest is gone from here, or as it was where it was resized here."""
        if uuid := self._moving(index):
            migration, _, _, after = self.moves.pop(uuid)
            self.operations.confirm(migration)
            self.guests.pop(uuid, None)
            if set(self.held(uuid)) - {OTHER, STORAGE}:
                self.guests[uuid] = after

    def revert(self, index: int) -> Ending | None:
        """The guest is back; None: no guest is on the move."""
        if not (uuid := self._moving(index)):
            return None
        migration, _, truth, _ = self.moves.pop(uuid)
        ending = self.operations.revert(uuid, migration)
        self.guests[uuid] = truth
        return ending

    def claim(self) -> None:
        """A guest that is to come here, and is not here yet."""
        self.numbers += 1
        asked = {ROOT: {"DISK_GB": 1}} if self.setup.layout in ("cells", "numa") else {ROOT: {"MEMORY_MB": 32}}
        self.operations.spawn(
            str(UUID(int=self.numbers)), project="p", user="user", kind="INSTANCE", requests=[request(asked)]
        )

    def lose(self, index: int) -> None:
        """All allocations of a guest are gone."""
        if uuid := self._pick(index):
            self._send("DELETE", f"/allocations/{uuid}")

    def lose_part(self, index: int, number: int) -> None:
        """One class of what a guest has is gone, and its disk; the disk alone is nothing that the hypervisor tells."""
        if uuid := self._pick(index):
            held = self.held(uuid)
            names = sorted({name for resources in held.values() for name in resources} - {"DISK_GB"})
            gone = {"DISK_GB", names[number % len(names)]} if names else set()
            rest = {place: {n: a for n, a in each.items() if n not in gone} for place, each in held.items()}
            self.write(uuid, {place: each for place, each in rest.items() if each}, self.owner(uuid))

    def exchange(self) -> None:
        """Two guests have what the other should have, but for their disks."""
        if len(here := [uuid for uuid in sorted(self.guests) if uuid not in self.moves]) >= 2:
            held = {uuid: self.held(uuid) for uuid in here[:2]}
            if any("DISK_GB" in resources for slots in held.values() for resources in slots.values()):
                return
            for uuid in held:
                self._send("DELETE", f"/allocations/{uuid}")
            for uuid, slots in zip(held, reversed(held.values()), strict=True):
                self.write(uuid, slots, self.owner(uuid))

    def orphan(self, kind: str | None, disk: bool, foreign: bool, abroad: bool) -> None:
        """A consumer whose guest is nowhere."""
        self.numbers += 1
        child = next((uuid for uuid, (name, _) in self.tree().items() if name.endswith(":agent:br0")), None)
        slots: dict[str, dict[str, int]] = {}
        for uuid, stock in self._stock().items():
            if uuid not in (OTHER, STORAGE) and "MEMORY_MB" in stock and not slots:
                slots[uuid] = {"MEMORY_MB": 32}
        slots |= {STORAGE: {"DISK_GB": 5}} if disk else {}
        slots |= {child: {LICENSE: 1}} if foreign and child else {}
        slots |= {OTHER: {"VCPU": 1}} if abroad else {}
        self.write(str(UUID(int=self.numbers)), slots, "q", kind)

    # What stands

    def held(self, consumer: str) -> dict[str, dict[str, int]]:
        return {place: dict(each) for place, each in self.memory.snapshot()[1].get(consumer, {}).items()}

    def all_held(self) -> Rows:
        return {uuid: self.held(uuid) for uuid, slots in self.memory.snapshot()[1].items() if slots}

    def owner(self, consumer: str) -> str:
        tenant = self.guests[consumer].guest.tenant
        return tenant.project if tenant else "p"

    def write(self, consumer: str, slots: Mapping[str, Any], project: str, kind: str | None = "INSTANCE") -> None:
        """A consumer's allocations anew, whoever wrote them last."""
        self._send("DELETE", f"/allocations/{consumer}")
        if slots:
            body = claim_body(slots, kind, project=project, user="user")
            spoken = "1.39" if kind else "1.37"
            self.memory.request(f"/allocations/{consumer}", "PUT", json=body, microversion=spoken)

    def overhang(self) -> dict[str, int]:
        """By provider: PCPU on offer beyond the dedicated CPUs to which nobody is pinned; only those with some."""
        pinned, found = self._used_cpus(), {}
        for uuid, stock in self._stock().items():
            name = self._names()[uuid]
            if "PCPU" in stock and uuid != OTHER:
                cell = self._cell_of(name)
                here = {cpu for id_, cpus in DEDICATED.items() if cell in (None, id_) for cpu in cpus}
                free = stock["PCPU"]["total"] - self._used(uuid).get("PCPU", 0)
                found[name] = free - len(here - pinned)
        return {name: more for name, more in found.items() if more > 0}

    def offers_pcpu(self) -> bool:
        return any("PCPU" in stock for uuid, stock in self._stock().items() if uuid != OTHER)

    def audit_with(
        self, policy: HealPolicy, *, seconds: float
    ) -> tuple[tuple[Finding, ...], tuple[RepairOutcome, ...]]:
        """An audit so long after whatever came before, and what became of its findings."""
        self.clock.now += seconds
        found = witness(self.node())
        write_memory(self.settings.folders.state, found.root_uuid, found.memory)
        return found.findings, heal(self.node(), found, policy)

    # Inside

    def _pick(self, index: int) -> str:
        """A guest that is here and not on the move; empty: there is none."""
        here = [uuid for uuid in sorted(self.guests) if uuid not in self.moves]
        return here[index % len(here)] if here else ""

    def _larger(self, truth: Truth, cell: int | None) -> Truth:
        """A guest with more memory, in the part that is bound to this cell if one is."""
        parts = list(truth.guest.memory)
        index = next((number for number, part in enumerate(parts) if cell in part.cells), 0)
        parts[index] = replace(parts[index], mib=parts[index].mib + MORE)
        return replace(truth, guest=replace(truth.guest, memory=tuple(parts)))

    def _moving(self, index: int) -> str:
        several = sorted(self.moves)
        return several[index % len(several)] if several else ""

    def _request(self, held: Mapping[str, Mapping[str, int]], *, more: bool) -> dict[str, int]:
        """What a guest asks for on the other host: its CPUs as they are called here, and its memory."""
        sums: dict[str, int] = {"MEMORY_MB": 1}
        for place, resources in held.items():
            for name, amount in resources.items():
                if place != STORAGE and name in ("VCPU", "PCPU", "MEMORY_MB"):
                    sums[name] = sums.get(name, 0) + amount
        sums["MEMORY_MB"] += 31 if more else -1
        return {name: amount for name, amount in sums.items() if amount}


def request(slots: Mapping[str, Mapping[str, int]]) -> AllocationRequest:
    return AllocationRequest(json.dumps({"allocations": encode_slots(slots)}))


def shown(before: Rows, outcomes: Iterable[RepairOutcome], uuids: Mapping[str, str]) -> Rows:
    """What placement is to hold after these outcomes, by what their findings show, and by the migrations they name."""
    after = {consumer: {place: dict(each) for place, each in slots.items()} for consumer, slots in before.items()}
    for outcome in outcomes:
        finding = outcome.finding
        repair = finding.repair
        if outcome.healed is not Healed.HEALED or repair is None:
            continue
        for one in repair.rewrites:
            if one.consumer != finding.consumer and not one.after and one.consumer in repair.text:
                after[one.consumer] = {}
        if finding.consumer and finding.provider and finding.resource_class:
            place = uuids.get(finding.provider, finding.provider)
            slots = after.setdefault(finding.consumer, {}).setdefault(place, {})
            slots[finding.resource_class] = finding.expected or 0
    kept = {
        consumer: {place: {name: amount for name, amount in each.items() if amount} for place, each in slots.items()}
        for consumer, slots in after.items()
    }
    kept = {consumer: {place: each for place, each in slots.items() if each} for consumer, slots in kept.items()}
    return {consumer: slots for consumer, slots in kept.items() if slots}
