"""What others put below and on a host's root stays theirs, whatever it looks like."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from beds.placement import PlacementServer
from beds.trees import identity
from beds.upgrades import UPGRADES, Story, Upgrade

pytestmark = pytest.mark.live

ROOT, CARD = "four-cells", "four-cells_pci_0000_06_00_0"
UNUSED = "four-cells_0000:01:00.0"  # a device of the host that no rule offers


def lab(server: PlacementServer, folder: Path, *, synced: bool = True, **groups: Mapping[str, Any]) -> Upgrade:
    """A recorded host without guests in the layout ``devices``, and a placement that holds it, or nothing."""
    data = Story(UPGRADES / "01-flat-vgpu-to-gpus").data
    data["config"] = {**data["config"], **groups}
    data["guests"] = {}
    data["before"] = {"providers": {}, "consumers": {}}
    if synced:
        data["first"] = data["config"]
    return Upgrade(data, server.url, folder)


def root_of(one: Upgrade) -> dict[str, Any]:
    rows = one.placement.send("GET", f"/resource_providers?name={ROOT}")["resource_providers"]
    found: dict[str, Any] = rows[0]
    return found


def provider(one: Upgrade, name: str) -> dict[str, Any] | None:
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


def test_a_provider_yaml_names_a_child_of_novas_by_the_uuid_that_it_has(
    placement_server: PlacementServer, tmp_path: Path
) -> None:
    """Nova gives its children random uuids, which stay when they are taken over."""
    folder = tmp_path / "provider_config"
    folder.mkdir()
    compute = {"layout": "devices", "provider_config_location": str(folder)}
    one = lab(placement_server, tmp_path, synced=False, compute=compute)
    own = {"name": ROOT, "uuid": identity("four-cells")}
    one.placement.send("POST", "/resource_providers", own)
    one.placement.add_child(own, CARD, "VGPU", 16, "OWNER_NOVA")
    card = one.placement.send("GET", f"/resource_providers?name={CARD}")["resource_providers"][0]
    one.placement.send("PUT", "/resource_classes/CUSTOM_LICENCE")
    stock = {"resource_provider_generation": card["generation"], "resource_class": "CUSTOM_LICENCE", "total": 3}
    one.placement.send("POST", f"/resource_providers/{card['uuid']}/inventories", stock)
    (folder / "a.yaml").write_text(
        f"meta: {{schema_version: '1.0'}}\nproviders:\n  - identification: {{uuid: {card['uuid']}}}\n"
        f"    inventories: {{additional: [{{CUSTOM_LICENCE: {{total: 3}}}}]}}\n"
    )

    done = one.run("sync")

    stands = provider(one, CARD)
    assert done.code == 0
    assert stands is not None
    assert stands["inventories"]["CUSTOM_LICENCE"]["total"] == 3
    assert one.run("sync").json["outcome"] == "unchanged"


def test_traits_that_only_devices_get_from_us_stay_on_a_root(placement_server: PlacementServer, tmp_path: Path) -> None:
    one = lab(placement_server, tmp_path)
    names = ["CUSTOM_PHYSNET_PUBLIC", "HW_NIC_SRIOV", "COMPUTE_MANAGED_PCI_DEVICE", "HW_PCI_LIVE_MIGRATABLE"]
    one.placement.send("PUT", "/traits/CUSTOM_PHYSNET_PUBLIC")
    path = f"/resource_providers/{root_of(one)['uuid']}/traits"
    stands = one.placement.send("GET", path)
    one.placement.send("PUT", path, stands | {"traits": [*stands["traits"], *names]})

    done = one.run("sync")

    assert (done.code, done.json["outcome"]) == (0, "unchanged")
    assert set(names) <= set(one.placement.send("GET", path)["traits"])


def test_a_trait_of_ours_goes_from_a_child_though_nobody_remembers_it(
    placement_server: PlacementServer, tmp_path: Path
) -> None:
    one = lab(placement_server, tmp_path, pci={"discover": "all"})
    name = f"{ROOT}_0000:81:00.0"
    rows = one.placement.send("GET", f"/resource_providers?name={name}")["resource_providers"]
    path = f"/resource_providers/{rows[0]['uuid']}/traits"
    stands = one.placement.send("GET", path)
    one.placement.send("PUT", path, stands | {"traits": [*stands["traits"], "HW_PCI_LIVE_MIGRATABLE"]})

    assert one.run("sync").json["outcome"] == "changed"
    assert set(one.placement.send("GET", path)["traits"]) == set(stands["traits"])


def test_a_provider_yaml_adds_to_another_services_provider_and_takes_only_that_away(
    placement_server: PlacementServer, tmp_path: Path
) -> None:
    folder = tmp_path / "provider_config"
    folder.mkdir()
    compute = {"layout": "devices", "provider_config_location": str(folder)}
    one = lab(placement_server, tmp_path, compute=compute)
    name = f"{ROOT}:agent:br0"
    one.placement.add_child(root_of(one), name, "NET_BW_EGR_KILOBIT_PER_SEC", 1000, "OWNER_CYBORG")
    before = provider(one, name)
    assert before
    head = "meta: {schema_version: '1.0'}\n"
    added = "traits: {additional: [CUSTOM_FAST]}, inventories: {additional: [{CUSTOM_LICENCE: {total: 3}}]}"
    (folder / "a.yaml").write_text(f"{head}providers: [{{identification: {{name: '{name}'}}, {added}}}]\n")

    assert one.run("sync").json["outcome"] == "changed"

    stands = provider(one, name)
    assert stands
    assert {each: stock["total"] for each, stock in stands["inventories"].items()} == {
        "CUSTOM_LICENCE": 3,
        "NET_BW_EGR_KILOBIT_PER_SEC": 1000,
    }
    assert set(stands["traits"]) == {*before["traits"], "CUSTOM_FAST"}
    assert one.run("sync").json["outcome"] == "unchanged"
    (folder / "a.yaml").write_text(head)
    assert one.run("sync").json["outcome"] == "changed"
    assert provider(one, name) == before
