"""Join the repairs of guests that are allocated on each other's units: one alone would find no room."""

from collections.abc import Mapping
from dataclasses import replace

from agent.audit.decide.findings import Finding, Kind, Repair
from agent.audit.decide.snapshot import Snapshot
from reportclient.allocations import usages
from reportclient.plan import Rewrite

_Slot = tuple[str, str]  # a provider's uuid, resource class
_WRONG = (Kind.WRONG_PROVIDER, Kind.WRONG_AMOUNT)


def joined_exchanges(snapshot: Snapshot, found: list[Finding]) -> list[Finding]:
    """
    Return the findings with one repair for all guests of a ring, in which each waits for room that another one takes.

    Placement writes several consumers at once, and looks for room after all of them: POST /allocations.
    """
    last = {str(one.consumer): one for one in found}  # of a guest with wrong amounts, one of those that share a repair
    waits = _waits(snapshot, {uuid: one.repair.rewrites[0] for uuid, one in last.items() if one.repair})
    reach = {uuid: _reachable(uuid, waits) for uuid in waits}
    rings = {uuid: [last[other] for other in sorted(reach[uuid]) if uuid in reach[other]] for uuid in waits}
    return [_with_ring(one, rings.get(str(one.consumer), []) if one.kind in _WRONG else []) for one in found]


def _waits(snapshot: Snapshot, rewrites: Mapping[str, Rewrite]) -> dict[str, set[str]]:
    """Return, by consumer, the consumers that leave a slot for which the consumer has no room."""
    used = usages(snapshot.allocations)
    left = {uuid: _more(one.after, one.before) for uuid, one in rewrites.items()}
    waits: dict[str, set[str]] = {uuid: set() for uuid in rewrites}
    for uuid, one in rewrites.items():
        for place, name in _more(one.before, one.after):
            seen = snapshot.tree.by_uuid[place]
            coming = one.after[place][name] - one.before.get(place, {}).get(name, 0)
            if used.get((seen.name, name), 0) + coming > seen.provider.inventories[name].capacity:
                waits[uuid] |= {other for other, slots in left.items() if (place, name) in slots}
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
    if not repairs:
        return finding
    guests = ", ".join(str(one.consumer) for one in ring)
    text = f"set the allocations of guests {guests} to what they really have, at once, as each has the other's place"
    rewrites = tuple(each for one in repairs for each in one.rewrites)
    misplaced = all(one.misplaced for one in repairs)
    return replace(
        finding,
        repair=Repair(text=text, rewrites=rewrites, misplaced=misplaced),
        safe=all(one.safe for one in ring),
    )
