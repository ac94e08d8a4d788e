"""
The choice of a place for each class that a consumer has: parcels that stay, go to a certain place, or float.

After it comes the check whether each arrival fits, which leaves the room for what floats.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import partial

from drivers.moves.floats import IN_ITS_CELL, Floats
from drivers.moves.question import Question
from drivers.packing import Load, limit
from drivers.parcels import Parcel, Slot, deal, staying
from drivers.words import Word
from reportclient.allocations import usages
from reportclient.names import CPUS


class Places:
    """The choice of places; parcels without a certain place go to ``floats``."""

    def __init__(self, question: Question, floats: Floats) -> None:
        self._question = question
        self._floats = floats

    def decide(self, consumer: str, parcels: list[Parcel]) -> tuple[list[Parcel], Load]:
        """Return a consumer's parcels with a certain destination, and the load of those that go where there is room."""
        guest = self._question.stand_ins.get(consumer, consumer)
        sure: list[Parcel] = []
        waiting: list[list[Parcel]] = []
        load: Load = []
        changed = [parcel for parcel in parcels if parcel.to_class != parcel.resource_class]
        anew = {name for parcel in changed for name in (parcel.resource_class, parcel.to_class)}
        for name in sorted({parcel.to_class for parcel in parcels}):
            mine = [parcel for parcel in parcels if parcel.to_class == name]
            out = [parcel for parcel in mine if self._question.leaving((parcel.provider, name))]
            word = self._question.words.of(guest, name)
            decides = self._decides(word, mine, out)
            if not out and name not in anew:
                sure += [staying(parcel) for parcel in mine]
            elif (only := self._only_place(name, out)) and self._allows(guest, name, only):
                sure += [
                    replace(parcel, to_provider=only, because=f"the only provider of {name}")
                    if parcel in out
                    else staying(parcel)
                    for parcel in mine
                ]
            elif word.overridden:
                sure += self._stay_by_flavor(guest, mine, out, changed, load)
            elif decides:
                dealt, rest = deal(mine, word.units, partial(_reason, consumer, guest, word), self._question.heir)
                kept = [parcel for parcel in rest if self._may_stay(parcel, word, name in anew)]
                sure += dealt + [staying(parcel) for parcel in kept]
                self._floats.add(guest, [parcel for parcel in rest if parcel not in kept], load)
            else:
                waiting.append(mine)
        for mine in waiting:
            stay, rest = self._follow(guest, mine, sure)
            sure += stay
            self._floats.add(guest, rest, load)
        return sure, load

    def _stay_by_flavor(
        self, guest: str, mine: list[Parcel], out: list[Parcel], changed: list[Parcel], load: Load
    ) -> list[Parcel]:
        """Return the parcels of one class that stay, where the flavor gives its amount; the others join the load."""
        name = mine[0].to_class
        bound = self._bound(guest, name)
        astray = [parcel for parcel in changed if bound and parcel.provider not in bound]
        going = [parcel for parcel in mine if parcel in out or parcel in astray]
        self._floats.spread(going, bound or self._question.candidates(name), load)
        return [staying(parcel) for parcel in mine if parcel not in going]

    def _may_stay(self, parcel: Parcel, word: Word, anew: bool) -> bool:
        """Return whether a parcel may stay: with ``anew``, only where the hypervisor reports a place of the guest."""
        return not self._question.leaving((parcel.provider, parcel.to_class)) and (
            not anew or parcel.provider in word.places
        )

    def _decides(self, word: Word, mine: Iterable[Parcel], out: Iterable[Parcel]) -> bool:
        """
        Return whether the hypervisor reports exactly what is allocated, and all of that is on offer.

        Where the guest has an undecided device too, what leaves a card may belong to that device: then it may only go
        above or below.
        """
        if not word.places or word.amount != sum(parcel.amount for parcel in mine):
            return False
        if any((provider, parcel.to_class) not in self._question.stock for provider in word.units for parcel in mine):
            return False
        pairs = ((parcel.provider, provider) for parcel in out for provider in word.units)
        return not word.undecided or all(self._question.related(*pair) for pair in pairs)

    def _allows(self, guest: str, name: str, only: str) -> bool:
        """Return whether the only provider of a class may take all that a consumer has of it."""
        if guest in self._question.words.guests:
            return self._question.words.of(guest, name).allows(only)
        return not any(self._question.words.of(absent, name).undecided for absent in self._question.absent())

    def _bound(self, guest: str, name: str) -> list[str]:
        """Return the providers of a class that a guest is bound to; a class of CPUs counts for the other one too."""
        names = (name, *CPUS) if name in CPUS else (name,)
        places = [place for each in names for place in self._question.words.of(guest, each).places]
        return [place for place in dict.fromkeys(places) if (place, name) in self._question.stock]

    def _only_place(self, name: str, out: Collection[Parcel]) -> str | None:
        """Return the only provider of a class, if it is above or below all that goes; a sibling is another device."""
        candidates = self._question.candidates(name)
        if len(candidates) != 1 or not out:
            return None
        return candidates[0] if all(self._question.related(parcel.provider, candidates[0]) for parcel in out) else None

    def _follow(self, guest: str, mine: list[Parcel], sure: Iterable[Parcel]) -> tuple[list[Parcel], list[Parcel]]:
        """
        Return the parcels of one class that stay, or follow the guest's other resources; and the rest.

        A class does not follow where the hypervisor itself reports which provider a guest has it on. If that is the
        parcel's own cell, the parcel stays in this cell, though its amount is another one.
        """
        word = self._question.words.of(guest, mine[0].to_class)
        stay: list[Parcel] = []
        rest: list[Parcel] = []
        for parcel in mine:
            went = {one.to_provider for one in sure if one.provider == parcel.provider != one.to_provider}
            beside = {provider for provider in went if (provider, parcel.to_class) in self._question.stock}
            if not self._question.leaving((parcel.provider, parcel.to_class)):
                stay.append(staying(parcel))
            elif len(beside) == 1 and not self._question.words.speaks_of(parcel.to_class):
                why = "placed together with the other resources that the guest has there"
                stay.append(replace(parcel, to_provider=beside.pop(), because=why))
            elif word.units and not word.floating and word.allows(heir := self._question.heir(parcel)):
                stay.append(replace(parcel, to_provider=heir, because=IN_ITS_CELL))
            else:
                rest.append(parcel)
        return stay, rest


def _reason(consumer: str, guest: str, word: Word, provider: str) -> str:
    """Return why a provider is the place of what a consumer has, with what shows it."""
    if consumer == guest:
        return word.seen.get(provider, "the guest has it there")
    seen = f": {word.seen[provider]}" if provider in word.seen else ""
    return f"its guest {guest} has it there, and migrates{seen}"


def room_after(question: Question, decided: Iterable[Parcel], problems: list[str]) -> dict[Slot, int]:
    """Return what each slot has left after all certain parcels arrived; note what does not fit."""
    used: dict[Slot, int] = {}
    arriving: dict[tuple[str, str, str], int] = {}
    moved: set[tuple[str, str, str]] = set()
    for parcel in decided:
        slot = parcel.to_provider, parcel.to_class
        used[slot] = used.get(slot, 0) + parcel.amount
        key = parcel.consumer, *slot
        arriving[key] = arriving.get(key, 0) + parcel.amount
        if slot != (parcel.provider, parcel.resource_class):
            moved.add(key)
    before = usages(question.observed.allocations)
    for consumer, provider, name in sorted(moved):
        stock, amount = question.stock[provider, name], arriving[consumer, provider, name]
        if used[provider, name] > max(stock.capacity, before.get((provider, name), 0)):
            advice = question.kept.get((provider, name))
            problems.append(
                f"consumer {consumer} has {amount} {name} that belong on {provider}. With this, {used[provider, name]} "
                f"{name} would be used on {provider}, but the capacity is {stock.capacity} ((total {stock.total} - "
                f"reserved {stock.reserved}) * ratio {stock.allocation_ratio:g})"
                + (f". {advice}" if advice else f": make room on {provider}, or lower the reserved amount")
            )
        elif not limit(stock).takes(amount):
            problems.append(
                f"consumer {consumer} has {amount} {name} that belong on {provider}, which gives {stock.min_unit} "
                f"to {stock.max_unit} in steps of {stock.step_size}: resize or move that guest first"
            )
    return {slot: stock.capacity - used.get(slot, 0) for slot, stock in question.stock.items()}
