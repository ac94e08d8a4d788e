"""Our driver inside a real nova-compute: a restart changes the layout of a host under its servers."""

import json
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from beds.cloud.lab import NAME, Lab

pytestmark = pytest.mark.live

BY_TRACKER = {"device_spec": json.dumps({"vendor_id": "8086", "product_id": "10ed"}), "report_in_placement": True}
UNIT = "CUSTOM_PCI_8086_10ED"
LAYOUTS = ("devices", "cells", "numa", "flat", "devices")
SERVERS, AT_A_TIME = 10, 2
OF_CELLS = ("cells", "numa")


def amounts(held: Mapping[str, Mapping[str, int]]) -> Counter[str]:
    """What a server has of each class, wherever."""
    found: Counter[str] = Counter()
    for resources in held.values():
        found.update(resources)
    return found


def test_the_layout_changes_by_restarts_under_servers(lab: Lab) -> None:
    """From devices to cells at once: nova's tracker reports the only devices, and they stay below the root."""
    cloud, inside = lab.cloud, replace(lab, pci=BY_TRACKER, gpus={})
    cloud.add_flavor("with-a-unit", {f"resources:{UNIT}": "1"})
    cloud.add_flavor("larger", {f"resources:{UNIT}": "1"}, vcpus=2, ram=96)
    small = Counter({"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1, UNIT: 1})
    inside.start_inside(LAYOUTS[0])
    totals = inside.totals()
    servers: list[str] = []
    try:
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            names = [f"server-{number}" for number in range(SERVERS)]
            servers += pool.map(lambda name: cloud.boot(name, "with-a-unit"), names)
        for layout in LAYOUTS[1:]:
            inside.start_inside(layout)
            cloud.wait(lambda: inside.totals() == totals, f"the totals of {layout}")
            rows = cloud.rows()
            for server in servers:
                assert amounts(rows[server]) == small
                below = any(place != NAME for place, each in rows[server].items() if "VCPU" in each)
                assert below == (layout in OF_CELLS)

            another = cloud.boot(f"in-{layout}", "with-a-unit")
            cloud.act(another, "resize", {"flavorRef": cloud.flavors["larger"]}, "VERIFY_RESIZE")
            assert amounts(cloud.allocations(another))["VCPU"] == 2
            cloud.act(another, "revertResize", None, "ACTIVE")
            assert amounts(cloud.allocations(another)) == small
            with inside.auditing(layout) as status:  # memory of no cell may be allocated from huge pages
                inside.wait_for_passes(status, 2)
            assert inside.findings("audit", layout) == []
            assert inside.totals() == totals
            cloud.delete(another)
            assert cloud.allocations(another) == {}
            print(f"{layout}: {len(servers)} servers, {inside.totals()}")
    finally:
        for server in servers:
            cloud.delete(server)
