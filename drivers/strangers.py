"""Find the guest behind a consumer whose uuid the hypervisor does not know."""

from collections.abc import Iterable, Mapping

from reportclient.allocations import Allocation, Consumer, Holdings
from reportclient.names import CPUS

_MEMORY = "MEMORY_MB"
_Likeness = tuple[str, str, int, int]  # project, user, CPUs of both classes, MiB of memory


def without_host_classes(guests: Iterable[str], allocations: Iterable[Allocation]) -> frozenset[str]:
    """
    Return the guests that have neither CPUs nor memory allocated here, by uuid: a migration may have these.

    A guest that moves keeps its disk on shared storage, and what other services gave it here.
    """
    return frozenset(guests) - {one.consumer for one in allocations if one.resource_class in CPUS | {_MEMORY}}


def find_stand_ins(
    strangers: Iterable[Consumer], guests: Iterable[Consumer], holdings: Holdings, allocations: Iterable[Allocation]
) -> dict[str, str]:
    """
    Return the guest of each stranger, by uuid; without strangers whose guest is in doubt.

    While a guest migrates away, its migration has the allocations on this host. The guest fits if it runs here, has no
    CPUs and no memory on our tree, has the same project and user, and has elsewhere as many CPUs and as much memory as
    the migration here. As many strangers as guests that fit them are no doubt, if the hypervisor gives these guests the
    same: then it makes no difference which stranger is whose. ``guests`` are those that have allocations elsewhere;
    ``allocations`` are all of our tree.
    """
    absent = without_host_classes(holdings.guests, allocations)
    fitting = _by_likeness(one for one in guests if one.uuid in absent)
    found: dict[str, str] = {}
    for likeness, alike in _by_likeness(strangers).items():
        theirs = fitting.get(likeness, [])
        if len(theirs) == len(alike) and len({_has(holdings, guest) for guest in theirs}) == 1:
            found |= zip(alike, theirs, strict=True)
    return found


def _by_likeness(consumers: Iterable[Consumer]) -> Mapping[_Likeness, list[str]]:
    """Return the uuids of consumers that look alike, sorted; without those that have neither CPUs nor memory."""
    found: dict[_Likeness, list[str]] = {}
    for one in sorted(consumers, key=lambda one: one.uuid):
        amounts = one.amounts
        cpus, memory_mib = sum(amounts.get(name, 0) for name in CPUS), amounts.get(_MEMORY, 0)
        if cpus or memory_mib:
            found.setdefault((one.project, one.user, cpus, memory_mib), []).append(one.uuid)
    return found


def _has(holdings: Holdings, guest: str) -> frozenset[tuple[str, int, tuple[str, ...]]]:
    """Return all that the hypervisor gives a guest: class, amount, and the providers where it is or may be."""
    units = {(one.resource_class, one.amount, (one.provider,)) for one in holdings.units if one.consumer == guest}
    floats = {(one.resource_class, one.amount, one.providers) for one in holdings.floats if one.consumer == guest}
    return frozenset(units | floats)
