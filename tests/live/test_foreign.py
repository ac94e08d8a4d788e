"""What others put below and on a host's root stays theirs, whatever it looks like."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from beds.placement import PlacementServer
from beds.trees import identity
from beds.upgrades import Upgrade, recorded_host

pytestmark = pytest.mark.live

ROOT, CARD = "four-cells", "four-cells_pci_0000_06_00_0"
Lab = Callable[..., Upgrade]
UNUSED = "four-cells_0000:01:00.0"  # a device of the host that no rule offers


@pytest.fixture
def lab(placement_server: PlacementServer, tmp_path: Path) -> Lab:
    """Makes a recorded host without guests in the layout ``devices``, and a placement that holds it, or nothing."""
    return partial(recorded_host, placement_server.url, tmp_path)


@pytest.fixture
def provider_config(tmp_path: Path) -> Path:
    """A folder for the operator's files."""
    folder = tmp_path / "provider_config"
    folder.mkdir()
    return folder


def provider(one: Upgrade, name: str) -> dict[str, Any] | None:
    found: dict[str, Any] | None = one.stands()["providers"].get(name)
    return found


def test_a_providers_other_owner_is_believed_whatever_else_it_carries(lab: Lab) -> None:
    one = lab()
    one.placement.add_child(identity(ROOT), UNUSED, "VGPU", 4, "OWNER_CYBORG")
    before = provider(one, UNUSED)

    done = one.run("sync")

    assert (done.code, provider(one, UNUSED)) == (0, before)


def test_a_device_that_another_owner_reports_is_not_reported_twice(lab: Lab) -> None:
    one = lab(synced=False)
    root = one.placement.add_provider(ROOT, identity(ROOT))
    one.placement.add_child(root, CARD, "VGPU", 4, "OWNER_CYBORG")
    before = one.stands()

    done = one.run("sync")

    assert (done.code, one.stands()) == (1, before)
    assert f"provider {CARD}" in done.err
    assert "OWNER_CYBORG" in done.err


def test_a_provider_yaml_names_a_child_of_novas_by_the_uuid_that_it_has(lab: Lab, provider_config: Path) -> None:
    """Nova gives its children random uuids, which stay when they are taken over."""
    one = lab(synced=False, compute={"provider_config_location": provider_config})
    root = one.placement.add_provider(ROOT, identity(ROOT))
    card = one.placement.add_child(root, CARD, "VGPU", 16, "OWNER_NOVA")
    one.placement.change_stock(card, CUSTOM_LICENCE={"total": 3})
    (provider_config / "a.yaml").write_text(
        f"meta: {{schema_version: '1.0'}}\nproviders:\n  - identification: {{uuid: {card}}}\n"
        f"    inventories: {{additional: [{{CUSTOM_LICENCE: {{total: 3}}}}]}}\n"
    )

    done = one.run("sync")

    stands = provider(one, CARD)
    assert done.code == 0
    assert stands is not None
    assert stands["inventories"]["CUSTOM_LICENCE"]["total"] == 3
    assert one.run("sync").json["outcome"] == "unchanged"
