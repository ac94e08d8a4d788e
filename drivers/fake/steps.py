"""What can happen to a made-up host, and the host as it is afterwards."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import assert_never

from drivers.fake.arrivals import has_room, with_guest
from drivers.fake.hosts import Card, CardKind, FakeHost, GuestKind

SLOTS = 240  # that a card's PCI address has room for
MOST = 63  # VFs or mediated devices of one card


@dataclass(frozen=True, slots=True)
class StartGuest:
    """A guest starts, where the host has a place for it."""

    kind: GuestKind


@dataclass(frozen=True, slots=True)
class EndGuest:
    """A guest ends."""

    number: int | None = None  # None: the oldest guest


@dataclass(frozen=True, slots=True)
class AddCard:
    """A card is plugged into the lowest free slot."""

    card: CardKind
    count: int = 8  # VFs of a NIC, or mediated devices that a GPU can make


@dataclass(frozen=True, slots=True)
class RemoveCard:
    """A card without guests is pulled."""

    slot: int


@dataclass(frozen=True, slots=True)
class SetVfs:
    """A NIC without guests gets another number of VFs."""

    slot: int
    count: int


@dataclass(frozen=True, slots=True)
class SetMemory:
    """The host gets another size of memory."""

    memory_gib: int  # of one cell


Change = StartGuest | EndGuest | AddCard | RemoveCard | SetVfs | SetMemory


def changed(host: FakeHost, change: Change) -> FakeHost:
    """
    Return the host after a change.

    Raises:
        ValueError: this cannot happen to the host; the message says why, and what to do.
    """
    match change:
        case StartGuest(kind):
            return _start(host, kind)
        case EndGuest(number):
            return _end(host, number)
        case AddCard(kind, count):
            return _plug(host, kind, count)
        case RemoveCard(slot):
            return replace(host, cards=_others(host, _idle(host, slot)))
        case SetVfs(slot, count):
            return _set_vfs(host, slot, count)
        case SetMemory(memory_gib):
            return _set_memory(host, memory_gib)
        case _:
            assert_never(change)


def _start(host: FakeHost, kind: GuestKind) -> FakeHost:
    after = with_guest(host, kind)
    if after is host:
        raise ValueError(
            f"{host.name} has no room for a guest of kind {kind}: end a guest first, or start one of another kind"
        )
    return after


def _end(host: FakeHost, number: int | None) -> FakeHost:
    gone = next((guest for guest in host.guests if number in (None, guest.number)), None)
    if gone is None:
        sought = "to end" if number is None else number
        raise ValueError(f"{host.name} has no guest {sought}: {_listed(guest.number for guest in host.guests)}")
    return replace(host, guests=tuple(guest for guest in host.guests if guest is not gone))


def _plug(host: FakeHost, kind: CardKind, count: int) -> FakeHost:
    free = sorted({*range(SLOTS)} - {card.slot for card in host.cards})
    if not free:
        raise ValueError(f"{host.name} has a card in each of its {SLOTS} slots: remove one first")
    return _with(host, Card(kind, free[0], free[0] % host.shape.cells, count))


def _set_vfs(host: FakeHost, slot: int, count: int) -> FakeHost:
    card = _idle(host, slot)
    if card.kind != "nic":
        raise ValueError(f"the card in slot {slot} of {host.name} is a GPU, which has no VFs: name the slot of a NIC")
    return _with(host, replace(card, parts=count))


def _set_memory(host: FakeHost, memory_gib: int) -> FakeHost:
    after = replace(host, memory_gib=memory_gib)
    if memory_gib <= host.shape.huge_gib or not has_room(after):
        raise ValueError(
            f"{memory_gib} GiB in each cell are too few for the guests and the huge pages of {host.name}: end guests "
            f"first, or leave it more memory"
        )
    return after


def _idle(host: FakeHost, slot: int) -> Card:
    """Return the card in a slot; ValueError where there is none, or guests have devices of it."""
    card = next((card for card in host.cards if card.slot == slot), None)
    if card is None:
        raise ValueError(f"{host.name} has no card in slot {slot}: {_listed(card.slot for card in host.cards)}")
    if held := host.held(card):
        raise ValueError(
            f"guests {', '.join(str(guest.number) for guest in held)} of {host.name} have devices of the card in slot "
            f"{slot}: end them first"
        )
    return card


def _with(host: FakeHost, card: Card) -> FakeHost:
    """Return the host with a card in place of one in the same slot."""
    return replace(host, cards=tuple(sorted((*_others(host, card), card), key=lambda card: card.slot)))


def _others(host: FakeHost, card: Card) -> tuple[Card, ...]:
    return tuple(other for other in host.cards if other.slot != card.slot)


def _listed(numbers: Iterable[int]) -> str:
    return f"it has {', '.join(map(str, numbers)) or 'none'} at this moment"
