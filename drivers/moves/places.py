"""
The choice of a place for each class that a consumer has: parcels that stay, go to a certain place, or float.

After it comes the check whether each arrival fits, which leaves the room for what floats.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial

from drivers.moves.question import Question, Word, named
from drivers.parcels import Demand, Load, Parcel, Slot, amounts, deal, most_of, staying
from reportclient.allocations import usages
from reportclient.errors import few
from reportclient.names import BANDWIDTH, CPUS

AS_BEFORE = "the guest had it there before the conversion that is taken back"
IN_ITS_CELL = "the allocation stays in its cell, as far as there is room"


def decide(question: Question, consumer: str, parcels: list[Parcel]) -> tuple[list[Parcel], Load]:
    """Return a consumer's parcels with a certain destination, and the load of those that go where there is room."""
    guest = question.stand_ins.get(consumer, consumer)
    sure: list[Parcel] = []
    waiting: list[list[Parcel]] = []
    load: Load = []
    changed = [parcel for parcel in parcels if parcel.to_class != parcel.resource_class]
    anew = {name for parcel in changed for name in (parcel.resource_class, parcel.to_class)}
    for name in sorted({parcel.to_class for parcel in parcels}):
        mine = [parcel for parcel in parcels if parcel.to_class == name]
        out = [parcel for parcel in mine if question.leaving((parcel.provider, name))]
        word = question.word(guest, name)
        if not out and name not in anew:
            sure += [staying(parcel) for parcel in mine]
        elif (only := _only_place(question, guest, name, out)) and _allows(question, guest, name, only):
            sure += [
                replace(parcel, to_provider=only, because=f"the only provider of {name}")
                if parcel in out
                else staying(parcel)
                for parcel in mine
            ]
        elif word.overridden:
            sure += _stay_by_flavor(question, guest, mine, out, changed, load)
        elif _decides(question, word, mine, out):
            dealt, rest = deal(mine, word.units, partial(_reason, consumer, guest, word), question.heir)
            # What is left stays; where a class is new, only where the hypervisor reports a place of the guest.
            staying_at = word.places if name in anew else [one.provider for one in rest]
            kept = [one for one in rest if one.provider in staying_at and not question.leaving((one.provider, name))]
            sure += dealt + [staying(parcel) for parcel in kept]
            _float(question, guest, [parcel for parcel in rest if parcel not in kept], load)
        else:
            waiting.append(mine)
    for mine in waiting:
        stay, rest = _follow(question, guest, mine, sure)
        sure += stay
        _float(question, guest, rest, load)
    return sure, load


def _stay_by_flavor(
    question: Question, guest: str, mine: list[Parcel], out: list[Parcel], changed: list[Parcel], load: Load
) -> list[Parcel]:
    """Return the parcels of one class that stay, where the flavor gives its amount; the others join the load."""
    name = mine[0].to_class
    bound = _bound(question, guest, name)
    astray = [parcel for parcel in changed if bound and parcel.provider not in bound]
    going = [parcel for parcel in mine if parcel in out or parcel in astray]
    if places := bound or question.candidates(name):
        why = "the guest's flavor gives the amount, and the guest is bound to this provider"
        _demand(question, going, places, why, load)
    return [staying(parcel) for parcel in mine if parcel not in going]


def _decides(question: Question, word: Word, mine: Iterable[Parcel], out: Iterable[Parcel]) -> bool:
    """
    Return whether the hypervisor reports exactly what is allocated, and all of that is on offer.

    Where the guest has an undecided device too, what leaves a card may belong to that device: then it may only go
    above or below.
    """
    if not word.places or word.amount != sum(parcel.amount for parcel in mine):
        return False
    if any((provider, parcel.to_class) not in question.stock for provider in word.units for parcel in mine):
        return False
    pairs = ((parcel.provider, provider) for parcel in out for provider in word.units)
    return not word.undecided or all(question.related(*pair) for pair in pairs)


def _allows(question: Question, guest: str, name: str, only: str) -> bool:
    """Return whether the only provider of a class may take all that a consumer has of it."""
    if guest in question.holdings.guests:
        return question.word(guest, name).allows(only)
    return not any(question.word(absent, name).undecided for absent in question.absent())


def _bound(question: Question, guest: str, name: str) -> list[str]:
    """Return the providers of a class that a guest is bound to; a class of CPUs counts for the other one too."""
    names = (name, *CPUS) if name in CPUS else (name,)
    places = [place for each in names for place in question.word(guest, each).places]
    return [place for place in dict.fromkeys(places) if (place, name) in question.stock]


def _only_place(question: Question, guest: str, name: str, out: Collection[Parcel]) -> str | None:
    """Return the only provider of a class, if it is above or below all that goes; a sibling is another device."""
    candidates = question.candidates(name)
    if len(candidates) != 1 or not out or any(_is_of_silent_link(question, guest, parcel) for parcel in out):
        return None
    return candidates[0] if all(question.related(parcel.provider, candidates[0]) for parcel in out) else None


def _is_of_silent_link(question: Question, guest: str, parcel: Parcel) -> bool:
    """Return whether bandwidth of a total may be of a guest's port on a link that shows none now: less is on offer."""
    name = parcel.to_class
    now = sum(stock.total for (_, each), stock in question.stock.items() if each == name)
    silent = (one for one in question.holdings.ports if (one.provider, name) not in question.stock)
    lost = name in BANDWIDTH and now < question.before.get((parcel.provider, name), 0)
    return lost and any(one.consumer == guest for one in silent)


def _follow(
    question: Question, guest: str, mine: list[Parcel], sure: Iterable[Parcel]
) -> tuple[list[Parcel], list[Parcel]]:
    """
    Return the parcels of one class that stay, or follow the guest's other resources; and the rest.

    A class does not follow where the hypervisor itself reports which provider a guest has it on. If that is the
    parcel's own cell, the parcel stays in this cell, though its amount is another one.
    """
    word = question.word(guest, mine[0].to_class)
    stay: list[Parcel] = []
    rest: list[Parcel] = []
    for parcel in mine:
        went = {one.to_provider for one in sure if one.provider == parcel.provider != one.to_provider}
        beside = {provider for provider in went if (provider, parcel.to_class) in question.stock}
        if not question.leaving((parcel.provider, parcel.to_class)):
            stay.append(staying(parcel))
        elif len(beside) == 1 and not (
            question.speaks_of(parcel.to_class) or _is_of_silent_link(question, guest, parcel)
        ):
            why = "placed together with the other resources that the guest has there"
            stay.append(replace(parcel, to_provider=beside.pop(), because=why))
        elif word.units and not word.floating and word.allows(heir := question.heir(parcel)):
            stay.append(replace(parcel, to_provider=heir, because=IN_ITS_CELL))
        else:
            rest.append(parcel)
    return stay, rest


def _float(question: Question, guest: str, rest: list[Parcel], load: Load) -> None:
    """Send parcels of one class where there is room, or note why they cannot go."""
    if not rest:
        return
    name = rest[0].to_class
    floats = question.word(guest, name).floating
    candidates = question.candidates(name)
    if not floats:  # parcels of a device that is gone stay where they are, whatever other devices offer
        rest = [one for one in rest if any(question.related(one.provider, place) for place in candidates)]
    if not rest:
        return
    if floats:
        places = [provider for provider in floats.providers if provider in candidates]
        if places:
            _demand(question, rest, places, floats.because, load, hidden=floats.hidden)
        elif candidates:
            question.problems.append(_missing_text(question, guest, rest))
    elif guest in question.holdings.guests:
        question.problems.append(_missing_text(question, guest, rest))
    elif any((word := question.word(one, name)).units or word.undecided for one in question.absent()):
        question.problems.append(
            f"consumer {rest[0].consumer} has {sum(parcel.amount for parcel in rest)} {name} and matches no guest "
            f"on this host. Some guests without allocations hold {name}, so the agent cannot tell which devices "
            f"the consumer has. If the consumer is in use, end the migration or evacuation of the consumer. If "
            f"the consumer is gone, delete the allocations: run compute-node-agent release {rest[0].consumer}"
        )
    else:
        usual = [place for place in candidates if place not in question.huge] or candidates
        why = "the consumer matches no guest on this host, so any provider with room will do"
        _demand(question, rest, usual, why, load, before=candidates)


def _demand(
    question: Question,
    going: Iterable[Parcel],
    places: Sequence[str],
    because: str,
    load: Load,
    *,
    hidden: bool = False,
    before: Collection[str] = (),
) -> None:
    """
    Send parcels of one class to the first of these places with room; where the place is hidden, none is guessed.

    What leaves a provider of a cell stays in this cell as far as it has room there: a change of the layout is no
    reason to take another cell. Where a conversion is taken back, the place before it comes first, also one of
    ``before`` that placement alone had chosen, as huge pages.
    """
    by_first: dict[tuple[str, str] | None, list[Parcel]] = {}
    for parcel in going:
        former = question.former.get((parcel.consumer, parcel.provider, parcel.resource_class), "")
        likely = ((former, AS_BEFORE, {*places, *before}), (question.heir(parcel), IN_ITS_CELL, places))
        first = next(((place, why) for place, why, usable in likely if place in usable), None)
        by_first.setdefault(first, []).append(parcel)
    for first, parcels in by_first.items():
        if hidden and not first and len(places) > 1:
            question.problems.append(_hidden_text(parcels))
        place, why = first or ("", because)
        order = tuple(dict.fromkeys(filter(None, (place, *places))))
        load.append(Demand(tuple(parcels), order, why, returns=why == AS_BEFORE))


def _hidden_text(parcels: list[Parcel]) -> str:
    """Return why the cell of a guest would be a guess."""
    return (
        f"consumer {parcels[0].consumer} has {sum(one.amount for one in parcels)} {parcels[0].to_class}, its guest is "
        f"not bound to one cell, and in this container nothing shows in which cell the guest's memory is: give the "
        f"container the control groups of the host (podman: --cgroupns=host), then plan again"
    )


def _missing_text(question: Question, guest: str, rest: list[Parcel]) -> str:
    """Return why a guest's parcels of one class have no place: what the hypervisor reports instead."""
    name = rest[0].to_class
    word = question.word(guest, name)
    said = ", ".join(f"{amount} on {provider}" for provider, amount in sorted(word.units.items())) or "none"
    unoffered = sorted(provider for provider in word.units if (provider, name) not in question.stock)
    if unoffered:
        said += f", and {unoffered[0]} offers none"
    amount = sum(parcel.amount for parcel in rest)
    has = f"{named(rest[0].consumer, guest)} has {amount} {name} on {rest[0].provider}"
    if any(_is_of_silent_link(question, guest, parcel) for parcel in rest):
        return f"{has}, and a link of its guest's ports shows none now: bring the link up, or move the guest away"
    if not word.undecided:
        return (
            f"{has}, and the hypervisor gives its guest {said}: correct the difference (end a resize or migration, "
            f"or attach a device again), then plan again"
        )
    return (
        f"{has}, and the hypervisor gives its guest {said}. The guest also has devices that may count as {name}: "
        f"{few(word.undecided)}. Bring back the card, the mdev type or the device_spec rule, or move the guest "
        f"away. Then plan again"
    )


def _reason(consumer: str, guest: str, word: Word, provider: str) -> str:
    """Return why a provider is the place of what a consumer has, with what shows it."""
    if consumer == guest:
        return word.seen.get(provider, "the guest has it there")
    seen = f": {word.seen[provider]}" if provider in word.seen else ""
    return f"its guest {guest} has it there, and migrates{seen}"


def room_after(question: Question, decided: Collection[Parcel]) -> dict[Slot, int]:
    """Return what each slot has left after all certain parcels arrived; note what does not fit."""
    arriving, used = amounts(decided), Counter[Slot]()
    for (_, provider, name), amount in arriving.items():
        used[provider, name] += amount
    moved = {
        (one.consumer, one.to_provider, one.to_class)
        for one in decided
        if (one.to_provider, one.to_class) != (one.provider, one.resource_class)
    }
    before = usages(question.observed.allocations)
    for consumer, provider, name in sorted(moved):
        stock, amount = question.stock[provider, name], arriving[consumer, provider, name]
        if used[provider, name] > max(stock.capacity, before.get((provider, name), 0)):
            question.problems.append(
                f"consumer {consumer} has {amount} {name} that belong on {provider}. With this, {used[provider, name]} "
                f"{name} would be used on {provider}, but the capacity is {stock.capacity} ((total {stock.total} - "
                f"reserved {stock.reserved}) * ratio {stock.allocation_ratio:g}): make room on {provider}, or "
                f"see why it is reserved (compute-node-agent explain {provider} {name})"
            )
        elif most_of(stock, amount) != amount:
            question.problems.append(
                f"consumer {consumer} has {amount} {name} that belong on {provider}, which gives {stock.min_unit} "
                f"to {stock.max_unit} in steps of {stock.step_size}: resize or move that guest first"
            )
    return {slot: stock.capacity - used[slot] for slot, stock in question.stock.items()}
