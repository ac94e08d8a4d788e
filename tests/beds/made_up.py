"""Made-up hosts as the real parsers read them, and as placement is to have them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from agent.connect.choice import Choice, open_driver
from agent.settings.read import Settings, load_settings
from beds.by_hand import ByHand, claim_body
from beds.upgrades import write_config
from drivers.fake.archives import write_archive
from drivers.fake.hosts import CLASSES, MDEV_TYPE, Allocations, FakeGuest, FakeHost, Shape
from reportclient.allocations import Holdings
from reportclient.tree import ProviderTree


def stock_of(host: FakeHost) -> dict[tuple[str, str], int]:
    """The total of each provider and class of a host that reports all that it has in the layout devices."""
    root = {
        "VCPU": sum(map(len, host.shape.shared)),
        "PCPU": sum(map(len, host.shape.dedicated)),
        "MEMORY_MB": host.memory_gib * 1024 * host.shape.cells,
        "DISK_GB": host.disk_gib,
    }
    return {(host.name, name): total for name, total in root.items()} | {
        (f"{host.name}_{card.suffix}", CLASSES[card.kind]): card.parts for card in host.cards if card.parts
    }


def claim(placement: ByHand, host: FakeHost, guests: Iterable[FakeGuest]) -> None:
    """Write what nova's scheduler would for guests that are about to start."""
    rows = placement.send("GET", f"/resource_providers?in_tree={host.identity}")["resource_providers"]
    uuids = {row["name"]: row["uuid"] for row in rows}
    slots = {
        guest.uuid: {uuids[provider]: amounts for provider, amounts in host.allocations(guest).items()}
        for guest in guests
    }
    placement.send("POST", "/allocations", {uuid: claim_body(held) for uuid, held in slots.items()})


def release(placement: ByHand, guest: FakeGuest) -> None:
    """Do what nova-compute does when a guest is gone."""
    placement.send("DELETE", f"/allocations/{guest.uuid}")


def settings_for(host: FakeHost, layout: str, folder: Path) -> Settings:
    options = options_of(host.shape)
    compute = {**options.pop("compute", {}), "layout": layout}
    return load_settings([write_config({"compute": compute, **options}, folder / f"{host.name}-{layout}.conf")])


def discover(host: FakeHost, layout: str, folder: Path) -> tuple[ProviderTree, Holdings]:
    archive = folder / host.name
    if not archive.exists():
        write_archive(archive, host)
    settings = settings_for(host, layout, folder)
    with open_driver(settings, Choice(host=archive)) as driver:
        return driver.shape(driver.survey(host.name), settings.policy, None)


def held(holdings: Holdings) -> dict[str, Counter[tuple[str, str]]]:
    found: dict[str, Counter[tuple[str, str]]] = {guest: Counter() for guest in holdings.guests}
    for unit in holdings.units:
        found[unit.consumer][unit.provider, unit.resource_class] += unit.amount
    return found


def _slots(allocations: Allocations) -> dict[tuple[str, str], int]:
    return {(provider, name): amount for provider, amounts in allocations.items() for name, amount in amounts.items()}


def check_as_made(host: FakeHost, folder: Path) -> None:
    """What each guest has, and how many parts each card has, is found as it was made."""
    tree, holdings = discover(host, "devices", folder)
    made = {
        guest.uuid: {
            slot: amount for slot, amount in _slots(host.allocations(guest)).items() if slot[1] in holdings.told
        }
        for guest in host.guests
    }
    ports = {guest.uuid: _slots(host.devices(guest)) for guest in host.guests if guest.kind == "port"}
    assert {one.consumer: {(one.provider, one.resource_class): one.amount} for one in holdings.ports} == ports
    assert held(holdings) == {guest: has | ports.get(guest, {}) for guest, has in made.items()}
    assert not host.guests or {"VCPU", "PCPU", "MEMORY_MB"} <= holdings.told
    assert holdings.undecided == ()
    assert {slot: total for slot, total in stock_of(host).items() if slot[1] in CLASSES.values()} == {
        (one.name, name): stock.total
        for one in tree
        for name, stock in one.inventories.items()
        if name in CLASSES.values()
    }


def options_of(shape: Shape) -> dict[str, dict[str, str]]:
    """Return the options, by group, with which a pass reports all that hosts of a shape have."""
    groups: Mapping[str, dict[str, str]] = {
        "compute": {"cpu_shared_set": _cpu_set(shape.shared), "cpu_dedicated_set": _cpu_set(shape.dedicated)}
        if shape.has_guests
        else {},
        "pci": {"discover": "all"} if shape.nics else {},
        "devices": {"enabled_mdev_types": MDEV_TYPE} if shape.gpus else {},
    }
    return {group: options for group, options in groups.items() if options}


def _cpu_set(parts: tuple[range, ...]) -> str:
    return ",".join(f"{part[0]}-{part[-1]}" for part in parts)
