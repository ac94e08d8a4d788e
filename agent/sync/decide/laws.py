"""
A second opinion on a finished plan: what no plan may do, proved for this one plan. Pure.

It shares only plain values with the planner: what was read, and the operations. It carries the operations out one by
one, as the writer sends them, on the tree that was read, and counts what stands after each. What is wrong from before
counts only where it gets worse. A breach is a fault of this agent, and never of the host.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import assert_never
from uuid import UUID, uuid5

from agent.sync.decide.hardware import Hardware, Host
from reportclient.allocations import Allocation, Consumer
from reportclient.errors import Unlawful
from reportclient.names import BANDWIDTH, CPUS, NO_DEVICES, device_address, is_by_address, small_letters
from reportclient.ownership import MANAGED, MARKER, OWNER_NOVA, OWNERS, Names
from reportclient.plan import (
    Create,
    Delete,
    EnsureClasses,
    EnsureTraits,
    Operation,
    Plan,
    Rename,
    Reparent,
    Reshape,
    Rewrite,
    SetAggregates,
    SetInventories,
    SetTraits,
)
from reportclient.tree import Inventory, ObservedTree, Provider

LAWS = {
    "consumers": "each consumer that is written has all its rows, its generation, and as much of each class as before",
    "capacity": "nobody has more than there is, and use that was not read loses nothing",
    "foreign": "nothing of another service or of an operator is removed or changed",
    "twice": "no unit of hardware is on offer in two forms, at no moment",
    "order": "parents are made before their children, and deleted after them",
    "pinned": "dedicated CPUs to which running guests are pinned are not free",
}
_NOVAS = frozenset({"VGPU", "MEM_ENCRYPTION_CONTEXT"})  # classes of providers on which older nova put no mark
_NAMED = 4  # breaches that a refusal names
_NONE = Names()
_CELL = re.compile(r"_NUMA(\d+)(_PAGES_\d+)?$")  # ends the names of a cell's providers
_LEFT = "CUSTOM_DEVICE_UNHEALTHY_LEFT_"  # of a trait, before an amount, "_", and a class of which we reserved it


@dataclass(frozen=True, slots=True)
class Breach:
    """One law that a plan breaks, and where."""

    law: str  # one of ``LAWS``
    text: str  # a sentence with the provider, consumer or class, and the numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What was read before a plan was made, and what a person allowed."""

    observed: ObservedTree
    emitted: Names  # all that the driver can report
    files: Mapping[str, Names] = field(default_factory=dict)  # of the operator's files, now or before, by provider
    reported: Mapping[str, Names] = field(default_factory=dict)  # of devices and rules, now or before, by provider
    foreign: frozenset[str] = frozenset()  # uuids of providers that another service reports, whatever is on them
    rows: Mapping[str, tuple[Allocation, ...]] | None = None  # by provider uuid, as read; None: placement guards them
    consumers: Mapping[str, Consumer | None] = field(default_factory=dict)  # as read, by uuid
    pools: frozenset[str] = frozenset()  # uuids of shared storage outside the tree: disks may move there, and back
    aggregates: frozenset[str] = frozenset()  # that a provider may be taken out of
    forced: bool = False  # a person allows less capacity than is used
    ends: bool = False  # the host leaves this agent: its root may go
    reserves: bool = False  # the plan is of reserved amounts alone: what it writes need not be what is wanted
    host: Host | None = None  # None: nothing is known of the hardware


def breaches(plan: Plan, given: Given) -> tuple[Breach, ...]:
    """Return the laws that a plan breaks, each place once; empty: none. Stops where an operation has no provider."""
    walk = _Walk(given)
    if given.reserves:
        walk.judge_as_written(plan)
    found = [*_of_consumers(plan, given)]
    before = walk.wrongs(before=True)
    for step in plan.operations:
        against = list(walk.against(step))
        found += against
        if any(one.law == "order" for one in against):
            break
        walk.take(step)
        if isinstance(step, SetInventories | Reshape) or step is plan.operations[-1]:
            for key, (number, breach) in walk.wrongs(before=given.reserves).items():
                stood = before.get(key) or before.get((key[0], ""), (0, breach))
                found += [breach] if number > max(0, stood[0]) else []
    return tuple(dict.fromkeys(found))


def sentences(broken: Sequence[Breach], plan: str = "the plan") -> tuple[str, ...]:
    """Return what a person should know of breaches by a plan; empty without any. No option allows them."""
    first, more = broken[:_NAMED], len(broken) - _NAMED
    if not broken:
        return ()
    return (
        *(f"{plan} breaks the law of {one.law}: {one.text}" for one in first),
        *((f"it breaks laws at {more} more places",) if more > 0 else ()),
        "nothing was written, as this is a fault of compute-node-agent: report it with the case, which the service "
        "keeps below [agent] state_directory, and which plan --save FILE writes",
    )


def lawful(plan: Plan, given: Given) -> Plan:
    """
    Return the plan.

    Raises:
        Unlawful: it breaks a law.
    """
    if broken := breaches(plan, given):
        raise Unlawful("; ".join(sentences(broken)), tuple(one.law for one in broken))
    return plan


def _of_consumers(plan: Plan, given: Given) -> Iterator[Breach]:
    """Yield what is wrong with what consumers have after the plan."""
    rewrites = [one for step in plan.operations if isinstance(step, Reshape) for one in step.rewrites]
    again = Counter(one.consumer for one in rewrites)
    moved = {move.consumer for move in plan.moves}
    for consumer in sorted(moved - again.keys()):
        yield Breach("consumers", f"consumer {consumer} is to move, and its allocations are not written")
    for one in rewrites:
        if again[one.consumer] > 1:
            yield Breach("consumers", f"consumer {one.consumer} is written {again[one.consumer]} times")
        if (read := given.consumers.get(one.consumer)) is None or not _is_as_read(one, read):
            what = "was not read" if read is None else "is not written as it was read (rows, generation, owner)"
            yield Breach("consumers", f"consumer {one.consumer} {what}")
        before, after, named = _sums(one.before), _sums(one.after), _renamed(plan, one.consumer)
        for name in sorted(before.keys() | after.keys() | named.keys()):
            if after[name] != before[name] + named[name]:
                yield Breach(
                    "consumers",
                    f"consumer {one.consumer} has {before[name]} {name} before and {after[name]} after, where its "
                    f"moves say {named[name]:+d}",
                )
    for move in plan.moves:
        if _by_kind(move.moved_resources) != _by_kind(move.arriving):
            had, gets = dict(move.moved_resources), dict(move.arriving)
            yield Breach("consumers", f"consumer {move.consumer} gets {gets} for {had}, which is other hardware")


def _is_as_read(one: Rewrite, read: Consumer) -> bool:
    owner = (one.project, one.user, one.kind) == (read.project, read.user, read.kind)
    return owner and one.generation == read.generation and _rows(one.before) == _rows(read.slots)


def _rows(slots: Mapping[str, Mapping[str, int]]) -> dict[tuple[str, str], int]:
    return {(uuid, name): amount for uuid, several in slots.items() for name, amount in several.items()}


def _sums(slots: Mapping[str, Mapping[str, int]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for several in slots.values():
        found.update(several)
    return found


def _renamed(plan: Plan, consumer: str) -> Counter[str]:
    """Return by how much the moves of a consumer change each class; moves between providers change none."""
    found: Counter[str] = Counter()
    for move in plan.moves:
        if move.consumer == consumer:
            found.update(move.arriving)
            found.subtract(move.moved_resources)
    return found


def _by_kind(amounts: Mapping[str, int]) -> Counter[str]:
    """Return amounts by what can have another name: CPUs and devices; each other class stands for itself."""
    found: Counter[str] = Counter()
    for name, amount in amounts.items():
        kind = "CPUs" if name in CPUS else name if name in NO_DEVICES | BANDWIDTH else "devices"
        found[kind] += amount
    return found


@dataclass(slots=True)
class _Stands:
    """One provider while the plan is carried out."""

    uuid: str
    parent: str | None  # uuid
    provider: Provider  # its own ``parent`` is not kept up to date
    made: bool = False  # by this plan
    written: bool = False  # its stock, by this plan

    @property
    def name(self) -> str:
        return self.provider.name

    @property
    def stock(self) -> Mapping[str, Inventory]:
        return self.provider.inventories


_Wrong = tuple[tuple[str, ...], int, Breach]  # a place, how much is wrong there, and the breach if that is more than 0


class _Walk:
    """The tree and its use while the operations of a plan are carried out."""

    def __init__(self, given: Given) -> None:
        self._given = given
        uuids: dict[str | None, str] = {seen.name: seen.uuid for seen in given.observed}
        self._stands = {
            seen.uuid: _Stands(seen.uuid, uuids.get(seen.provider.parent), seen.provider) for seen in given.observed
        }
        self._root = given.observed.root.uuid if given.observed.root else ""
        self._novas = {seen.uuid for seen in given.observed if _NOVAS & seen.provider.inventories.keys()}
        self._host = Hardware(given.host) if given.host else None
        self._fresh = not any(CPUS & one.stock.keys() for one in self._stands.values())  # nobody can have CPUs here yet
        self._used: Counter[tuple[str, str]] = Counter()
        self._rows = given.rows or {}
        for uuid, rows in self._rows.items():
            for row in rows:
                self._used[uuid, row.resource_class] += row.amount

    def judge_as_written(self, plan: Plan) -> None:
        """Hold each provider that offers no more than before against what is wanted there from the start."""
        for step in chain.from_iterable(
            one.inventories if isinstance(one, Reshape) else (one,) for one in plan.operations
        ):
            if isinstance(step, SetInventories) and (stands := self._stands.get(step.uuid)):
                before, provider = self._free(stands), replace(stands.provider, inventories=step.inventories)
                after = self._free(replace(stands, provider=provider))
                stands.written = all(amount <= before.get(name, 0) for name, amount in after.items())

    def against(self, step: Operation) -> Iterator[Breach]:
        """Yield why an operation may not be carried out on what stands."""
        match step:
            case EnsureClasses() | EnsureTraits():
                return
            case Create():
                yield from self._against_create(step)
            case Reshape(several, rewrites):
                for one in several:
                    yield from self.against(one)
                for rewrite in rewrites:
                    yield from self._against_rewrite(rewrite)
            case _ if step.uuid not in self._stands:
                yield Breach("order", f"{step.name} is written ({type(step).__name__}) where it does not stand")
            case _:
                yield from self._against_write(step, self._stands[step.uuid])

    def take(self, step: Operation) -> None:
        """Carry out an operation whose providers stand."""
        match step:
            case Create(uuid, name, parent):
                self._stands[uuid] = _Stands(uuid, parent, Provider(name=name), made=True)
                self._root = self._root or uuid
            case Rename(uuid, name):
                self._change(uuid, name=name)
            case Reparent(uuid, _, parent):
                self._stands[uuid].parent = parent
            case SetTraits(uuid, _, traits):
                self._change(uuid, traits=traits)
            case SetInventories(uuid, _, inventories):
                self._stands[uuid].written = True
                self._change(uuid, inventories=inventories)
            case Reshape(several, rewrites):
                for one in several:
                    self.take(one)
                for rewrite in rewrites:
                    self._used.subtract(_rows(rewrite.before))
                    self._used.update(_rows(rewrite.after))
            case Delete(uuid):
                del self._stands[uuid]

    def _change(self, uuid: str, **changes: object) -> None:
        self._stands[uuid].provider = replace(self._stands[uuid].provider, **changes)  # type: ignore[arg-type]

    def _against_create(self, step: Create) -> Iterator[Breach]:
        if step.parent_uuid is not None and step.parent_uuid not in self._stands:
            yield Breach("order", f"{step.name} is made before its parent {step.parent_uuid}")
        elif step.parent_uuid is None and self._stands:
            yield Breach("order", f"{step.name} is made as a second root")
        elif step.uuid in self._stands or any(one.name == step.name for one in self._stands.values()):
            yield Breach("order", f"{step.name} is made, and stands already")

    def _against_rewrite(self, one: Rewrite) -> Iterator[Breach]:
        """Yield each row of a provider that is not ours to write, and each row on a provider that does not stand."""
        before, after = _rows(one.before), _rows(one.after)
        for uuid, name in sorted(before.keys() | after.keys()):
            had, gets = before.get((uuid, name), 0), after.get((uuid, name), 0)
            stands = self._stands.get(uuid)
            if had == gets or uuid in self._given.pools:
                continue
            if stands is None or not self._is_ours(stands):
                of = stands.name if stands else uuid
                text = f"consumer {one.consumer} has {had} {name} on {of}, and would have {gets}"
                yield Breach("foreign", f"{text}: that provider is not this host's")

    def _against_write(
        self, step: Rename | Reparent | SetTraits | SetAggregates | SetInventories | Delete, stands: _Stands
    ) -> Iterator[Breach]:
        """Yield what a write on one provider takes from others, or does before its time."""
        match step:
            case SetTraits(_, name, traits, added):
                stood = stands.provider.traits
                if put := traits - stood - added:
                    yield Breach("foreign", f"{name} gets {_list(put)}, which the plan does not show")
                if taken := (stood - traits) - self._traits(stands):
                    yield Breach("foreign", f"{name} loses {_list(taken)}, which this agent did not set")
                if not self._is_ours(stands) and (put := traits - stood - self._files(stands).traits):
                    yield Breach("foreign", f"{name} is another service's, and gets {_list(put)}")
            case SetInventories(_, name, inventories):
                yield from self._against_stock(stands, inventories, self._classes(stands))
            case SetAggregates(_, name, aggregates):
                if taken := stands.provider.aggregates - aggregates - self._given.aggregates:
                    yield Breach("foreign", f"{name} loses the aggregates {_list(taken)}")
                if not self._is_ours(stands):
                    yield Breach("foreign", f"{name} is another service's, and gets other aggregates")
            case Rename() | Reparent() | Delete():
                named = replace(stands, provider=replace(stands.provider, name=step.name))  # its uuid follows our name
                if not self._is_ours(named):
                    yield Breach("foreign", f"{step.name} is another service's, and is to have a {type(step).__name__}")
                if isinstance(step, Reparent):
                    yield from self._against_parent(step)
                elif isinstance(step, Delete):
                    yield from self._against_delete(stands)
            case _:
                assert_never(step)

    def _against_parent(self, step: Reparent) -> Iterator[Breach]:
        above: str | None = step.parent_uuid
        while above in self._stands and above != step.uuid:
            above = self._stands[above].parent
        if step.parent_uuid not in self._stands or above == step.uuid:
            yield Breach("order", f"{step.name} comes under {step.parent}, which does not stand above it")

    def _against_delete(self, stands: _Stands) -> Iterator[Breach]:
        below = [one.name for one in self._stands.values() if one.parent == stands.uuid]
        if below:
            yield Breach("order", f"{stands.name} is deleted before {_list(below)} below it")
        known = stands.provider.traits or stands.made or stands.uuid in self._novas
        if not known and not self._is_derived(stands):
            yield Breach("foreign", f"{stands.name} is deleted, and nothing on it shows that this agent made it")
        if stands.uuid == self._root and not (self._given.ends and MARKER in stands.provider.traits):
            yield Breach("foreign", f"the root {stands.name} is deleted")
        yield from self._against_stock(stands, {}, None)

    def _against_stock(
        self, stands: _Stands, after: Mapping[str, Inventory], ours: frozenset[str] | None
    ) -> Iterator[Breach]:
        """Yield each class that changes and is not ours (None: all are), or that shrinks and whose use is unknown."""
        read = self._given.rows
        for name in sorted(stands.stock.keys() | after.keys()):
            had, gets = stands.stock.get(name), after.get(name)
            if had == gets:
                continue
            if ours is not None and name not in ours:
                text = f"{name} on {stands.name} is not this agent's, and changes from {_told(had)} to {_told(gets)}"
                yield Breach("foreign", text)
            less = had and (gets is None or gets.total < had.total or gets.capacity < had.capacity)
            if less and read is not None and stands.uuid not in read and not stands.made:
                yield Breach("capacity", f"{name} on {stands.name} shrinks, and its allocations were not read")

    # What is whose

    def _files(self, stands: _Stands) -> Names:
        return self._given.files.get(stands.name, _NONE)

    def _is_ours(self, stands: _Stands) -> bool:
        """
        Return whether this agent may write a provider: its root, its own, nova's of a device, and what has nothing.

        The mark of another service decides, unless the operator's own files or rules put it there.
        """
        if stands.made or stands.uuid in self._given.foreign:
            return stands.made
        if stands.parent is None:
            return True
        traits = stands.provider.traits - self._files(stands).traits - self._reported(stands).traits
        if any(one.startswith(OWNERS) and one != OWNER_NOVA and not one.startswith(MARKER) for one in traits):
            return False
        marked = stands.provider.traits & {MARKER, OWNER_NOVA, MANAGED}
        novas = _NOVAS & stands.stock.keys() and not is_by_address(stands.name)  # without a mark, that is Cyborg's
        return bool(marked or novas or not stands.stock) or self._is_derived(stands)

    def _is_derived(self, stands: _Stands) -> bool:
        """Return whether the uuid of a provider without marks shows that we made it; its traits may come yet."""
        parts = (small_letters(stands.name[at:]) for at in range(len(stands.name)))
        return any(str(uuid5(UUID(self._root), part)) == stands.uuid for part in parts)

    def _reported(self, stands: _Stands) -> Names:
        return self._given.reported.get(stands.name, _NONE)

    def _classes(self, stands: _Stands) -> frozenset[str] | None:
        """Return the classes of a provider that this agent may change; None: all."""
        own = self._files(stands).classes
        if not self._is_ours(stands):
            return own
        if stands.parent:
            return None
        stock, traits = stands.stock.items(), stands.provider.traits
        left = {name for name, one in stock if one.reserved and f"{_LEFT}{one.reserved}_{name}" in traits}
        return own | self._given.emitted.classes | self._reported(stands).classes | left

    def _traits(self, stands: _Stands) -> frozenset[str]:
        """Return the traits of a provider that this agent may take away."""
        own = self._files(stands).traits
        if not self._is_ours(stands):
            return own
        below = self._given.emitted.below or _NONE if stands.parent else _NONE
        begins = self._given.emitted.prefixes + below.prefixes
        begun = frozenset(one for one in stands.provider.traits if one.startswith(begins))
        begun |= {one for one in stands.provider.traits if f"{MARKER}_SET_{one}" in stands.provider.traits}
        return own | self._reported(stands).traits | self._given.emitted.traits | below.traits | begun

    # What is wrong at this moment

    def wrongs(self, *, before: bool = False) -> dict[tuple[str, ...], tuple[int, Breach]]:
        """Return by how much more is used or on offer than there is, by place; ``before``: with the former CPU sets."""
        ours = [one for one in self._stands.values() if self._is_ours(one)]
        found = [self._overused(), self._one_class_twice(ours)]
        if self._host:
            found += [self._too_much(ours, self._host), self._claimed_twice(ours, self._host)]
            found += [] if self._fresh else [self._pinned(ours, self._host, before)]
        return {place: (number, breach) for place, number, breach in chain(*found)}

    def _overused(self) -> Iterator[_Wrong]:
        for (uuid, name), used in self._used.items():
            stands = self._stands.get(uuid)
            stock = stands.stock.get(name) if stands else None
            if uuid in self._given.pools or (stock and self._given.forced):
                continue
            room = 0 if stock is None else stock.capacity if name in NO_DEVICES else stock.total
            text = f"{used} {name} on {stands.name if stands else uuid} are allocated, and there is room for {room}"
            yield ("use", uuid, name), used - room, Breach("capacity", text)

    def _free(self, stands: _Stands) -> dict[str, int]:
        """Return what a provider offers of devices, by class, without what the operator's files add."""
        apart = NO_DEVICES | BANDWIDTH | self._files(stands).classes
        free = {name: one.total - one.reserved for name, one in stands.stock.items() if name not in apart}
        return {name: amount for name, amount in free.items() if amount > 0}

    def _one_class_twice(self, ours: list[_Stands]) -> Iterator[_Wrong]:
        """Yield the classes of devices that the root and its children offer at once: a total, and its parts."""
        root = self._stands.get(self._root)
        below = Counter[str]()
        for one in ours:
            below.update(self._free(one) if one.parent and not self._is_left_by_nova(one) else {})
        for name, above in self._free(root).items() if root else ():
            text = f"{above} {name} are on offer on the root, and {below[name]} below it"
            yield ("class", name), min(above, below[name]), Breach("twice", text)

    def _is_left_by_nova(self, stands: _Stands) -> bool:
        """Return whether a provider of nova's is of a device that is not here, and so no part of a total."""
        if self._host is None or MARKER in stands.provider.traits or device_address(stands.name) is None:
            return False
        return self._host.units(stands.name, written=False) is None

    def _too_much(self, ours: list[_Stands], host: Hardware) -> Iterator[_Wrong]:
        """Yield the hardware of which more is on offer than the host has."""
        totals: Counter[str] = Counter()
        for one in ours:
            totals.update({name: stock.total for name, stock in one.stock.items()})
            free, units = sum(self._free(one).values()), host.units(one.name, written=one.written)
            if units is not None:
                text = f"{one.name} offers {free} units, and its device has {units} that are free for that"
                yield ("units", one.uuid), free - units, Breach("twice", text)
        for what, number, most in (
            ("CPUs", totals["VCPU"] + totals["PCPU"], len(host.cpus)),
            *([("shared CPUs", totals["VCPU"], len(host.cpus - host.dedicated))] if host.dedicated else ()),
            ("dedicated CPUs", totals["PCPU"], len(host.dedicated)),
            ("MiB of memory", totals["MEMORY_MB"], host.memory_mib),
            *self._of_cells(ours, host),
        ):
            text = f"{number} {what} are on offer on all providers together, and this host has {most}"
            yield ("host", what), number - most, Breach("twice", text)

    def _of_cells(self, ours: list[_Stands], host: Hardware) -> Iterator[tuple[str, int, int]]:
        """Yield what is on offer of each cell's CPUs and memory, and how much the cell has."""
        totals: Counter[tuple[int, str]] = Counter()
        for one in ours:
            if (cell := _cell(one)) in host.cells:
                totals.update({(cell, name): stock.total for name, stock in one.stock.items() if name in NO_DEVICES})
        for cell in {cell for cell, _ in totals}:
            yield f"CPUs of cell {cell}", totals[cell, "VCPU"] + totals[cell, "PCPU"], len(host.cells[cell])
            yield f"MiB of memory of cell {cell}", totals[cell, "MEMORY_MB"], host.cell_mib[cell]

    def _claimed_twice(self, ours: list[_Stands], host: Hardware) -> Iterator[_Wrong]:
        """Yield the PCI functions that are on offer in several forms: whole and in parts, or on two providers."""
        claims: dict[str, list[str]] = {}
        for one in ours:
            if free := self._free(one):
                in_total = [] if one.parent else host.in_total(one.name, free.keys())
                for address in in_total or host.claims(one.name, written=one.written):
                    claims.setdefault(address, []).append(one.name)
        for address, names in claims.items():
            text = f"PCI function {address} is on offer {len(names)} times: on {_list(names)}"
            yield ("function", address), len(names) - 1, Breach("twice", text)

    def _pinned(self, ours: list[_Stands], host: Hardware, before: bool) -> Iterator[_Wrong]:
        """Yield where more PCPU are free than dedicated CPUs to which no running guest is pinned."""
        known = [one for one in ours if one.made or one.uuid in self._rows]  # of others it is not read
        free = {one.uuid: (one.name, _cell(one), self._free_pcpu(one)) for one in known if "PCPU" in one.stock}
        free[""] = "all providers together", None, sum(number for _, _, number in free.values())
        for uuid, (name, cell, number) in free.items():
            idle = host.idle(cell, before=before)
            text = (
                f"{number} PCPU are free on {name}, and only {idle} dedicated CPUs there have no guest pinned to them"
            )
            yield ("pinned", uuid), number - idle, Breach("pinned", text)

    def _free_pcpu(self, stands: _Stands) -> int:
        stock = stands.stock["PCPU"]
        return max(0, stock.capacity - self._used[stands.uuid, "PCPU"])


def _cell(stands: _Stands) -> int | None:
    """Return the cell of a provider; None: it is the root, or no cell's."""
    found = _CELL.search(stands.name) if stands.parent else None
    return int(found[1]) if found else None


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _told(stock: Inventory | None) -> str:
    return f"{stock.total} ({stock.reserved} reserved)" if stock else "none"
