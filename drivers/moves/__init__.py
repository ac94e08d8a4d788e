"""
Plan which allocations move where when a tree changes its shape: one stateless function for every class.

An allocation goes, in this order: to the only provider of its class above or below, unless the hypervisor contradicts;
to the unit that the guest has, as the hypervisor reports it; for a class that the hypervisor never reports, to the
provider that the guest's other units went to. Floats go where there is room. Amounts never change. An allocation
without such a place makes the whole plan ``Unplaceable``. An allocation of a device that is gone does not move:
``reportclient.hold`` keeps it.
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict

from drivers.moves.classes import check_unallocated, recast
from drivers.moves.places import decide, room_after
from drivers.moves.question import Change, Question
from drivers.parcels import Load, Parcel, amounts, assemble, pack
from reportclient.allocations import Allocation, Holdings, Move, Observed
from reportclient.errors import Unplaceable
from reportclient.names import CPUS
from reportclient.ownership import Ownership
from reportclient.tree import ProviderTree

_SHOWN = 3  # problems in one message


def plan_moves(
    observed: Observed,
    desired: ProviderTree,
    holdings: Holdings,
    ours: Ownership,
    *,
    stand_ins: Mapping[str, str] = {},
    recast_as: Collection[tuple[str, str]] = (),
    pinned_anew: Collection[str] = (),
    former: Mapping[tuple[str, str, str], str] = {},
) -> tuple[Move, ...]:
    """
    Return the moves from what consumers have to what ``desired`` offers; none when everything has its place.

    Providers have the same names in both trees. ``stand_ins`` gives the guest of a consumer that is not a guest itself:
    a migration. ``recast_as`` is as ``exchanged`` returns it. ``pinned_anew`` are the guests that are pinned to CPUs
    which come on offer as PCPU, also where as many others go. ``former`` gives the provider that what floats goes to
    if there is room, by (consumer, provider, class): where it was before a conversion that is taken back.

    Raises:
        Unplaceable: an allocation finds no place, or several and nothing shows which.
    """
    question = Question(observed, desired, holdings, stand_ins, recast_as, pinned_anew, former)
    by_consumer: dict[str, list[Parcel]] = {}
    for one in sorted(_own(observed, ours)):
        by_consumer.setdefault(one.consumer, []).append(Parcel(**asdict(one), to_class=one.resource_class))
    if any(name in CPUS for _, name in question.before):  # a host that is reported for the first time begins with all
        check_unallocated(question, by_consumer)
    decided: list[Parcel] = []
    floating: list[Load] = []
    for consumer, parcels in by_consumer.items():
        sure, loads = decide(question, consumer, recast(question, consumer, parcels))
        decided += sure
        floating += [loads] if loads else []
    room = room_after(question, decided)
    packed, homeless = pack(floating, room, question.stock, question.parents, amounts(decided))
    if problems := [*question.problems, *homeless]:
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise Unplaceable(f"{'; '.join(problems[:_SHOWN])}{more}: nothing was sent")
    return assemble([*decided, *packed])


def exchanged(before: Mapping[str, Collection[str]], now: Mapping[str, Collection[str]]) -> frozenset[tuple[str, str]]:
    """
    Return (old class, new class) of each device that a total counts and whose class changed.

    ``before`` and ``now`` have the classes of each such device. The total itself does not show that two devices
    exchanged their classes.
    """
    both = before.keys() & now.keys()
    return frozenset(
        (old, new)
        for device in both
        for old in before[device]
        for new in now[device]
        if old not in now[device] and new not in before[device]
    )


def displaced(observed: Observed, desired: ProviderTree, ours: Ownership) -> frozenset[str]:
    """Return the consumers whose allocations need a new place: theirs is gone in ``desired``, or divided."""
    leaving = Change(observed.tree, desired).leaving
    return frozenset(one.consumer for one in _own(observed, ours) if leaving((one.provider, one.resource_class)))


def _own(observed: Observed, ours: Ownership) -> list[Allocation]:
    """Return the allocations of stock that is ours."""
    classes = {seen.name: ours.classes(seen) for seen in observed.tree}
    return [one for one in observed.allocations if one.resource_class in classes.get(one.provider, frozenset())]
