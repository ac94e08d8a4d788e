"""
The layouts with cells as schedulers ask them: allocation candidates of a real placement.

In the layout numa the queries are those of nova's approved and never built specification on NUMA in placement, with a
CUSTOM_ prefix on its page size traits, two cells of a guest at a time: a group for each cell of the guest that must be
a NUMA root, and groups for its CPUs and its memory in the same subtree. In the layout cells they are those that nova's
flavors can make: numbered groups.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from beds import placement
from beds.agents import run_agent
from beds.by_hand import ByHand
from beds.golden import HOSTS, GoldenHost, write_layout
from beds.synthetic.hosts import FOUR_CELLS

pytestmark = pytest.mark.live

CELLS = range(4)
SMALL, LARGE = "CUSTOM_MEMORY_PAGE_SIZE_SMALL", "CUSTOM_MEMORY_PAGE_SIZE_LARGE"
HUGE = {2048: "CUSTOM_MEMORY_PAGE_SIZE_2048", 1048576: "CUSTOM_MEMORY_PAGE_SIZE_1048576"}
Answer = frozenset[tuple[str, ...]]


class Scheduler:
    """Asks a placement that holds the host with four cells in one layout."""

    def __init__(self, url: str) -> None:
        self._placement = ByHand(url)
        providers = self._placement.providers()
        self._names = {one["uuid"]: name.removeprefix(f"{FOUR_CELLS.name}_") for name, one in providers.items()}

    def ask(self, query: dict[str, str], *groups: str) -> Answer:
        """Where each of these groups of a query would be, for every candidate."""
        return frozenset(
            tuple(self._names[request["mappings"][group][0]] for group in groups)
            for request in self._candidates({"group_policy": "none", **query})
        )

    def places(self, query: dict[str, str]) -> frozenset[frozenset[str]]:
        """The providers of every candidate."""
        return frozenset(
            frozenset(self._names[uuid] for uuid in request["allocations"]) for request in self._candidates(query)
        )

    def _candidates(self, query: dict[str, str]) -> Any:
        path = f"/allocation_candidates?{urlencode({'limit': '1000', **query}, doseq=True)}"
        return self._placement.send("GET", path)["allocation_requests"]


@pytest.fixture(scope="module")
def scheduler(placement_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduler]:
    """The layout numa."""
    with reporting("numa", placement_template, tmp_path_factory.mktemp("candidates")) as found:
        yield found


@pytest.fixture(scope="module")
def novas(placement_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduler]:
    """The layout cells."""
    with reporting("cells", placement_template, tmp_path_factory.mktemp("candidates")) as found:
        yield found


@contextmanager
def reporting(layout: str, placement_template: Path, folder: Path) -> Iterator[Scheduler]:
    golden = GoldenHost(HOSTS / FOUR_CELLS.name)
    with placement.serving(folder / "placement", placement_template) as server:
        config = folder / "agent.conf"
        config.write_text(
            f"[placement]\nauth_type = none\nendpoint = {server.url}\n[agent]\nstate_directory = {folder}/state\n"
        )
        files = (golden.config, config, write_layout(layout, folder))
        options = [option for file in files for option in ("--config-file", file)]
        synced = run_agent("sync", "--host", golden.archive, *options)
        assert synced.code == 0, synced.err
        yield Scheduler(server.url)


def cell(number: int, *, vcpus: int = 2, memory_mb: int = 1024, pages: str = SMALL, **more: str) -> dict[str, str]:
    """One cell of a guest; ``more`` asks for other resources in the same subtree, by name of their group."""
    groups = [f"_NUMA{number}", f"_CPUS{number}", f"_MEM{number}", *(f"_{name}{number}" for name in more)]
    query = {
        f"required_NUMA{number}": "HW_NUMA_ROOT",
        f"resources_CPUS{number}": f"VCPU:{vcpus}",
        f"resources_MEM{number}": f"MEMORY_MB:{memory_mb}",
        f"required_MEM{number}": pages,
        **{f"resources_{name}{number}": wanted for name, wanted in more.items()},
    }
    return query | {"same_subtree": ",".join(groups)}


def both(first: dict[str, str], second: dict[str, str]) -> dict[str, Any]:
    """Two cells in one query; each has a same_subtree of its own."""
    return {**first, **second, "same_subtree": [first["same_subtree"], second["same_subtree"]]}


def pool(cell_: int, size: int) -> str:
    return f"NUMA{cell_}_PAGES_{size}"


def test_two_cells_of_a_guest_can_be_on_any_two_cells_of_the_host_or_on_one(scheduler: Scheduler) -> None:
    found = scheduler.ask(both(cell(0), cell(1)), "_NUMA0", "_MEM0", "_NUMA1", "_MEM1")

    assert found == {
        (f"NUMA{one}", pool(one, 4), f"NUMA{other}", pool(other, 4)) for one, other in product(CELLS, CELLS)
    }


def test_cpus_and_memory_of_one_cell_come_from_one_cell(scheduler: Scheduler) -> None:
    found = scheduler.ask(cell(0), "_NUMA0", "_CPUS0", "_MEM0")

    assert found == {(f"NUMA{one}", f"NUMA{one}", pool(one, 4)) for one in CELLS}


def test_a_guest_that_fits_no_cell_alone_fits_nowhere(scheduler: Scheduler) -> None:
    assert scheduler.ask(cell(0, memory_mb=60_000), "_MEM0") == frozenset()  # 59264 MiB of small pages in each
    assert scheduler.ask(cell(0, vcpus=9), "_CPUS0") == frozenset()  # 8 CPUs in each: a guest has no CPU twice


@pytest.mark.parametrize(("size", "memory_mb"), [(2048, 512), (1048576, 1024)])
def test_large_pages_of_a_size(scheduler: Scheduler, size: int, memory_mb: int) -> None:
    one_cell, another = (cell(number, pages=HUGE[size], memory_mb=memory_mb) for number in (0, 1))

    found = scheduler.ask(both(one_cell, another), "_MEM0", "_MEM1")

    assert found == {(pool(one, size), pool(other, size)) for one, other in product(CELLS, CELLS)}


def test_large_pages_of_whatever_size(scheduler: Scheduler) -> None:
    found = scheduler.ask(cell(0, pages=LARGE), "_MEM0")

    assert found == {(pool(one, size),) for one in CELLS for size in HUGE}


def test_pages_of_any_size(scheduler: Scheduler) -> None:
    found = scheduler.ask(cell(0, pages=f"in:{SMALL},{LARGE}"), "_MEM0")

    assert found == {(pool(one, size),) for one in CELLS for size in (4, *HUGE)}


def test_memory_is_given_in_whole_pages(scheduler: Scheduler) -> None:
    assert scheduler.ask(cell(0, pages=f"in:{SMALL},{LARGE}", memory_mb=1026), "_MEM0") == {
        (pool(one, size),) for one in CELLS for size in (4, 2048)
    }
    assert scheduler.ask(cell(0, pages=HUGE[2048], memory_mb=1025), "_MEM0") == frozenset()


def test_reserved_huge_pages_are_not_given(scheduler: Scheduler) -> None:
    """Cell 0 keeps 64 pages of 2 MiB: 128 of its 2048 MiB."""
    found = scheduler.ask(cell(0, pages=HUGE[2048], memory_mb=2000), "_MEM0")

    assert found == {(pool(one, 2048),) for one in (1, 2, 3)}


def test_a_vf_with_numa_affinity_comes_from_the_cell_of_the_guest(scheduler: Scheduler) -> None:
    found = scheduler.ask(cell(0, NET="SRIOV_NET_VF:1"), "_NUMA0", "_MEM0", "_NET0")

    assert found == {
        ("NUMA0", pool(0, 4), "0000:01:00.0"),
        ("NUMA2", pool(2, 4), "0000:81:00.0"),
    }


def test_a_vf_and_its_bandwidth_come_from_one_card(scheduler: Scheduler) -> None:
    wanted = "SRIOV_NET_VF:1,NET_BW_EGR_KILOBIT_PER_SEC:1000000,NET_BW_IGR_KILOBIT_PER_SEC:1000000"

    assert scheduler.ask({"resources_NET": wanted}, "_NET") == {("0000:01:00.0",), ("0000:81:00.0",)}


def test_a_vgpu_on_one_cell_and_a_vf_on_another(scheduler: Scheduler) -> None:
    found = scheduler.ask(both(cell(0, GPU="VGPU:1"), cell(1, NET="SRIOV_NET_VF:2")), "_GPU0", "_NET1")

    assert found == set(product(("pci_0000_06_00_0", "pci_0000_86_00_0"), ("0000:01:00.0", "0000:81:00.0")))


def test_a_guest_that_names_no_cell_lands_where_one_provider_can_serve_each_class(scheduler: Scheduler) -> None:
    """Its CPUs may be of one cell and its memory, of whatever page size, of another."""
    found = scheduler.places({"resources": "VCPU:2,MEMORY_MB:1024,DISK_GB:1"})

    pools = [pool(one, size) for one in CELLS for size in (4, *HUGE)]
    assert found == {frozenset({f"NUMA{one}", memory, FOUR_CELLS.name}) for one, memory in product(CELLS, pools)}


def test_such_guests_can_be_kept_off(scheduler: Scheduler) -> None:
    assert not scheduler.places({"resources": "VCPU:2,MEMORY_MB:1024,DISK_GB:1", "required": "!HW_NUMA_ROOT"})


GROUP = {"resources1": "VCPU:2,MEMORY_MB:1024", "required1": "HW_NUMA_ROOT", "resources": "DISK_GB:1"}


def test_one_numbered_group_of_a_flavor_comes_from_one_cell(novas: Scheduler) -> None:
    assert novas.places(GROUP) == {frozenset({f"NUMA{one}", FOUR_CELLS.name}) for one in CELLS}


def test_a_group_that_fits_no_cell_alone_fits_nowhere(novas: Scheduler) -> None:
    assert not novas.places(GROUP | {"resources1": "VCPU:2,MEMORY_MB:60000"})  # 59264 MiB of small pages in each
    assert not novas.places(GROUP | {"resources1": "VCPU:9,MEMORY_MB:1024"})  # 8 CPUs in each


def test_two_numbered_groups_come_from_two_cells_if_isolated(novas: Scheduler) -> None:
    second = {"resources2": "VCPU:2,MEMORY_MB:1024", "required2": "HW_NUMA_ROOT", "group_policy": "isolate"}

    found = novas.ask(GROUP | second, "1", "2")

    assert found == {(f"NUMA{one}", f"NUMA{other}") for one, other in product(CELLS, CELLS) if one != other}


def test_a_vf_beside_such_a_group_comes_from_any_cell_unless_a_subtree_is_named(novas: Scheduler) -> None:
    """nova's flavors cannot name the subtree; a scheduler that can needs no other layout for it."""
    query = GROUP | {"resources_NET": "SRIOV_NET_VF:1"}
    cards = {"0000:01:00.0": 0, "0000:81:00.0": 2}  # card -> its cell

    anywhere = novas.ask(query, "1", "_NET")
    beside = novas.ask(query | {"same_subtree": "1,_NET"}, "1", "_NET")

    assert anywhere == {(f"NUMA{one}", card) for one, card in product(CELLS, cards)}
    assert beside == {(f"NUMA{one}", card) for card, one in cards.items()}


def test_huge_pages_beside_cpus_of_a_cell_are_of_any_cell(novas: Scheduler) -> None:
    query = {
        "resources1": "VCPU:2",
        "required1": "HW_NUMA_ROOT",
        "resources2": "MEMORY_MB:512",
        "required2": HUGE[2048],
    }

    assert novas.ask(query, "1", "2") == {(f"NUMA{one}", pool(other, 2048)) for one, other in product(CELLS, CELLS)}


def test_a_request_without_a_group_may_have_cpus_and_memory_of_different_cells(novas: Scheduler) -> None:
    found = novas.places({"resources": "VCPU:2,MEMORY_MB:1024,DISK_GB:1"})

    memory = [*(f"NUMA{one}" for one in CELLS), *(pool(one, size) for one in CELLS for size in HUGE)]
    assert found == {frozenset({f"NUMA{one}", other, FOUR_CELLS.name}) for one, other in product(CELLS, memory)}
    assert not novas.places({"resources": "VCPU:2,MEMORY_MB:1024,DISK_GB:1", "required": "!HW_NUMA_ROOT"})
