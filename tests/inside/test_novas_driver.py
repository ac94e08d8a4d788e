"""
The class that nova loads, on nova's own code: ``make nova-test`` runs this in nova's Python, without services.

The modules are those of the wheel: staged, with their rewritten imports.
"""

# ruff: noqa: E402 - nova wants its threads chosen before anything else of it is imported

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nova.monkey_patch").patch()

import nova.conf
import nova.virt
from nova import exception, objects
from nova.compute import pci_placement_translator, provider_config
from nova.compute.provider_tree import ProviderTree
from nova.compute.resource_tracker import ResourceTracker
from nova.virt import fake
from nova.virt.driver import load_compute_driver

TOP = Path(__file__).parents[2]
HOSTS = TOP / "tests/hosts"
HOST = "full-guest"
ROOT = "11111111-1111-1111-1111-111111111111"
GUEST = "446773c1-567b-485b-9bc7-596961fe33b5"  # has a VF of 0000:81:00.0
PROVIDER_CONFIG = f"""
meta: {{schema_version: '1.0'}}
providers:
  - identification: {{uuid: $COMPUTE_NODE}}
    inventories: {{additional: [CUSTOM_LICENSE: {{total: 4}}]}}
    traits: {{additional: [CUSTOM_RACK]}}
  - identification: {{name: '{HOST}_0000:81:00.0'}}
    inventories: {{additional: [CUSTOM_PORT: {{total: 1}}]}}
"""
FLAT = {"VCPU": 1, "MEMORY_MB": 64, "SRIOV_NET_VF": 1}


class FakeConnection:
    """What the driver does with nova's connection when the host itself is recorded: listen for events."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[..., None]] = []

    def nodeDeviceEventRegisterAny(self, _device: None, _kind: int, callback: Callable[..., None], _: None) -> int:  # noqa: N802
        self.callbacks.append(callback)
        return len(self.callbacks)

    def nodeDeviceEventDeregisterAny(self, _number: int) -> None:  # noqa: N802
        pass


@pytest.fixture(scope="module", autouse=True)
def staged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The content of the wheel, as if it was installed beside nova."""
    folder = tmp_path_factory.mktemp("wheel")
    sys.path.insert(0, str(TOP / "tools"))
    importlib.import_module("nova_driver").stage(folder)
    sys.path.insert(0, str(folder))
    nova.virt.__path__.append(str(folder / "nova/virt"))
    yield
    sys.path.remove(str(folder))


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Any]:
    return lambda layout, more="": start(tmp_path, layout, more)


def start(folder: Path, layout: str, more: str = "") -> Any:
    """nova-compute's driver as nova loads it, over the recorded host, with a counter of surveys."""
    text = (HOSTS / HOST / "agent.conf").read_text().replace("layout = numa", f"layout = {layout}")
    text = text.replace("[pci]\n", f"[pci]\n{more}\n")
    text = text.replace("[compute]\n", f"[compute]\nprovider_config_location = {folder / 'provider_config'}\n")
    path = folder / "nova.conf"
    path.write_text(f"[DEFAULT]\ncompute_driver = compute_node_agent.LibvirtDriver\n{text}")
    nova.conf.CONF.clear()
    nova.conf.CONF(["--config-file", str(path)], project="nova", default_config_files=[])
    objects.register_all()
    driver = load_compute_driver(fake.FakeVirtAPI())
    over_recorded_host(driver)
    return driver


def over_recorded_host(driver: Any) -> None:
    """Put the recorded host below the driver, and count its surveys in ``driver.surveys``."""
    ours = {
        name: importlib.import_module(f"compute_node_agent_nova.{name}")
        for name in (
            "drivers.host.archive",
            "drivers.libvirt.driver",
            "drivers.libvirt.recorded",
            "inside_nova.host",
        )
    }
    policy = driver._shaped._policy
    archive = ours["drivers.host.archive"].HostArchive(HOSTS / HOST / "archive")
    recorded = ours["drivers.libvirt.driver"].LibvirtDriver(
        ours["drivers.libvirt.recorded"].RecordedConnection(archive),
        policy,
        driver._shaped._driver.storage,
    )
    driver.connection, driver.surveys = FakeConnection(), []
    survey = recorded.survey

    def counted(node: str) -> Any:
        driver.surveys.append(node)
        return survey(node)

    recorded.survey = counted
    driver._shaped = ours["inside_nova.host"].Host(
        recorded, policy, 60, lambda: driver.connection, driver._shaped._added
    )


def new_tree() -> ProviderTree:
    tree = ProviderTree()
    tree.new_root(HOST, ROOT, generation=0)
    return tree


def reported(driver: Any, tree: ProviderTree, allocations: dict[str, Any]) -> None:
    """What nova's resource tracker does at its start."""
    try:
        driver.update_provider_tree(tree, HOST)
    except exception.ReshapeNeeded:
        driver.update_provider_tree(tree, HOST, allocations=allocations)


def guests_allocations() -> dict[str, Any]:
    return {
        GUEST: {
            "allocations": {ROOT: {"generation": 3, "resources": dict(FLAT)}},
            "project_id": "project",
            "user_id": "user",
            "consumer_generation": 2,
        }
    }


def totals(tree: ProviderTree) -> dict[str, int]:
    found: dict[str, int] = {}
    for uuid in tree.get_provider_uuids(HOST):
        for name, stock in tree.data(uuid).inventory.items():
            found[name] = found.get(name, 0) + stock["total"]
    return found


def test_nova_loads_the_driver_by_its_name(make: Callable[..., Any]) -> None:
    driver = make("devices")

    assert type(driver).__module__ == "compute_node_agent_nova.inside_nova.driver"
    assert {"agent", "drivers", "reportclient"} & {type(driver._shaped).__module__.split(".")[0]} == set()


def test_nova_starts_with_each_layout_and_nothing_is_lost(make: Callable[..., Any]) -> None:
    tree, allocations = new_tree(), guests_allocations()
    reported(make("flat"), tree, {})
    before = totals(tree)

    for layout, home in (("devices", "full-guest"), ("flat", "full-guest"), ("numa", None), ("flat", "full-guest")):
        driver = make(layout)
        reported(driver, tree, allocations)
        held = {tree.data(uuid).name: one["resources"] for uuid, one in allocations[GUEST]["allocations"].items()}
        assert totals(tree) == before, layout
        assert {name: n for one in held.values() for name, n in one.items()} == FLAT, layout
        assert home is None or home in held
        assert driver.provider_tree.data(HOST).inventory == tree.data(HOST).inventory


def test_a_reshape_is_asked_for_before_anything_changes(make: Callable[..., Any]) -> None:
    tree = new_tree()
    reported(make("flat"), tree, {})
    before = {uuid: tree.data(uuid) for uuid in tree.get_provider_uuids(HOST)}

    with pytest.raises(exception.ReshapeNeeded):
        make("numa").update_provider_tree(tree, HOST)

    assert {uuid: tree.data(uuid) for uuid in tree.get_provider_uuids(HOST)} == before


def test_an_allocation_without_a_place_fails_the_reshape(make: Callable[..., Any]) -> None:
    tree = new_tree()
    reported(make("flat"), tree, {})
    record = {**guests_allocations()[GUEST], "allocations": {ROOT: {"resources": {"SRIOV_NET_VF": 2}}}}
    allocations = {"stranger": record}  # the guest of this host has none, so this may be its migration, or not

    with pytest.raises(exception.ReshapeFailed, match="stranger"):
        make("devices").update_provider_tree(tree, HOST, allocations=allocations)


def test_nova_s_provider_configuration_is_merged_at_each_call(make: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "provider_config").mkdir()
    (tmp_path / "provider_config/license.yaml").write_text(PROVIDER_CONFIG)
    driver, tree = make("devices"), new_tree()
    tracker = ResourceTracker.__new__(ResourceTracker)
    tracker.absent_providers = set()
    configs = provider_config.get_provider_configs(str(tmp_path / "provider_config"))
    tree.add_traits(HOST, "COMPUTE_NODE")

    for _ in range(3):
        reported(driver, tree, {})
        tracker._merge_provider_configs(configs, tree)

    assert tree.data(HOST).inventory["CUSTOM_LICENSE"]["total"] == 4
    assert tree.data(f"{HOST}_0000:81:00.0").inventory.keys() == {"SRIOV_NET_VF", "CUSTOM_PORT"}
    assert "CUSTOM_RACK" in tree.data(HOST).traits


def test_claims_share_one_survey_until_a_device_changes(make: Callable[..., Any]) -> None:
    driver, tree = make("devices"), new_tree()
    driver.update_provider_tree(tree, HOST)
    began = time.monotonic()
    for _ in range(10):
        driver.update_provider_tree(tree, HOST)
    each_ms = (time.monotonic() - began) * 100

    assert len(driver.surveys) == 1
    assert each_ms < 20
    driver.connection.callbacks[0](None, None, 0, 0, None)
    driver.update_provider_tree(tree, HOST)
    assert len(driver.surveys) == 2

    driver.connection = FakeConnection()  # nova connected again
    driver.update_provider_tree(tree, HOST)
    assert len(driver.surveys) == 3


def test_the_claim_of_a_pinned_guest_asks_for_no_reshape(make: Callable[..., Any]) -> None:
    driver, tree = make("numa", "\n[compute]\ncpu_dedicated_set = 1,3\n[pci]"), new_tree()
    driver.update_provider_tree(tree, HOST)

    driver._update_provider_tree_for_pcpu(tree, HOST)

    assert "PCPU" not in tree.data(HOST).inventory
    assert totals(tree)["PCPU"] == 2


def tracked(tree: ProviderTree, name: str) -> None:
    """What nova's PCI tracker makes of the VFs of one card, after the driver."""
    view = pci_placement_translator.PlacementView(HOST, [])
    for number in (0, 2, 4, 6):
        address = f"0000:81:10.{number}"
        device = objects.PciDevice(
            address=address, parent_addr="0000:81:00.0", dev_type="type-VF", status="available", vendor_id="8086",
            product_id="10ca", extra_info={}, instance_uuid=None, compute_node_id=1,
        )  # fmt: skip
        view._add_dev(device, {"resource_class": name})
    view.update_provider_tree(tree, {})


def test_nova_s_pci_tracker_and_the_driver_leave_each_others_providers_alone_in_each_layout(
    make: Callable[..., Any],
) -> None:
    rule = 'device_spec = {"address": "0000:81:10.*", "resource_class": "CUSTOM_RULED"}'
    tree = new_tree()
    reported(make("devices", f"report_in_placement = true\n{rule}"), tree, {})
    tracked(tree, "CUSTOM_RULED")
    card, before = tree.data(f"{HOST}_0000:81:00.0"), totals(tree)

    for layout in ("flat", "cells", "numa", "flat", "devices"):
        reported(make(layout, f"report_in_placement = true\n{rule}"), tree, {})
        tracked(tree, "CUSTOM_RULED")

        after = tree.data(f"{HOST}_0000:81:00.0")
        assert (after.uuid, after.parent_uuid, after.inventory) == (card.uuid, ROOT, card.inventory), layout
        assert totals(tree) == before, layout


def test_nova_s_pci_tracker_finds_its_devices(make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """nova's translator takes the providers of our tree by their names, and changes no stock."""
    rule = 'device_spec = {"address": "0000:81:10.*", "resource_class": "SRIOV_NET_VF"}'
    driver, tree = make("devices", f"report_in_placement = true\n{rule}"), new_tree()
    driver.update_provider_tree(tree, HOST)
    card = tree.data(f"{HOST}_0000:81:00.0")

    tracked(tree, "SRIOV_NET_VF")

    after = tree.data(f"{HOST}_0000:81:00.0")
    assert after.uuid == card.uuid
    assert after.inventory == card.inventory
    assert after.traits >= {"COMPUTE_MANAGED_PCI_DEVICE"}
    driver.update_provider_tree(tree, HOST)
    assert tree.data(card.uuid).inventory == card.inventory
