"""Made-up hosts with cards and guests: the real parsers find on them what the generator put there."""

import hashlib
from collections import Counter
from pathlib import Path

import pytest

from agent.connect.choice import Choice, open_driver
from agent.settings.read import Settings, load_settings
from beds.upgrades import write_config
from drivers.fake.archives import write_archive
from drivers.fake.fleet import generate_fleet, make_hosts
from drivers.fake.hosts import CLASSES, FakeHost
from drivers.fake.shapes import SHAPES, options_of
from reportclient.allocations import Holdings
from reportclient.tree import ProviderTree

WITH_GUESTS = [name for name, shape in SHAPES.items() if shape.has_guests]
FIRST = {
    "small": "44b4d3a1f48992aa",
    "medium": "0d61a990f06e0ce2",
    "large": "3619e902a9319419",
}  # digests of what the first version made


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


@pytest.mark.parametrize("shape", WITH_GUESTS)
@pytest.mark.parametrize("seed", range(4))
def test_what_guests_have_is_found_where_it_was_made(shape: str, seed: int, tmp_path: Path) -> None:
    for host in make_hosts(2, seed=seed, shape=shape):
        tree, holdings = discover(host, "devices", tmp_path)

        assert host.guests
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
        assert {"VCPU", "PCPU", "MEMORY_MB"} <= holdings.told
        assert holdings.undecided == ()
        assert {(f"{host.name}_{card.suffix}", CLASSES[card.kind]): card.parts for card in host.cards} == {
            (one.name, name): stock.total
            for one in tree
            for name, stock in one.inventories.items()
            if name in CLASSES.values()
        }


@pytest.mark.parametrize("shape", WITH_GUESTS)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("layout", ["devices", "numa"])
def test_guests_have_no_more_than_there_is(shape: str, seed: int, layout: str, tmp_path: Path) -> None:
    for host in make_hosts(2, seed=seed, shape=shape):
        tree, holdings = discover(host, layout, tmp_path)
        used: Counter[tuple[str, str]] = Counter()
        for counts in held(holdings).values():
            used += counts
        stocks = {(one.name, name): stock for one in tree for name, stock in one.inventories.items()}

        assert used
        for place, amount in used.items():
            assert amount <= stocks[place].total - stocks[place].reserved


def test_a_mixed_fleet_has_guests_of_every_kind() -> None:
    hosts = make_hosts(4, seed=0, shape="mixed")

    assert {guest.kind for host in hosts for guest in host.guests} == {"plain", "pinned", "pages", "vf", "vgpu"}
    assert len({guest.uuid for host in hosts for guest in host.guests}) == sum(len(host.guests) for host in hosts)
    assert make_hosts(4, seed=0, shape="mixed") == hosts
    assert make_hosts(4, seed=1, shape="mixed") != hosts


@pytest.mark.parametrize(("shape", "digest"), FIRST.items())
def test_a_seed_still_makes_the_hosts_that_the_first_version_made(shape: str, digest: str, tmp_path: Path) -> None:
    generate_fleet(tmp_path, 3, seed=7, shape=shape)
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    text = "".join(f"{path.relative_to(tmp_path)}\n{path.read_text(encoding='utf-8')}" for path in files)

    assert hashlib.sha256(text.encode()).hexdigest().startswith(digest)
