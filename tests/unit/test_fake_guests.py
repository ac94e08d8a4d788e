"""Made-up hosts with cards and guests: the real parsers find on them what the generator put there."""

import hashlib
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from beds.made_up import check_as_made, discover, held
from drivers.fake.fleet import generate_fleet, make_hosts
from drivers.fake.hosts import SHAPES, Card

WITH_GUESTS = [name for name, shape in SHAPES.items() if shape.has_guests]
FIRST = {
    "small": "44b4d3a1f48992aa",
    "medium": "0d61a990f06e0ce2",
    "large": "3619e902a9319419",
    "network": "9fb8de86ba9faa14",
    "ports": "8047dc04bb06eae3",
    "gpu": "307e35de26d0ff36",
    "mixed": "da7ab13092c1357e",
}  # digests of what a seed makes: of hosts without guests since the first version


@pytest.mark.parametrize("shape", WITH_GUESTS)
@pytest.mark.parametrize("seed", range(4))
def test_what_guests_have_is_found_where_it_was_made(shape: str, seed: int, tmp_path: Path) -> None:
    for host in make_hosts(2, seed=seed, shape=shape):
        assert host.guests
        check_as_made(host, tmp_path)


def test_a_guest_has_its_swap_on_the_hosts_disk_and_a_root_disk_only_of_an_image() -> None:
    (guest, *_) = make_hosts(1, seed=0, shape="mixed")[0].guests
    flavor = replace(guest.flavor, disk_gib=20, swap_mib=1025)

    assert [replace(guest, flavor=flavor, of_image=of_image).disk_gib for of_image in (True, False)] == [22, 2]
    assert Card("gpu", 0, 0, 8).vfs == ()


def test_a_guest_has_as_much_in_the_layout_flat_as_in_the_layout_devices() -> None:
    (host,) = make_hosts(1, seed=0, shape="mixed")

    for guest in host.guests:
        sums: Counter[str] = Counter()
        for amounts in host.allocations(guest).values():
            sums.update(amounts)
        assert host.flat(guest) == {host.name: dict(sums)}


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
    assert make_hosts(1, seed=0, shape="small")[0].kinds == ("plain",)


def test_guests_have_vfs_for_ports_only_on_hosts_of_that_shape() -> None:
    kinds = {
        shape: {guest.kind for host in make_hosts(8, seed=0, shape=shape) for guest in host.guests} for shape in SHAPES
    }

    assert {shape for shape, found in kinds.items() if "port" in found} == {"ports"}
    assert kinds["ports"] == {"plain", "pinned", "pages", "vf", "port"}


@pytest.mark.parametrize(("shape", "digest"), FIRST.items())
def test_a_seed_still_makes_the_hosts_that_the_first_version_made(shape: str, digest: str, tmp_path: Path) -> None:
    generate_fleet(tmp_path, 3, seed=7, shape=shape)
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    texts |= {path: json.dumps(json.loads(text)) for path, text in texts.items() if path.name == "host.json"}
    text = "".join(f"{path.relative_to(tmp_path)}\n{text}" for path, text in texts.items())

    assert hashlib.sha256(text.encode()).hexdigest().startswith(digest)
