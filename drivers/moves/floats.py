"""Parcels that go where there is room: floats, amounts that a flavor gives, and consumers without a guest."""

from collections.abc import Iterable, Sequence

from drivers.moves.question import Question, named
from drivers.packing import Demand, Load
from drivers.parcels import Parcel

_SHOWN = 3  # undecided devices in one message
AS_BEFORE = "the guest had it there before the conversion that is taken back"
IN_ITS_CELL = "the allocation stays in its cell, as far as there is room"


class Floats:
    """Loads of parcels that go where there is room; ``problems`` gets a sentence for parcels that cannot."""

    def __init__(self, question: Question, problems: list[str]) -> None:
        self._question = question
        self._problems = problems

    def spread(self, going: list[Parcel], places: Sequence[str], load: Load) -> None:
        """Send parcels whose amount the flavor gives to the first of these places with room, whole if possible."""
        if places:
            why = "the guest's flavor gives the amount, and the guest is bound to this provider"
            self._demand(going, places, why, load)

    def add(self, guest: str, rest: list[Parcel], load: Load) -> None:
        """Send parcels of one class where there is room, or note why they cannot go."""
        if not rest:
            return
        name = rest[0].to_class
        floats = self._question.words.of(guest, name).floating
        candidates = self._question.candidates(name)
        if not floats:  # parcels of a device that is gone stay where they are, whatever other devices offer
            related = self._question.related
            rest = [parcel for parcel in rest if any(related(parcel.provider, place) for place in candidates)]
        if not rest:
            return
        if floats:
            places = [provider for provider in floats.providers if provider in candidates]
            if places:
                self._demand(rest, places, floats.because, load)
            elif candidates:
                self._problems.append(self._missing(guest, rest))
        elif guest in self._question.words.guests:
            self._problems.append(self._missing(guest, rest))
        elif any(self._question.words.may_hold(absent, name) for absent in self._question.absent()):
            self._problems.append(
                f"consumer {rest[0].consumer} has {sum(parcel.amount for parcel in rest)} {name} and matches no guest "
                f"on this host. Some guests without allocations hold {name}, so the agent cannot tell which devices "
                f"the consumer has. If the consumer is in use, end the migration or evacuation of the consumer. If "
                f"the consumer is gone, delete the allocations: run compute-node-agent release {rest[0].consumer}"
            )
        else:
            usual = [place for place in candidates if place not in self._question.huge] or candidates
            why = "the consumer matches no guest on this host, so any provider with room will do"
            self._demand(rest, usual, why, load)

    def _demand(self, going: Iterable[Parcel], places: Sequence[str], because: str, load: Load) -> None:
        """
        Send parcels of one class to the first of these places with room.

        What leaves a provider of a cell stays in this cell as far as it has room there: a change of the layout is no
        reason to take another cell. Where a conversion is taken back, the place before it comes first.
        """
        by_first: dict[tuple[str, str] | None, list[Parcel]] = {}
        for parcel in going:
            former = self._question.former.get((parcel.consumer, parcel.provider, parcel.resource_class), "")
            likely = ((former, AS_BEFORE), (self._question.heir(parcel), IN_ITS_CELL))
            first = next(((place, why) for place, why in likely if place in places), None)
            by_first.setdefault(first, []).append(parcel)
        for first, parcels in by_first.items():
            order = tuple(dict.fromkeys((*((first[0],) if first else ()), *places)))
            load.append(Demand(tuple(parcels), order, first[1] if first else because))

    def _missing(self, guest: str, rest: list[Parcel]) -> str:
        """Return why a guest's parcels of one class have no place: what the hypervisor reports instead."""
        name = rest[0].to_class
        word = self._question.words.of(guest, name)
        said = ", ".join(f"{amount} on {provider}" for provider, amount in sorted(word.units.items())) or "none"
        unoffered = sorted(provider for provider in word.units if (provider, name) not in self._question.stock)
        if unoffered:
            said += f", and {unoffered[0]} offers none"
        amount = sum(parcel.amount for parcel in rest)
        has = f"{named(rest[0].consumer, guest)} has {amount} {name} on {rest[0].provider}"
        if not word.undecided:
            return (
                f"{has}, and the hypervisor gives its guest {said}: correct the difference (end a resize or migration, "
                f"or attach a device again), then plan again"
            )
        lost = ", ".join(f"{one.unit} ({one.because})" for one in word.undecided[:_SHOWN])
        return (
            f"{has}, and the hypervisor gives its guest {said}. The guest also has devices that may count as {name}: "
            f"{lost}. Bring back the card, the mdev type or the device_spec rule, or move the guest away. "
            f"Then plan again"
        )
