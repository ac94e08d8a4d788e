"""
Count guests' disks on a provider outside this host's tree, which hosts share: where that is, and what moves. Pure.

One agent reports the provider of a Ceph pool (``agent/sync/pool_node.py``), an operator that of other storage. A host
writes neither: in its own plan it gives up DISK_GB, comes into the pool's aggregate, and moves its guests' disks.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import isclose
from typing import Any

from agent.sync.decide.feature import Draft, Feature, Outside, PassEnd
from agent.sync.decide.shaped import Shaped, Standing
from agent.sync.decide.view import Shaper, Unread, View
from agent.sync.outcome import Condition
from drivers.facts import DiskUnread, PoolSpace
from drivers.parcels import most_of
from drivers.policy import FOUND
from drivers.pools import REPORTED_BY, SHARER, aggregate_of, pool_name, pool_uuid
from reportclient.allocations import Allocation, Consumer, Move
from reportclient.names import SHARES
from reportclient.ownership import is_marked
from reportclient.tree import ObservedProvider, ObservedTree, ProviderTree

DISK = "DISK_GB"
_BODY = "shares"  # uuid of the provider of the shared storage that guests' disks are counted on; empty: of none
_MOVING = "shares_moving"  # True: a pass that may have been cut off moved disks from or to another storage
_SHARED_ONCE = "shared_once"  # True: guests' disks were counted outside this tree before


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedDisk(Feature):
    """Where DISK_GB of this host's guests is counted, and what has to move for that."""

    storage: ObservedProvider | None = None  # None: the root
    stays: str = ""  # why nothing about DISK_GB changes now; empty: it may
    marked: bool = False  # whether the root is to have the mark of a host that shares
    shares: str = ""  # uuid of the storage to remember; empty: none, or there is more to move
    left: tuple[ObservedProvider, ...] = ()  # storages that this host shares no more
    gone: frozenset[str] = frozenset()  # uuids of those, and of a remembered one that placement does not have
    crossing: Outside = field(default_factory=Outside)  # the moves of disks
    sentences: tuple[str, ...] = ()

    def look(self, view: View, standing: Standing) -> "tuple[SharedDisk, View]":
        """With a storage the driver reports no DISK_GB; what stays is as of a cluster that does not answer."""
        found = _find(view, standing.observed)
        facts = view.survey.facts
        if found.stays:
            facts = replace(facts, disk=DiskUnread(found.stays))
        disk = replace(view.policy.disk, shared=found.storage.name if found.storage else "")
        return found, replace(view, policy=replace(view.policy, disk=disk), survey=replace(view.survey, facts=facts))

    def shape(self, view: View, shaper: Shaper, shaped: Shaped) -> "tuple[SharedDisk, Shaped]":
        """
        Put the root into the aggregate of an agents' pool, and out of those of storages that it left.

        On a root that shares DISK_GB may go, by any amount: it is counted elsewhere.
        """
        root, pool = shaped.tree.root, self.storage if self.storage and is_marked(self.storage) else None
        root = replace(
            root,
            traits=root.traits | {SHARER} if self.marked else root.traits,
            aggregates=root.aggregates | {aggregate_of(pool.uuid)} if pool else root.aggregates,
        )
        tree = ProviderTree((root, *shaped.tree.providers[1:]))
        ours = replace(shaped.ours, aggregates=frozenset(map(aggregate_of, self.gone)))
        backing = shaped.holdings.backing
        backing = replace(backing, withdrawn=backing.withdrawn | {DISK}) if self.marked else backing
        return self, replace(shaped, tree=tree, ours=ours, holdings=replace(shaped.holdings, backing=backing))

    def outside(self) -> Outside:
        here = (self.storage, *self.left)
        known = self.gone.union(one.uuid for one in here if one)
        return replace(
            self.crossing,
            uuids={one.name: one.uuid for one in here if one},
            known=known,
            aggregates=frozenset(map(aggregate_of, known)),
        )

    def conditions(self, draft: Draft) -> tuple[Condition, ...]:
        return tuple(Condition(kind="shared-disk", text=text) for text in self.sentences)

    def remember(self, end: PassEnd) -> Mapping[str, Any]:
        """While disks move, the storage that was shared stays known, and that it may not be the one any more."""
        if end.refused:
            return {}
        if not end.done:
            return {_MOVING: True} if self.crossing.moves or self.left else {}
        shared = bool(self.shares or end.draft.memory.bodies.get(_SHARED_ONCE) or self.left)
        return {_BODY: self.shares, _MOVING: False, _SHARED_ONCE: shared}


def _remembered(view: View) -> str:
    """Return the uuid of the storage that the last pass shared; empty: none."""
    return str(view.memory.bodies.get(_BODY, ""))


def _find(view: View, observed: ObservedTree) -> SharedDisk:
    """Return where guests' disks are counted; ``observed`` is by the wanted names."""
    root, disk, asked = view.observed.root, view.survey.facts.disk, view.policy.disk.shared
    marked = bool(_remembered(view)) or (root is not None and SHARER in root.provider.traits)
    if view.beside:
        return SharedDisk()
    if isinstance(disk, DiskUnread) and asked in ("", FOUND):
        return _staying(view, disk.because, marked)
    shared_once = bool(view.memory.bodies.get(_SHARED_ONCE))
    if not (asked or marked or (shared_once and view.seen.whole)):
        return SharedDisk()
    if root and root.name != view.node:
        return _staying(view, f"{root.name} is renamed first", marked)
    storage = _find_storage(view, root) if asked else None
    if isinstance(storage, str):
        return _staying(view, storage, marked)
    settled = not (view.seen.whole and (marked or shared_once)) and _is_settled(view, root, storage, marked)
    held = _read_held(view, observed, whole=not settled)
    left = () if settled else _find_left(view, observed, storage, held)
    return _decide(view, observed, storage, held, left)


def _is_settled(view: View, root: ObservedProvider | None, storage: ObservedProvider | None, marked: bool) -> bool:
    """
    Return whether the disks are where they belong, as far as mark, aggregate and memory show it.

    A claim that was under way, or a memory of another moment, is found when the whole tree is read.
    """
    if not marked:
        return True
    if storage is None or view.memory.bodies.get(_MOVING) or _remembered(view) != storage.uuid:
        return False
    return not is_marked(storage) or (root is not None and aggregate_of(storage.uuid) in root.provider.aggregates)


def _staying(view: View, why: str, marked: bool) -> SharedDisk:
    shared = marked or any(DISK in one.provider.inventories for one in view.observed)
    what = "stays as it is in placement" if shared else "is not reported"
    return SharedDisk(stays=why, marked=marked, shares=_remembered(view), sentences=(f"{DISK} {what}: {why}",))


def _find_storage(view: View, root: ObservedProvider | None) -> ObservedProvider | str:
    """Return the storage that this host is to share, or why it cannot."""
    disk, asked = view.survey.facts.disk, view.policy.disk.shared
    if asked != FOUND:
        name, key = asked, asked
    elif not isinstance(disk, PoolSpace):
        return _find_by_aggregate(view)
    elif not disk.fsid:
        return f"this host's record does not tell which cluster has the pool {disk.pool}: record the host again"
    else:
        name, key = pool_name(disk), pool_uuid(disk)
    if key not in view.readings.providers:
        raise Unread(providers=frozenset({key}))
    found = view.readings.providers[key]
    if found is None:
        return (
            f"placement has no provider {name}. For a pool of Ceph, set [agent] report_pool = true on one of its "
            f"hosts; other storage you report yourself ([agent] shared_disk)"
        )
    if not _shares_disk(found):
        return f"{found.name} does not share {DISK}: it needs {DISK} and the trait {SHARES} ([agent] shared_disk)"
    if not is_marked(found) and not (root and root.provider.aggregates & found.provider.aggregates):
        return f"{found.name} shares no aggregate with {view.node}: put {view.node} into one of its aggregates"
    return found


def _find_by_aggregate(view: View) -> ObservedProvider | str:
    if view.readings.sharing is None:
        raise Unread(sharing=True)
    found = [one for one in view.readings.sharing if _shares_disk(one) and not is_marked(one)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(one.name for one in found)
        return f"{names} share {DISK} with {view.node}: name one of them in [agent] shared_disk"
    return (
        f"no provider shares {DISK} with {view.node}. Give the storage's provider the trait {SHARES} and an aggregate, "
        f"and put {view.node} into it ([agent] shared_disk = {FOUND})"
    )


def _read_held(view: View, observed: ObservedTree, *, whole: bool) -> Outside:
    """Return what consumers have: of the ``whole`` tree, or of the root's DISK_GB that is to move."""
    stocks = ((seen, seen.provider.inventories) for seen in observed)
    asked = (seen for seen, stock in stocks if stock and (whole or (DISK in stock and seen == observed.root)))
    rows = view.rows_on((seen.uuid for seen in asked), observed)
    of_disks = view.consumers(row.consumer for row in rows if whole or row.resource_class == DISK)
    return Outside(rows=rows, consumers=of_disks)


def _find_left(
    view: View, observed: ObservedTree, storage: ObservedProvider | None, held: Outside
) -> tuple[ObservedProvider, ...]:
    """Return the storages that this host shared: of its consumers' disks, of its aggregates, and the remembered one."""
    here = observed.by_uuid.keys() | ({storage.uuid} if storage else set())
    outside = {
        uuid for one in held.consumers for uuid, each in one.slots.items() if DISK in each and uuid not in here
    } | ({_remembered(view)} - {""} - here)
    unread, readings = frozenset(outside) - view.readings.providers.keys(), view.readings
    if unread or readings.sharing is None:
        raise Unread(providers=unread, sharing=readings.sharing is None)
    found = (*(readings.providers[uuid] for uuid in sorted(outside)), *readings.sharing)
    return tuple({one.uuid: one for one in found if one and _is_storage(one) and one.uuid not in here}.values())


def _decide(
    view: View,
    observed: ObservedTree,
    storage: ObservedProvider | None,
    held: Outside,
    left: tuple[ObservedProvider, ...],
) -> SharedDisk:
    root = observed.root
    sharing = view.readings.sharing or ()
    back, behind = _moves_from(left, storage or root, observed, held.consumers, sharing) if root else ((), ())
    there = tuple(
        _move(row.consumer, row.provider, storage.name, row.amount)
        for row in held.rows
        if root and storage and row.provider == root.name and row.resource_class == DISK
    )
    moves = (*back, *there)
    taken = (Allocation(one.consumer, one.from_provider, *each) for one in back for each in one.arriving.items())
    crossing = replace(
        held,
        moves=moves,
        rows=(*held.rows, *taken),
        unplaceable=(
            _lost_ratio(view, root) or _lacks_room(view, storage, moves) or _twice(storage, there, left, held, observed)
        )
        if storage
        else "",
    )
    return SharedDisk(
        storage=storage,
        marked=storage is not None or bool(behind),
        shares=storage.uuid if storage and not behind else "",
        left=left,
        gone=frozenset({_remembered(view), _own_pool(view), *(one.uuid for one in left)})
        - {"", storage.uuid if storage else ""},
        crossing=crossing,
        sentences=tuple(_notes(storage, left, behind, view.node)),
    )


def _moves_from(
    left: Iterable[ObservedProvider],
    target: ObservedProvider,
    observed: ObservedTree,
    consumers: Iterable[Consumer],
    sharing: Iterable[ObservedProvider],
) -> tuple[tuple[Move, ...], tuple[str, ...]]:
    """
    Return the moves of disks from storages that this host shares no more, and the consumers whose disks stay there.

    A consumer that has something of another host too, as while it migrates, may have its disk there. What ``sharing``
    providers give is no other host's.
    """
    names = {one.uuid: one.name for one in left}
    here = names.keys() | observed.by_uuid.keys() | {target.uuid} | {one.uuid for one in sharing}
    moves: list[Move] = []
    behind: list[str] = []
    for one in consumers:
        disks = [(names[uuid], each[DISK]) for uuid, each in one.slots.items() if uuid in names and DISK in each]
        if disks and not one.slots.keys() <= here:
            behind.append(one.uuid)
        else:
            moves += [_move(one.uuid, name, target.name, amount) for name, amount in disks]
    return tuple(moves), tuple(behind)


def _move(consumer: str, source: str, target: str, amount: int) -> Move:
    return Move(
        consumer=consumer,
        from_provider=source,
        to_provider=target,
        moved_resources={DISK: amount},
        because="[agent] shared_disk",
    )


def _own_pool(view: View) -> str:
    """Return the uuid that the provider of this host's own pool has, or would have; empty: it has none."""
    disk = view.survey.facts.disk
    return pool_uuid(disk) if isinstance(disk, PoolSpace) and disk.fsid else ""


def _twice(
    storage: ObservedProvider,
    moves: Iterable[Move],
    left: Iterable[ObservedProvider],
    held: Outside,
    observed: ObservedTree,
) -> str:
    """Return which guest has a disk on another host too, as while it is evacuated; empty: none that is to move."""
    here = observed.by_uuid.keys() | {storage.uuid} | {one.uuid for one in left}
    moving = {one.consumer for one in moves}
    for one in held.consumers:
        if one.uuid in moving and any(DISK in each and uuid not in here for uuid, each in one.slots.items()):
            return (
                f"guest {one.uuid} has {DISK} on another host too, as while it is evacuated, so its disk would be "
                f"counted twice on {storage.name}: wait until nova has ended that, or release what it has here"
            )
    return ""


def _lost_ratio(view: View, root: ObservedProvider | None) -> str:
    """Return why the root's allocation ratio of DISK_GB would be lost with its stock; empty where it is configured."""
    stock, ratio = root.provider.inventories.get(DISK) if root else None, view.policy.ratios.disk
    if not root or not stock or ratio.configured or isclose(stock.allocation_ratio, ratio.initial, rel_tol=1e-5):
        return ""
    return (
        f"the allocation ratio {stock.allocation_ratio:g} of {DISK} on {root.name} was set by hand, and would be lost: "
        f"set it on the shared storage if it is to count there, and set {ratio.initial:g} here (openstack resource "
        f"provider inventory set {root.uuid} --amend --resource {DISK}:allocation_ratio={ratio.initial:g})"
    )


def _lacks_room(view: View, storage: ObservedProvider, moves: Iterable[Move]) -> str:
    """Return why a storage cannot take the disks of these moves; empty where it can."""
    stock, amounts = storage.provider.inventories[DISK], [one.moved_resources[DISK] for one in moves]
    if not amounts:
        return ""
    if (storage.uuid, DISK) not in view.readings.usages:
        raise Unread(usages=frozenset({(storage.uuid, DISK)}))
    used = view.readings.usages[storage.uuid, DISK]
    if used + sum(amounts) > stock.capacity:
        return (
            f"{sum(amounts)} {DISK} of {len(amounts)} consumers belong on {storage.name}, where {used} are used, and "
            f"the capacity is {stock.capacity} ((total {stock.total} - reserved {stock.reserved}) * ratio "
            f"{stock.allocation_ratio:g}): make room on {storage.name}"
        )
    if unfit := [amount for amount in amounts if most_of(stock, amount) != amount]:
        return (
            f"a disk of {unfit[0]} {DISK} belongs on {storage.name}, which gives {stock.min_unit} to {stock.max_unit} "
            f"in steps of {stock.step_size}: resize or move that guest first"
        )
    return ""


def _notes(
    storage: ObservedProvider | None, left: Iterable[ObservedProvider], behind: tuple[str, ...], node: str
) -> Iterable[str]:
    for one in left:
        where = storage.name if storage else node
        yield f"{node} leaves the shared storage {one.name}: its guests' disks are counted on {where}"
    if behind:
        yield (
            f"disks of {', '.join(behind[:4])} stay on a storage that {node} left, as long as these consumers have "
            f"something on another host too"
        )
    if storage and is_marked(storage) and not any(one.startswith(REPORTED_BY) for one in storage.provider.traits):
        yield (
            f"no agent reports {storage.name}, so its {DISK} stays as it is: set [agent] report_pool = true on one of "
            f"its hosts"
        )


def _shares_disk(seen: ObservedProvider) -> bool:
    return SHARES in seen.provider.traits and DISK in seen.provider.inventories


def _is_storage(seen: ObservedProvider) -> bool:
    """Return whether a provider is no host's, and has DISK_GB, also where somebody took the sharing trait off."""
    of_hosts = any(trait.startswith(("COMPUTE_", "HW_")) for trait in seen.provider.traits)
    return DISK in seen.provider.inventories and (SHARES in seen.provider.traits or not of_hosts)
