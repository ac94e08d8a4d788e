"""What the laws count on a host: units of devices, functions that a provider claims, and dedicated CPUs."""

from dataclasses import replace
from typing import Any

import pytest

from agent.sync.decide.hardware import Hardware, Host
from drivers.facts import CpuMap, Guest, GuestDevices, HostFacts, Mdev, NumaCell
from hardware import at, card, gpu, host, parent

NIC, VF0, VF1, GPU, VFIO = "0000:81:00.0", "0000:81:10.0", "0000:81:10.1", "0000:84:00.0", "0000:85:00.0"
FIRST = parent(replace(gpu(), address=at(VF0)), a=4, b=16, c=8)
PARENTS = (FIRST, parent(gpu(VFIO)), replace(parent(gpu(VFIO)), name="mtty_mtty", address=None))
FACTS = host(
    *card(NIC, 2),
    *card("0000:82:00.0", 1)[1:],  # its PF cannot be read
    *card("0000:83:00.0", 3)[:1],  # its VFs cannot be read
    gpu(GPU),
    gpu(VFIO),
    parents=PARENTS,
    mdevs=(Mdev("one", "a", FIRST.name), Mdev("other", "a", "mtty_mtty")),
)
OFFERED = {f"host_{NIC}": frozenset({NIC, VF0, VF1}), f"host_{GPU}": frozenset({GPU})}


def hardware(facts: HostFacts = FACTS, *guests: Guest, **known: Any) -> Hardware:
    return Hardware(Host(facts=replace(facts, guests=guests), offered=OFFERED, **known))


def has(address: str, state: str = "running") -> Guest:
    return Guest(uuid=address, state=state, devices=GuestDevices(pci=frozenset({at(address)})))


@pytest.mark.parametrize(
    ("name", "units"),
    [
        (f"host_{NIC}", 2),
        ("host_0000:82:00.0", 1),
        ("host_0000:83:00.0", 3),
        (f"host_{GPU}", 1),
        ("host_0000:99:00.0", None),
        ("host_NUMA0", None),
        (f"host_{FIRST.name}", 1 + 16),
        ("host_pci_0000_85_00_0", 0),
        ("host_mtty_mtty", 1),
    ],
)
def test_a_device_has_its_vfs_or_itself_or_the_mdevs_that_it_can_have(name: str, units: int | None) -> None:
    assert hardware().units(name, written=False) == units


@pytest.mark.parametrize(
    ("guests", "divided", "units"),
    [
        pytest.param((), False, 3, id="all"),
        pytest.param((), True, 1, id="a divided VF takes itself and its PF"),
        pytest.param((has(VF0), has(GPU)), False, 2, id="a VF in use takes its PF"),
        pytest.param((has(NIC),), False, 1, id="a PF in use takes its VFs"),
        pytest.param((has(NIC, "shutoff"),), False, 3, id="a guest that is off takes nothing"),
    ],
)
def test_what_is_in_use_in_another_form_is_no_unit(guests: tuple[Guest, ...], divided: bool, units: int) -> None:
    mdevs = FACTS.devices.mdevs if divided else ()
    facts = replace(FACTS, devices=replace(FACTS.devices, mdevs=mdevs))

    found = hardware(facts, *guests)

    assert [found.units(f"host_{one}", written=True) for one in (NIC, GPU)] == [units, 1]


def test_a_provider_claims_its_functions_and_their_parts() -> None:
    found = hardware(in_total={NIC: frozenset({"A"}), GPU: frozenset({"B"}), "x": frozenset({"A"})})

    assert found.claims("host_pci_0000_81_00_0", written=True) == [NIC]
    assert found.claims(f"other_{NIC}", written=False)[0] == NIC
    assert sorted(found.claims(f"other_{NIC}", written=False)) == [NIC, VF0, VF1]
    assert sorted(found.claims(f"host_{NIC}", written=True)) == [NIC, VF0, VF0, VF1, VF1]
    assert found.in_total("host", {"A"}) == [NIC, VF0, VF1]


def pinned(*vcpus: set[int], emulator: set[int] = frozenset(), state: str = "running") -> Guest:  # type: ignore[assignment]
    return Guest(uuid="", state=state, vcpus=tuple(map(frozenset, vcpus)), emulator_cpus=frozenset(emulator))


def test_a_dedicated_cpu_is_idle_where_no_running_guest_is_pinned_to_it_alone() -> None:
    cells = tuple(NumaCell(id_, 0, frozenset(range(4 * id_, 4 * id_ + 4))) for id_ in (0, 1))
    facts = replace(FACTS, cells=cells, cpu_map=CpuMap(12, frozenset(range(8))), offline_cpus=((9, 0), (10, 1)))
    guests = (
        pinned({2}, {0}, {3, 6}, emulator={7}),
        pinned({9}, emulator={6, 10}),
        pinned({3, 6}, emulator={6}),
        pinned({0}, emulator={10}),
        pinned({3}, state="shutoff"),
    )

    found = hardware(facts, *guests, dedicated=frozenset({2, 3, 6, 7, 9, 10}), formerly=frozenset({2, 3, 11}))

    assert [found.idle(cell, before=False) for cell in (None, 0, 1, 2)] == [3, 1, 2, 0]
    assert [found.idle(cell, before=True) for cell in (None, 0)] == [2, 1]
    assert (len(found.cpus), found.memory_mib) == (10, 0)


def test_a_dedicated_cpu_that_is_off_and_does_not_count_is_not_idle() -> None:
    facts = replace(FACTS, cpu_map=CpuMap(8, frozenset(range(7))))

    found = hardware(facts, pinned({6}, {7}), dedicated=frozenset({4, 5, 6, 7}), off=frozenset({7}))

    assert [found.idle(None, before=before) for before in (False, True)] == [2, 2]
    assert len(found.cpus) == 7
