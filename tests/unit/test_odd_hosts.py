"""Hosts that are odd in the ways of real machines: what each layout reports of them is what an own count says."""

from collections import Counter
from pathlib import Path

import pytest

from agent.connect.choice import Choice, open_driver
from agent.settings.read import load_settings
from beds.odd_hosts import CLASSES, LAYOUTS, WRONG, OddHost, odd_host
from beds.upgrades import write_config
from drivers.errors import PolicyError
from reportclient.tree import ProviderTree

HOSTS = [odd_host(seed) for seed in range(60)]


def discover(host: OddHost, layout: str, folder: Path) -> ProviderTree:
    settings = load_settings([write_config(host.options(layout), folder / f"{layout}.conf")])
    with open_driver(settings, Choice(host=host.write(folder))) as driver:
        return driver.shape(driver.survey(host.name), settings.policy, None)[0]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.name)
def test_an_odd_host_is_reported_as_an_own_count_says(host: OddHost, layout: str, tmp_path: Path) -> None:
    if host.overlaps and layout in ("cells", "numa"):
        with pytest.raises(
            PolicyError, match=f"in several NUMA cells .* so the layout {layout} would count it in each"
        ):
            discover(host, layout, tmp_path)
        return
    found: Counter[str] = Counter()
    for provider in discover(host, layout, tmp_path):
        found.update({name: stock.total - stock.reserved for name, stock in provider.inventories.items()})
    del found["DISK_GB"]

    assert +found == host.right(layout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_host_without_cells_whose_archive_tells_no_memory_has_its_cpus(layout: str, tmp_path: Path) -> None:
    host = OddHost(name="bare", cells=(), online=frozenset(range(8)), total=8)
    if layout in ("cells", "numa"):
        with pytest.raises(PolicyError, match=f"no NUMA cell.*{layout}"):
            discover(host, layout, tmp_path)
        return

    assert {name: stock.total for name, stock in discover(host, layout, tmp_path).root.inventories.items()} == {
        "VCPU": 8,
        "DISK_GB": 100,
    }


def test_the_generated_hosts_have_every_oddity() -> None:
    devices = [device for host in HOSTS for device in host.devices]

    assert {device.wrong for device in devices} == WRONG.keys()
    assert {device.kind for device in devices} == {*CLASSES, "bridge"}
    assert {device.domain for device in devices} == {0, 1, 0xFFFF, 0x10000}
    assert {host.overlaps for host in HOSTS} == {True, False}
    assert any(not cell.cpus for host in HOSTS for cell in host.cells)
    assert any(host.online - {cpu for cell in host.cells for cpu in cell.cpus} for host in HOSTS)
