"""Where nova heals what is allocated of PCI devices, our audit does: the cases of that kind, and of shared storage."""

import json
from pathlib import Path
from typing import Any

import pytest

from beds.agents import Result, run_agent
from beds.by_hand import ByHand
from beds.cases import write_archive, write_config
from beds.guests import GuestSpec, add_guests
from beds.placement import PlacementServer
from beds.trees import add_consumer, identity, lay_down, read_consumer

pytestmark = pytest.mark.live

CASES = Path(__file__).parents[1] / "cases"
RESIZE = "pciheal__PlacementPCIAllocationHealingTests__test_heal_allocation_during_same_host_resize"
PARTIAL = "pciheal__PlacementPCIAllocationHealingTests__test_heal_partial_allocations_during_resize_change_dev_type"
ONCE = "pciheal__RCAndTraitBasedPCIAliasTests__test_one_time_use_workflow"
SHARED = "shared__SharedStorageProviderUsageTestCase__test_rebuild_instance_with_image_traits_on_shared_rp"
EVERY = "heal: [wrong-amount, orphaned]\ngrace_s: 0\nagain_s: 0\nmove_s: 0\nuntyped: true\n"


class Host:
    """The host of a step of a case, reported to a placement; its guests have what the step says."""

    def __init__(self, case: str, number: int, url: str, folder: Path) -> None:
        steps: list[dict[str, Any]] = json.loads((CASES / f"{case}.json").read_text(encoding="utf-8"))["steps"]
        self.step = steps[number]
        mine = [step for step in steps[: number + 1] if step["host_name"] == self.step["host_name"]]
        host = next(step["host"] for step in reversed(mine) if step["host"] != "same")
        conf = next(step["conf"] for step in reversed(mine) if step["conf"] != "same")
        self.name = self.step["host_name"]
        self.placement = ByHand(url)
        self._archive = write_archive(host, self.name, folder / "host")
        own = {
            "placement": {"auth_type": "none", "endpoint": url},
            "agent": {"state_directory": str(folder / "state"), "audit_grace": 0},
        }
        config = write_config(conf | own, folder / "nova.conf")
        self._options = ("--host", self._archive, "--config-file", config, "--format", "json")
        self.policy = folder / "heal.yaml"
        self.policy.write_text(EVERY, encoding="utf-8")
        assert self.run("sync").code == 0

    def run(self, verb: str, *more: object) -> Result:
        return run_agent(verb, *self._options, *more)

    def start_guests(self) -> None:
        """Each consumer's guest, of nova's test flavor, with the devices that nova tracked as its own."""
        devices: dict[str, list[str]] = {consumer: [] for consumer in self.step["after"]["allocations"]}
        for device in self.step["tracked_pci_devices"]:
            if device["instance_uuid"]:
                devices[device["instance_uuid"]].append(device["address"])
        guests = {
            identity(consumer): GuestSpec(vcpus=2, memory_mib=2048, vfs=tuple(addresses))
            for consumer, addresses in devices.items()
        }
        add_guests(self._archive, guests)

    def claim(self) -> None:
        for consumer, allocations in self.step["before"]["allocations"].items():
            add_consumer(self.placement, consumer, {"allocations": allocations})

    def held(self) -> dict[str, Any]:
        names = {row["uuid"]: name for name, row in self.placement.providers().items()}
        return {
            consumer: read_consumer(self.placement, consumer, names)["allocations"]
            for consumer in self.step["after"]["allocations"]
        }

    def heal(self) -> set[str]:
        """The kinds that two looks found; afterwards there is nothing left to find."""
        first = self.run("audit")
        assert first.code == 3, first.out + first.err
        assert self.run("audit", "--heal", "--policy", self.policy).code == 0
        assert self.run("audit").json["findings"] == []
        return {finding["kind"] for finding in first.json["findings"]}


@pytest.mark.parametrize(("case", "number"), [(RESIZE, 1), (RESIZE, 7), (PARTIAL, 1), (PARTIAL, 3)])
def test_devices_that_nobody_allocated_are_allocated_as_nova_does(
    case: str, number: int, placement_server: PlacementServer, tmp_path: Path
) -> None:
    host = Host(case, number, placement_server.url, tmp_path)
    host.start_guests()
    host.claim()

    assert host.heal() == {"wrong-amount"}
    assert host.held() == host.step["after"]["allocations"]


def test_a_one_time_device_that_was_used_is_reserved(placement_server: PlacementServer, tmp_path: Path) -> None:
    host = Host(ONCE, 1, placement_server.url, tmp_path)
    host.start_guests()
    host.claim()

    assert host.run("sync").json["outcome"] == "changed"
    assert host.run("audit").json["findings"] == []
    shown = host.run("show").json["providers"]
    after = host.step["after"]["providers"]
    assert {name: provider["inventories"] for name, provider in shown.items()} == {
        name: provider["inventories"] for name, provider in after.items()
    }
    assert host.run("sync").json["outcome"] == "unchanged"


def test_an_orphan_with_a_disk_on_shared_storage_is_told_until_a_person_releases_it(
    placement_server: PlacementServer, tmp_path: Path
) -> None:
    host = Host(SHARED, 0, placement_server.url, tmp_path)
    stock = {"parent": None, "inventories": {"DISK_GB": {"total": 100}}, "traits": ["MISC_SHARES_VIA_AGGREGATE"]}
    lay_down(host.placement, {"pool": stock})
    host.step["after"] = {"allocations": {"gone": {"pool": {"DISK_GB": 1}}}}
    add_consumer(
        host.placement, "gone", {"allocations": {host.name: {"VCPU": 1, "MEMORY_MB": 512}, "pool": {"DISK_GB": 1}}}
    )

    before = host.held()

    for _ in range(2):
        healed = host.run("audit", "--heal", "--policy", host.policy)
        assert healed.code == 3
        assert {
            (one["kind"], one["resource_class"], one["safe"], one["outcome"]) for one in healed.json["findings"]
        } == {("orphaned", name, False, "reported") for name in ("VCPU", "MEMORY_MB", "DISK_GB")}
        assert f"release {identity('gone')}" in healed.json["findings"][0]["seen"]
        assert host.held() == before

    assert host.run("release", identity("gone")).code == 0
    assert host.run("audit").json["findings"] == []
    assert host.held() == {"gone": {}}
