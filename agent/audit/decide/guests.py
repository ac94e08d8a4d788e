"""
Compare the allocations of a host's guests with what the hypervisor really runs: findings, with their repairs.

A finding about a consumer rests on its whole set as this audit read it (``Snapshot.consumers``), never on a remembered
row: some writes change no generation. How full a provider is may rest on remembered rows. A case with an innocent
explanation is no finding: a guest that migrates, a migration that nova knows or that has just what a guest here waits
for, a consumer that another service owns. A finding about one consumer hides no finding about another one.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import replace

from agent.allocations.decide.sets import INSTANCE, added, begin, replace_set, settled
from agent.audit.decide.findings import Finding, Kind, Repair, changed_rows, of_each_row
from agent.audit.decide.providers import audit_providers
from agent.audit.decide.snapshot import Snapshot
from agent.audit.decide.unknown_consumers import (
    audit_strangers,
    doubt_of,
    explains,
    keeper_of,
    may_move_with,
    rests_here,
    surely_stays,
    why_undecided,
)
from agent.nova.answers import FINISHED, NovaMigration
from reportclient.allocations import Consumer, GuestState, Slots, usages
from reportclient.names import NO_DEVICES
from reportclient.ownership import is_cyborgs
from reportclient.plan import Rewrite


def find_all(snapshot: Snapshot) -> tuple[Finding, ...]:
    """Return all findings, those of consumers first; ``snapshot.consumers`` must cover ``suspects(snapshot)``."""
    return (
        *_joined_exchanges(snapshot, _audit_guests(snapshot)),
        *audit_strangers(snapshot),
        *audit_providers(snapshot),
    )


def _audit_guests(snapshot: Snapshot) -> list[Finding]:
    found: list[Finding] = []
    for uuid in sorted(snapshot.holdings.guests):
        consumer = snapshot.consumers.get(uuid)
        if not snapshot.is_settled(uuid):
            known = snapshot.holdings.known[uuid]
            off = not known.active and not known.unread and not snapshot.rows(uuid)
            found += _missing(snapshot, uuid) if off and rests_here(snapshot, uuid) else []
            continue
        if not snapshot.rows(uuid):
            found += _missing(snapshot, uuid)
        elif consumer and not explains(snapshot, uuid):
            found += _wrong(snapshot, consumer)
    return found


def _wrong(snapshot: Snapshot, consumer: Consumer) -> list[Finding]:
    """Return the findings of a guest whose allocations here differ from what it really has."""
    differences, known = snapshot.differences(consumer.uuid), snapshot.holdings.known[consumer.uuid]
    unrelated = not may_move_with(snapshot, consumer.uuid)
    doubt = "" if unrelated else "; a consumer of the same project and user here may be its migration"
    kinds = {
        name: Kind.WRONG_AMOUNT if sum(has - booked for has, booked in places.values()) else Kind.WRONG_PROVIDER
        for name, places in differences.items()
    }
    doubt += _UNSEEN if known.flavor_unseen and Kind.WRONG_AMOUNT in kinds.values() else ""
    lost, unsure = _went_too(snapshot, consumer, differences)
    more = {name for name, places in differences.items() if any(has > booked for has, booked in places.values())}
    unsure += _given_by_cyborg(snapshot, consumer.uuid, more)
    differences |= lost
    kinds |= dict.fromkeys(lost, Kind.WRONG_AMOUNT)
    safe = not doubt and differences.keys().isdisjoint(snapshot.disputed)
    slots = {uuid: dict(resources) for uuid, resources in consumer.slots.items()}
    for name, places in differences.items():
        for place, (has, _) in places.items():
            slots.setdefault(snapshot.tree.by_name[place].uuid, {})[name] = has
    told = (doubt.removesuffix(_UNSEEN) if _UNSEEN in unsure else doubt) + unsure
    text = f"set the allocations of guest {consumer.uuid} to what the guest really has"
    stays = surely_stays(snapshot, consumer.uuid) and not snapshot.elsewhere(consumer)
    misplaced = safe and stays and set(kinds.values()) == {Kind.WRONG_PROVIDER}
    repair = Repair(text=text, rewrites=(Rewrite.of(consumer, settled(slots)),), misplaced=misplaced)
    return [
        Finding(
            kind=kinds[name],
            consumer=consumer.uuid,
            provider=place,
            resource_class=name,
            expected=has,
            actual=booked,
            seen=f"the hypervisor gives it {has} {name} of {place}, and {booked} are allocated{told}",
            repair=None if unsure else repair,
            safe=safe and not unsure,
        )
        for name, places in differences.items()
        for place, (has, booked) in places.items()
    ]


def _given_by_cyborg(snapshot: Snapshot, uuid: str, lacking: Collection[str]) -> str:
    """
    Return that a mediated device of a guest may be Cyborg's, as part of a sentence; empty: it is not.

    ``lacking`` are the classes of which the guest has more than is allocated. nova makes the mediated devices of
    Cyborg's requests too (``attach_handle_type`` MDEV, class VGPU), and a domain does not tell for whom. What is
    allocated of Cyborg's may be lost as well.
    """
    root, consumer = snapshot.tree.providers[0].name, snapshot.consumers.get(uuid)
    slots = consumer.slots if consumer else {}
    held = {
        seen.name: slots.get(seen.uuid, {}).get("VGPU", 0)
        for seen in snapshot.tree
        if is_cyborgs(seen, root) and "VGPU" in {*seen.provider.inventories, *slots.get(seen.uuid, ())}
    }
    if not held or snapshot.holdings.known[uuid].mediated.isdisjoint(lacking):
        return ""
    found = ", ".join(f"{amount} VGPU of {provider}" for provider, amount in held.items())
    return (
        f", and it has {found}, which Cyborg reports. That may be the same device: a type of mediated devices is for "
        f"[devices] enabled_mdev_types or for Cyborg, not for both"
    )


_Differences = dict[str, dict[str, tuple[int, int]]]


def _went_too(snapshot: Snapshot, consumer: Consumer, differences: _Differences) -> tuple[_Differences, str]:
    """
    Return what else a guest lost that lost all rows of a class, as ``Snapshot.differences``, and what is not known.

    Some that the hypervisor does not tell may have gone with what it tells: the disk, and classes of the flavor. The
    text is empty where all that is lacking is known. A device alone may never have been allocated, so a disk of unknown
    size is no doubt then.
    """
    gone = {name for name, places in differences.items() if not sum(booked for _, booked in places.values())}
    if not gone:
        return {}, ""
    uuid, booked = consumer.uuid, {name for resources in consumer.slots.values() for name in resources}
    root, disk_gb = snapshot.tree.providers[0].name, _disk(snapshot, snapshot.holdings.known[uuid])
    lost = {"DISK_GB": {root: (disk_gb, 0)}} if disk_gb and "DISK_GB" not in booked else {}
    kept = booked if gone & NO_DEVICES else booked | {"DISK_GB"}
    return lost, _unsure(snapshot, uuid, consumer, differences.keys(), kept)


def _missing(snapshot: Snapshot, uuid: str) -> list[Finding]:
    """Return the findings of a guest that is here for good without allocations here: its migration may have them."""
    truths = {name: snapshot.truth(uuid, name, {}) or {} for name in snapshot.told(uuid)}
    rows = {(place, name): amount for name, truth in truths.items() for place, amount in truth.items()}
    keeper, certain = keeper_of(snapshot, uuid)
    move = snapshot.nova.migrations.get(keeper.uuid) if keeper else None
    if move and move.server == uuid and move.status == FINISHED:
        keeper = move = None  # it keeps what the guest had before its resize, and the guest runs in its new size
    elif move and move.server == uuid and move.is_open:
        return []  # nova moves the guest
    repair: Repair | None
    if keeper and certain:
        seen, repair, safe = _kept(snapshot, keeper, move, uuid)
    else:
        seen, repair = _unallocated(snapshot, uuid, rows)
        consumer = snapshot.consumers.get(uuid)
        doubt = doubt_of(snapshot, uuid)
        seen += doubt
        sure = {name for _, name in rows}.isdisjoint(snapshot.disputed)
        safe = sure and repair is not None and not (doubt or keeper or (consumer and snapshot.elsewhere(consumer)))
    found = Finding(
        kind=Kind.MISSING,
        consumer=uuid,
        seen=seen,
        repair=repair,
        safe=safe,
        arriving=keeper is not None,  # nova moves the allocations before the hypervisor begins to move the guest
        untyped=keeper is not None and keeper.kind is None,
        by_nova=not snapshot.is_settled(uuid),
    )
    if repair:
        (written,) = (one for one in repair.rewrites if one.consumer == uuid)
        return of_each_row(found, changed_rows(written, snapshot.names))
    nothing = {(snapshot.tree.providers[0].name, "VCPU"): (None, 0)}
    return of_each_row(found, {row: (amount, 0) for row, amount in rows.items()} or nothing)


def _kept(snapshot: Snapshot, keeper: Consumer, move: NovaMigration | None, guest: str) -> tuple[str, Repair, bool]:
    """Return what was seen of a guest whose allocations a migration keeps, the repair, and whether it is safe."""
    seen = f"the guest runs here and does not migrate, but its allocations here still belong to migration {keeper.uuid}"
    doubt = why_undecided(snapshot, keeper.uuid)
    if move:
        back = f"compute-node-agent revert {guest} --migration {keeper.uuid}"
        doubt = f", which nova has with the status {move.status}: if nova does not end it, run {back}"
    return seen + doubt, _swap_back(snapshot, keeper, guest), not doubt


def _unallocated(snapshot: Snapshot, uuid: str, rows: Mapping[tuple[str, str], int]) -> tuple[str, Repair | None]:
    """Return what was seen of a guest whose allocations no migration keeps for certain, and the repair, if any."""
    consumer = snapshot.consumers.get(uuid)
    abroad = consumer is not None and bool(snapshot.elsewhere(consumer))
    held = {name for resources in (snapshot.others(consumer) if consumer else {}).values() for name in resources}
    given = {name for _, name in rows}
    slots = _slots(snapshot, uuid, consumer, rows)
    request = json.dumps({"allocations": {place: {"resources": slots[place]} for place in sorted(slots)}})
    unsure = _unsure(snapshot, uuid, consumer, given, held, request)
    unsure += _given_by_cyborg(snapshot, uuid, given)
    here = "it runs here" if snapshot.is_settled(uuid) else "it is shut off here, and nova says that this is its host"
    seen = f"{here}, and has no allocations here" + (", only on another host" if abroad else "") + unsure
    return seen, None if unsure else _claim_again(snapshot, uuid, consumer, rows)


def _swap_back(snapshot: Snapshot, keeper: Consumer, guest: str) -> Repair:
    consumer = snapshot.consumers.get(guest)
    if consumer is None:
        back = begin(guest, keeper.project, keeper.user, INSTANCE if keeper.kind else None, keeper.slots)
    else:
        back = Rewrite.of(consumer, replace_set(snapshot.others(consumer), keeper.slots, snapshot.others(consumer)))
    return Repair(
        text=f"revert the migration: guest {guest} of project {back.project} and user {back.user} gets back what "
        f"migration {keeper.uuid} keeps",
        rewrites=(Rewrite.of(keeper, {}), back),
    )


def _unsure(
    snapshot: Snapshot,
    uuid: str,
    consumer: Consumer | None,
    given: Collection[str],
    kept: Collection[str],
    request: str = "",
) -> str:
    """
    Return why the full set of a guest is not known, and what to do; empty where it is known.

    ``given`` are the classes that a repair would give it, ``kept`` those that it has and keeps, ``request`` is what
    claims them for an owner that a person knows.
    """
    known = snapshot.holdings.known[uuid]
    lacking = {*snapshot.undecided(uuid), *known.named} - {*given, *kept}
    if _disk(snapshot, known) is None and "DISK_GB" not in kept:
        lacking |= {"DISK_GB"}
    text = "one request with all that the guest should have"
    if None in snapshot.owner(uuid):
        why = "; its project and user are not known"
        if request and given and not known.flavor_unseen:
            whole = (
                f"to which you add its {', '.join(sorted(lacking))}" if lacking else "which has all that it should have"
            )
            text = f"this request, {whole}, {request},"
    elif known.flavor_unseen:
        why = _UNSEEN
    elif lacking:
        names = ", ".join(sorted(lacking))
        why = f"; this host does not show how much {names} the guest should have, nor on which provider"
    else:
        return "" if given else "; this host offers none of the resources that the guest uses"
    how = "--replace" if consumer else "--project P --user U --type T"
    command = f"compute-node-agent claim {uuid} {how} --request FILE"
    return f"{why}. Write {text} to FILE. Then run {command}"


_UNSEEN = (
    "; nova up to 2025.1 started the guest, and did not write what its flavor sets (resources:CLASS, by openstack "
    "flavor show), which can be another amount"
)


def _disk(snapshot: Snapshot, known: GuestState) -> int | None:
    """Return how much of this host's disk a guest is to have, in GB; None where that is not known."""
    if "DISK_GB" not in snapshot.tree.providers[0].provider.inventories:
        return 0 if known.disk_gb == 0 else None  # the disk is on shared storage, and its provider is not known
    return None if "DISK_GB" in known.named else known.disk_gb


def _slots(snapshot: Snapshot, uuid: str, consumer: Consumer | None, rows: Mapping[tuple[str, str], int]) -> Slots:
    """Return all that a guest should have: ``rows`` and its disk here, and what it has elsewhere."""
    slots: dict[str, dict[str, int]] = {}
    for (place, name), amount in rows.items():
        slots.setdefault(snapshot.tree.by_name[place].uuid, {})[name] = amount
    others = snapshot.others(consumer) if consumer else {}
    has_disk = any("DISK_GB" in resources for resources in others.values())
    disk_gb = _disk(snapshot, snapshot.holdings.known[uuid])
    if disk_gb and not has_disk:
        slots.setdefault(snapshot.tree.providers[0].uuid, {})["DISK_GB"] = disk_gb
    return added(others, slots)


def _claim_again(
    snapshot: Snapshot, uuid: str, consumer: Consumer | None, rows: Mapping[tuple[str, str], int]
) -> Repair:
    """Return the repair that allocates all that a guest of a known project and user has."""
    project, user = snapshot.owner(uuid)
    assert project is not None
    assert user is not None  # by _unsure
    after = _slots(snapshot, uuid, consumer, rows)
    claim = Rewrite.of(consumer, after) if consumer else begin(uuid, project, user, INSTANCE, after)
    text = f"set the allocations of guest {uuid} of project {project} and user {user} to what the guest really has"
    return Repair(text=text, rewrites=(claim,))


def _joined_exchanges(snapshot: Snapshot, found: list[Finding]) -> list[Finding]:
    """
    Return the findings with one repair for all guests of a ring, in which each waits for room that another one takes.

    One repair alone would find no room. Placement writes several consumers at once, and looks for room after all of
    them: POST /allocations.
    """
    last = {str(one.consumer): one for one in found}  # of a guest with wrong amounts, one of those that share a repair
    waits = _waits(snapshot, {uuid: one.repair.rewrites[0] for uuid, one in last.items() if one.repair})
    reach = {uuid: _reachable(uuid, waits) for uuid in waits}
    rings = {uuid: [last[other] for other in sorted(reach[uuid]) if uuid in reach[other]] for uuid in waits}
    wrong = (Kind.WRONG_PROVIDER, Kind.WRONG_AMOUNT)
    return [_with_ring(one, rings.get(str(one.consumer), []) if one.kind in wrong else []) for one in found]


def _waits(snapshot: Snapshot, rewrites: Mapping[str, Rewrite]) -> dict[str, set[str]]:
    """Return, by consumer, the consumers that leave a slot for which the consumer has no room."""
    used, waits = usages(snapshot.allocations), dict[str, set[str]]()
    changes = {uuid: changed_rows(one, snapshot.names) for uuid, one in rewrites.items()}
    for uuid, rows in changes.items():
        full = {
            (place, name)
            for (place, name), (after, before) in rows.items()
            if after > before
            and used.get((place, name), 0) + after - before
            > snapshot.tree.by_name[place].provider.inventories[name].capacity
        }
        waits[uuid] = {
            other
            for other, theirs in changes.items()
            if any(after < before for row, (after, before) in theirs.items() if row in full)
        }
    return waits


def _reachable(uuid: str, waits: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    following = {uuid}
    while following := {other for one in following for other in waits[one]} - found:
        found |= following
    return found


def _with_ring(finding: Finding, ring: list[Finding]) -> Finding:
    """Return the finding with the repair of all guests of its ring; as it is where it is in none."""
    repairs = [one.repair for one in ring if one.repair]
    if not repairs:
        return finding
    guests = ", ".join(str(one.consumer) for one in ring)
    repair = Repair(
        text=f"set the allocations of guests {guests} to what they really have, at once, as each has the other's place",
        rewrites=tuple(each for one in repairs for each in one.rewrites),
        misplaced=all(one.misplaced for one in repairs),
    )
    return replace(finding, repair=repair, safe=all(one.safe for one in ring))
