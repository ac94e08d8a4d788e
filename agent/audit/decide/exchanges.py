"""Join the repairs of guests that are allocated on each other's units: one alone would find no room."""

from collections.abc import Mapping
from dataclasses import replace

from agent.audit.decide.findings import Finding, Kind, Repair
from agent.audit.decide.snapshot import Snapshot
from reportclient.allocations import usages
from reportclient.plan import ReplaceAllocations, Rewrite

_Slot = tuple[str, str]  # a provider's uuid, resource class
_WRONG = (Kind.WRONG_PROVIDER, Kind.WRONG_AMOUNT)


def joined_exchanges(snapshot: Snapshot, found: list[Finding]) -> list[Finding]:
    """
    Return the findings with one repair for all guests of a ring, in which each waits for room that another one takes.

    Placement writes several consumers at once, and looks for room after all of them: POST /allocations.
    """
    wrong = {one.consumer: one for one in found if one.consumer and one.repair and one.kind in _WRONG}
    waits = _waits(snapshot, {uuid: one.repair.rewrites[0] for uuid, one in wrong.items() if one.repair})
    reach = {uuid: _reachable(uuid, waits) for uuid in waits}
    rings = {uuid: [wrong[other] for other in sorted(reach[uuid]) if uuid in reach[other]] for uuid in waits}
    return [_with_ring(one, rings.get(one.consumer or "", []) if one.kind in _WRONG else []) for one in found]


def _waits(snapshot: Snapshot, rewrites: Mapping[str, Rewrite]) -> dict[str, set[str]]:
    """Return, by consumer, the consumers that leave a slot for which the consumer has no room."""
    names, used = snapshot.names, usages(snapshot.allocations)
    waits: dict[str, set[str]] = {uuid: set() for uuid in rewrites}
    for uuid, one in rewrites.items():
        for slot in _more(one.before, one.after):
            place, name = names.get(slot[0], ""), slot[1]
            stock = snapshot.tree.by_name[place].provider.inventories.get(name) if place else None
            coming = one.after[slot[0]][name] - one.before.get(slot[0], {}).get(name, 0)
            if stock and used.get((place, name), 0) + coming > stock.capacity:
                waits[uuid] |= {other for other, its in rewrites.items() if slot in _more(its.after, its.before)}
    return waits


def _more(one: Mapping[str, Mapping[str, int]], other: Mapping[str, Mapping[str, int]]) -> set[_Slot]:
    """Return the slots of which the other set has more than the one."""
    return {
        (uuid, name)
        for uuid, resources in other.items()
        for name, amount in resources.items()
        if amount > one.get(uuid, {}).get(name, 0)
    }


def _reachable(uuid: str, waits: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    following = {uuid}
    while following := {other for one in following for other in waits[one]} - found:
        found |= following
    return found


def _with_ring(finding: Finding, ring: list[Finding]) -> Finding:
    """Return the finding with the repair of all guests of its ring; as it is where it is in none."""
    repairs = [one.repair for one in ring if one.repair]
    if finding.repair is None or not repairs:
        return finding
    guests = ", ".join(str(one.consumer) for one in ring)
    text = f"set the allocations of guests {guests} to what they really have, at once, as each has the other's place"
    rewrites = tuple(each for one in repairs for each in one.rewrites)
    misplaced = len(repairs) == len(ring) and all(one.misplaced for one in repairs)
    return replace(
        finding,
        repair=Repair(text=text, operation=ReplaceAllocations(rewrites), misplaced=misplaced),
        safe=all(one.safe for one in ring),
    )
