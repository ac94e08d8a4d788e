"""Stock that nova-compute puts on the root again, beside that of the cells."""

from dataclasses import replace
from pathlib import Path

import pytest

from agent.audit.audit import witness
from agent.audit.decide.findings import Kind
from agent.sync.decide.layout import doubled_kinds
from agent.sync.decide.view import Wishes
from agent.sync.outcome import Status
from beds.one_host import OneHost
from drivers.facts import CpuMap, HostFacts
from drivers.policy import OF_CELLS, Layout, Policy
from hardware import host

TAKE_OVER = Wishes(take_over=True)


@pytest.fixture
def one(tmp_path: Path) -> OneHost:
    """A host with cells, after a nova-compute that started there."""
    one = OneHost(tmp_path, host(), Policy(layout="flat"))
    one.sync()
    stock = one.stock()
    one.reshape("numa")
    one.sync()
    for name in ("VCPU", "MEMORY_MB"):
        one.add_by_hand("", name, stock[name][0])
    return one


def test_a_host_in_any_layout_offers_nothing_twice(tmp_path: Path) -> None:
    layouts: tuple[Layout, ...] = ("flat", "devices", "numa")
    one = OneHost(tmp_path, host(), Policy(layout="flat"))
    for layout in layouts:
        one.reshape(layout)
        assert doubled_kinds(one.tree()) == ()


@pytest.mark.parametrize("layout", ["numa", "devices"])
def test_the_way_back_is_not_refused_as_a_loss(one: OneHost, layout: str) -> None:
    """On either side: the root keeps its stock in devices, and the cells keep theirs in numa."""
    outcome = one.sync(
        Wishes(take_over=True, reshape=True),
        policy=Policy(layout=layout),  # type: ignore[arg-type]
    )

    assert outcome.status is Status.CHANGED, outcome.notes
    assert doubled_kinds(one.tree()) == ()
    assert one.sync().status is Status.UNCHANGED


def test_a_host_that_lost_half_of_its_memory_besides_is_refused(one: OneHost) -> None:
    cells = tuple(replace(cell, memory_kib=cell.memory_kib // 2) for cell in one.facts.cells)

    outcome = one.sync(TAKE_OVER, facts=replace(one.facts, cells=cells))

    assert outcome.status is Status.UNSAFE
    assert "MEMORY_MB would shrink" in outcome.notes[0]


def half_placed(*gone: int) -> HostFacts:
    """A host with four CPUs in cells and five without a known cell, less those that are gone."""
    facts = host()
    online = frozenset(range(9)) - set(gone)
    cells = tuple(replace(cell, cpus=cell.cpus & online) for cell in facts.cells)
    return replace(facts, cpu_map=CpuMap(9, online), cells=cells)


@pytest.mark.parametrize("layout", OF_CELLS)
def test_cpus_without_a_cell_are_not_taken_for_those_in_cells(layout: Layout, tmp_path: Path) -> None:
    one = OneHost(tmp_path, half_placed(), Policy(layout=layout))
    one.sync()

    assert one.stock()["VCPU"] == (5, 0)
    assert [each for each in witness(one.node).findings if each.kind is Kind.TWICE_ON_OFFER] == []


@pytest.mark.parametrize("first", OF_CELLS)
@pytest.mark.parametrize("then", ["devices", "cells", "numa"])
@pytest.mark.parametrize("gone", [(0, 1, 2, 3), (4, 5, 6, 7)])
def test_a_loss_of_cpus_is_judged_the_same_where_half_of_them_have_no_cell(
    first: Layout, then: Layout, gone: tuple[int, ...], tmp_path: Path
) -> None:
    one = OneHost(tmp_path, half_placed(), Policy(layout=first))
    one.sync()

    lost = one.sync(Wishes(reshape=True), facts=half_placed(*gone), policy=Policy(layout=then))

    assert lost.status is Status.UNSAFE
    assert "VCPU would shrink from 9 to 5, more than 30%" in lost.notes[0]


@pytest.mark.parametrize("layout", ["numa", "devices"])
def test_what_nova_put_on_a_root_that_keeps_cpus_is_taken_back(layout: Layout, tmp_path: Path) -> None:
    """Nova writes all nine CPUs on the root, where five were: the cells' four are there twice."""
    one = OneHost(tmp_path, half_placed(), Policy(layout="numa"))
    one.sync()
    one.add_by_hand("", "VCPU", 9)
    one.add_by_hand("", "MEMORY_MB", 2001)
    assert doubled_kinds(one.tree()) == (frozenset({"VCPU", "PCPU"}), frozenset({"MEMORY_MB"}))

    outcome = one.sync(Wishes(take_over=True, reshape=True), policy=Policy(layout=layout))

    assert outcome.status is Status.CHANGED, outcome.notes
    assert sum(stock for stock, _ in (one.stock(name).get("VCPU", (0, 0)) for name in ("", "NUMA0", "NUMA1"))) == 9
