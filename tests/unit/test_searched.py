"""What a layout makes of a flavor without groups: how many candidates it has on one host."""

from dataclasses import replace

import pytest

from agent.command.doubts import plain_candidates, tell_more_searched, tell_searched
from drafts import ROOT, draft, stands
from reportclient.tree import Inventory, Provider, ProviderTree

DISK = replace(ROOT, inventories={"DISK_GB": Inventory(total=100)})


def cell(number: int, *, reserved: int = 0) -> Provider:
    stock = {"VCPU": Inventory(total=8), "MEMORY_MB": Inventory(total=1024, reserved=reserved)}
    return Provider(name=f"host_NUMA{number}", inventories=stock, parent="host")


CELLS = ProviderTree((DISK, cell(0), cell(1)))


@pytest.mark.parametrize(("cells", "count"), [(0, 1), (1, 1), (2, 4), (4, 16)])
def test_cpus_of_any_cell_are_combined_with_the_memory_of_any(cells: int, count: int) -> None:
    assert plain_candidates((DISK, *map(cell, range(cells)))) == count


def test_a_pool_that_is_all_reserved_gives_no_candidate() -> None:
    assert plain_candidates((DISK, cell(0), cell(1, reserved=1024))) == 2


def test_it_says_from_how_many_hosts_on_nova_does_not_see_all_and_what_to_set() -> None:
    (sentence,) = tell_searched(draft(desired=CELLS, layout="cells"))
    assert "has 4 candidates on host in the layout cells (2 providers of VCPU, 2 providers of MEMORY_MB)" in sentence
    assert "may not see all of more than 250 such hosts" in sentence
    assert "breadth-first and max_allocation_candidates = 1000" in sentence


def test_a_host_with_one_candidate_is_not_worth_a_word() -> None:
    assert tell_searched(draft()) == ()


def test_a_plan_is_told_of_it_only_where_it_makes_them_more() -> None:
    flat, cells = stands(ROOT), stands(*CELLS)
    assert tell_more_searched(draft(desired=CELLS, observed=flat, layout="cells"))
    assert tell_more_searched(draft(desired=CELLS, observed=cells, layout="cells")) == ()


def test_beside_nova_the_root_is_novas_matter() -> None:
    assert tell_searched(draft(desired=CELLS, beside=True)) == ()
