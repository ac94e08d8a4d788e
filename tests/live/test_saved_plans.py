"""A plan is saved, and carried out only as long as it is still the plan."""

import json
from pathlib import Path

import pytest

from beds.golden import HOSTS
from beds.placement import PlacementServer
from beds.upgrades import UPGRADES, Story, Upgrade

pytestmark = pytest.mark.live


@pytest.fixture
def lab(placement_server: PlacementServer, tmp_path: Path) -> Upgrade:
    """A host in its layout, with more disk reserved in its configuration than in placement."""
    lab = Upgrade(Story(UPGRADES / "05-devices-to-numa").data, placement_server.url, tmp_path)
    assert lab.run("reshape", "--apply").code == 0
    assert lab.run("plan").json["operations"] == []
    reserve(lab, 1024)
    return lab


def reserve(lab: Upgrade, mib: int) -> None:
    config = Path(str(lab.options[-1]))
    text = "\n".join(line for line in config.read_text().splitlines() if not line.startswith("reserved_host_disk_mb"))
    head = "" if "[DEFAULT]" in text else "[DEFAULT]\n"
    config.write_text((head + text).replace("[DEFAULT]", f"[DEFAULT]\nreserved_host_disk_mb = {mib}"))


def test_a_saved_plan_is_carried_out_once_and_then_there_is_nothing_to_do(lab: Upgrade, tmp_path: Path) -> None:
    planned = lab.run("plan", "--out", tmp_path / "plan.json")
    done = lab.run("sync", "--plan", tmp_path / "plan.json")
    again = lab.run("sync", "--plan", tmp_path / "plan.json")

    assert (planned.code, done.code, again.code) == (3, 0, 0), planned.err + done.out
    assert done.json["digest"] == planned.json["digest"]
    assert (done.json["outcome"], again.json["outcome"]) == ("changed", "unchanged")
    assert lab.run("plan").json["operations"] == []


def test_another_plan_than_the_saved_one_is_refused_by_name(lab: Upgrade, tmp_path: Path) -> None:
    assert lab.run("plan", "--out", tmp_path / "plan.json").code == 3
    before = lab.run("show").json["providers"]
    reserve(lab, 4096)

    refused = lab.run("sync", "--plan", tmp_path / "plan.json")

    assert (refused.code, refused.json["outcome"]) == (4, "other-plan")
    assert "no plan has the digest" in refused.json["notes"][0]
    assert lab.run("show").json["providers"] == before


def test_a_plan_of_another_host_is_not_carried_out(lab: Upgrade, tmp_path: Path) -> None:
    assert lab.run("plan", "--out", tmp_path / "plan.json").code == 3
    lab.options = ("--host", HOSTS / "odd-cells/archive", *lab.options[2:])

    refused = lab.run("sync", "--plan", tmp_path / "plan.json")

    assert (refused.code, refused.json["notes"]) == (4, ["odd-cells: the file has no plan of this host"])


def test_a_file_that_is_no_plan_or_was_changed_by_hand_is_refused(lab: Upgrade, tmp_path: Path) -> None:
    file = tmp_path / "none.json"
    for text in ("", "{}", '{"format": 1, "checksum": "x", "body": {"plans": []}}'):
        file.write_text(text)
        refused = lab.run("sync", "--plan", file)
        assert (refused.code, "is not a file that plan --out wrote" in refused.err) == (1, True)

    file = tmp_path / "plan.json"
    assert lab.run("plan", "--out", file).code == 3
    record = json.loads(file.read_text())
    record["body"]["plans"][0]["plan"]["digest"] = "0" * 12
    file.write_text(json.dumps(record))

    assert "was changed since" in lab.run("sync", "--plan", file).err
