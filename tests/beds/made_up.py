"""Made-up hosts as the real parsers read them."""

from collections import Counter
from pathlib import Path

from agent.connect.choice import Choice, open_driver
from agent.settings.read import Settings, load_settings
from beds.upgrades import write_config
from drivers.fake.archives import write_archive
from drivers.fake.hosts import CLASSES, FakeHost
from drivers.fake.shapes import options_of
from reportclient.allocations import Holdings
from reportclient.tree import ProviderTree


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


def check_as_made(host: FakeHost, folder: Path) -> None:
    """What each guest has, and how many parts each card has, is found as it was made."""
    tree, holdings = discover(host, "devices", folder)
    made = {
        guest.uuid: {
            (provider, name): amount
            for provider, amounts in host.allocations(guest).items()
            for name, amount in amounts.items()
            if name in holdings.told
        }
        for guest in host.guests
    }
    assert held(holdings) == made
    assert not host.guests or {"VCPU", "PCPU", "MEMORY_MB"} <= holdings.told
    assert holdings.undecided == ()
    assert {(f"{host.name}_{card.suffix}", CLASSES[card.kind]): card.parts for card in host.cards if card.parts} == {
        (one.name, name): stock.total
        for one in tree
        for name, stock in one.inventories.items()
        if name in CLASSES.values()
    }
