"""A second writer that leaves the root alone, and a placement whose database was put back."""

import sqlite3
from pathlib import Path

import pytest

from beds.by_hand import Row
from beds.placement import DATABASE, PlacementServer
from beds.upgrades import Upgrade, recorded_host

pytestmark = pytest.mark.live

CARD = "four-cells_pci_0000_06_00_0"


@pytest.fixture
def lab(placement_server: PlacementServer, tmp_path: Path) -> Upgrade:
    """A host that is up to date; after the first pass, which is a transaction, its providers are read once more."""
    one = recorded_host(placement_server.url, tmp_path)
    assert one.run("sync").json["outcome"] == "unchanged"
    return one


def card_of(lab: Upgrade) -> Row:
    """The provider of one of its GPUs."""
    return lab.placement.providers()[CARD]


def offered(lab: Upgrade) -> int:
    """The total of that card."""
    return int(lab.placement.stock(card_of(lab)["uuid"])["VGPU"]["total"])


def put_back(server: PlacementServer, name: str, generation: int, total: int) -> None:
    """The database as it was before: one provider's generation, and the total of its one class."""
    with sqlite3.connect(server.directory / DATABASE) as database:
        (id_,) = database.execute("SELECT id FROM resource_providers WHERE name = ?", (name,)).fetchone()
        database.execute("UPDATE resource_providers SET generation = ? WHERE id = ?", (generation, id_))
        database.execute("UPDATE inventories SET total = ? WHERE resource_provider_id = ?", (total, id_))


def test_a_second_writer_that_changes_only_children_is_noticed_and_not_fought(lab: Upgrade) -> None:
    outcomes = []
    for _ in range(2):
        lab.placement.change_stock(card_of(lab)["uuid"], VGPU={"total": 3})
        done = lab.run("sync")
        outcomes.append(done.json["outcome"])

    assert outcomes == ["changed", "contested"]
    assert f"another service writes on {CARD} too" in done.json["notes"][0]
    assert offered(lab) == 3
    assert lab.run("sync", "--take-over").json["outcome"] == "changed"


def test_a_backup_that_was_restored_is_no_second_writer(lab: Upgrade, placement_server: PlacementServer) -> None:
    for _ in range(2):
        put_back(placement_server, CARD, card_of(lab)["generation"] - 1, 3)
        done = lab.run("sync")

        assert (done.code, done.json["outcome"]) == (0, "changed")
        assert "placement has older data than at the last pass" in done.json["notes"][0]
        assert not any("another writer changed" in note for note in done.json["notes"])
    assert offered(lab) == 16
    assert lab.run("sync").json["outcome"] == "unchanged"


def test_a_backup_that_claims_brought_up_is_found_by_the_next_command(
    lab: Upgrade, placement_server: PlacementServer
) -> None:
    put_back(placement_server, CARD, card_of(lab)["generation"], 3)

    done = lab.run("sync")

    assert (done.code, done.json["outcome"]) == (0, "changed")
    assert "placement has older data than at the last pass" in done.json["notes"][0]
    assert offered(lab) == 16
