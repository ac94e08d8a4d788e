"""A second writer that leaves the root alone, and a placement whose database was put back."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from beds.by_hand import ByHand
from beds.placement import DATABASE, PlacementServer
from beds.upgrades import UPGRADES, Story, Upgrade

pytestmark = pytest.mark.live

ROOT, CARD = "four-cells", "four-cells_pci_0000_06_00_0"


def lab(server: PlacementServer, folder: Path, **agent: Any) -> Upgrade:
    """A host that is up to date; after the first pass, which is a transaction, its providers are read once more."""
    data = Story(UPGRADES / "01-flat-vgpu-to-gpus").data
    data["first"] = data["config"] = {**data["config"], "agent": agent}
    data["guests"], data["before"] = {}, {"providers": {}, "consumers": {}}
    one = Upgrade(data, server.url, folder)
    assert one.run("sync").json["outcome"] == "unchanged"
    return one


def row(placement: ByHand, name: str) -> dict[str, Any]:
    found: dict[str, Any] = placement.send("GET", f"/resource_providers?name={name}")["resource_providers"][0]
    return found


def stock(placement: ByHand, name: str) -> dict[str, Any]:
    found: dict[str, Any] = placement.send("GET", f"/resource_providers/{row(placement, name)['uuid']}/inventories")
    return found


def restock(placement: ByHand, name: str, resource_class: str, **change: Any) -> None:
    """What another service writes."""
    body = stock(placement, name)
    body["inventories"][resource_class] |= change
    placement.send("PUT", f"/resource_providers/{row(placement, name)['uuid']}/inventories", body)


def put_back(server: PlacementServer, name: str, generation: int, total: int) -> None:
    """The database as it was before: one provider's generation, and the total of its one class."""
    with sqlite3.connect(server.directory / DATABASE) as database:
        (id_,) = database.execute("SELECT id FROM resource_providers WHERE name = ?", (name,)).fetchone()
        database.execute("UPDATE resource_providers SET generation = ? WHERE id = ?", (generation, id_))
        database.execute("UPDATE inventories SET total = ? WHERE resource_provider_id = ?", (total, id_))


def test_a_second_writer_that_changes_only_children_is_noticed_and_not_fought(
    placement_server: PlacementServer, tmp_path: Path
) -> None:
    one = lab(placement_server, tmp_path)
    outcomes = []
    for _ in range(2):
        restock(one.placement, CARD, "VGPU", total=3)
        done = one.run("sync")
        outcomes.append(done.json["outcome"])

    assert outcomes == ["changed", "contested"]
    assert f"another service writes on {CARD} too" in done.json["notes"][0]
    assert stock(one.placement, CARD)["inventories"]["VGPU"]["total"] == 3
    assert one.run("sync", "--take-over").json["outcome"] == "changed"


def test_a_backup_that_was_restored_is_no_second_writer(placement_server: PlacementServer, tmp_path: Path) -> None:
    one = lab(placement_server, tmp_path)
    for _ in range(2):
        put_back(placement_server, CARD, row(one.placement, CARD)["generation"] - 1, 3)
        done = one.run("sync")

        assert (done.code, done.json["outcome"]) == (0, "changed")
        assert "placement has older data than at the last pass" in done.json["notes"][0]
        assert not any("another writer changed" in note for note in done.json["notes"])
    assert stock(one.placement, CARD)["inventories"]["VGPU"]["total"] == 16
    assert one.run("sync").json["outcome"] == "unchanged"


def test_a_backup_that_claims_brought_up_is_found_by_the_next_command(
    placement_server: PlacementServer, tmp_path: Path
) -> None:
    one = lab(placement_server, tmp_path)
    put_back(placement_server, CARD, row(one.placement, CARD)["generation"], 3)

    done = one.run("sync")

    assert (done.code, done.json["outcome"]) == (0, "changed")
    assert "placement has older data than at the last pass" in done.json["notes"][0]
    assert stock(one.placement, CARD)["inventories"]["VGPU"]["total"] == 16
