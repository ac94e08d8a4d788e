"""
Plan which allocations move where when a tree changes its shape: one stateless function for every class.

Each allocation first gets the class that the guest really has, or the new name of its class. Then it goes, in this
order: to the only provider of its class above or below, unless the hypervisor contradicts; to the unit that the guest
has, as the hypervisor reports it; for a class that the hypervisor never reports, to the provider that the guest's other
units went to. Floats go where there is room. Amounts never change. An allocation without such a place makes the whole
plan ``Unplaceable``. An allocation of a device that is gone does not move: ``reportclient.hold`` keeps it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, replace
from functools import partial

from drivers.moves.places import decide, room_after
from drivers.moves.question import Change, Question, Word, named
from drivers.parcels import Load, Parcel, amounts, assemble, conversions, pack, relabel
from reportclient.allocations import Allocation, Holdings, Move, Observed
from reportclient.errors import Unplaceable
from reportclient.names import BANDWIDTH, CPUS, NO_DEVICES, device_address
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
        _check_unallocated(question, by_consumer)
    decided: list[Parcel] = []
    floating: list[Load] = []
    for consumer, parcels in by_consumer.items():
        sure, loads = decide(question, consumer, _recast(question, consumer, parcels))
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

    ``before`` and ``now`` have the classes of each such device; those at one address are one: a GPU, and what makes its
    mediated devices. The total itself does not show that two devices exchanged their classes.
    """
    were, are = _by_card(before), _by_card(now)
    return frozenset(
        (old, new)
        for card in were.keys() & are.keys()
        for old in were[card] - are[card]
        for new in are[card] - were[card]
    )


def _by_card(kinds: Mapping[str, Collection[str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for device, classes in kinds.items():
        found.setdefault(device_address(device) or device, set()).update(classes)
    return found


def displaced(observed: Observed, desired: ProviderTree, ours: Ownership) -> frozenset[str]:
    """Return the consumers whose allocations need a new place: theirs is gone in ``desired``, or divided."""
    leaving = Change(observed.tree, desired).leaving
    return frozenset(one.consumer for one in _own(observed, ours) if leaving((one.provider, one.resource_class)))


def _own(observed: Observed, ours: Ownership) -> list[Allocation]:
    """Return the allocations of stock that is ours."""
    classes = {seen.name: ours.classes(seen) for seen in observed.tree}
    return [one for one in observed.allocations if one.resource_class in classes.get(one.provider, frozenset())]


def _recast(question: Question, consumer: str, parcels: list[Parcel]) -> list[Parcel]:
    """Return the parcels, with the class that the guest really has, or with the new name of their class."""
    guest = question.stand_ins.get(consumer, consumer)
    if guest not in question.holdings.guests:
        _check_recast(question, consumer, guest, parcels)
        return [_renamed(question, parcel) for parcel in parcels]
    has, holds = _by_class(parcels), question.sums[guest]
    for name, other, amount in conversions(has - holds, holds - has, partial(_becomes, question, guest, parcels)):
        units = question.word(guest, other).units
        parcels = relabel(parcels, name, other, amount, units, partial(_distance, question, units))
    _check_pinned(question, consumer, guest, parcels)
    _check_recast(question, consumer, guest, parcels)
    return parcels


def _becomes(question: Question, guest: str, parcels: Iterable[Parcel], name: str, other: str) -> bool:
    """Return whether one class of a guest can become another: CPUs by pinning, devices where the name is new."""
    if {name, other} == CPUS:
        return True
    word = question.word(guest, other)
    if {name, other} & (NO_DEVICES | BANDWIDTH) or not word.units:
        return False
    if (name, other) in question.exchanged:
        return not word.undecided
    going = {
        parcel.provider for parcel in parcels if parcel.to_class == name and question.offers_less(parcel.provider, name)
    }
    return all(_is_new_name(question, provider, other, going, word) for provider in word.units)


def _is_new_name(question: Question, provider: str, name: str, going: Collection[str], word: Word) -> bool:
    """
    Return whether a class came to a provider for the class that goes from there, or from above or below it.

    For a guest with an undecided device, only a device's own provider counts: elsewhere the allocation may belong
    to the undecided device.
    """
    stock = question.stock.get((provider, name))
    if stock is None or stock.total <= question.before.get((provider, name), 0):
        return False
    if word.undecided:
        return provider in going and bool(question.parents.get(provider))
    return any(question.related(one, provider) for one in going)


def _distance(question: Question, units: Collection[str], parcel: Parcel) -> int:
    """Return how far a parcel is from a guest's units: 0 above or below one, 1 without a place, 2 elsewhere."""
    if any(question.related(parcel.provider, provider) for provider in units):
        return 0
    return 1 if (parcel.provider, parcel.to_class) not in question.stock else 2


def _check_unallocated(question: Question, by_consumer: Mapping[str, Iterable[Parcel]]) -> None:
    """Refuse to offer CPUs to which guests are pinned that have no CPUs allocated here, as far as is known."""
    has = {consumer for consumer, parcels in by_consumer.items() if _by_class(parcels).keys() & CPUS}
    covered = {question.stand_ins.get(consumer, consumer) for consumer in has}
    for guest in sorted(question.holdings.guests - covered):
        if grown := question.dedicates(guest):
            question.problems.append(
                f"guest {guest} is pinned to {sum(grown.values())} CPUs that {', '.join(grown)} would "
                f"offer as PCPU, and has no CPUs allocated here, nor is it certain which consumer has them for it. "
                f"Other guests would be given the same CPUs. If the guest is on the move, wait for the end of its "
                f"migration, or confirm or revert its resize; if not, run compute-node-agent audit, and give the "
                f"guest its allocations, or undefine it if it is of no use. Then plan again"
            )


def _check_pinned(question: Question, consumer: str, guest: str, parcels: Iterable[Parcel]) -> None:
    """Refuse to offer CPUs to which a guest is pinned without as many PCPU allocated; other sums do not matter."""
    has, word = _by_class(parcels), question.word(guest, "PCPU")
    lacking = word.amount - has["PCPU"]
    grown = question.dedicates(guest)
    if lacking <= 0 or not grown or word.overridden or not has.keys() & CPUS:
        return
    needed = question.word(guest, "VCPU").amount + lacking
    question.problems.append(
        f"{named(consumer, guest)} has {has['VCPU']} VCPU and {has['PCPU']} PCPU allocated, "
        f"but really has {word.amount} PCPU (one for each pinned vCPU, and one for emulator threads on a CPU of "
        f"their own). After the conversion, {', '.join(grown)} would offer {lacking} PCPU of this guest to other "
        f"guests. Do one of these before the conversion: resize the guest; move the guest away; or allocate "
        f"{needed} VCPU to the guest (compute-node-agent claim {guest} --replace --request FILE), of which the "
        f"conversion then turns {lacking} into PCPU"
    )


def _check_recast(question: Question, consumer: str, guest: str, parcels: Iterable[Parcel]) -> None:
    """Refuse allocations of a class that some devices lost, where nothing shows which devices they mean."""
    has = _by_class(parcels)
    for old, new in sorted(question.recast):
        word = question.word(guest, old)
        if has[old] > word.amount or (word.undecided and old in has):
            question.problems.append(
                f"{named(consumer, guest)} has {has[old]} {old} allocated, and the hypervisor gives "
                f"its guest {word.amount} {old}. Devices that were {old} are {new} now, so the agent cannot tell "
                f"which devices the allocation means: move that guest away, end its migration, or release its "
                f"allocations if it is gone (compute-node-agent release {consumer}); or undo the change of classes"
            )


def _renamed(question: Question, parcel: Parcel) -> Parcel:
    """Rename the class of an unknown consumer's parcel, if one other class of the same total replaced it."""
    here, name = parcel.provider, parcel.resource_class
    if name in NO_DEVICES or question.candidates(name) or not question.parents.get(here):
        return parcel
    before, now = question.totals(here)
    gone = [each for each in before.keys() - now if before[each] == before.get(name)]
    new = [each for each in now.keys() - before.keys() - NO_DEVICES if now[each] == before.get(name)]
    return replace(parcel, to_class=new[0]) if len(gone) == len(new) == 1 else parcel


def _by_class(parcels: Iterable[Parcel]) -> Counter[str]:
    found: Counter[str] = Counter()
    for parcel in parcels:
        found[parcel.to_class] += parcel.amount
    return found
