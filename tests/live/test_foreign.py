"""What others put below and on a host's root stays theirs, whatever it looks like."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from beds.placement import PlacementServer
from beds.trees import identity
from beds.upgrades import UPGRADES, Lab, Story

pytestmark = pytest.mark.live

ROOT, CARD = "four-cells", "four-cells_pci_0000_06_00_0"
UNUSED = "four-cells_0000:01:00.0"  # a device of the host that no rule offers


def lab(server: PlacementServer, folder: Path, *, synced: bool = True, **groups: Mapping[str, Any]) -> Lab:
    """A recorded host without guests in the layout ``devices``, and a placement that holds it, or nothing."""
    data = Story(UPGRADES / "01-flat-vgpu-to-gpus").data
    data["config"] = {**data["config"], **groups}
    data["guests"] = {}
    data["before"] = {"providers": {}, "consumers": {}}
    if synced:
        data["first"] = data["config"]
    return Lab(data, server.url, folder)


def root_of(one: Lab) -> dict[str, Any]:
    rows = one.placement.send("GET", f"/resource_providers?name={ROOT}")["resource_providers"]
    found: dict[str, Any] = rows[0]
    return found


def provider(one: Lab, name: str) -> dict[str, Any] | None:
    found: dict[str, Any] | None = one.stands()["providers"].get(name)
    return found


def test_a_providers_other_owner_is_believed_whatever_else_it_carries(
    placement_server: PlacementServer, tmp_path: Path
) -> None:
    one = lab(placement_server, tmp_path)
    one.placement.add_child(root_of(one), UNUSED, "VGPU", 4, "OWNER_CYBORG")
    before = provider(one, UNUSED)

    done = one.run("sync")

    assert (done.code, provider(one, UNUSED)) == (0, before)


def test_a_device_that_another_owner_reports_is_not_reported_twice(
    placement_server: PlacementServer, tmp_path: Path
) -> None:
    one = lab(placement_server, tmp_path, synced=False)
    own = {"name": ROOT, "uuid": identity("four-cells")}
    one.placement.send("POST", "/resource_providers", own)
    one.placement.add_child(own, CARD, "VGPU", 4, "OWNER_CYBORG")
    before = one.stands()

    done = one.run("sync")

    assert (done.code, one.stands()) == (1, before)
    assert f"provider {CARD}" in done.err
    assert "OWNER_CYBORG" in done.err
