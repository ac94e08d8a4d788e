"""Flavors for the layout cells, with our driver in a real nova-compute: where a server runs, its allocations are."""

import os
import random
import threading
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from beds.by_hand import claim_body
from beds.cloud.cloud import UNTYPED
from beds.cloud.lab import NAME, Lab
from beds.huge_pages import huge_pages

pytestmark = pytest.mark.live

BOOTS = int(os.environ.get("BOOTS", "4"))
OF_THE_HOST = ("VCPU", "PCPU", "MEMORY_MB")
HUGE_KIB = 2048
HUGE_PAGES = 256  # of this machine, for the guests that are backed by them
GROUP = {"resources1:VCPU": "1", "resources1:MEMORY_MB": "64", "trait1:HW_NUMA_ROOT": "required"}
FLAVORS = {
    "one group": GROUP,
    "one group, bound": GROUP | {"hw:numa_nodes": "1"},
    "one group, and a VF": GROUP | {"resources2:SRIOV_NET_VF": "1", "group_policy": "none"},
    "huge pages": {
        "resources1:VCPU": "1",
        "trait1:HW_NUMA_ROOT": "required",
        "resources2:MEMORY_MB": "64",
        f"trait2:CUSTOM_MEMORY_PAGE_SIZE_{HUGE_KIB}": "required",
        "group_policy": "none",
        "hw:mem_page_size": str(HUGE_KIB),
    },
    "pinned": {"hw:cpu_policy": "dedicated"},
}
# Of a synthetic host, this machine has cell 0 alone, and two CPUs of it.
CPUS: dict[str, object] = {
    "cpu_shared_set": "0,2-31",
    "cpu_dedicated_set": "1",
    "packing_host_numa_cells_allocation_strategy": True,
}


@pytest.fixture(scope="module")
def cells(lab: Lab) -> Iterator[Lab]:
    """Our driver inside nova-compute, in the layout cells."""
    for name, specs in FLAVORS.items():
        lab.cloud.add_flavor(name, specs)
    lab = replace(lab, pci={"discover": "all"}, cpus=CPUS)
    lab.start_inside("flat")  # nova cannot move its vGPUs' providers from the root to a cell
    lab.start_inside("cells")
    with huge_pages(HUGE_PAGES):
        yield lab


@contextmanager
def racing(lab: Lab, seed: int) -> Iterator[list[int]]:
    """Another client claims and releases CPUs of random cells all the time; the count of its claims."""
    chance, ended, claims = random.Random(seed), threading.Event(), [0]
    providers = [one["uuid"] for one in lab.cloud.providers() if "_NUMA" in one["name"] and "PAGES" not in one["name"]]

    def race() -> None:
        while not ended.wait(0.05):
            consumer = str(uuid.UUID(int=chance.getrandbits(128), version=4))
            body = claim_body({chance.choice(providers): {"VCPU": chance.randint(1, 4)}}, None)
            path = f"/allocations/{consumer}"
            done = lab.cloud.placement.put(path, json=body, microversion=UNTYPED, raise_exc=False)
            claims[0] += done.status_code == 204
            ended.wait(0.05)
            lab.cloud.placement.delete(f"/allocations/{consumer}", raise_exc=False)

    racer = threading.Thread(target=race)
    racer.start()
    try:
        yield claims
    finally:
        ended.set()
        racer.join()


def cell_of(lab: Lab, server: str) -> int | None:
    """The cell that libvirt binds a guest's memory to; None: it is not bound."""
    bound = ElementTree.fromstring(lab.host.libvirtd.virsh("dumpxml", server)).find("numatune/memory")
    return None if bound is None else int(bound.get("nodeset", ""))


def of_the_host(held: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """What a server has of CPUs and memory, by provider."""
    found = {place: {name: each[name] for name in OF_THE_HOST if name in each} for place, each in held.items()}
    return {place: resources for place, resources in found.items() if resources}


def expected(flavor: str, cell: str) -> dict[str, dict[str, int]]:
    """What a server of a flavor is to have of them, if it runs on a cell."""
    if flavor == "huge pages":
        return {cell: {"VCPU": 1}, f"{cell}_PAGES_{HUGE_KIB}": {"MEMORY_MB": 64}}
    return {cell: {"PCPU" if flavor == "pinned" else "VCPU": 1, "MEMORY_MB": 64}}


@pytest.mark.parametrize("flavor", FLAVORS)
def test_after_one_pass_the_allocations_are_where_the_server_runs(cells: Lab, flavor: str) -> None:
    cloud, elsewhere = cells.cloud, 0
    at_a_time = 1 if flavor == "pinned" else 2  # this machine has one CPU for pinned ones
    with (
        cells.auditing("cells") as status,
        racing(cells, seed=1) as claims,
        ThreadPoolExecutor(at_a_time) as pool,
    ):
        for first in range(0, BOOTS, at_a_time):
            names = [f"{flavor} {number}" for number in range(first, min(first + at_a_time, BOOTS))]
            servers = list(pool.map(lambda name: cloud.boot(name, flavor), names))
            at_first = {server: cloud.allocations(server) for server in servers}
            cells.wait_for_passes(status, 2)  # one of which began after the boot
            for server in servers:
                held, cell = cloud.allocations(server), cell_of(cells, server)
                one = next(place for place, each in held.items() if "VCPU" in each) if cell is None else ""
                assert of_the_host(held) == expected(flavor, one or f"{NAME}_NUMA{cell}")
                elsewhere += held != at_first[server]
            list(pool.map(cloud.delete, servers))
    print(f"\n{flavor}: {BOOTS} boots, {elsewhere} of them allocated elsewhere at first, {claims[0]} claims beside")
    assert claims[0]
    assert cells.findings("audit", "cells") == []
