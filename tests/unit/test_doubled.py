"""Stock that nova-compute puts on the root again, beside that of the cells."""

from dataclasses import replace
from pathlib import Path

import pytest

from agent.sync.decide.doubled import doubled_kinds
from agent.sync.decide.view import Wishes
from agent.sync.outcome import Status
from beds.one_host import OneHost
from drivers.policy import Layout, Policy
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


def test_what_nova_put_on_the_root_again_is_offered_twice(one: OneHost) -> None:
    assert doubled_kinds(one.tree()) == (frozenset({"VCPU", "PCPU"}), frozenset({"MEMORY_MB"}))


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
