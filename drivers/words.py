"""What the hypervisor reports of each guest, by class: where its units are, and what is left open."""

from collections.abc import Mapping
from dataclasses import dataclass

from reportclient.allocations import Float, Holdings
from reportclient.names import NO_DEVICES


@dataclass(frozen=True, slots=True)
class Word:
    """What one guest has of one class, as the hypervisor reports it; empty for a consumer that it does not know."""

    units: Mapping[str, int]  # provider's name -> amount
    floating: Float | None
    undecided: tuple[str, ...]  # devices of the guest that may or may not be of this class
    seen: Mapping[str, str]  # provider's name -> what shows its units; left out: nothing
    overridden: bool  # the flavor gives the amount, so only the places count

    @property
    def amount(self) -> int:
        """Amount of the class that the guest has, with or without a place of its own."""
        return sum(self.units.values()) + (self.floating.amount if self.floating else 0)

    @property
    def places(self) -> tuple[str, ...]:
        """Providers where the guest may have some of the class: most units first, then those of its float."""
        units = sorted(self.units, key=lambda provider: (-self.units[provider], provider))
        return tuple(dict.fromkeys((*units, *(self.floating.providers if self.floating else ()))))

    def allows(self, provider: str) -> bool:
        """Return whether all of it may be on this one provider."""
        floats = self.floating is None or provider in self.floating.providers
        return floats and not self.undecided and self.units.keys() <= {provider}


class Words:
    """Holdings, for lookups by guest and class."""

    def __init__(self, holdings: Holdings) -> None:
        self.guests = holdings.guests
        self._told = holdings.told
        self._known = holdings.known
        self._units: dict[str, dict[str, dict[str, int]]] = {}
        self._seen: dict[tuple[str, str], dict[str, str]] = {}
        for unit in holdings.units:
            units = self._units.setdefault(unit.consumer, {}).setdefault(unit.resource_class, {})
            units[unit.provider] = units.get(unit.provider, 0) + unit.amount
            if unit.seen:
                self._seen.setdefault((unit.consumer, unit.resource_class), {})[unit.provider] = unit.seen
        self._floats: dict[str, dict[str, Float]] = {}
        for one in holdings.floats:
            self._floats.setdefault(one.consumer, {})[one.resource_class] = one
        self._undecided = holdings.undecided

    def of(self, guest: str, name: str) -> Word:
        """Return what a guest has of a class."""
        return Word(
            self._units.get(guest, {}).get(name, {}),
            self._floats.get(guest, {}).get(name),
            () if name in NO_DEVICES else self._undecided.get(guest, ()),
            self._seen.get((guest, name), {}),
            guest in self._known and name in self._known[guest].overridden,
        )

    def sums(self, guest: str) -> dict[str, int]:
        """Return the amounts that a guest has, by class."""
        names = self._units.get(guest, {}).keys() | self._floats.get(guest, {}).keys()
        return {name: self.of(guest, name).amount for name in sorted(names)}

    def speaks_of(self, name: str) -> bool:
        """Return whether the hypervisor reports where each guest has, or could have, a class."""
        return name in NO_DEVICES or name in self._told

    def may_hold(self, guest: str, name: str) -> bool:
        """Return whether a guest has units of a class, or a device that may be one."""
        word = self.of(guest, name)
        return bool(word.units or word.undecided)
