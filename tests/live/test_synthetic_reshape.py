"""Guests run on a synthetic host while its tree changes its shape and back: nobody stops, and all is where it is."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from beds.agents import Result
from beds.by_hand import ByHand
from beds.golden import HOSTS, GoldenHost, write_layout
from beds.guests import GuestSpec, domain_xml
from beds.placement import PlacementServer
from beds.synthetic.bed import EMULATOR, Host
from beds.synthetic.hosts import FOUR_CELLS
from beds.synthetic.model import Machine
from beds.trees import add_consumer, identity, read_consumer
from drivers.policy import OF_CELLS

pytestmark = pytest.mark.live

Start = Callable[[Machine], Host]
Write = Callable[..., Path]
ROOT = FOUR_CELLS.name
SHARED, DEDICATED = "4-15", "0-3,16-31"  # the cells have CPUs 0-3,16-19; 4-7,20-23; 8-11,24-27; 12-15,28-31
BANDWIDTH = "NET_BW_EGR_KILOBIT_PER_SEC"


@dataclass(frozen=True, slots=True)
class Tenant:
    """A guest, and what it has below the root in the layout numa: by what follows the host's name in a provider's."""

    guest: GuestSpec
    units: Mapping[str, Mapping[str, int]]

    @property
    def flat(self) -> dict[str, dict[str, int]]:
        """All of it on the root, as nova claims it there."""
        claimed = {"DISK_GB": 1}
        for resources in self.units.values():
            for name, amount in resources.items():
                claimed[name] = claimed.get(name, 0) + amount
        return {ROOT: claimed}

    def below(self, layout: str) -> dict[str, dict[str, int]]:
        """In numa or cells; disk has no cell, and in cells small pages are the cell's own."""
        found: dict[str, dict[str, int]] = {ROOT: {"DISK_GB": 1}}
        for suffix, resources in self.units.items():
            place = suffix.removesuffix("_PAGES_4") if layout == "cells" else suffix
            found.setdefault(f"{ROOT}_{place}", {}).update(resources)
        return found


TENANTS = {
    "floating": Tenant(
        GuestSpec(vcpus=2, cpuset=SHARED),
        {"NUMA1": {"VCPU": 2}, "NUMA1_PAGES_4": {"MEMORY_MB": 32}},  # cell 0 has memory, and no shared CPU
    ),
    "on-a-vf": Tenant(
        GuestSpec(cpuset=SHARED, vfs=("0000:81:10.0",)),
        {
            "0000:81:00.0": {"SRIOV_NET_VF": 1, BANDWIDTH: 1000},
            "NUMA1": {"VCPU": 1},
            "NUMA1_PAGES_4": {"MEMORY_MB": 32},
        },
    ),
    "on-a-vgpu": Tenant(
        GuestSpec(cpuset=SHARED, mdevs=("1b20d080-1b54-4048-85b3-a6a62d165c01",)),
        {"pci_0000_86_00_0": {"VGPU": 1}, "NUMA1": {"VCPU": 1}, "NUMA1_PAGES_4": {"MEMORY_MB": 32}},
    ),
    "pinned": Tenant(
        GuestSpec(vcpus=2, pins=("24", "25"), emulator_pin="26", cells=(2,)),
        {"NUMA2": {"PCPU": 3}, "NUMA2_PAGES_4": {"MEMORY_MB": 32}},  # a CPU more for the emulator's threads
    ),
    "on-huge-pages": Tenant(
        GuestSpec(pins=("12-15",), emulator_pin="12-15", cells=(3,), page_kib=2048),
        {"NUMA3": {"VCPU": 1}, "NUMA3_PAGES_2048": {"MEMORY_MB": 32}},
    ),
    "on-two-cells": Tenant(
        GuestSpec(
            vcpus=2,
            pins=("16", "28"),
            emulator_pin="16,28",
            cells=(0, 3),
            memory_mib=64,
            vfs=("0000:01:10.0", "0000:01:10.2"),
            mdevs=("c2177883-f1bb-47f0-914d-32a22e3a8804",),
        ),
        {
            "NUMA0": {"PCPU": 1},
            "NUMA0_PAGES_4": {"MEMORY_MB": 32},
            "NUMA3": {"PCPU": 1},
            "NUMA3_PAGES_4": {"MEMORY_MB": 32},
            "0000:01:00.0": {"SRIOV_NET_VF": 2},
            "pci_0000_06_00_0": {"VGPU": 1},
        },
    ),
}


@dataclass(frozen=True, slots=True)
class TenantsHost:
    """The host with all tenants, reported flat to a placement in which they hold what they have."""

    host: Host
    placement: ByHand
    options: tuple[object, ...]

    def run(self, verb: str, *more: object) -> Result:
        return self.host.run(verb, *self.options, *more, "--format", "json")

    def processes(self) -> dict[str, str]:
        """The process id of every domain that runs, by name."""
        names = self.host.libvirtd.virsh("list", "--name", "--state-running").split()
        folder = self.host.libvirtd.socket.parent / "qemu"
        return {name: (folder / f"{name}.pid").read_text() for name in names}

    def stands(self) -> dict[str, Any]:
        """Every provider, whole but for its generation."""
        rows = self.placement.providers()
        names = {row["uuid"]: name for name, row in rows.items()}
        return {
            name: {
                "uuid": row["uuid"],
                "parent": names.get(row["parent_provider_uuid"]),
                "inventories": self._ask(row, "inventories"),
                "traits": sorted(self._ask(row, "traits")),
                "aggregates": self._ask(row, "aggregates"),
            }
            for name, row in rows.items()
        }

    def held(self) -> dict[str, Any]:
        """What each tenant has, by provider."""
        names = {row["uuid"]: name for name, row in self.placement.providers().items()}
        return {name: read_consumer(self.placement, name, names)["allocations"] for name in TENANTS}

    def _ask(self, row: Mapping[str, Any], aspect: str) -> Any:
        return self.placement.send("GET", f"/resource_providers/{row['uuid']}/{aspect}")[aspect]


@pytest.fixture
def lab(
    synthetic: Start, placement_server: PlacementServer, write_config: Write, tmp_path: Path
) -> Iterator[TenantsHost]:
    host = synthetic(FOUR_CELLS)
    placement = ByHand(placement_server.url)
    with host.doorway(placement_server.url) as url, running(host, TENANTS):
        own = write_config(
            libvirt={"connection_uri": host.libvirtd.uri},
            compute={"layout": "flat", "cpu_shared_set": SHARED, "cpu_dedicated_set": DEDICATED},
            placement={"auth_type": "none", "endpoint": url},
            agent={"state_directory": tmp_path / "state"},
        )
        made = TenantsHost(host, placement, ("--config-file", GoldenHost(HOSTS / ROOT).config, "--config-file", own))
        synced = made.run("sync")
        assert synced.code == 0, synced.out + synced.err
        for name, tenant in TENANTS.items():
            add_consumer(placement, name, {"allocations": tenant.flat})
        yield made


@contextmanager
def running(host: Host, tenants: Mapping[str, Tenant]) -> Iterator[None]:
    started: list[str] = []
    try:
        for name, tenant in tenants.items():
            xml = domain_xml(identity(name), name, tenant.guest, emulator=str(EMULATOR))
            host.libvirtd.virsh("create", "/dev/stdin", text=xml)
            started.append(name)
        yield
    finally:
        with ThreadPoolExecutor() as several:  # libvirt takes two seconds for each
            list(several.map(lambda name: host.libvirtd.virsh("destroy", name), started))


@pytest.mark.parametrize("layout", OF_CELLS)
def test_guests_run_on_and_have_their_units_on_the_cells_pages_and_cards_that_they_are_on(
    lab: TenantsHost, layout: str, tmp_path: Path
) -> None:
    before, processes = lab.stands(), lab.processes()

    planned = lab.run("reshape", "--to", layout)
    untouched = lab.stands(), lab.held()
    applied = lab.run("reshape", "--to", layout, "--apply", "--digest", planned.json["digest"])
    quiet = lab.run("plan", "--config-file", write_layout(layout, tmp_path))

    assert (planned.code, applied.code, quiet.code) == (3, 0, 0), planned.err + applied.out + applied.err + quiet.out
    assert untouched == (before, {name: tenant.flat for name, tenant in TENANTS.items()})
    assert sum("POST /reshaper" in request for request in planned.json["requests"]) == 1
    expected = {name: tenant.below(layout) for name, tenant in TENANTS.items()}
    assert planned.json["after"]["allocations"] == {identity(name): slots for name, slots in expected.items()}
    assert lab.held() == expected
    assert processes.keys() == TENANTS.keys()
    assert lab.processes() == processes


def test_the_way_back_leads_to_the_very_tree_that_was_there(lab: TenantsHost) -> None:
    before, processes = lab.stands(), lab.processes()

    there = lab.run("reshape", "--to", "numa", "--apply")
    between = lab.stands()
    refused = lab.run("sync")
    back = lab.run("reshape", "--to", "flat", "--apply")
    quiet = lab.run("sync")

    assert (there.code, refused.code, back.code, quiet.code) == (0, 3, 0, 0), there.err + back.out + back.err
    assert (refused.json["outcome"], quiet.json["outcome"]) == ("reshape-needed", "unchanged")
    assert len(between) > len(before) == 1
    assert lab.stands() == before
    assert lab.held() == {name: tenant.flat for name, tenant in TENANTS.items()}
    assert lab.processes() == processes


def test_guests_stay_in_their_cells_from_cells_to_numa_and_back(lab: TenantsHost) -> None:
    processes = lab.processes()
    stood: dict[str, Any] = {}

    for layout in ("cells", "numa", "cells", "numa", "flat"):
        done = lab.run("reshape", "--to", layout, "--apply")
        assert done.code == 0, done.out + done.err
        expected = {name: tenant.flat if layout == "flat" else tenant.below(layout) for name, tenant in TENANTS.items()}
        assert lab.held() == expected, layout
        assert stood.setdefault(layout, lab.stands()) == lab.stands()

    assert lab.processes() == processes


def test_a_conversion_is_taken_back_below_guests_that_run_with_one_that_came_since(
    lab: TenantsHost, tmp_path: Path
) -> None:
    devices = write_layout("devices", tmp_path)
    assert lab.run("reshape", "--apply", "--config-file", devices).code == 0
    before, held, processes = lab.stands(), lab.held(), lab.processes()
    assert lab.run("reshape", "--to", "numa", "--apply", "--config-file", devices).code == 0
    late = {"late": Tenant(GuestSpec(cpuset=SHARED), {"NUMA2": {"VCPU": 1}, "NUMA2_PAGES_4": {"MEMORY_MB": 32}})}

    with running(lab.host, late):
        add_consumer(lab.placement, "late", {"allocations": late["late"].below("numa")})
        planned = lab.run("undo", "--config-file", devices)
        applied = lab.run("undo", "--apply", "--digest", planned.json["digest"], "--config-file", devices)
        after = lab.run("show").json["allocations"]

        assert (planned.code, applied.code) == (3, 0), planned.err + applied.out + applied.err
        assert lab.stands() == before
        assert lab.held() == held
        assert after[identity("late")] == {ROOT: {"DISK_GB": 1, "MEMORY_MB": 32, "VCPU": 1}}
        assert {name: lab.processes()[name] for name in processes} == processes
