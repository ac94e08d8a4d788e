"""Lets guests come to a made-up host, and never gives away more than the host has."""

import random
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from drivers.fake.hosts import NAMESPACE, Card, CardKind, FakeGuest, FakeHost, Flavor, GuestKind


def _medium(name: str, *extra_specs: tuple[str, str]) -> Flavor:
    return Flavor(name=name, vcpus=2, memory_mib=4096, disk_gib=40, extra_specs=extra_specs)


DEDICATED = ("hw:cpu_policy", "dedicated")
FLAVORS: Mapping[GuestKind, tuple[Flavor, ...]] = {
    "plain": (
        Flavor(name="m1.small", vcpus=1, memory_mib=2048, disk_gib=20),
        replace(_medium("m1.medium"), swap_mib=512),
    ),
    "pinned": (
        _medium("p1.medium", DEDICATED),
        replace(_medium("p1.large", DEDICATED, ("hw:cpu_thread_policy", "prefer")), vcpus=4, memory_mib=8192),
    ),
    "pages": (_medium("h1.medium", ("hw:mem_page_size", "2MB")),),
    "vf": (_medium("n1.medium", ("pci_passthrough:alias", "fast-port:1")),),
    "vgpu": (_medium("g1.medium", ("resources:VGPU", "1")),),
    "port": (_medium("m1.medium"),),
}
CARD_OF: Mapping[GuestKind, CardKind] = {"vf": "nic", "vgpu": "gpu", "port": "nic"}


def with_guest(host: FakeHost, kind: GuestKind) -> FakeHost:
    """Return the host with one more guest of a kind; the same host where it has no room for it."""
    if kind not in host.kinds:
        return host
    dice = random.Random(f"{host.name}/{len(host.guests)}/{kind}")
    number = len(host.guests) + 1
    guest = FakeGuest(
        uuid=str(uuid.uuid5(NAMESPACE, f"{host.name} guest {number}")),
        number=number,
        kind=kind,
        flavor=dice.choice(FLAVORS[kind]),
        of_image=dice.random() < 0.75,
    )
    afterwards = (replace(host, guests=(*host.guests, placed)) for placed in _places(host, guest, dice))
    return next(filter(has_room, afterwards), host)


def has_room(host: FakeHost) -> bool:
    """
    Return whether the host has room for all of its guests.

    Guests have at most half of the small pages, so that any of them also finds room in one cell.
    """
    guests, shape = host.guests, host.shape
    small_mib = (host.memory_gib - shape.huge_gib) * 1024 // 2
    shared = [one for one in guests if not one.pins]
    usual = [one for one in guests if one.kind != "pages"]
    bounds = [
        (_vcpus(shared), sum(map(len, shape.shared if shape.has_guests else shape.cpus))),
        (_memory(usual), small_mib * shape.cells),
        (sum(one.disk_gib for one in guests), host.disk_gib),
        *((one.flavor.vcpus, len(one.pins)) for one in guests if one.kind == "pinned"),
    ]
    for cell in range(shape.cells):
        bounds += [
            (_vcpus(one for one in shared if one.cell == cell), len(shape.shared[cell])),
            (_memory(one for one in usual if one.cell == cell), small_mib),
            (_memory(one for one in guests if one.kind == "pages" and one.cell == cell), shape.huge_gib * 1024),
        ]
    return all(used <= most for used, most in bounds)


def _places(host: FakeHost, guest: FakeGuest, dice: random.Random) -> Iterator[FakeGuest]:
    """Yield the guest with what it would have in each place, whether or not there is room."""
    if guest.kind in ("pinned", "pages"):
        for cell in dice.sample(range(host.shape.cells), host.shape.cells):
            yield _bound(host, guest, cell)
    elif guest.kind not in CARD_OF:
        yield guest
    else:
        for card in sorted(host.cards, key=lambda card: (len(host.held(card)), card.slot)):
            device = _device(host, card, guest)
            if card.kind == CARD_OF[guest.kind] and device:
                yield replace(guest, card=card.slot, device=device)


def _bound(host: FakeHost, guest: FakeGuest, cell: int) -> FakeGuest:
    """Return the guest bound to a cell; a pinned one has fewer pins than vCPUs where the cell has no more."""
    taken = {cpu for one in host.guests for cpu in one.pins}
    free = tuple(cpu for cpu in host.shape.dedicated[cell] if cpu not in taken)
    return replace(guest, cell=cell, pins=free[: guest.flavor.vcpus] if guest.kind == "pinned" else ())


def _device(host: FakeHost, card: Card, guest: FakeGuest) -> str:
    """Return a device of a card that no guest has; empty: there is none."""
    held = {one.device for one in host.held(card)}
    if card.kind == "nic":
        return next((vf for vf in card.vfs if vf not in held), "")
    return str(uuid.uuid5(NAMESPACE, f"mdev of {guest.uuid}")) if len(held) < card.parts else ""


def _vcpus(guests: Iterable[FakeGuest]) -> int:
    return sum(guest.flavor.vcpus for guest in guests)


def _memory(guests: Iterable[FakeGuest]) -> int:
    return sum(guest.flavor.memory_mib for guest in guests)
