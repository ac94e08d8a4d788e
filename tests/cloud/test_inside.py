"""Our driver inside a real nova-compute: a restart changes the layout of a host under its servers."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from statistics import median

import pytest

from beds.cloud.lab import GPUS, NAME, Lab
from drivers.policy import OF_CELLS

pytestmark = pytest.mark.live

UNIT = "CUSTOM_PCI_8086_10ED"
SERVERS, AT_A_TIME = 10, 2


@dataclass(frozen=True, slots=True)
class Way:
    """A way through the layouts, and whose devices the host has on it."""

    layouts: tuple[str, ...]
    pci: dict[str, object]
    gpus: Mapping[str, object]
    specs: Mapping[str, str]  # of the servers' flavors

    @property
    def units(self) -> dict[str, int]:
        """What a server has of devices, by class."""
        return {name.removeprefix("resources:"): int(amount) for name, amount in self.specs.items()}


WAYS = {
    # At once from devices to cells: the devices of nova's tracker are the only ones, and they stay below the root.
    "devices of nova's tracker": Way(
        ("devices", "cells", "numa", "flat", "devices"),
        {"device_spec": json.dumps({"vendor_id": "8086", "product_id": "10ed"}), "report_in_placement": True},
        {},
        {f"resources:{UNIT}": "1"},
    ),
    # Through flat: nova cannot give a child another parent. No server has such a device: QEMU cannot attach it here.
    "vGPUs and VFs of the driver": Way(
        ("devices", "flat", "cells", "numa", "flat", "devices"), {"discover": "all"}, GPUS, {}
    ),
}


def amounts(held: Mapping[str, Mapping[str, int]]) -> Counter[str]:
    """What a server has of each class, wherever."""
    found: Counter[str] = Counter()
    for resources in held.values():
        found.update(resources)
    return found


@pytest.mark.parametrize("way", WAYS)
def test_the_layout_changes_by_restarts_under_servers(lab: Lab, way: str) -> None:
    taken = WAYS[way]
    cloud, inside = lab.cloud, replace(lab, pci=taken.pci, gpus=taken.gpus)
    for name, vcpus, ram in (("with-a-unit", 1, 64), ("larger", 2, 96)):
        cloud.add_flavor(f"{name}, {way}", taken.specs, vcpus=vcpus, ram=ram)
    small = Counter({"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1} | taken.units)
    inside.start_inside(taken.layouts[0])
    totals, devices, called = inside.totals(), inside.units(), len(inside.calls_s())
    servers: list[str] = []
    try:
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            names = [f"server-{number}" for number in range(SERVERS)]
            servers += pool.map(lambda name: cloud.boot(name, f"with-a-unit, {way}"), names)
        for layout in taken.layouts[1:]:
            inside.start_inside(layout)
            cloud.wait(lambda: inside.totals() == totals, f"the totals of {layout}")
            assert inside.units() == devices
            rows = cloud.rows()
            for server in servers:
                assert amounts(rows[server]) == small
                below = any(place != NAME for place, each in rows[server].items() if "VCPU" in each)
                assert below == (layout in OF_CELLS)

            another = cloud.boot(f"in-{layout}", f"with-a-unit, {way}")
            cloud.act(another, "resize", {"flavorRef": cloud.flavors[f"larger, {way}"]}, "VERIFY_RESIZE")
            assert amounts(cloud.allocations(another))["VCPU"] == 2
            cloud.act(another, "revertResize", None, "ACTIVE")
            assert amounts(cloud.allocations(another)) == small
            with inside.auditing(layout) as status:  # memory of no cell may be allocated from huge pages
                inside.wait_for_passes(status, 2)
            assert inside.findings("audit", layout) == []
            assert (inside.totals(), inside.units()) == (totals, devices)
            cloud.delete(another)
            assert cloud.allocations(another) == {}
            print(f"{layout}: {len(servers)} servers, {inside.totals()}, {inside.units()}")
    finally:
        for server in servers:
            cloud.delete(server)
        leave_the_root_alone(inside)
    told(inside.calls_s()[called:])


def leave_the_root_alone(lab: Lab) -> None:
    """The cloud as the next way needs it: what nova's tracker reported once, its option must go on reporting."""
    lab.compute.stop()
    while children := [one for one in lab.cloud.providers() if one["parent_provider_uuid"]]:
        parents = {one["parent_provider_uuid"] for one in children}
        for one in children:
            if one["uuid"] not in parents:
                lab.cloud.placement.delete(f"/resource_providers/{one['uuid']}")


def told(calls: Sequence[tuple[float, float]]) -> None:
    """Print how long nova-compute waited for the driver, as each claim does."""
    print(f"{len(calls)} calls of the driver by nova-compute:")
    for what, each in zip(("reading the host", "deciding"), zip(*calls, strict=True), strict=True):
        print(f"{what}: p50 {1000 * median(each):.1f} ms, max {1000 * max(each):.1f} ms")
